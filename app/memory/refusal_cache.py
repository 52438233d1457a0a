"""Remembers refusals: every bind in the cluster makes kube-scheduler ask about every refused pod again.

A verdict is kept by what it rests on, its *stamp* (``Framework.stamp``), so that pods of one workload share it and
nothing ever has to be taken back: once anything that matters has changed, the stamp is another one. Kept with it are
the nodes that were refused so far, in whatever order and window they were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import getitem
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

from app.cache.cluster import Cluster
from app.framework.interface import Unprepared
from app.framework.status import Status, distinct
from app.kube.core_v1 import Pod
from app.memory.refused_pods import Cause, both, causes_of
from app.runtime.framework import Framework
from app.wire.extender_v1 import SplitArgs, encode_refusal, encode_refusals

_MOST_POD_BYTES: Final = 32 << 20
_MOST_VERDICT_BYTES: Final = 60 << 20
_VERDICT_BYTES: Final = 1000
_NAME_BYTES: Final = 100
"""Of verdicts: what each weighs beside its last answer. Entries of names are shared (``_MOST_ENTRIES``)."""
_MOST_ENTRIES: Final = 1 << 17
"""Of all reasons together: 5,000 nodes with 26 of them, some 25 MB."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Counter(Protocol):
    """What is told of each refusal."""

    def inc(self) -> None: ...


Refused = Callable[[Pod, str, tuple[Cause, ...]], None]
"""Told of each refusal: the pod, the profile, and who refused nodes and why."""


def _nobody_listens(_pod: Pod, _profile: str, _causes: tuple[Cause, ...]) -> None:
    """Refusals are not told."""


class RefusedPod(Struct, frozen=True):
    """A pod that was refused before, and asks again."""

    pod: Pod
    framework: Framework
    request: SplitArgs


class _Entries(dict[bytes, bytes]):
    """What the answer says of a node, by name, for one reason; made when first asked for."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self._message = message

    def __missing__(self, name: bytes) -> bytes:
        made = self[name] = encode_refusal(name, self._message)
        return made


class _Verdict:
    """The nodes refused so far, each with its entry in the answer; and the last answer with the names it was given to.

    kube-scheduler mostly sends the names in another order each time.
    """

    __slots__ = ("_body", "_names", "causes", "entries")

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.causes: tuple[Cause, ...] = ()
        self._names: bytes | None = None
        self._body = b""

    def answer(self, request: SplitArgs) -> bytes | None:
        """The answer; ``None`` if a name is not among the entries."""
        if request.names != self._names:
            try:
                self._body = encode_refusals(map(self.entries.__getitem__, request.each()))
            except KeyError:
                return None
            self._names = request.names
        return self._body

    def weight(self, request: SplitArgs) -> int:
        """Bytes; ``request`` stands for the last answer, which holds an entry for each of its names."""
        names = request.each()
        body = sum(len(self.entries[name]) for name in names) + len(names)
        return _VERDICT_BYTES + _NAME_BYTES * len(self.entries) + len(request.names) + body


class _Recent(Generic[K, V]):
    """The entries used last, as many as weigh ``limit`` together."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[K, V] = {}
        self._weights: dict[K, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = entry
        return entry

    def put(self, key: K, entry: V, weight: int) -> None:
        """Keep ``entry``, which weighs ``weight`` now."""
        self._total += weight - self._weights.get(key, 0)
        self._weights[key] = weight
        self._entries.pop(key, None)
        self._entries[key] = entry
        while self._total > self._limit:
            oldest = next(iter(self._entries))
            del self._entries[oldest]
            self._total -= self._weights.pop(oldest)


class RefusalCache:
    """``remembered`` counts refusals answered from memory, ``computed`` the others; ``refused`` is told of all.

    Memory is bounded: the pods used last by their bytes, the verdicts used last by theirs.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        remembered: Counter,
        computed: Counter,
        refused: Refused = _nobody_listens,
        most_verdict_bytes: int = _MOST_VERDICT_BYTES,
        most_pod_bytes: int = _MOST_POD_BYTES,
    ) -> None:
        self._cluster = cluster
        self._remembered = remembered
        self._computed = computed
        self._refused = refused
        self._pods: _Recent[bytes, tuple[Pod, Framework]] = _Recent(most_pod_bytes)
        self._verdicts: _Recent[Hashable, _Verdict] = _Recent(most_verdict_bytes)
        self._entries: dict[str, _Entries] = {}

    def find(self, request: SplitArgs) -> RefusedPod | None:
        """The pod of a filter request if it was refused before and is unchanged; nothing is decoded."""
        known = self._pods.get(request.before)
        return None if known is None else RefusedPod(*known, request)

    def answer(self, asked: RefusedPod) -> bytes | None:
        """The refusal if every name asked for is known to be refused as things stand; else it is to be computed.

        Raises ``PluginError``.
        """
        verdict = self._verdicts.get(self._stamp(asked.framework, asked.pod))
        body = None if verdict is None else verdict.answer(asked.request)
        if verdict is not None and body is not None:
            self._remembered.inc()
            self._refused(asked.pod, asked.framework.scheduler_name, verdict.causes)
        return body

    def keep(
        self,
        request: SplitArgs | None,
        framework: Framework,
        pod: Pod,
        names: Sequence[str],
        rejected: Mapping[str, Status],
    ) -> None:
        """Remember that every one of ``names`` was rejected, in the same step in which it was found.

        Raises ``PluginError``.
        """
        self._computed.inc()
        found = distinct(rejected.values())
        causes = causes_of(found.values())
        self._refused(pod, framework.scheduler_name, causes)
        stamp = self._stamp(framework, pod)
        if stamp is None or request is None or not request.are(names):
            return
        verdict = self._verdicts.get(stamp) or _Verdict()
        each = request.each()
        verdict.causes = both(verdict.causes, causes)
        verdict.entries.update(zip(each, self._encoded(each, map(rejected.__getitem__, names), found), strict=True))
        self._verdicts.put(stamp, verdict, verdict.weight(request))
        self._pods.put(request.before, (pod, framework), len(request.before))

    def _stamp(self, framework: Framework, pod: Pod) -> Hashable:
        """``None`` if nothing can be remembered, as of a pod that has a part in the picture it is judged on."""
        if self._cluster.has_part(pod.uid, pod.key):
            return None
        try:
            stamp = framework.stamp(pod)
        except Unprepared:
            return None  # its counts were given up: whoever decides makes them anew
        return None if stamp is None else (self._cluster.node_set, stamp)

    def _encoded(
        self, names: Sequence[bytes], rejected: Iterable[Status], found: Mapping[int, Status]
    ) -> Iterable[bytes]:
        """The entries of the answer; those of one name and reason are made once and shared by all verdicts.

        ``found`` are the statuses that differ, by ``id``.
        """
        by_status = {key: self._entries_of(status.message) for key, status in found.items()}
        return map(getitem, map(by_status.__getitem__, map(id, rejected)), names)

    def _entries_of(self, message: str) -> _Entries:
        found = self._entries.get(message)
        if found is None:
            if sum(map(len, self._entries.values())) > _MOST_ENTRIES:
                self._entries.clear()
            found = self._entries[message] = _Entries(message)
        return found
