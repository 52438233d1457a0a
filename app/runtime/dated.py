"""What is derived from nodes for the pods of one signature with one plugin, and when it no longer stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from app.framework.spec import Reads
from app.kube.core_v1 import Pod
from app.runtime.picture import Picture
from app.runtime.recent import Recent, size_of
from app.runtime.slots import PluginSlot, pod_parts

ENTRY_BYTES: Final = 2000
NAME_BYTES: Final = 60
"""Of a name in a set or dictionary that is never full; the name itself is the picture's."""

STEP: Final = 512
"""Nodes looked at in one step where there are too many for one."""

PIECE: Final = 64
"""Nodes compared in one step of a check."""

_MOST_AT_ONCE: Final = 8192
"""Answers of plugins in one step of the event loop: some milliseconds."""

_LIGHT: Final = 4 << 10
"""Bytes of a pod's part by which a node is judged in next to no time."""

_BYTES_AT_ONCE: Final = 5 << 20
"""Of heavier parts, such as hundreds of affinity terms: bytes times nodes in one step. 64 KiB as a pod has them are 400
KiB here, and up to a millisecond a node.
"""

_FEWEST_AT_ONCE: Final = 8


class Dated:
    """Something derived from nodes. ``pods``: from the pods on them too."""

    __slots__ = ("_node_seen", "_pod_seen", "pods")

    def __init__(self, picture: Picture, *, pods: bool) -> None:
        self.pods = pods
        self._node_seen = picture.node_changes.now
        self._pod_seen = picture.pod_changes.now if pods else 0

    def changed(self, picture: Picture) -> Iterable[str] | None:
        """The nodes that changed since this was asked last; ``None``: not known."""
        if not self.pods:
            if self._node_seen == picture.node_changes.now:
                return ()
        elif (self._node_seen, self._pod_seen) == (picture.node_changes.now, picture.pod_changes.now):
            return ()
        found = picture.node_changes.since(self._node_seen)
        self._node_seen = picture.node_changes.now
        if not self.pods or found is None:
            self._pod_seen = picture.pod_changes.now
            return found
        others = picture.pod_changes.since(self._pod_seen)
        self._pod_seen = picture.pod_changes.now
        return None if others is None else {*found, *others}


class OfPlugin(Dated):
    """What one plugin says of nodes, for the pods of one signature. ``pod`` is what it sees of them.

    ``objects``: what it stands by, of the kinds that the plugin declares.
    """

    __slots__ = ("_size", "key", "objects", "pod", "slot")

    def __init__(self, key: Hashable, slot: PluginSlot, pod: Pod, objects: Hashable, picture: Picture) -> None:
        super().__init__(picture, pods=slot.reads is Reads.PODS_ON_NODE)
        self._size = size_of(key)
        self.key = key
        self.slot = slot
        self.pod = pod
        self.objects = objects

    def weight(self) -> int:
        """Bytes, as estimated."""
        return ENTRY_BYTES + self._size

    def at_once(self) -> int:
        """How many nodes the plugin can look at in one step, if no other does."""
        if self._size <= _LIGHT:
            return _MOST_AT_ONCE
        return max(_FEWEST_AT_ONCE, _BYTES_AT_ONCE // self._size)


E = TypeVar("E", bound=OfPlugin)


class Entries:
    """Finds what is kept of a plugin for a pod. ``objects`` moves with those of all kinds that the plugin declares."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture

    def _entry(
        self,
        form: type[E],
        entries: Recent[Hashable, E],
        slot: PluginSlot,
        pod: Pod,
        held: Mapping[Hashable, E] = {},
        beside: Sequence[Pod] = (),
    ) -> E:
        parts = slot.parts or pod_parts(None)
        key: Hashable = (slot.name, parts.signature(pod))
        if beside:
            key = (key, frozenset(Counter(map(parts.signature, beside)).items()))
        objects = self._objects(slot)
        found = entries.get(key) or held.get(key)
        if found is None or found.objects != objects:
            found = form(key, slot, parts.view(pod), objects, self._picture)
            entries.put(key, found, found.weight())
        return found

    def _objects(self, slot: PluginSlot) -> Hashable:
        return tuple(map(self._picture.kind_version, slot.kinds)) if slot.kinds else ()


def step_of(each: Iterable[OfPlugin]) -> int:
    """How many nodes all of them can look at in one step."""
    shares = sum(1 / kept.at_once() for kept in each)
    return max(1, min(STEP, int(1 / shares))) if shares else STEP
