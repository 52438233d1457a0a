"""What the engine asks of the snapshot, beside what plugins ask of it through their ``Handle``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from app.kube.meta_v1 import ObjectKey


class NodeChanges(Protocol):
    """Which nodes changed since when."""

    @property
    def now(self) -> int:
        """Moves with every change."""
        ...

    def since(self, seen: int) -> Sequence[str] | None:
        """The nodes that changed since ``now`` was ``seen``, those that are gone included; ``None``: not known."""
        ...


class Snapshot(Protocol):
    """Nodes, and what has changed of them."""

    @property
    def nodes(self) -> Mapping[str, NodeInfo]: ...

    @property
    def base_nodes(self) -> Mapping[str, NodeInfo]:
        """The same as they are whatever pod is judged: ``nodes`` leaves that pod out. What is kept rests on these."""
        ...

    @property
    def overlaid_nodes(self) -> Collection[str]:
        """The nodes that ``nodes`` shows otherwise."""
        ...

    @property
    def node_changes(self) -> NodeChanges:
        """Nodes that came, went, or of which something other than the resourceVersion changed."""
        ...

    @property
    def pod_changes(self) -> NodeChanges:
        """Nodes with other pods than before, or with pods of which something changed."""
        ...

    def place_of(self, uid: str, key: ObjectKey) -> str:
        """The node on which the snapshot has the pod; empty for none."""
        ...

    def ends(self, node: str, plugin: str, until: float) -> None:
        """Have the node count as changed at ``until``, in seconds since 1970: a verdict of the plugin ends then."""
        ...

    def kind_version(self, kind: Kind[Any]) -> int:
        """Moves whenever an object of the kind does, in whatever namespace."""
        ...


class Nominations(Protocol):
    """Pending pods that are nominated to a node, which filters must take into account."""

    def nominated(self, node_name: str) -> Collection[Pod]: ...

    @property
    def nominated_nodes(self) -> Collection[str]: ...

    @property
    def generation(self) -> int:
        """Moves with every change of anything in the snapshot."""
        ...
