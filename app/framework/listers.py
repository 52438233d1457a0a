"""What a plugin may ask for nodes beyond those in its hand, in the words of kube-scheduler's listers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from app.framework.node_info import NodeInfo


class ImageState(Struct, frozen=True):
    """An image that is somewhere: ``nodes`` have it, and it has ``size`` bytes.

    Where nodes differ in that, as nodes of different architectures do, it is the size on the one that is known longest.
    """

    size: int
    nodes: int


class NodeLister(Protocol):
    """The nodes of the picture with the pods on them, as the pod under evaluation is to see them.

    What it gives is live: valid until the next ``await``, and within the evaluation in which it was asked for.
    """

    def list(self) -> Collection[NodeInfo]:
        """All nodes. One that cannot be read any more is there in the last form that could."""
        ...

    def get(self, name: str) -> NodeInfo | None:
        """The node of this name; ``None`` if there is none. Raises ``Unreadable`` for one that cannot be read."""
        ...

    def uses_of_claim(self, namespace: str, name: str) -> int:
        """How many volumes of pods on nodes of the picture name the claim. Those of ephemeral volumes are not named.

        Raises ``NotDecoded`` where no plugin declares ``Part.VOLUMES``.
        """
        ...

    @property
    def mounts_generation(self) -> int:
        """Moves whenever a pod with volumes that matter comes to a node or leaves it (``Part.VOLUMES``)."""
        ...

    @property
    def generation(self) -> int:
        """Moves whenever a node comes, goes or changes in anything that is read of it, its version apart.

        What was derived from Node objects alone is right as long as it stands still: heartbeats do not move it, nor do
        pods.
        """
        ...

    def images(self, names: Iterable[str]) -> Mapping[str, ImageState]:
        """Those of the images that a node has (``Part.IMAGES``), by name."""
        ...
