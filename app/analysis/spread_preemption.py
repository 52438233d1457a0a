"""Finds evictions that would make room for a pod that waits only because of topology spread constraints.

If Homeport decides about spread, kube-scheduler does not preempt for these constraints, because Homeport returns the
rejected nodes as unresolvable. The victims are those that a profile with ``preemption: Own`` evicts. Nothing is evicted
here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Final

from app.analysis.judging import Judge, Judgement
from app.framework.points import Victims
from app.framework.status import Code, Status
from app.kube.core_v1 import Pod
from app.runtime.framework import Framework
from app.runtime.post_filters import answer_in_steps

_SPREAD: Final = "PodTopologySpread"
_PREEMPTION: Final = "DefaultPreemption"
_MOST_NAMED: Final = 5

_REASON: Final = re.compile(r"\d+ (.*?)(?=, \d+ |\.$)")
_UNHELPFUL: Final = ("No preemption victims found", "Preemption is not helpful", "node(s) ")
"""Beginnings of reasons that say only that no eviction on the node helps, or repeat a filter's reason."""

Stays = Callable[[Pod], str]


def can_preempt(framework: Framework, unusable: Collection[str]) -> bool:
    """Return true if the framework has DefaultPreemption, which chooses the victims, and it is not ``unusable``."""
    return _PREEMPTION in framework.plugins and _PREEMPTION not in unusable


def add_preemption(
    framework: Framework, judge: Judge, pod: Pod, judgement: Judgement, stays: Stays, sentences: list[str]
) -> Iterator[None]:
    """Add a sentence about the evictions that would let the pod in, or about pods that must stay, in short steps.

    Only nodes that topology spread alone rejects, and not as unresolvable, are candidates. ``stays``: returns why a pod
    must not be evicted, or an empty string. Raises ``PluginError``.
    """
    rejected = {
        name: statuses[0]
        for name, statuses in judgement.rejected.items()
        if all(it.plugin == _SPREAD and it.code is Code.UNSCHEDULABLE for it in statuses)
    }
    if not rejected:
        return
    answer = yield from answer_in_steps(
        framework.filters,
        lambda: judge.seen(pod),
        pod,
        lambda state: framework.post_filters.for_spread(state, pod, rejected, stays),
    )
    if answer is None:
        return
    result, status = answer
    if result is not None and result.victims is not None and result.victims.pods:
        sentences.append(_sentence(framework, result.nominated_node_name, result.victims))
    elif _says_who_must_stay(status):
        sentences.append(f"no eviction would let the pod in: {status.message.removeprefix('preemption: ')}")


def _says_who_must_stay(status: Status) -> bool:
    _, _, reasons = status.message.partition("available: ")
    return any(not it.startswith(_UNHELPFUL) for it in re.findall(_REASON, reasons))


def _sentence(framework: Framework, node: str, victims: Victims) -> str:
    names = ", ".join(f"{it.namespace}/{it.name}" for it in victims.pods[:_MOST_NAMED])
    more = len(victims.pods) - _MOST_NAMED
    names += f" and {more} more" if more > 0 else ""
    setting = "Own" if framework.preempts else "Never"
    return f"evicting {names} on {node} would let the pod in; preemption is {setting}"
