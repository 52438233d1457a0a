"""Affinity terms of the incoming pod, resolved to the pods and namespaces that each term matches.

Namespace selectors are resolved to the current namespaces. The result is cached for all pods that are in the same
namespace and have equal terms.
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
"""Maximum sizes of the two caches, and estimated sizes of their entries and of parts of an entry, in bytes."""


_AT_ONCE: Final = 512
"""Maximum number of namespaces matched in one step, which takes some tenths of a millisecond. If there are more
namespaces, ``Unprepared`` is raised.
"""


class OwnTerms(Struct, frozen=True):
    """Resolved affinity and anti-affinity terms of one pod.

    ``keys``: topology keys of the required affinity terms, without duplicates. ``peers``: pods that match all these
    terms; ``None`` without such terms, if one of them has no pod selector, or if they have no namespace in common.
    ``anti``: (topology key, matching pods) of each required anti-affinity term. ``preferred``: (topology key, matching
    pods, weight) of each preferred term. ``anti`` and ``preferred`` omit terms that have no pod selector or select no
    namespace. ``has_required``: true if there are required terms, including those that cannot match a pod.
    """

    keys: tuple[str, ...] = ()
    peers: Peers | None = None
    anti: tuple[tuple[str, Peers], ...] = ()
    preferred: tuple[tuple[str, Peers, int], ...] = ()
    has_required: bool = False

    def matches_affinity(self, other: Pod) -> bool:
        """Return true if the other pod matches all required affinity terms; false if there are none."""
        return self.peers is not None and self.peers.include(other.namespace, other.labels)

    def matches_anti_affinity(self, other: Pod) -> bool:
        """Return true if the other pod matches a required anti-affinity term."""
        return any(peers.include(other.namespace, other.labels) for _, peers in self.anti)

    def matches_preferred(self, other: Pod) -> bool:
        """Return true if the other pod matches a preferred term."""
        return any(peers.include(other.namespace, other.labels) for _, peers, _ in self.preferred)


_NONE: Final = OwnTerms()


class OwnTermsOf:
    """Cache of ``OwnTerms``, by pod namespace and ``PodAffinity``. Entries are valid until a Namespace changes."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._terms = Memo[tuple[str, PodAffinity, int], OwnTerms](_MEMO_BYTES)
        self._names = Memo[tuple[Selector, int], frozenset[str]](_NAMES_MEMO_BYTES)

    def of(self, pod: Pod) -> OwnTerms:
        """Return the pod's resolved terms. Raises ``Unprepared`` if many namespaces have to be matched first."""
        affinity = pod.spec.pod_affinity
        if affinity is NO_TERMS:
            return _NONE
        key = (pod.namespace, affinity, self._objects.version(NAMESPACES))
        terms: OwnTerms = self._terms.young.get(key, MISSING)
        if terms is MISSING:
            terms = self._terms.get(key)
        if terms is MISSING:
            terms = self._resolved(affinity.within(pod.namespace))
            self._terms.put(key, terms, _weight(terms))
        return terms

    def _resolved(self, affinity: PodAffinity) -> OwnTerms:
        self._prepare(affinity)
        each = [(it.topology_key, self._peers(it)) for it in affinity.required]
        every = [peers for _, peers in each if peers is not None]
        anti = ((it.topology_key, self._peers(it)) for it in affinity.required_anti)
        preferred = ((it.term.topology_key, self._peers(it.term), it.weight) for it in affinity.preferred)
        return OwnTerms(
            keys=tuple(dict.fromkeys(key for key, _ in each)),
            peers=_peers_of_all(every) if every and len(every) == len(each) else None,
            anti=tuple(dict.fromkeys((key, peers) for key, peers in anti if peers is not None)),
            preferred=tuple((key, peers, weight) for key, peers, weight in preferred if peers is not None),
            has_required=bool(affinity.required or affinity.required_anti),
        )

    def _peers(self, term: PodAffinityTerm) -> Peers | None:
        return peers_of(term, self._namespaces)

    def _prepare(self, affinity: PodAffinity) -> None:
        """Resolve the namespace selectors, except those that select all namespaces.

        If there are many namespaces, raises one ``Unprepared`` for all selectors that are not cached yet.
        """
        terms = (*affinity.required, *affinity.required_anti, *(it.term for it in affinity.preferred))
        selectors = dict.fromkeys(it.namespace_selector for it in terms)
        all_prepared(partial(self._namespaces, it) for it in selectors if not means_all_namespaces(it))

    def _namespaces(self, selector: Selector | None) -> frozenset[str]:
        """Return the names of the selected namespaces; none for ``None``.

        Raises ``Unprepared`` if many namespaces have to be matched first.
        """
        if selector is None:
            return frozenset()
        version = self._objects.version(NAMESPACES)
        names = self._names.get((selector, version))
        if names is not MISSING:
            return names
        if len(self._objects.in_namespace(NAMESPACES, "")) > _AT_ONCE:
            raise Unprepared(self._look(selector, version))
        for _ in self._look(selector, version):
            pass
        return self._names.get((selector, version))

    def _look(self, selector: Selector, version: int) -> Iterator[None]:
        """Match all namespaces in steps, and cache the names of the selected ones under ``version``.

        If namespaces change during the steps, the version changes too, so the cached names are not used afterwards.
        """
        every = tuple(self._objects.in_namespace(NAMESPACES, ""))
        names: set[str] = set()
        for start in range(0, len(every), _AT_ONCE):
            names.update(it.name for it in every[start : start + _AT_ONCE] if selector.matches(it.labels))
            yield
        self._names.put((selector, version), frozenset(names), min(_NAME_BYTES * len(names), _NAMES_MEMO_BYTES // 32))


def _peers_of_all(every: Iterable[Peers]) -> Peers | None:
    peers = reduce(and_, every)
    return None if peers.namespaces is not None and not peers.namespaces else peers


def _weight(terms: OwnTerms) -> int:
    """Return the estimated size of resolved terms in bytes."""
    every = [*(peers for _, peers in terms.anti), *(peers for _, peers, _ in terms.preferred)]
    every += [] if terms.peers is None else [terms.peers]
    return _ENTRY_BYTES + sum(
        _PART_BYTES * (1 + len(it.selector.requirements)) + _NAME_BYTES * len(it.namespaces or ()) for it in every
    )
