"""Rules about a pod template that need no cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.homes.protocol import Policy
from app.kube.core_v1 import TopologySpreadConstraint
from app.kube.selectors import EVERYTHING, Selector, selector
from app.lint.rules import (
    DUPLICATE_KEY,
    MATCH_LABEL_KEYS,
    SELECTOR_MISMATCH,
    UNKNOWN_FALLBACK,
    UNKNOWN_POLICY,
    Mistaken,
    Severity,
)
from app.lint.workloads import LintedWorkload
from app.memory.fallbacks import ANNOTATION as FALLBACK
from app.memory.fallbacks import NEVER

_ADDED_BY: Final = {
    "Deployment": {"pod-template-hash"},
    "ReplicaSet": {"pod-template-hash"},
    "StatefulSet": {
        "apps.kubernetes.io/pod-index",
        "controller-revision-hash",
        "statefulset.kubernetes.io/pod-name",
    },
    "DaemonSet": {"controller-revision-hash", "pod-template-generation"},
    "Job": {"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"},
    "CronJob": {"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"},
    "VirtualMachine": {"kubevirt.io/created-by", "kubevirt.io/domain", "vm.kubevirt.io/name"},
}
"""Labels that a controller adds to those of the pod template, by kind of the workload."""

_HASH: Final = "pod-template-hash"


def of_template(workload: LintedWorkload) -> Iterator[Mistaken]:
    """Yield the mistakes in a workload that can be found without a cluster."""
    yield from _mismatches(workload)
    yield from _duplicates(workload)
    yield from _previous_revisions(workload)
    yield from _policies(workload)
    yield from _fallback(workload)


def selects_own(workload: LintedWorkload, constraint: TopologySpreadConstraint) -> bool:
    """Return True if the constraint selects the workload's own pods. Labels that a controller adds are assumed to
    match.
    """
    if constraint.selector is None or workload.pod is None:
        return False
    return _known_part(workload, constraint.selector).matches(workload.pod.labels)


def _has_match_label_key(workload: LintedWorkload, constraint: TopologySpreadConstraint) -> bool:
    """Return True if the pods have a label in ``matchLabelKeys``. The API server merges it into the selector."""
    labels = () if workload.pod is None else workload.pod.labels
    added = _ADDED_BY.get(workload.kind, set())
    return any(it in labels or it in added for it in constraint.match_label_keys)


def _known_part(workload: LintedWorkload, whole: Selector) -> Selector:
    """Return the selector without the requirements on labels that a controller adds."""
    added = _ADDED_BY.get(workload.kind, set())
    return selector(it for it in whole.requirements if it.key not in added)


def _mismatches(workload: LintedWorkload) -> Iterator[Mistaken]:
    """Yield a mistake for each constraint that does not select the workload's own pods."""
    for number, constraint in enumerate(workload.constraints):
        over = f"the constraint over {constraint.topology_key}"
        if constraint.selector is None:
            problem = f"{over} has no labelSelector, which matches no pods"
        elif constraint.selector == EVERYTHING and not _has_match_label_key(workload, constraint):
            problem = f"{over} has an empty labelSelector, for which kube-scheduler counts no pods"
        elif selects_own(workload, constraint):
            continue
        else:
            problem = f"the selector of {over} does not match the pods' own labels{_lacking(workload, constraint)}"
        effect = "these pods are not spread" if constraint.is_hard else "the constraint does not change their scores"
        yield Mistaken(
            SELECTOR_MISMATCH,
            Severity.ERROR if constraint.is_hard else Severity.WARNING,
            workload.constraint_place(number, "labelSelector"),
            f"{problem}, so {effect}",
            "use the labels of the pod template in the labelSelector",
        )


def _lacking(workload: LintedWorkload, constraint: TopologySpreadConstraint) -> str:
    """Return text on the first requirement of the selector that the template's labels do not meet; empty if none."""
    labels = {} if workload.pod is None else workload.pod.labels
    for requirement in () if constraint.selector is None else _known_part(workload, constraint.selector).requirements:
        if not requirement.matches(labels):
            value = labels.get(requirement.key)
            return f" ({requirement.key} is {value})" if value is not None else f" ({requirement.key} is not set)"
    return ""


def _duplicates(workload: LintedWorkload) -> Iterator[Mistaken]:
    """Yield a mistake for each constraint with the topology key of an earlier constraint."""
    seen: dict[str, int] = {}
    for number, constraint in enumerate(workload.constraints):
        key = constraint.topology_key
        first = seen.setdefault(key, number)
        if first == number or not key:
            continue
        is_same = workload.constraints[first].when_unsatisfiable == constraint.when_unsatisfiable
        effect = (
            "the API server rejects two constraints with the same key and the same whenUnsatisfiable"
            if is_same
            else "the soft one only changes scores among the nodes that the hard one allows"
        )
        yield Mistaken(
            DUPLICATE_KEY,
            Severity.ERROR if is_same else Severity.WARNING,
            workload.constraint_place(number, "topologyKey"),
            f"constraints {first} and {number} both have the topologyKey {key}: {effect}",
            "keep one constraint for each topologyKey",
        )


def _previous_revisions(workload: LintedWorkload) -> Iterator[Mistaken]:
    """Yield a mistake for each hard constraint with maxSkew 1 that counts pods of two revisions during a rollout."""
    if not workload.rolls:
        return
    for number, constraint in workload.hard:
        if constraint.max_skew == 1 and _HASH not in constraint.match_label_keys and selects_own(workload, constraint):
            yield Mistaken(
                MATCH_LABEL_KEYS,
                Severity.WARNING,
                workload.constraint_place(number),
                f"during a rollout the constraint over {constraint.topology_key} also counts the pods of the previous "
                "revision: new pods can wait, and are uneven once the old ones are gone",
                f"add matchLabelKeys: [{_HASH}] to the constraint",
            )


def _policies(workload: LintedWorkload) -> Iterator[Mistaken]:
    """Yield a mistake for each annotation with an unknown home policy."""
    known = [it.value for it in Policy]
    for place, value in workload.policies.items():
        if value not in known:
            yield Mistaken(
                UNKNOWN_POLICY,
                Severity.WARNING,
                place,
                f"homeport.dev/policy is {value!r}, which is not a policy: Homeport ignores the annotation",
                f"use one of {', '.join(known)}, in quotes",
            )


def _fallback(workload: LintedWorkload) -> Iterator[Mistaken]:
    """Yield a mistake if the annotation ``FALLBACK`` has an unknown value."""
    value = None if workload.pod is None else workload.pod.annotations.get(FALLBACK)
    if value is not None and value != NEVER:
        yield Mistaken(
            UNKNOWN_FALLBACK,
            Severity.WARNING,
            (*workload.template, "metadata", "annotations", FALLBACK),
            f"{FALLBACK} is {value!r}, which has no meaning: Homeport ignores the annotation",
            f"use {NEVER}, or remove the annotation",
        )
