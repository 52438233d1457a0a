"""Cache of refusals: after every bind in the cluster, kube-scheduler sends every refused pod again.

A rejection is stored by plugin and *signature* (``Search.signatures``), which identifies all that the rejection
depends on. So pods of one workload share it, and nothing has to be invalidated: once anything relevant changes, the
signature differs. A node stays refused while the signature of one rejecting plugin is valid, whatever other plugins
would return. Only the reason that comes first can then differ from a new evaluation. As with kube-scheduler's queueing
hints, only the plugins that rejected are considered.

The rejection of a last filter also depends on the requested nodes and on those that passed. A node that passed can fail
later while all signatures stay the same, because they identify rejections only. So an answer in which a last filter
rejected a node is not stored. Stored rejections stay valid, because a node that some filter rejects is refused whatever
the last filters return.

A pod is answered from the cache if a rejection is valid for every requested name, in any order. The combined entries of
such an answer are stored by all signatures together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Final, Protocol

from msgspec import Struct

from app.cache.cluster import Cluster
from app.framework.counts import Unprepared
from app.framework.status import Status, distinct
from app.kube.core_v1 import Pod
from app.memory.recent_refusals import Cause, causes_of, merge_causes
from app.runtime.framework import Framework
from app.runtime.lru_cache import LruCache, size_of
from app.runtime.search import ALL_PLUGINS
from app.wire.extender_answers import encode_refusal, encode_refusals
from app.wire.extender_v1 import SplitArgs

_MOST_POD_BYTES: Final = 32 << 20
_MOST_VERDICT_BYTES: Final = 30 << 20
"""Maximum bytes of rejections by plugin, and the same of combined refusals."""

_VERDICT_BYTES: Final = 1000
_NAME_BYTES: Final = 100
"""Bytes of a verdict besides its last answer. Entries of names are shared (``_MOST_ENTRIES``)."""

_MOST_ENTRIES: Final = 1 << 17
"""Maximum number of entries of all reasons together: 5,000 nodes with 26 reasons, some 25 MB."""


class RefusalCounter(Protocol):
    """Counter, increased for each refusal."""

    def inc(self) -> None: ...


Refused = Callable[[Pod, str, tuple[Cause, ...]], None]
"""Callback for each refusal: the pod, the profile, and the plugins and reasons that refused nodes."""


def _ignore_refusal(_pod: Pod, _profile: str, _causes: tuple[Cause, ...]) -> None:
    """Default callback: does nothing."""


class RefusedPod(Struct, frozen=True):
    """Request about a pod that was refused before."""

    pod: Pod
    framework: Framework
    request: SplitArgs


class _Entries(dict[bytes, bytes]):
    """Encoded entries of one reason by node name, created on first use."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self._message = message

    def __missing__(self, name: bytes) -> bytes:
        made = self[name] = encode_refusal(name, self._message)
        return made


class _Rejections:
    """Nodes that one plugin rejected at one signature, with their encoded entries."""

    __slots__ = ("causes", "entries")

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.causes: tuple[Cause, ...] = ()

    def weight(self) -> int:
        """Return the size in bytes."""
        return _VERDICT_BYTES + _NAME_BYTES * len(self.entries)


class _Refusal:
    """Nodes refused by any of the ``parts``, and the last answer with its names.

    kube-scheduler mostly sends the names in a different order each time.
    """

    __slots__ = ("_body", "_names", "causes", "entries")

    def __init__(self, parts: Sequence[_Rejections]) -> None:
        """Combine ``parts``; the first one takes precedence for a node. Entries of a single part are shared."""
        self.entries: dict[bytes, bytes] = parts[0].entries if len(parts) == 1 else {}
        if len(parts) > 1:
            for part in reversed(parts):
                self.entries.update(part.entries)
        self.causes: tuple[Cause, ...] = reduce(merge_causes, (part.causes for part in parts))
        self._names: bytes | None = None
        self._body = b""

    def answer(self, request: SplitArgs) -> bytes | None:
        """Return the encoded answer; ``None`` if a name has no entry."""
        if request.names != self._names:
            try:
                self._body = encode_refusals(map(self.entries.__getitem__, request.each()))
            except KeyError:
                return None
            self._names = request.names
        return self._body

    def weight(self, request: SplitArgs) -> int:
        """Return the size in bytes; ``request`` has the names of the last answer, with an entry for each.

        A name can lack an entry: with little memory, rejections of one plugin evict those of another.
        """
        names = request.each()
        body = sum(len(self.entries.get(name, b"")) for name in names) + len(names)
        return _VERDICT_BYTES + _NAME_BYTES * len(self.entries) + len(request.names) + body


class RefusalCache:
    """Cache of refusals, limited in bytes: least recently used pods and verdicts are evicted.

    ``remembered`` counts refusals answered from the cache, ``computed`` the others; ``refused`` is called for all.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        remembered: RefusalCounter,
        computed: RefusalCounter,
        refused: Refused = _ignore_refusal,
        most_verdict_bytes: int = _MOST_VERDICT_BYTES,
        most_pod_bytes: int = _MOST_POD_BYTES,
    ) -> None:
        self._cluster = cluster
        self._remembered = remembered
        self._computed = computed
        self._refused = refused
        self._pods: LruCache[bytes, tuple[Pod, Framework]] = LruCache(most_pod_bytes)
        self._rejections: LruCache[Hashable, _Rejections] = LruCache(most_verdict_bytes)
        self._refusals: LruCache[Hashable, _Refusal] = LruCache(most_verdict_bytes)
        self._entries: dict[str, _Entries] = {}

    def find(self, request: SplitArgs) -> RefusedPod | None:
        """Return the pod of a filter request if the same request was refused before; the request is not decoded."""
        known = self._pods.get(request.before)
        return None if known is None else RefusedPod(*known, request)

    def answer(self, refused_pod: RefusedPod) -> bytes | None:
        """Return the refusal if all requested names are known to be refused; ``None`` if it must be computed.

        Raises ``PluginError``.
        """
        profile = refused_pod.framework.scheduler_name
        signatures = self._signatures(refused_pod.framework, refused_pod.pod)
        key = (profile, *signatures.items())
        parts = self._valid_rejections(profile, signatures)
        if not parts:
            return None
        refusal = self._refusals.get(key) or _Refusal(parts)
        body = refusal.answer(refused_pod.request)
        if body is not None:
            if key not in self._refusals:
                self._refusals.put(key, refusal, refusal.weight(refused_pod.request) + size_of(key))
            self._remembered.inc()
            self._refused(refused_pod.pod, profile, refusal.causes)
        return body

    def keep(
        self,
        request: SplitArgs | None,
        framework: Framework,
        pod: Pod,
        names: Sequence[str],
        rejected: Mapping[str, Status],
        *,
        lasts: bool = True,
    ) -> None:
        """Store that all of ``names`` were rejected. Call it in the same step of the event loop as the evaluation.

        Stores nothing unless it ``lasts`` (``SearchResult``). Raises ``PluginError``.
        """
        self._computed.inc()
        profile = framework.scheduler_name
        by_id = distinct(rejected.values())
        self._refused(pod, profile, causes_of(by_id.values()))
        if request is None or not lasts or not request.are(names):
            return
        signatures = self._signatures(framework, pod)
        by_plugin = _by_plugin(by_id)
        if not signatures.keys() >= by_plugin.keys():
            return  # a plugin without a signature rejected: the pod cannot be cached
        each = request.each()
        statuses = list(map(rejected.__getitem__, names))
        entries = list(self._encoded(each, statuses, by_id))
        for plugin, those in by_plugin.items():
            self._add((profile, plugin, signatures[plugin]), zip(each, map(id, statuses), entries, strict=True), those)
        parts = self._valid_rejections(profile, signatures)
        if not parts:
            return
        refusal = _Refusal(parts)
        if all(map(refusal.entries.__contains__, each)):  # false if some were evicted at once
            key = (profile, *signatures.items())
            self._refusals.put(key, refusal, refusal.weight(request) + size_of(key))
            self._pods.put(request.before, (pod, framework), len(request.before))

    def _valid_rejections(self, profile: str, signatures: Mapping[str, Hashable]) -> list[_Rejections]:
        """Return the valid rejections, in the order of the plugins."""
        rejections = (self._rejections.get((profile, *signature)) for signature in signatures.items())
        return [it for it in rejections if it is not None]

    def _add(self, key: Hashable, each: Iterable[tuple[bytes, int, bytes]], those: Mapping[int, Status]) -> None:
        """Add the rejections of one plugin. ``each``: name, id of its status, and its encoded entry."""
        part = self._rejections.get(key) or _Rejections()
        part.entries.update((name, entry) for name, status, entry in each if status in those)
        part.causes = merge_causes(part.causes, causes_of(those.values()))
        self._rejections.put(key, part, part.weight() + size_of(key))

    def _signatures(self, framework: Framework, pod: Pod) -> Mapping[str, Hashable]:
        """Return the signatures by plugin; empty if nothing can be cached, as for a pod that is itself in the snapshot.

        Statuses without a plugin also depend on the set of nodes.
        """
        if self._cluster.is_placed_or_nominated(pod.uid, pod.key):
            return {}
        try:
            signatures = framework.search.signatures(pod)
        except Unprepared:
            return {}  # its counts were evicted; the next decision computes them again
        if ALL_PLUGINS in signatures:
            signatures[ALL_PLUGINS] = (self._cluster.node_set, signatures[ALL_PLUGINS])
        return signatures

    def _encoded(
        self, names: Sequence[bytes], rejected: Iterable[Status], by_id: Mapping[int, Status]
    ) -> Iterable[bytes]:
        """Return the encoded entries. Entries of one name and reason are created once and shared by all verdicts.

        ``by_id``: distinct statuses by ``id``.
        """
        by_status = {key: self._entries_of(status.message) for key, status in by_id.items()}
        return map(getitem, map(by_status.__getitem__, map(id, rejected)), names)

    def _entries_of(self, message: str) -> _Entries:
        entries = self._entries.get(message)
        if entries is None:
            if sum(map(len, self._entries.values())) > _MOST_ENTRIES:
                self._entries.clear()
            entries = self._entries[message] = _Entries(message)
        return entries


def _by_plugin(by_id: Mapping[int, Status]) -> dict[str, dict[int, Status]]:
    """Group distinct statuses by plugin, each by ``id``."""
    by_plugin: dict[str, dict[int, Status]] = {}
    for key, status in by_id.items():
        by_plugin.setdefault(status.plugin, {})[key] = status
    return by_plugin
