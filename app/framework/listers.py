"""Access to all nodes of the snapshot, named like kube-scheduler's listers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from app.framework.node_info import NodeInfo


class ImageState(Struct, frozen=True):
    """Number of ``nodes`` that have an image, and its ``size`` in bytes.

    If the size differs between these nodes, for example by architecture, ``size`` is that on the one that has been in
    the snapshot longest.
    """

    size: int
    nodes: int


class NodeLister(Protocol):
    """Nodes of the snapshot with their pods, without the pod under evaluation.

    Results are live, so they are valid only within the evaluation and until the next ``await``.
    """

    def list(self) -> Collection[NodeInfo]:
        """Return all nodes. A node that cannot be decoded is returned in its last readable version, if it has one."""
        ...

    def get(self, name: str) -> NodeInfo | None:
        """Return the node of this name; ``None`` if there is none. Raises ``Unreadable`` for a node that cannot be
        read.
        """
        ...

    def uses_of_claim(self, namespace: str, name: str) -> int:
        """Return the number of volumes that name the claim, in the pods of all nodes of the snapshot. Ephemeral volumes
        are not counted.

        Raises ``NotDecoded`` if no plugin declares ``Part.VOLUMES``.
        """
        ...

    @property
    def mounts_generation(self) -> int:
        """Number that changes whenever a pod with claims or named disks joins or leaves a node (``Part.VOLUMES``).

        It also changes when a node is added or deleted.
        """
        ...

    @property
    def generation(self) -> int:
        """Number that changes when a node is added or deleted, or its decoded fields change, except resourceVersion.

        While it is unchanged, data derived from Node objects alone stays valid. Heartbeats and pods do not change it.
        """
        ...

    def images(self, names: Iterable[str]) -> Mapping[str, ImageState]:
        """Return, by name, the state of each image in ``names``, without images that no node has.

        Raises ``NotDecoded`` if no plugin declares ``Part.IMAGES``.
        """
        ...
