"""PostFilter: what can be done for a pod that no node will do for, and who would have to go for it.

Source of the rules: ``pkg/scheduler/framework/runtime`` and ``framework/preemption`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Protocol, runtime_checkable

from app.framework.cycle_state import CycleState
from app.framework.node_info import NodeInfo
from app.framework.points import PostFilterAnswer, PostFilterResult, PostFilterSteps, Victims
from app.framework.status import Code, Status, error
from app.kube.core_v1 import Pod
from app.runtime.guard import Guard, PluginError
from app.runtime.slots import PluginSlot

_POINT: Final = "PostFilter"
_PAIR: Final = "(result, Status)"


class NoPreemption(LookupError):
    """The profile has no plugin that could have pods evicted."""


@runtime_checkable
class Preemption(Protocol):
    """A PostFilter that has other pods evicted, in the words of kube-scheduler's ``preemption.Interface``.

    No part of the contract of plugins: DefaultPreemption has these methods, and evaluate asks about any node by them.
    Nothing is evicted.
    """

    def pod_eligible_to_preempt_others(self, pod: Pod, nominated_node_status: Status) -> str:
        """Why the pod may not have others evicted; empty if it may.

        The status is what filters said of the node that it is nominated to, if any.
        """
        ...

    def select_victims_on_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> tuple[Victims, Status]:
        """The fewest pods that have to leave the node for this one; without Success there are none."""
        ...

    def select_candidates(self, victims: Mapping[str, Victims]) -> tuple[str, ...]:
        """The best of the nodes, by the victims on each, all equal: any of them will do."""
        ...


class PostFilters:
    """PostFilter plugins of one profile."""

    def __init__(self, slots: Mapping[str, Sequence[PluginSlot]], guard: Guard) -> None:
        self.slots = slots
        self._guard = guard

    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        """Ask in order whether anything can be done for a pod without a feasible node, in steps of some milliseconds.

        The caller sends it the state of a new PreFilter after each step. Success and UnschedulableAndUnresolvable end
        it; otherwise reasons are gathered, the last result stands and the first plugin counts as the one that rejected.
        Raises ``PluginError`` or ``Unprepared``, and is over then.
        """
        result: PostFilterResult | None = None
        reasons: list[str] = []
        rejector = ""
        for slot in self.slots["postFilter"]:
            state, answer = yield from self._asked(slot, state, pod, rejected)
            found, status = self._checked_answer(slot, answer)
            if status.is_success or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return found, status.by(slot.name)
            if not status.is_rejected:
                raise PluginError(error(status.message, slot.name))
            result = found or result
            reasons.extend(status.reasons)
            rejector = rejector or slot.name
        return result, Status(Code.UNSCHEDULABLE, tuple(reasons), rejector)

    def _asked(
        self, slot: PluginSlot, state: CycleState, pod: Pod, rejected: Mapping[str, Status]
    ) -> Generator[None, CycleState, tuple[CycleState, Any]]:
        """What one plugin answers, and the state that it came to."""
        call = self._guard.call
        steps = call(slot.name, _POINT, slot.plugin.post_filter, state, pod, rejected)
        if not isinstance(steps, Generator):
            raise self._guard.wrong_answer(slot.name, _POINT, steps, "a generator")
        over, answer = call(slot.name, _POINT, advance, steps, None)
        while not over:
            state = yield
            over, answer = call(slot.name, _POINT, advance, steps, state)
        return state, answer

    def _checked_answer(self, slot: PluginSlot, answer: Any) -> PostFilterAnswer:
        found, status = self._guard.pair(slot.name, _POINT, _PAIR, lambda: answer)
        self._guard.checked(slot.name, _POINT, status)
        if found is not None and not isinstance(found, PostFilterResult):
            raise self._guard.wrong_answer(slot.name, _POINT, found, "a PostFilterResult")
        return found, status

    @cached_property
    def _preemption(self) -> PluginSlot:
        slot = next((it for it in self.slots["postFilter"] if isinstance(it.plugin, Preemption)), None)
        if slot is None:
            raise NoPreemption("the profile has no DefaultPreemption")
        return slot

    def not_eligible(self, pod: Pod, nominated_node_status: Status) -> str:
        """Why the pod may not have others evicted; empty if it may. Raises ``PluginError`` or ``NoPreemption``."""
        slot = self._preemption
        why: str = self._guard.call(
            slot.name, _POINT, slot.plugin.pod_eligible_to_preempt_others, pod, nominated_node_status
        )
        return why

    def victims_on(self, state: CycleState, pod: Pod, node: NodeInfo) -> tuple[Victims, Status]:
        """Who would have to leave the node, or why that would not help. Raises ``PluginError`` or ``NoPreemption``."""
        slot = self._preemption
        asked = slot.plugin.select_victims_on_node
        victims, status = self._guard.pair(slot.name, _POINT, "(Victims, Status)", asked, state, pod, node)
        if not isinstance(victims, Victims):
            raise self._guard.wrong_answer(slot.name, _POINT, victims, "Victims")
        return victims, self._guard.checked(slot.name, _POINT, status)

    def pick(self, victims: Mapping[str, Victims]) -> tuple[str, ...]:
        """The nodes that one would be chosen of. Raises ``PluginError`` or ``NoPreemption``."""
        slot = self._preemption
        found: tuple[str, ...] = self._guard.call(slot.name, _POINT, slot.plugin.select_candidates, victims)
        return found


def advance(steps: PostFilterSteps, state: CycleState | None) -> tuple[bool, Any]:
    """Whether it is over, and with which answer. ``None`` begins it."""
    try:
        steps.send(state)  # type: ignore[arg-type]  # a generator begins with None
    except StopIteration as end:
        return True, end.value
    return False, None
