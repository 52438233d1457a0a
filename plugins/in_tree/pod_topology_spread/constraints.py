"""Prepares the constraints of a pod: merges selectors with matchLabelKeys, and fills in default values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from app.framework.counts import Inclusion, inclusion_of
from app.kube.core_v1 import (
    LABELS,
    NODE_SELECTOR,
    SPREAD,
    TOLERATIONS,
    Pod,
    TopologySpreadConstraint,
)
from app.kube.node_affinity import AFFINITY
from app.kube.selectors import EVERYTHING, NOTHING, Selector
from plugins.in_tree.pod_topology_spread.args import MissingFields


class InvalidConstraint(ValueError):
    """The selector of a constraint cannot be parsed."""


class Constraint(Struct, frozen=True):
    """Constraint of a pod, with its selectors and all default values filled in.

    ``selector`` decides whether the incoming pod, or a pod of a dry run, matches. ``counted`` selects the pods to
    count, among those that have a node. ``selector`` and ``counted`` differ only for an empty selector, which matches
    every pod but counts none (kubernetes#141339, in all releases up to 1.36.3). A null selector matches and counts no
    pods. ``inclusion``: conditions for counting the pods of a node. ``by_profile``: notes for ``explain``, such as
    fields that the profile filled in.
    """

    max_skew: int
    topology_key: str
    selector: Selector
    counted: Selector
    min_domains: int
    inclusion: Inclusion
    by_profile: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.selector.matches(labels)

    def with_note(self, note: str) -> Constraint:
        """Return the constraint with one more note for ``explain``."""
        return replace(self, by_profile=(*self.by_profile, note))

    def terms(self) -> tuple[str, ...]:
        """Return ``maxSkew``, ``minDomains`` if it is above 1, and the notes, as texts for ``explain``."""
        domains = (f"minDomains {self.min_domains}",) if self.min_domains > 1 else ()
        return (f"maxSkew {self.max_skew}", *domains, *self.by_profile)


def own_constraints(pod: Pod, when: str, missing: MissingFields | None = None) -> tuple[Constraint, ...]:
    """Return the pod's own hard or soft constraints (``when``). Raises ``InvalidConstraint``.

    ``missing``: the profile's values of fields that the constraints leave out.
    """
    inclusions = _Inclusions(pod)
    filled = [(it, ()) if missing is None else missing.filled(it) for it in pod.spec.spread if _has_action(it, when)]
    return tuple(_completed(it, inclusions, _selector_of(it, pod.labels), by_profile) for it, by_profile in filled)


def default_constraints(
    defaults: Iterable[TopologySpreadConstraint], pod: Pod, when: str, selector: Selector
) -> tuple[Constraint, ...]:
    """Return the hard or soft default constraints (``when``), with the selector derived for the pod."""
    inclusions = _Inclusions(pod)
    return tuple(_completed(it, inclusions, selector, ()) for it in defaults if _has_action(it, when))


def unread_part(pod: Pod, constraints: Iterable[TopologySpreadConstraint]) -> str:
    """Return the name of an oversized part of the pod that these constraints depend on, or an empty string."""
    oversized = pod.spec.oversized
    if not oversized:
        return ""
    if SPREAD in oversized:
        return SPREAD
    read: set[str] = set()
    for constraint in constraints:
        read.add(LABELS)
        if constraint.honours_affinity:
            read |= {AFFINITY, NODE_SELECTOR}
        if constraint.honours_taints:
            read.add(TOLERATIONS)
    return next((part for part in oversized if part in read), "")


def _has_action(constraint: TopologySpreadConstraint, when: str) -> bool:
    return constraint.when_unsatisfiable == when


def _completed(
    constraint: TopologySpreadConstraint, inclusions: _Inclusions, selector: Selector, by_profile: tuple[str, ...]
) -> Constraint:
    return Constraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        selector=selector,
        counted=NOTHING if selector == EVERYTHING else selector,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        inclusion=inclusions.of(constraint),
        by_profile=by_profile,
    )


def _selector_of(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector:
    if constraint.invalid:
        raise InvalidConstraint(constraint.invalid)
    if constraint.selector is None:
        return NOTHING
    pairs = [(key, labels[key]) for key in constraint.match_label_keys if key in labels]
    return constraint.selector.with_labels(pairs) if pairs else constraint.selector


class _Inclusions:
    """Creates the inclusions of one pod's constraints. Constraints with equal node inclusion policies share one."""

    def __init__(self, pod: Pod) -> None:
        self._spec = pod.spec
        self._made: dict[tuple[bool, bool], Inclusion] = {}

    def of(self, constraint: TopologySpreadConstraint) -> Inclusion:
        policies = (constraint.honours_affinity, constraint.honours_taints)
        inclusion = self._made.get(policies)
        if inclusion is None:
            inclusion = self._made[policies] = inclusion_of(
                self._spec, honours_affinity=policies[0], honours_taints=policies[1]
            )
        return inclusion
