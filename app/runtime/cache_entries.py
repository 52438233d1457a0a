"""Base classes of the caches of verdicts and scores. A ``PluginEntry`` has the results of one plugin on nodes, and is
valid for all pods of one signature.

A signature is a hashable value of the pod parts that the plugin declares. This module invalidates entries and limits
the work in one step.
"""

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
"""Estimated bytes per name in a set. A name with a number in a dictionary counts twice. The string itself belongs to
the snapshot.
"""

STEP: Final = 512
"""Maximum number of nodes evaluated in one step, once an evaluation must be divided into steps."""

PIECE: Final = 64
"""Maximum number of nodes in a step that checks cached results."""

_MOST_AT_ONCE: Final = 8192
"""Maximum number of nodes on which one plugin runs in one step. So many results take some milliseconds."""

_LIGHT: Final = 4 << 10
"""Largest estimated size in bytes of a pod's parts that does not make steps smaller (see ``_BYTES_AT_ONCE``)."""

_BYTES_AT_ONCE: Final = 5 << 20
"""Maximum product of the number of nodes and a pod's estimated bytes in one step. It applies to pods whose parts exceed
``_LIGHT``, for example with hundreds of affinity terms. A part of 64 KiB of JSON is estimated at 400 KiB, and takes up
to a millisecond per node.
"""

_FEWEST_AT_ONCE: Final = 8
"""Least value of ``PluginEntry.at_once``, however large the pod is. Steps with several plugins have fewer nodes."""


class CacheEntry:
    """Cache entry derived from nodes and, if ``pods`` is True, from the pods on them."""

    __slots__ = ("_node_seen", "_pod_seen", "pods")

    def __init__(self, snapshot: Snapshot, *, pods: bool) -> None:
        self.pods = pods
        self._node_seen = snapshot.node_changes.now
        self._pod_seen = snapshot.pod_changes.now if pods else 0

    def changed(self, snapshot: Snapshot) -> Iterable[str] | None:
        """Return the nodes that changed since the last call, or since the entry was created; ``None`` if any node can
        have changed, because the journal no longer has all changes.
        """
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
    """Cached results of one plugin on nodes, valid for all pods of one signature. ``pod``: such a pod, as the plugin
    sees it.

    ``key``: identifies the plugin, the signature and the hypothetical pods, if any. ``objects``:
    ``kind_version`` of each kind that the plugin declares; once one changes, the results are invalid.
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
        """Return the maximum number of nodes in a step in which only this plugin runs."""
        if self._size <= _LIGHT:
            return _MOST_AT_ONCE
        return max(_FEWEST_AT_ONCE, _BYTES_AT_ONCE // self._size)


E = TypeVar("E", bound=PluginEntry)


class PluginCache:
    """Base class of the caches. It finds the entry of a plugin for a pod. An entry is replaced once an object of a kind
    that the plugin declares has changed.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def _entry(
        self,
        form: type[E],
        entries: LruCache[Hashable, E],
        slot: PluginSlot,
        pod: Pod,
        held: Mapping[Hashable, E] = {},
        hypothetical: Sequence[Pod] = (),
    ) -> E:
        """Return the entry of the plugin for the pod's signature; create it if there is no valid one.

        ``form``: class of the entry. ``held``: entries that are used even if ``entries`` has evicted them.
        ``hypothetical``: pods that the entry assumes on every node; their signatures are part of the key.
        """
        parts = slot.parts or declared_parts(None)
        key: Hashable = (slot.name, parts.signature(pod))
        if hypothetical:
            key = (key, frozenset(Counter(map(parts.signature, hypothetical)).items()))
        objects = self._objects(slot)
        entry = entries.get(key) or held.get(key)
        if entry is None or entry.objects != objects:
            entry = form(key, slot, parts.view(pod), objects, self._snapshot)
            entries.put(key, entry, entry.weight())
        return entry

    def _objects(self, slot: PluginSlot) -> Hashable:
        """Return ``kind_version`` of each kind that the plugin declares."""
        return tuple(map(self._snapshot.kind_version, slot.kinds)) if slot.kinds else ()


def step_size(entries: Iterable[PluginEntry]) -> int:
    """Return the maximum number of nodes in a step in which the plugins of all these entries run."""
    shares = sum(1 / entry.at_once() for entry in entries)
    return max(1, min(STEP, int(1 / shares))) if shares else STEP
