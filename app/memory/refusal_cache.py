"""Remembers refusals: every bind in the cluster makes kube-scheduler ask about every refused pod again.

The rejection of a node is kept by the plugin that gave it and by what it rests on, its *signature*
(``Framework.signatures``), so that pods of one workload share it and nothing ever has to be taken back: once anything
that matters has changed, the signature is another one. It stands as long as that one plugin's signature does; whatever
the others would say by now, the node stays refused. Only which reason comes first may then differ from a fresh look. As
with kube-scheduler's queueing hints, only the plugins that rejected are asked.

A last filter's rejection rests on more than that: on the nodes asked about and on those that passed. A node that passed
no longer does without any signature's moving, as these say what is refused and not what passes. So where a last filter
rejected any node, nothing of that answer is remembered. What was remembered before needs none of it: a node that some
filter rejects is refused whatever the last ones would say.

A pod is answered from memory where for every name asked about some rejection stands, in whatever order and window it is
asked. What was gathered for it so is kept by all signatures together.
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
from app.memory.refused_pods import Cause, both, causes_of
from app.runtime.framework import Framework
from app.runtime.recent import Recent, size_of
from app.runtime.search import ALL_PLUGINS
from app.wire.extender_answers import encode_refusal, encode_refusals
from app.wire.extender_v1 import SplitArgs

_MOST_POD_BYTES: Final = 32 << 20
_MOST_VERDICT_BYTES: Final = 30 << 20
"""Of rejections by plugin, and of what was gathered from them for an answer: each."""

_VERDICT_BYTES: Final = 1000
_NAME_BYTES: Final = 100
"""Of verdicts: what each weighs beside its last answer. Entries of names are shared (``_MOST_ENTRIES``)."""

_MOST_ENTRIES: Final = 1 << 17
"""Of all reasons together: 5,000 nodes with 26 of them, some 25 MB."""


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


class _Rejections:
    """The nodes that one plugin rejected at one signature, each with its entry in the answer."""

    __slots__ = ("causes", "entries")

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.causes: tuple[Cause, ...] = ()

    def weight(self) -> int:
        """Bytes."""
        return _VERDICT_BYTES + _NAME_BYTES * len(self.entries)


class _Refusal:
    """The nodes refused by any of the ``parts``, and the last answer with the names it was given to.

    kube-scheduler mostly sends the names in another order each time.
    """

    __slots__ = ("_body", "_names", "causes", "entries")

    def __init__(self, parts: Sequence[_Rejections]) -> None:
        """The first of ``parts`` counts where several refuse a node. Of a single one the entries are shared."""
        self.entries: dict[bytes, bytes] = parts[0].entries if len(parts) == 1 else {}
        if len(parts) > 1:
            for part in reversed(parts):
                self.entries.update(part.entries)
        self.causes: tuple[Cause, ...] = reduce(both, (part.causes for part in parts))
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
        """Bytes; ``request`` stands for the last answer, which holds an entry for each of its names.

        Some may be without one: where there is little room, what one plugin refused gives way to another's.
        """
        names = request.each()
        body = sum(len(self.entries.get(name, b"")) for name in names) + len(names)
        return _VERDICT_BYTES + _NAME_BYTES * len(self.entries) + len(request.names) + body


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
        self._pods: Recent[bytes, tuple[Pod, Framework]] = Recent(most_pod_bytes)
        self._rejections: Recent[Hashable, _Rejections] = Recent(most_verdict_bytes)
        self._refusals: Recent[Hashable, _Refusal] = Recent(most_verdict_bytes)
        self._entries: dict[str, _Entries] = {}

    def find(self, request: SplitArgs) -> RefusedPod | None:
        """The pod of a filter request if it was refused before and is unchanged; nothing is decoded."""
        known = self._pods.get(request.before)
        return None if known is None else RefusedPod(*known, request)

    def answer(self, asked: RefusedPod) -> bytes | None:
        """The refusal if every name asked for is known to be refused as things stand; else it is to be computed.

        Raises ``PluginError``.
        """
        profile = asked.framework.scheduler_name
        signatures = self._signatures(asked.framework, asked.pod)
        key = (profile, *signatures.items())
        parts = self._standing(profile, signatures)
        if not parts:
            return None
        refusal = self._refusals.get(key) or _Refusal(parts)
        body = refusal.answer(asked.request)
        if body is not None:
            if key not in self._refusals:
                self._refusals.put(key, refusal, refusal.weight(asked.request) + size_of(key))
            self._remembered.inc()
            self._refused(asked.pod, profile, refusal.causes)
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
        """Remember that every one of ``names`` was rejected, in the same step in which it was found.

        Nothing is remembered unless it ``lasts`` (``Found``). Raises ``PluginError``.
        """
        self._computed.inc()
        profile = framework.scheduler_name
        found = distinct(rejected.values())
        self._refused(pod, profile, causes_of(found.values()))
        if request is None or not lasts or not request.are(names):
            return
        signatures = self._signatures(framework, pod)
        by_plugin = _by_plugin(found)
        if not signatures.keys() >= by_plugin.keys():
            return  # some will be asked again: the pod is not answered from memory
        each = request.each()
        statuses = list(map(rejected.__getitem__, names))
        entries = list(self._encoded(each, statuses, found))
        for plugin, those in by_plugin.items():
            self._add((profile, plugin, signatures[plugin]), zip(each, map(id, statuses), entries, strict=True), those)
        parts = self._standing(profile, signatures)
        if not parts:
            return
        refusal = _Refusal(parts)
        if all(map(refusal.entries.__contains__, each)):  # else some were given up at once for want of room
            key = (profile, *signatures.items())
            self._refusals.put(key, refusal, refusal.weight(request) + size_of(key))
            self._pods.put(request.before, (pod, framework), len(request.before))

    def _standing(self, profile: str, signatures: Mapping[str, Hashable]) -> list[_Rejections]:
        """The rejections that stand, in the order of the plugins."""
        found = (self._rejections.get((profile, *signature)) for signature in signatures.items())
        return [it for it in found if it is not None]

    def _add(self, key: Hashable, each: Iterable[tuple[bytes, int, bytes]], those: Mapping[int, Status]) -> None:
        """Of ``each`` name, with its status and its entry, those that one plugin rejected."""
        part = self._rejections.get(key) or _Rejections()
        part.entries.update((name, entry) for name, status, entry in each if status in those)
        part.causes = both(part.causes, causes_of(those.values()))
        self._rejections.put(key, part, part.weight() + size_of(key))

    def _signatures(self, framework: Framework, pod: Pod) -> Mapping[str, Hashable]:
        """Empty if nothing can be remembered, as of a pod that has a part in the picture it is judged on.

        What no plugin says by itself rests on which nodes there are, too.
        """
        if self._cluster.has_part(pod.uid, pod.key):
            return {}
        try:
            found = framework.search.signatures(pod)
        except Unprepared:
            return {}  # its counts were given up: whoever decides makes them anew
        if ALL_PLUGINS in found:
            found[ALL_PLUGINS] = (self._cluster.node_set, found[ALL_PLUGINS])
        return found

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


def _by_plugin(found: Mapping[int, Status]) -> dict[str, dict[int, Status]]:
    """The statuses that differ, by ``id``, for each plugin that gave some."""
    by_plugin: dict[str, dict[int, Status]] = {}
    for key, status in found.items():
        by_plugin.setdefault(status.plugin, {})[key] = status
    return by_plugin
