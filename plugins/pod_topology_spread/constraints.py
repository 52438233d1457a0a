"""A pod's constraints in the form that is evaluated: selectors merged with matchLabelKeys, defaults filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from app.framework.interface import Inclusion
from app.kube.core_v1 import HONOR, Pod, TopologySpreadConstraint
from app.kube.selectors import EVERYTHING, IN, Requirement, Selector

NOTHING: Final = Selector((Requirement("", IN, ()),))
"""Matches no pod, yet has domains: what null and empty selectors count."""


class InvalidConstraint(ValueError):
    """A constraint's selector cannot be parsed."""


class Constraint(Struct, frozen=True):
    """``selector`` decides which pods match; ``counted`` is what is counted.

    They differ for the empty selector, which matches every pod and counts none (kubernetes#141339, in all releases
    up to 1.36.3). A null selector matches and counts none.
    """

    max_skew: int
    topology_key: str
    selector: Selector
    counted: Selector
    min_domains: int
    inclusion: Inclusion

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.selector.matches(labels)


def own_constraints(pod: Pod, when: str) -> tuple[Constraint, ...]:
    """The pod's own constraints of one kind (hard or soft). Raises ``InvalidConstraint``."""
    return tuple(_evaluated(it, pod, _selector_of(it, pod.labels)) for it in pod.spec.spread if _is(it, when))


def default_constraints(
    defaults: Iterable[TopologySpreadConstraint], pod: Pod, when: str, selector: Selector
) -> tuple[Constraint, ...]:
    """Default constraints of one kind with the selector derived for the pod."""
    return tuple(_evaluated(it, pod, selector) for it in defaults if _is(it, when))


def _is(constraint: TopologySpreadConstraint, when: str) -> bool:
    return constraint.when_unsatisfiable == when


def _evaluated(constraint: TopologySpreadConstraint, pod: Pod, selector: Selector) -> Constraint:
    return Constraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        selector=selector,
        counted=NOTHING if selector == EVERYTHING else selector,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        inclusion=_inclusion(constraint, pod),
    )


def _selector_of(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector:
    if constraint.invalid:
        raise InvalidConstraint(constraint.invalid)
    if constraint.selector is None:
        return NOTHING
    pairs = [(key, labels[key]) for key in constraint.match_label_keys if key in labels]
    return constraint.selector.with_labels(pairs) if pairs else constraint.selector


def _inclusion(constraint: TopologySpreadConstraint, pod: Pod) -> Inclusion:
    """Parts that cannot exclude a node are left out, so that equal classes share their counts."""
    honours_affinity = constraint.node_affinity_policy in (None, HONOR)
    honours_taints = constraint.node_taints_policy == HONOR
    affinity = pod.spec.affinity
    restricts = bool(affinity.node_selector) or affinity.terms is not None
    return Inclusion(
        affinity=affinity if honours_affinity and restricts else None,
        tolerations=tuple(sorted(set(pod.spec.tolerations))) if honours_taints else None,
    )
