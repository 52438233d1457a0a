"""The terms of the pod that is to be placed, in the form that is evaluated: which pods each means, in which namespaces.

A namespace selector is resolved to the namespaces that it selects now, once for all pods of equal terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial, reduce
from operator import and_
from typing import Final

from msgspec import Struct

from app.framework.counts import Unprepared, all_prepared
from app.framework.objects import Objects
from app.kube.core_v1 import Pod
from app.kube.kinds import NAMESPACES
from app.kube.memo import MISSING, Memo
from app.kube.pod_affinity import NO_TERMS, Peers, PodAffinity, PodAffinityTerm, means_all_namespaces, peers_of
from app.kube.selectors import Selector

_MEMO_BYTES: Final = 16 << 20
_NAMES_MEMO_BYTES: Final = 64 << 20
_ENTRY_BYTES: Final = 2000
_PART_BYTES: Final = 200
_NAME_BYTES: Final = 100

_AT_ONCE: Final = 512
"""Namespaces that are looked at in one step: some tenths of a millisecond."""


class OwnTerms(Struct, frozen=True):
    """``keys``: the topology keys of the required affinity terms, each once, and ``peers``: the pods that all of these
    terms mean. ``anti`` and ``preferred``: of each term that means any pod its key and those pods, and its weight.

    ``decides``: whether there are any required terms, those that mean nobody included.
    """

    keys: tuple[str, ...] = ()
    peers: Peers | None = None
    anti: tuple[tuple[str, Peers], ...] = ()
    preferred: tuple[tuple[str, Peers, int], ...] = ()
    decides: bool = False

    def include_itself(self, pod: Pod) -> bool:
        """Whether all required affinity terms mean the pod itself."""
        return self.draw(pod)

    def draw(self, other: Pod) -> bool:
        """Whether all required affinity terms mean the other pod."""
        return self.peers is not None and self.peers.include(other.namespace, other.labels)

    def repel(self, other: Pod) -> bool:
        """Whether any required anti-affinity term means it."""
        return any(peers.include(other.namespace, other.labels) for _, peers in self.anti)

    def weigh(self, other: Pod) -> bool:
        """Whether any preferred term means it."""
        return any(peers.include(other.namespace, other.labels) for _, peers, _ in self.preferred)


_NONE: Final = OwnTerms()


class OwnTermsOf:
    """Remembers them by terms and namespace until a Namespace changes."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._terms = Memo[tuple[str, PodAffinity, int], OwnTerms](_MEMO_BYTES)
        self._names = Memo[tuple[Selector, int], frozenset[str]](_NAMES_MEMO_BYTES)

    def of(self, pod: Pod) -> OwnTerms:
        """Raises ``Unprepared`` where many namespaces are to be looked at."""
        affinity = pod.spec.pod_affinity
        if affinity is NO_TERMS:
            return _NONE
        key = (pod.namespace, affinity, self._objects.version(NAMESPACES))
        found: OwnTerms = self._terms.young.get(key, MISSING)
        if found is MISSING:
            found = self._terms.get(key)
        if found is MISSING:
            found = self._resolved(affinity.within(pod.namespace))
            self._terms.put(key, found, _weight(found))
        return found

    def _resolved(self, affinity: PodAffinity) -> OwnTerms:
        self._prepare(affinity)
        each = [(it.topology_key, self._peers(it)) for it in affinity.required]
        every = [peers for _, peers in each if peers is not None]
        anti = ((it.topology_key, self._peers(it)) for it in affinity.required_anti)
        preferred = ((it.term.topology_key, self._peers(it.term), it.weight) for it in affinity.preferred)
        return OwnTerms(
            keys=tuple(dict.fromkeys(key for key, _ in each)),
            peers=_meant_by_all(every) if every and len(every) == len(each) else None,
            anti=tuple(dict.fromkeys((key, peers) for key, peers in anti if peers is not None)),
            preferred=tuple((key, peers, weight) for key, peers, weight in preferred if peers is not None),
            decides=bool(affinity.required or affinity.required_anti),
        )

    def _peers(self, term: PodAffinityTerm) -> Peers | None:
        return peers_of(term, self._namespaces)

    def _prepare(self, affinity: PodAffinity) -> None:
        """All namespace selectors at once. Raises ``Unprepared``."""
        terms = (*affinity.required, *affinity.required_anti, *(it.term for it in affinity.preferred))
        selectors = dict.fromkeys(it.namespace_selector for it in terms)
        all_prepared(partial(self._namespaces, it) for it in selectors if not means_all_namespaces(it))

    def _namespaces(self, selector: Selector | None) -> frozenset[str]:
        """Those that a selector selects."""
        if selector is None:
            return frozenset()
        version = self._objects.version(NAMESPACES)
        found = self._names.get((selector, version))
        if found is not MISSING:
            return found
        if len(self._objects.in_namespace(NAMESPACES, "")) > _AT_ONCE:
            raise Unprepared(self._look(selector, version))
        for _ in self._look(selector, version):
            pass
        return self._names.get((selector, version))

    def _look(self, selector: Selector, version: int) -> Iterator[None]:
        """Look at all namespaces, some in each step. What changes meanwhile makes it one of another version."""
        every = tuple(self._objects.in_namespace(NAMESPACES, ""))
        found: set[str] = set()
        for start in range(0, len(every), _AT_ONCE):
            found.update(it.name for it in every[start : start + _AT_ONCE] if selector.matches(it.labels))
            yield
        self._names.put((selector, version), frozenset(found), min(_NAME_BYTES * len(found), _NAMES_MEMO_BYTES // 32))


def _meant_by_all(every: Iterable[Peers]) -> Peers | None:
    found = reduce(and_, every)
    return None if found.namespaces is not None and not found.namespaces else found


def _weight(found: OwnTerms) -> int:
    """Bytes, as estimated."""
    every = [*(peers for _, peers in found.anti), *(peers for _, peers, _ in found.preferred)]
    every += [] if found.peers is None else [found.peers]
    return _ENTRY_BYTES + sum(
        _PART_BYTES * (1 + len(it.selector.requirements)) + _NAME_BYTES * len(it.namespaces or ()) for it in every
    )
