"""Finds evictions that would let a pod in which only topology spread constraints keep waiting.

If Homeport decides about spread, kube-scheduler does not preempt for these constraints, because an extender's refusals
are final. The victims are those that kube-scheduler's DefaultPreemption would choose. Nothing is evicted.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from typing import Final

from app.analysis.judging import Judge, Judgement
from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.framework.points import PostFilterAnswer, PostFilterSteps, Victims
from app.framework.status import Code, Status
from app.kube.core_v1 import Pod
from app.runtime.framework import Framework
from app.runtime.post_filters import advance

_SPREAD: Final = "PodTopologySpread"
_PREEMPTION: Final = "DefaultPreemption"
_MOST_NAMED: Final = 5


def can_preempt(framework: Framework, unusable: Collection[str]) -> bool:
    """Return true if the plugin that chooses victims is there and not among the ``unusable`` plugins."""
    return _PREEMPTION in framework.plugins and _PREEMPTION not in unusable


def add_preemption(
    framework: Framework, judge: Judge, pod: Pod, judgement: Judgement, sentences: list[str]
) -> Iterator[None]:
    """Add a sentence about the evictions that would let the pod in, in short steps.

    Only nodes are candidates that topology spread alone rejects. Raises ``PluginError``.
    """
    rejected = {
        name: statuses[0]
        for name, statuses in judgement.rejected.items()
        if all(it.plugin == _SPREAD and it.code is Code.UNSCHEDULABLE for it in statuses)
    }
    if not rejected:
        return
    answer = yield from _answer(framework, judge, pod, rejected)
    result = None if answer is None else answer[0]
    if result is not None and result.victims is not None and result.victims.pods:
        sentences.append(_sentence(result.nominated_node_name, result.victims))


def _answer(
    framework: Framework, judge: Judge, pod: Pod, rejected: Mapping[str, Status]
) -> Generator[None, None, PostFilterAnswer | None]:
    """Run PostFilter, each step on the snapshot of that moment; ``None`` if PreFilter rejects the pod."""
    steps: PostFilterSteps | None = None
    while True:
        try:
            with judge.seen(pod):
                state = CycleState()
                if not framework.filters.pre_filter(state, pod).status.is_success:
                    return None
                begins = steps is None
                steps = steps or framework.post_filters.post_filter(state, pod, rejected)
                over, answer = advance(steps, None if begins else state)
        except Unprepared as missing:
            steps = None  # the counts are not cached any more: begin again
            yield from missing.steps
            continue
        if over:
            last: PostFilterAnswer = answer
            return last
        yield


def _sentence(node: str, victims: Victims) -> str:
    names = ", ".join(f"{it.namespace}/{it.name}" for it in victims.pods[:_MOST_NAMED])
    more = len(victims.pods) - _MOST_NAMED
    names += f" and {more} more" if more > 0 else ""
    budget = ", against a PodDisruptionBudget," if victims.pdb_violations else ""
    never = "kube-scheduler does not preempt for topology spread that Homeport decides"
    return f"evicting {names} on {node}{budget} would let the pod in, but {never}"
