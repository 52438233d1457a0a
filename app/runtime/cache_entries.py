"""Base of cache entries that a plugin derives from nodes for pods of one signature, and their invalidation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from app.framework.spec import Reads
from app.kube.core_v1 import Pod
from app.runtime.lru_cache import LruCache, size_of
from app.runtime.slots import PluginSlot, declared_parts
from app.runtime.snapshot import Snapshot

ENTRY_BYTES: Final = 2000
"""Estimated bytes of an entry without its names and key."""

NAME_BYTES: Final = 60
"""Estimated bytes per name in a set or dictionary; the string itself belongs to the snapshot."""

STEP: Final = 512
"""Maximum number of nodes evaluated in one step if there are too many for a single step."""

PIECE: Final = 64
"""Nodes compared in one step of a check."""

_MOST_AT_ONCE: Final = 8192
"""Maximum number of plugin answers in one step of the event loop: some milliseconds."""

_LIGHT: Final = 4 << 10
"""Maximum size in bytes of pod parts with which evaluating a node takes negligible time."""

_BYTES_AT_ONCE: Final = 5 << 20
"""Maximum of bytes times nodes in one step for larger parts, such as hundreds of affinity terms. 64 KiB in a pod are
400 KiB by this estimate, and take up to a millisecond a node.
"""

_FEWEST_AT_ONCE: Final = 8
"""Minimum number of nodes in one step, however large the pod is."""


class CacheEntry:
    """Cache entry derived from nodes and, with ``pods``, from the pods on them."""

    __slots__ = ("_node_seen", "_pod_seen", "pods")

    def __init__(self, snapshot: Snapshot, *, pods: bool) -> None:
        self.pods = pods
        self._node_seen = snapshot.node_changes.now
        self._pod_seen = snapshot.pod_changes.now if pods else 0

    def changed(self, snapshot: Snapshot) -> Iterable[str] | None:
        """Return the nodes that changed since the last call; ``None`` if that is not known."""
        if not self.pods:
            if self._node_seen == snapshot.node_changes.now:
                return ()
        elif (self._node_seen, self._pod_seen) == (snapshot.node_changes.now, snapshot.pod_changes.now):
            return ()
        nodes = snapshot.node_changes.since(self._node_seen)
        self._node_seen = snapshot.node_changes.now
        if not self.pods or nodes is None:
            self._pod_seen = snapshot.pod_changes.now
            return nodes
        others = snapshot.pod_changes.since(self._pod_seen)
        self._pod_seen = snapshot.pod_changes.now
        return None if others is None else {*nodes, *others}


class PluginEntry(CacheEntry):
    """Cached answers of one plugin about nodes, for pods of one signature. ``pod`` is the plugin's view of such a pod.

    ``objects``: versions of the plugin's declared kinds for which the answers hold.
    """

    __slots__ = ("_size", "key", "objects", "pod", "slot")

    def __init__(self, key: Hashable, slot: PluginSlot, pod: Pod, objects: Hashable, snapshot: Snapshot) -> None:
        super().__init__(snapshot, pods=slot.reads is Reads.PODS_ON_NODE)
        self._size = size_of(key)
        self.key = key
        self.slot = slot
        self.pod = pod
        self.objects = objects

    def weight(self) -> int:
        """Return the estimated size in bytes."""
        return ENTRY_BYTES + self._size

    def at_once(self) -> int:
        """Return the maximum number of nodes in one step if only this plugin runs in it."""
        if self._size <= _LIGHT:
            return _MOST_AT_ONCE
        return max(_FEWEST_AT_ONCE, _BYTES_AT_ONCE // self._size)


E = TypeVar("E", bound=PluginEntry)


class PluginCache:
    """Lookup of the cache entry of a plugin for a pod. A change of an object of a declared kind replaces the entry."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def _entry(
        self,
        form: type[E],
        entries: LruCache[Hashable, E],
        slot: PluginSlot,
        pod: Pod,
        held: Mapping[Hashable, E] = {},
        beside: Sequence[Pod] = (),
    ) -> E:
        parts = slot.parts or declared_parts(None)
        key: Hashable = (slot.name, parts.signature(pod))
        if beside:
            key = (key, frozenset(Counter(map(parts.signature, beside)).items()))
        objects = self._objects(slot)
        entry = entries.get(key) or held.get(key)
        if entry is None or entry.objects != objects:
            entry = form(key, slot, parts.view(pod), objects, self._snapshot)
            entries.put(key, entry, entry.weight())
        return entry

    def _objects(self, slot: PluginSlot) -> Hashable:
        return tuple(map(self._snapshot.kind_version, slot.kinds)) if slot.kinds else ()


def step_size(entries: Iterable[PluginEntry]) -> int:
    """Return the maximum number of nodes in one step if all these plugins run in it."""
    shares = sum(1 / entry.at_once() for entry in entries)
    return max(1, min(STEP, int(1 / shares))) if shares else STEP
