"""What is kept of nodes for plugins that declare it: what their pods take together, and where which images are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Final, Protocol

from app.framework.listers import ImageState
from app.framework.node_info import NodeInfo
from app.framework.resources import Totals, add
from app.kube.core_v1 import Node, Pod
from app.kube.extras import Extra, NotDecoded

KEPT: Final = frozenset((Extra.RESOURCES, Extra.PORTS, Extra.IMAGES, Extra.VOLUMES))
"""The parts of which something is kept: where no plugin declares one of them, there is nothing to keep."""

_TOTALS_DIFFER: Final = "what pods take of their nodes differs from a recount"
_IMAGES_DIFFER: Final = "nodes by image differ from a recount"
_SIZES_DIFFER: Final = "the nodes by which images have their size differ from a recount"


class PodIndex(Protocol):
    """Something derived from the pods on nodes, kept up to date by the picture, which tells it of every change.

    Of a pod it reads namespace and spec: a pod that stays on its node with the same spec is not told of.
    """

    def pod(self, pod: Pod, node: str, delta: int) -> None:
        """A pod came to (1) or left (-1) ``node``, which the picture need not know. Terminating pods stay."""
        ...

    def node(self, name: str, old: Node | None, new: Node | None) -> None:
        """A node was added (``old`` is None) with the pods that are there, changed, or removed (``new`` is None)."""
        ...


class CheckedIndex(PodIndex, Protocol):
    """An index that can be held against the node infos."""

    def differences(self) -> Iterator[str]:
        """What differs from a recount, in words; empty for each step in which nothing does.

        Between steps everything may change.
        """
        ...


class _ImageRecount:
    """Nodes by image counted anew, while nodes come and go."""

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
    """An ``PodIndex``: keeps the totals of the node infos of a picture, and how many nodes have an image.

    Of an image whose size was asked for it remembers the first node that has it, in the order of the nodes.
    """

    def __init__(self, nodes: Mapping[str, NodeInfo], extras: Collection[Extra]) -> None:
        """``extras`` says what is decoded of pods and nodes, hence kept."""
        self._nodes = nodes
        self._extras = extras
        self._by_image: dict[str, int] = {}
        self._first_with: dict[str, str] = {}
        self._recounts: list[_ImageRecount] = []

    def nodes_with_image(self, name: str) -> int:
        """How many nodes have an image. Raises ``NotDecoded`` where no plugin declares ``Part.IMAGES``."""
        if Extra.IMAGES not in self._extras:
            raise NotDecoded(Extra.IMAGES)
        return self._by_image.get(name, 0)

    def images(self, names: Iterable[str]) -> Mapping[str, ImageState]:
        """Those of the images that a node has. Raises ``NotDecoded`` where no plugin declares ``Part.IMAGES``."""
        counts = {name: count for name in names if (count := self.nodes_with_image(name))}
        self._look_for(counts.keys() - self._first_with.keys())
        return {
            name: ImageState(self._nodes[self._first_with[name]].images[name], count) for name, count in counts.items()
        }

    def _look_for(self, images: Set[str]) -> None:
        """Note the first node that has each of ``images``, all of which are somewhere."""
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
        """A node that is new stands behind all others; one that changed may now be the first that has an image."""
        if old is None or not self._first_with:
            return
        images = old.images.keys() if new is None else old.images.keys() ^ new.images.keys()
        for image in images & self._first_with.keys():
            if new is not None or self._first_with[image] == name:
                del self._first_with[image]

    def differences(self) -> Iterator[str]:
        """What differs from a recount, in words; empty for each step in which nothing does.

        Between steps everything may change.
        """
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
