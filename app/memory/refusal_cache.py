"""Cache of refusals, because after a bind kube-scheduler can send every refused pod again.

A rejection is the verdict of one plugin on one node; a refusal is an answer in which every node is rejected. Rejections
are stored by plugin and *signature* (``Search.signatures``), which identifies everything that they depend on. So pods
of one workload share them. Nothing has to be invalidated, because the signature differs once anything relevant changes.
A node stays refused while the signature of one plugin that rejected it is valid, whatever other plugins would return.
Only the reason in the answer can then differ from a new evaluation. kube-scheduler's queueing hints follow the same
rule: they also consider only the plugins that rejected.

A last filter (``filter_last``) runs after all other filters. Its rejections also depend on the requested nodes, and on
the nodes that passed all other filters. A node that passed these filters can fail one later without a change of any
signature, because signatures only identify rejections. So an answer in which a last filter rejected a node is not
stored. Stored rejections stay valid, because a node that some filter rejects is refused whatever the last filters
return.

A request is answered from the cache if every requested node, in any order, has a valid rejection. The combined entries
of the answer are cached too, with all signatures together as the key.
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
"""Maximum bytes of the remembered requests, without their node names."""

_MOST_VERDICT_BYTES: Final = 30 << 20
"""Maximum bytes of each of two caches: rejections by plugin, and whole refusals."""

_VERDICT_BYTES: Final = 1000
_NAME_BYTES: Final = 100
"""Estimated bytes of a ``_Rejections`` or ``_Refusal`` (``_VERDICT_BYTES``), and of each name in it (``_NAME_BYTES``).

The encoded entries are not included, because all verdicts share them (``_MOST_ENTRIES``).
"""

_MOST_ENTRIES: Final = 1 << 17
"""Maximum number of encoded entries of all reasons together. If there are more, the next new reason drops them all.

It suffices for 5,000 nodes with 26 reasons, some 25 MB.
"""


class RefusalCounter(Protocol):
    """Counter of refusals, either remembered or computed ones."""

    def inc(self) -> None: ...


Refused = Callable[[Pod, str, tuple[Cause, ...]], None]
"""Callback for each refusal, with the pod, the name of the profile, and the causes of the rejections."""


def _ignore_refusal(_pod: Pod, _profile: str, _causes: tuple[Cause, ...]) -> None:
    """Do nothing; default callback."""


class RefusedPod(Struct, frozen=True):
    """Filter request about a pod that was refused before, with the pod as decoded then."""

    pod: Pod
    framework: Framework
    request: SplitArgs


class _Entries(dict[bytes, bytes]):
    """Encoded entries of an answer for one reason, by node name. Each is created on first use."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self._message = message

    def __missing__(self, name: bytes) -> bytes:
        made = self[name] = encode_refusal(name, self._message)
        return made


class _Rejections:
    """Nodes that one plugin rejected while its signature had a certain value, with their encoded entries."""

    __slots__ = ("causes", "entries")

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.causes: tuple[Cause, ...] = ()

    def weight(self) -> int:
        """Return the estimated bytes."""
        return _VERDICT_BYTES + _NAME_BYTES * len(self.entries)


class _Refusal:
    """Nodes that at least one of the ``parts`` rejects, and the last answer with its names.

    If the next request has the names in another order, which is usual, the answer is built from the entries again.
    """

    __slots__ = ("_body", "_names", "causes", "entries")

    def __init__(self, parts: Sequence[_Rejections]) -> None:
        """Combine ``parts``. A node's entry is that in the first part with the node. A single part is not copied."""
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
        """Return the estimated bytes, including the names and the answer of ``request``, the latest one.

        Names without an entry add nothing to the answer.
        """
        names = request.each()
        body = sum(len(self.entries.get(name, b"")) for name in names) + len(names)
        return _VERDICT_BYTES + _NAME_BYTES * len(self.entries) + len(request.names) + body


class RefusalCache:
    """Cache of refusals, limited in bytes; the least recently used requests and verdicts are evicted.

    ``remembered``: counter of refusals that are answered from the cache. ``computed``: counter of all other refusals.
    ``refused``: called for each refusal, remembered or computed.
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
        """Return the request and its pod if a refusal of the pod was stored, perhaps on other nodes; else ``None``.

        The request is not decoded.
        """
        known = self._pods.get(request.before)
        return None if known is None else RefusedPod(*known, request)

    def answer(self, refused_pod: RefusedPod) -> bytes | None:
        """Return the encoded refusal if every requested node has a valid rejection, and count it.

        ``None``: the answer must be computed. Raises ``PluginError``.
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
        """Count a computed refusal, and store it if it can be used again.

        ``names``: all requested nodes. ``rejected``: status of each. ``lasts``: see ``SearchResult``; if false, nothing
        is stored. The caller must not await between the evaluation and this call. Raises ``PluginError``.
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
            return  # a plugin without a signature rejected a node, so the refusal could not be verified later
        each = request.each()
        statuses = list(map(rejected.__getitem__, names))
        entries = list(self._encoded(each, statuses, by_id))
        for plugin, those in by_plugin.items():
            self._add((profile, plugin, signatures[plugin]), zip(each, map(id, statuses), entries, strict=True), those)
        parts = self._valid_rejections(profile, signatures)
        if not parts:
            return
        refusal = _Refusal(parts)
        if all(map(refusal.entries.__contains__, each)):  # an entry is missing if its rejections were evicted at once
            key = (profile, *signatures.items())
            self._refusals.put(key, refusal, refusal.weight(request) + size_of(key))
            self._pods.put(request.before, (pod, framework), len(request.before))

    def _valid_rejections(self, profile: str, signatures: Mapping[str, Hashable]) -> list[_Rejections]:
        """Return the cached rejections with these signatures, in the order of ``signatures``."""
        rejections = (self._rejections.get((profile, *signature)) for signature in signatures.items())
        return [it for it in rejections if it is not None]

    def _add(self, key: Hashable, each: Iterable[tuple[bytes, int, bytes]], those: Mapping[int, Status]) -> None:
        """Add the rejections of one plugin.

        ``each``: for every requested node its name, the ``id`` of its status, and its encoded entry. ``those``:
        statuses of the plugin, by ``id``.
        """
        part = self._rejections.get(key) or _Rejections()
        part.entries.update((name, entry) for name, status, entry in each if status in those)
        part.causes = merge_causes(part.causes, causes_of(those.values()))
        self._rejections.put(key, part, part.weight() + size_of(key))

    def _signatures(self, framework: Framework, pod: Pod) -> Mapping[str, Hashable]:
        """Return the signatures by plugin; empty if no refusal of the pod can be cached now.

        Refusals of a pod that the snapshot has on a node, or nominated to one, are not cached: the evaluation omits
        this pod, but signatures include it. The signature of statuses without a plugin includes the set of nodes,
        because these statuses depend on that set.
        """
        if self._cluster.is_placed_or_nominated(pod.uid, pod.key):
            return {}
        try:
            signatures = framework.search.signatures(pod)
        except Unprepared:
            return {}  # counts that the signature needs were evicted; the next decision computes them again
        if ALL_PLUGINS in signatures:
            signatures[ALL_PLUGINS] = (self._cluster.node_set, signatures[ALL_PLUGINS])
        return signatures

    def _encoded(
        self, names: Sequence[bytes], rejected: Iterable[Status], by_id: Mapping[int, Status]
    ) -> Iterable[bytes]:
        """Return the encoded entry of each name. All verdicts share the entry of one name and reason.

        ``rejected``: status of each name. ``by_id``: the distinct statuses, by ``id``.
        """
        by_status = {key: self._entries_of(status.message) for key, status in by_id.items()}
        return map(getitem, map(by_status.__getitem__, map(id, rejected)), names)

    def _entries_of(self, message: str) -> _Entries:
        """Return the encoded entries for a reason. For a new reason, drop all entries first if there are too many."""
        entries = self._entries.get(message)
        if entries is None:
            if sum(map(len, self._entries.values())) > _MOST_ENTRIES:
                self._entries.clear()
            entries = self._entries[message] = _Entries(message)
        return entries


def _by_plugin(by_id: Mapping[int, Status]) -> dict[str, dict[int, Status]]:
    """Return the distinct statuses by plugin and ``id``. ``by_id``: the same statuses by ``id`` only."""
    by_plugin: dict[str, dict[int, Status]] = {}
    for key, status in by_id.items():
        by_plugin.setdefault(status.plugin, {})[key] = status
    return by_plugin
