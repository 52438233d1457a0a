"""Inter-pod affinity terms: ``podAffinity`` and ``podAntiAffinity`` of a pod.

``matchLabelKeys`` and ``mismatchLabelKeys`` are not read, because the API server merges them into the selector.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Final, TypeVar

from msgspec import Meta, Raw, Struct

from app.kube.decoding import Decoder
from app.kube.labels import NO_LABELS, LabelSet
from app.kube.meta_v1 import Oversized, shared
from app.kube.selectors import InvalidSelector, Selector, decode_selector

POD_AFFINITY: Final = "spec.affinity.podAffinity"
"""Name of the field in messages about oversized terms. It also stands for the terms of ``podAntiAffinity``."""

MOST_TERMS: Final = 32
"""Maximum number of affinity and anti-affinity terms of one pod, required and preferred together.

If a pod has more terms, none of them is read.
"""

MOST_NAMESPACES: Final = 256
"""Maximum number of namespaces in all terms of one pod together. If there are more, no term is read."""

_Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
T = TypeVar("T")


class Newcomer(Struct, frozen=True, cache_hash=True):
    """Incoming pod, reduced to the fields that affinity terms of existing pods can select.

    ``namespace_labels`` are the labels of its namespace; empty if the namespace is unknown.
    """

    namespace: str
    namespace_labels: LabelSet
    labels: LabelSet


class PodAffinityTerm(Struct, frozen=True, gc=False, cache_hash=True):
    """Affinity or anti-affinity term: a selector of pods in some namespaces, and the topology key.

    A selector of ``None`` matches nothing. ``namespaces`` are sorted. If they are empty and ``namespace_selector`` is
    ``None``, the term applies to the namespace of its own pod.
    """

    topology_key: str
    selector: Selector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None

    def within(self, namespace: str) -> PodAffinityTerm:
        """Return this term as a term of a pod in ``namespace``.

        If the term has neither namespaces nor a namespace selector, ``namespace`` is filled in.
        """
        if self.namespaces or self.namespace_selector is not None:
            return self
        return PodAffinityTerm(self.topology_key, self.selector, (namespace,))

    def matches(self, other: Newcomer) -> bool:
        """Return whether the term selects the pod. The term must be a result of ``within``."""
        if self.selector is None:
            return False
        if other.namespace not in self.namespaces:
            namespace_selector = self.namespace_selector
            if namespace_selector is None or not namespace_selector.matches(other.namespace_labels):
                return False
        return self.selector.matches(other.labels)


class PreferredPodTerm(Struct, frozen=True, gc=False, cache_hash=True):
    """Preferred term. For a term of ``podAntiAffinity``, ``weight`` is negated."""

    term: PodAffinityTerm
    weight: int


class PodAffinity(Struct, frozen=True, cache_hash=True):
    """All affinity and anti-affinity terms of a pod.

    The spec has four lists of terms. If a list has an invalid selector, all its terms are omitted, and ``invalid`` has
    the error; ``invalid`` is empty if all selectors are valid. ``preferred``: the terms of ``podAffinity``, then of
    ``podAntiAffinity``. ``has_preferred`` is true if the pod has any preferred terms, valid or not.
    """

    required: tuple[PodAffinityTerm, ...] = ()
    required_anti: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[PreferredPodTerm, ...] = ()
    has_preferred: bool = False
    invalid: str = ""

    def within(self, namespace: str) -> PodAffinity:
        """Return these terms as terms of a pod in ``namespace``; see ``PodAffinityTerm.within``."""
        return PodAffinity(
            tuple(it.within(namespace) for it in self.required),
            tuple(it.within(namespace) for it in self.required_anti),
            tuple(PreferredPodTerm(it.term.within(namespace), it.weight) for it in self.preferred),
            self.has_preferred,
            self.invalid,
        )

    @property
    def has_terms(self) -> bool:
        """True if at least one of the three lists of terms is not empty."""
        return bool(self.required or self.required_anti or self.preferred)


NO_TERMS: Final = PodAffinity()


class _TermObject(Struct, rename="camel"):
    label_selector: Raw = Raw()
    topology_key: str | None = None
    namespaces: list[str] | None = None
    namespace_selector: Raw = Raw()

    def slim(self) -> PodAffinityTerm:
        """Convert the term. Raises ``InvalidSelector``."""
        return PodAffinityTerm(
            sys.intern(self.topology_key or ""),
            decode_selector(bytes(self.label_selector) or b"null"),
            tuple(sorted({sys.intern(it) for it in self.namespaces or ()})),
            decode_selector(bytes(self.namespace_selector) or b"null"),
        )


class _WeightedObject(Struct, rename="camel"):
    weight: _Int32 | None = None
    pod_affinity_term: _TermObject | None = None

    @property
    def term(self) -> _TermObject:
        return self.pod_affinity_term or _TermObject()

    def slim(self, sign: int) -> PreferredPodTerm:
        """Convert the term, with its weight multiplied by ``sign``. Raises ``InvalidSelector``."""
        return PreferredPodTerm(self.term.slim(), sign * (self.weight or 0))


class _PodAffinityObject(Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: list[_TermObject] | None = None
    preferred_during_scheduling_ignored_during_execution: list[_WeightedObject] | None = None

    @property
    def required(self) -> list[_TermObject]:
        return self.required_during_scheduling_ignored_during_execution or []

    @property
    def preferred(self) -> list[_WeightedObject]:
        return self.preferred_during_scheduling_ignored_during_execution or []


class _AffinityObject(Struct, rename="camel"):
    pod_affinity: _PodAffinityObject | None = None
    pod_anti_affinity: _PodAffinityObject | None = None


_AFFINITY: Final[Decoder[_AffinityObject | None]] = Decoder(_AffinityObject | None)
_NONE: Final = _PodAffinityObject()


def _parse(data: bytes) -> PodAffinity:
    """Parse all terms between pods of ``spec.affinity``. Raises ``Oversized`` or ``msgspec.DecodeError``."""
    decoded = _AFFINITY.decode(data)
    if decoded is None:
        return NO_TERMS
    affinity, anti = decoded.pod_affinity or _NONE, decoded.pod_anti_affinity or _NONE
    terms = [*affinity.required, *anti.required, *(it.term for it in (*affinity.preferred, *anti.preferred))]
    if len(terms) > MOST_TERMS or sum(len(it.namespaces or ()) for it in terms) > MOST_NAMESPACES:
        raise Oversized(POD_AFFINITY)
    if not terms:
        return NO_TERMS
    errors: dict[str, None] = {}

    def read(name: str, parsers: Iterable[Callable[[], T]]) -> tuple[T, ...]:
        """Convert a list of terms. If a selector is invalid, record the error and return no terms."""
        try:
            return tuple(parse() for parse in parsers)
        except InvalidSelector as error:
            errors[f"{name}: {error}"] = None
            return ()

    required = read("requiredAffinityTerms", (it.slim for it in affinity.required))
    required_anti = read("requiredAntiAffinityTerms", (it.slim for it in anti.required))
    preferred = read("preferredAffinityTerms", (partial(it.slim, 1) for it in affinity.preferred))
    preferred_anti = read("preferredAntiAffinityTerms", (partial(it.slim, -1) for it in anti.preferred))
    messages = list(errors)
    invalid = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]" if messages else ""
    has_preferred = bool(affinity.preferred or anti.preferred)
    return PodAffinity(required, required_anti, (*preferred, *preferred_anti), has_preferred, invalid)


pod_affinity_of: Final = shared(POD_AFFINITY, _parse)
"""Return the terms between pods of the raw ``spec.affinity``. Raises ``Oversized`` or ``msgspec.ValidationError``."""


class Peers(Struct, frozen=True, gc=False, cache_hash=True):
    """Set of the pods that ``selector`` matches in ``namespaces``; ``None`` stands for all namespaces."""

    selector: Selector
    namespaces: frozenset[str] | None = None

    def include(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the set includes a pod with these labels in that namespace."""
        return (self.namespaces is None or namespace in self.namespaces) and self.selector.matches(labels)

    def __and__(self, other: Peers) -> Peers:
        """Return the intersection of both sets."""
        if self.namespaces is None or other.namespaces is None:
            namespaces = other.namespaces if self.namespaces is None else self.namespaces
        else:
            namespaces = self.namespaces & other.namespaces
        return Peers(self.selector.and_also(other.selector), namespaces)


def means_all_namespaces(selector: Selector | None) -> bool:
    """Return whether a namespace selector of an incoming pod selects all namespaces; see ``peers_of``.

    It does if it matches the empty label set.
    """
    return selector is not None and selector.matches(NO_LABELS)


def peers_of(term: PodAffinityTerm, namespaces_of: Callable[[Selector], Iterable[str]]) -> Peers | None:
    """Return the pods that a term of an incoming pod selects; ``None`` if it cannot select any pod.

    ``term`` is a result of ``within``. ``namespaces_of`` returns the known namespaces that a selector matches. If a
    namespace selector matches the empty label set, it selects all namespaces, independent of their labels. The in-tree
    plugin has the same result: it resolves the selector to names, and then evaluates the selector again with an empty
    label set.
    """
    if term.selector is None:
        return None
    namespace_selector = term.namespace_selector
    if means_all_namespaces(namespace_selector):
        return Peers(term.selector)
    selected = () if namespace_selector is None else namespaces_of(namespace_selector)
    names = frozenset(term.namespaces).union(selected)
    return Peers(term.selector, names) if names else None
