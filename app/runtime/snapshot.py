"""Interfaces of the snapshot that the engine needs, besides those that plugins reach through their ``Handle``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from app.framework.node_info import NodeInfo
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from app.kube.meta_v1 import ObjectKey


class NodeJournal(Protocol):
    """Journal of changed nodes."""

    @property
    def now(self) -> int:
        """Number that increases with every change."""
        ...

    def since(self, seen: int) -> Sequence[str] | None:
        """Return the nodes that changed since ``now`` had the value ``seen``, deleted ones included; ``None`` if the
        journal no longer has all these changes.
        """
        ...


class Snapshot(Protocol):
    """Homeport's copy of the cluster, as the engine reads it: nodes, and journals of their changes."""

    @property
    def nodes(self) -> Mapping[str, NodeInfo]: ...

    @property
    def base_nodes(self) -> Mapping[str, NodeInfo]:
        """Nodes as cached verdicts see them. ``nodes`` can differ; for example, it omits the pod under evaluation."""
        ...

    @property
    def overlaid_nodes(self) -> Collection[str]:
        """Names of the nodes that differ between ``nodes`` and ``base_nodes``."""
        ...

    @property
    def node_changes(self) -> NodeJournal:
        """Journal of nodes that were added, deleted or changed, or have an expired verdict.

        Changes of the resourceVersion and of fields that are not decoded do not count.
        """
        ...

    @property
    def pod_changes(self) -> NodeJournal:
        """Journal of nodes whose pods were added, removed, or changed in a field that plugins see."""
        ...

    def place_of(self, uid: str, key: ObjectKey) -> str:
        """Return the name of the pod's node; empty if the pod is unknown, has another UID, or is on no node."""
        ...

    def ends(self, node: str, plugin: str, until: float) -> None:
        """Report the node as changed at ``until`` (seconds since 1970), because a verdict of the plugin
        expires then.
        """
        ...

    def kind_version(self, kind: Kind[Any]) -> int:
        """Return a number that changes with every change of an object of the kind, in any namespace."""
        ...


class Nominations(Protocol):
    """Pending pods that are nominated to nodes; filters must take them into account."""

    def nominated(self, node_name: str) -> Collection[Pod]:
        """Return the pending pods that are nominated to the node, or have a reserved place on it."""
        ...

    @property
    def nominated_nodes(self) -> Collection[str]:
        """Names of the nodes for which ``nominated`` returns at least one pod."""
        ...

    @property
    def generation(self) -> int:
        """Number that changes with every change of the snapshot, except if an assumed pod is accepted or confirmed."""
        ...
