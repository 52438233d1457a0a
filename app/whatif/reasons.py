"""Finds why pods of a what-if wait, and remedies for them. Both get the JSON fields that ``explain`` uses."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any, Final

from app.analysis.judging import Judge, Judgement
from app.analysis.pending import Inputs, inputs_of
from app.analysis.remedies import Remedies, best
from app.analysis.verdict import status_as_json
from app.kube.core_v1 import Pod
from app.whatif.budget import Budget
from app.whatif.placing import Placement, original_name
from app.whatif.scratch import ScratchCluster

MOST_GROUPS: Final = 8
"""Maximum number of groups of equal waiting pods for which remedies are searched."""

MOST_NAMES: Final = 100
"""Maximum number of pods that are listed for a group."""


def waiting_groups(
    scratch: ScratchCluster, placements: Sequence[Placement], budget: Budget, closed: Collection[str] = ()
) -> Generator[None, None, list[Mapping[str, Any]]]:
    """Return groups of equal waiting pods as JSON objects, the largest group first. Raises ``PluginError``.

    Remedies are searched for the ``MOST_GROUPS`` largest groups, while processor time is left. They are proved on the
    scratch cluster as it is now. Remedies that help only on ``closed`` nodes are left out.
    """
    groups: dict[tuple[str, Inputs], list[Placement]] = {}
    for placement in placements:
        if placement.waits:
            groups.setdefault((placement.gate.message, inputs_of(placement.pod)), []).append(placement)
    answers: list[Mapping[str, Any]] = []
    for group in sorted(groups.values(), key=len, reverse=True):
        remedies: Sequence[Any] = ()
        if len(answers) < MOST_GROUPS and not budget.is_over and group[-1].gate.is_success:
            remedies = yield from _remedies(scratch, group[-1].pod, budget)
        answers.append(_group(group, [it for it in remedies if not set(it.nodes) <= set(closed)]))
        yield
    return answers


def _group(group: Sequence[Placement], remedies: Sequence[Any]) -> Mapping[str, Any]:
    last = group[-1]
    gate = () if last.gate.is_success else ((last.gate, 0),)
    return {
        "namespace": last.pod.namespace,
        "count": len(group),
        "pods": [original_name(it.pod) for it in group[:MOST_NAMES]],
        "reasons": [{"count": count, **status_as_json(status)} for status, count in (*gate, *last.rejections)],
        "remedies": remedies,
    }


def _remedies(scratch: ScratchCluster, pod: Pod, budget: Budget) -> Generator[None, None, Sequence[Any]]:
    framework = scratch.framework_for(pod)
    judgement, remedies = Judgement(), list[Any]()
    yield from Judge(framework, scratch.cluster).steps(pod, judgement)
    proving = Remedies(scratch.cluster, lambda ignored: Judge(framework, scratch.cluster, ignored))
    for _ in proving.steps(pod, judgement, remedies):
        if budget.is_over:
            break
        yield
    return best(remedies)
