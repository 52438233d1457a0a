"""Totals of the pods on each node, and the number of nodes that have each image.

They are computed only from parts of pods and nodes that a plugin declares, see ``AGGREGATED``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Final, Protocol

from app.framework.listers import ImageState
from app.framework.node_info import NodeInfo
from app.framework.resources import Totals, add
from app.kube.core_v1 import Node, Pod
from app.kube.extras import Extra, NotDecoded

AGGREGATED: Final = frozenset((Extra.RESOURCES, Extra.PORTS, Extra.IMAGES, Extra.VOLUMES))
"""Parts of pods and nodes that are aggregated here. If no plugin declares any of them, nothing is aggregated."""

_TOTALS_DIFFER: Final = "totals of pods by node differ from a recount"
_IMAGES_DIFFER: Final = "numbers of nodes by image differ from a recount"
_FIRST_NODES_DIFFER: Final = "first nodes of images differ from a recount"


class PodIndex(Protocol):
    """Data derived from the pods on nodes. The cluster cache calls its methods when pods and nodes change.

    ``pod`` is not called if node and spec of a pod stay the same. If only its labels change, only ``Terms.relabelled``
    is called.
    """

    def pod(self, pod: Pod, node: str, delta: int) -> None:
        """Add (``delta`` 1) or remove (-1) a pod on ``node``, which can be unknown. Terminating pods are included."""
        ...

    def node(self, name: str, old: Node | None, new: Node | None) -> None:
        """Apply a change of a node. ``old`` is ``None`` if it was added, ``new`` is ``None`` if it was deleted.

        Pods can be on a node before it is added.
        """
        ...


class CheckedIndex(PodIndex, Protocol):
    """Index that can be checked: it is compared with a recount of the node infos."""

    def differences(self) -> Iterator[str]:
        """Compare the index with a recount, in steps. Each step yields a sentence on a difference, or ``""``.

        The cluster can change between the steps.
        """
        ...


class _ImageRecount:
    """Recount of the nodes that have each image.

    ``see`` counts each node once, and ``changed`` applies changes. So the recount is exact even if nodes change before
    all are counted.
    """

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
    """Index that updates the totals of node infos and counts the nodes with each image. Implements ``CheckedIndex``.

    If nodes report different sizes of an image, the size on its first node is used: the earliest of ``nodes`` that has
    the image. The first node of each requested image is cached.
    """

    def __init__(self, nodes: Mapping[str, NodeInfo], extras: Collection[Extra]) -> None:
        """``nodes``: node infos of the cluster cache. ``extras``: decoded parts; only these can be aggregated."""
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
        """Return the size of each of these images, and the number of nodes that have it. Images on no node are omitted.

        The size is that on the first node of the image. Raises ``NotDecoded`` without ``Part.IMAGES``.
        """
        counts = {name: count for name in names if (count := self.nodes_with_image(name))}
        self._find_first_nodes(counts.keys() - self._first_with.keys())
        return {
            name: ImageState(self._nodes[self._first_with[name]].images[name], count) for name, count in counts.items()
        }

    def _find_first_nodes(self, images: Set[str]) -> None:
        """Cache the first node of each of ``images``. Every image must be on a node."""
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
        """Drop the cached first node of each image for which this change of a node can make another node the first.

        An added node is the last in the order, so nothing is dropped. A changed node can become the first node of a new
        image, or stop being the first node of a removed image.
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
                yield "" if self._first_with.get(image, first) == first else _FIRST_NODES_DIFFER
        finally:
            self._recounts.remove(recount)
