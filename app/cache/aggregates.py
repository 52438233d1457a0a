"""Totals of the pods on each node, and the nodes that have each image, for plugins that declare the parts they read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Final, Protocol

from app.framework.listers import ImageState
from app.framework.node_info import NodeInfo
from app.framework.resources import Totals, add
from app.kube.core_v1 import Node, Pod
from app.kube.extras import Extra, NotDecoded

AGGREGATED: Final = frozenset((Extra.RESOURCES, Extra.PORTS, Extra.IMAGES, Extra.VOLUMES))
"""Parts that are aggregated here. If no plugin declares any of them, no aggregates are computed."""

_TOTALS_DIFFER: Final = "what pods take of their nodes differs from a recount"
_IMAGES_DIFFER: Final = "nodes by image differ from a recount"
_SIZES_DIFFER: Final = "the nodes by which images have their size differ from a recount"


class PodIndex(Protocol):
    """Data derived from the pods on nodes; the cluster cache calls it for every change.

    An index reads namespace and spec of a pod, so it is not called for a pod that stays on its node with equal spec.
    """

    def pod(self, pod: Pod, node: str, delta: int) -> None:
        """Add (``delta`` 1) or remove (-1) a pod on ``node``, which may be unknown. Terminating pods are included."""
        ...

    def node(self, name: str, old: Node | None, new: Node | None) -> None:
        """Apply a change of a node. ``old`` is None if it was added, ``new`` is None if it was deleted.

        An added node can have pods already.
        """
        ...


class CheckedIndex(PodIndex, Protocol):
    """Index that can be verified against the node infos."""

    def differences(self) -> Iterator[str]:
        """Compare with a recount in steps; each step yields a sentence that names a difference, or ``""``.

        The cluster can change between the steps.
        """
        ...


class _ImageRecount:
    """Recount of the nodes that have each image, which stays exact while nodes change."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self._seen: set[str] = set()

    def see(self, node: Node) -> None:
        if node.name not in self._seen:
            self._seen.add(node.name)
            add(dict.fromkeys(node.images, 1), self.nodes)

    def changed(self, name: str, old: Node | None, new: Node | None) -> None:
        if old is not None and name in self._seen:
            add(dict.fromkeys(old.images, 1), self.nodes, -1)
        self._seen.add(name)
        if new is not None:
            add(dict.fromkeys(new.images, 1), self.nodes)


class Aggregates:
    """Totals of the node infos, and the number of nodes that have each image. Implements ``CheckedIndex``.

    For each image whose size has been requested, the first node that has it is cached, in the order of the nodes.
    """

    def __init__(self, nodes: Mapping[str, NodeInfo], extras: Collection[Extra]) -> None:
        """``extras``: parts of pods and nodes that are decoded, and aggregated here."""
        self._nodes = nodes
        self._extras = extras
        self._by_image: dict[str, int] = {}
        self._first_with: dict[str, str] = {}
        self._recounts: list[_ImageRecount] = []

    def nodes_with_image(self, name: str) -> int:
        """Return the number of nodes that have an image. Raises ``NotDecoded`` without ``Part.IMAGES``."""
        if Extra.IMAGES not in self._extras:
            raise NotDecoded(Extra.IMAGES)
        return self._by_image.get(name, 0)

    def images(self, names: Iterable[str]) -> Mapping[str, ImageState]:
        """Return size and number of nodes of each image that any node has.

        The size is that on the node that has been known longest. Raises ``NotDecoded`` without ``Part.IMAGES``.
        """
        counts = {name: count for name in names if (count := self.nodes_with_image(name))}
        self._look_for(counts.keys() - self._first_with.keys())
        return {
            name: ImageState(self._nodes[self._first_with[name]].images[name], count) for name, count in counts.items()
        }

    def _look_for(self, images: Set[str]) -> None:
        """Cache the first node that has each of ``images``; every image must be on some node."""
        if not images:
            return
        left = set(images)
        for node, info in self._nodes.items():
            for image in left & info.images.keys():
                self._first_with[image] = node
                left.discard(image)
            if not left:
                return

    def pod(self, pod: Pod, node: str, delta: int) -> None:
        info = self._nodes.get(node)
        if info is not None:
            info.totals.add(pod, delta)

    def node(self, name: str, old: Node | None, new: Node | None) -> None:
        if old is None:
            info = self._nodes[name]
            info.keep(Totals(self._extras, info.pods.values()))
        if Extra.IMAGES in self._extras:
            self._move_images(name, old, new)

    def _move_images(self, name: str, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and old.images == new.images:
            return
        for recount in self._recounts:
            recount.changed(name, old, new)
        if old is not None:
            add(dict.fromkeys(old.images, 1), self._by_image, -1)
        if new is not None:
            add(dict.fromkeys(new.images, 1), self._by_image)
        self._forget_first(name, old, new)

    def _forget_first(self, name: str, old: Node | None, new: Node | None) -> None:
        """Drop cached first nodes that a change can make wrong.

        An added node is the last in the order. A changed node can be the first that has its new images.
        """
        if old is None or not self._first_with:
            return
        images = old.images.keys() if new is None else old.images.keys() ^ new.images.keys()
        for image in images & self._first_with.keys():
            if new is not None or self._first_with[image] == name:
                del self._first_with[image]

    def differences(self) -> Iterator[str]:
        recount = _ImageRecount()
        self._recounts.append(recount)
        try:
            for name in tuple(self._nodes):
                info = self._nodes.get(name)
                if info is not None:
                    if Extra.IMAGES in self._extras:
                        recount.see(info.node)
                    yield "" if info.totals == Totals(self._extras, info.pods.values()) else _TOTALS_DIFFER
            yield "" if self._by_image == recount.nodes else _IMAGES_DIFFER
            for image in tuple(self._first_with):
                first = next((name for name, info in self._nodes.items() if image in info.images), "")
                yield "" if self._first_with.get(image, first) == first else _SIZES_DIFFER
        finally:
            self._recounts.remove(recount)
