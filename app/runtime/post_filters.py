"""Extension point PostFilter, which tries to make a pod without a feasible node schedulable, for example by preemption.

Source of the rules: ``pkg/scheduler/framework/runtime`` and ``framework/preemption`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Final, Protocol, runtime_checkable

from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.framework.node_info import NodeInfo
from app.framework.points import PostFilterAnswer, PostFilterResult, PostFilterSteps, Victims
from app.framework.status import Code, Status, error
from app.kube.core_v1 import Pod
from app.runtime.filters import Filters
from app.runtime.guard import Guard, PluginError
from app.runtime.slots import PluginSlot

_POINT: Final = "PostFilter"
_PAIR: Final = "(result, Status)"


class NoPreemption(LookupError):
    """Error: the profile has no plugin that can preempt pods."""


@runtime_checkable
class Preemption(Protocol):
    """Interface of a PostFilter plugin that preempts pods, with the names of kube-scheduler's ``preemption.Interface``.

    It is not part of the plugin contract. DefaultPreemption implements it. The command ``evaluate`` uses it to find the
    victims on any node; ``preemption: Own`` and explain use it to find victims for topology spread. Its methods evict
    nothing.
    """

    def pod_eligible_to_preempt_others(self, pod: Pod, nominated_node_status: Status) -> str:
        """Return why the pod must not preempt other pods, or an empty string if it can.

        ``nominated_node_status``: verdict of the filters on the node to which the pod is nominated, if any.
        """
        ...

    def select_victims_on_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> tuple[Victims, Status]:
        """Return the pods to evict from the node for ``pod`` and Success, or no pods and the reason why eviction does
        not help. Pods of lower priority that can stay are reprieved.
        """
        ...

    def select_candidates(self, victims: Mapping[str, Victims]) -> tuple[str, ...]:
        """Return the nodes whose victims are the best choice: none without victims, several that are equally good."""
        ...

    def victims_for_spread(
        self, state: CycleState, pod: Pod, rejected: Mapping[str, Status], stays: Callable[[Pod], str]
    ) -> PostFilterSteps:
        """Find victims like ``PostFilterPlugin.post_filter``, but only to satisfy topology spread constraints, and by
        the rules of ``preemption: Own``.

        ``stays``: returns why a pod must not be evicted, or an empty string.
        """
        ...


class PostFilters:
    """Runs the PostFilter plugins of one profile."""

    def __init__(self, slots: Mapping[str, Sequence[PluginSlot]], guard: Guard) -> None:
        self.slots = slots
        self._guard = guard

    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        """Run the PostFilter plugins in order, in steps of some milliseconds.

        After each step, the caller sends the state of a new PreFilter. The first Success or
        UnschedulableAndUnresolvable is the answer. Otherwise the answer is Unschedulable with the reasons of all
        plugins, the last result that is not ``None``, and the name of the first plugin. Raises ``PluginError`` or
        ``Unprepared``.
        """
        result: PostFilterResult | None = None
        reasons: list[str] = []
        rejector = ""
        for slot in self.slots["postFilter"]:
            state, answer = yield from self._run(slot, state, pod, rejected)
            new_result, status = self._checked_answer(slot, answer)
            if status.is_success or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return new_result, status.by(slot.name)
            if not status.is_rejected:
                raise PluginError(error(status.message, slot.name))
            result = new_result or result
            reasons.extend(status.reasons)
            rejector = rejector or slot.name
        return result, Status(Code.UNSCHEDULABLE, tuple(reasons), rejector)

    def _run(
        self, slot: PluginSlot, state: CycleState, pod: Pod, rejected: Mapping[str, Status]
    ) -> Generator[None, CycleState, tuple[CycleState, Any]]:
        """Run one plugin to its end. Return the state that the caller sent last, and the plugin's answer."""
        steps = self._guard.call(slot.name, _POINT, slot.plugin.post_filter, state, pod, rejected)
        return (yield from self._run_steps(slot, steps, state))

    def _run_steps(
        self, slot: PluginSlot, steps: Any, state: CycleState
    ) -> Generator[None, CycleState, tuple[CycleState, Any]]:
        call = self._guard.call
        if not isinstance(steps, Generator):
            raise self._guard.wrong_answer(slot.name, _POINT, steps, "a generator")
        over, answer = call(slot.name, _POINT, advance, steps, None)
        while not over:
            state = yield
            over, answer = call(slot.name, _POINT, advance, steps, state)
        return state, answer

    def _checked_answer(self, slot: PluginSlot, answer: Any) -> PostFilterAnswer:
        result, status = self._guard.pair(slot.name, _POINT, _PAIR, lambda: answer)
        self._guard.checked(slot.name, _POINT, status)
        if result is not None and not isinstance(result, PostFilterResult):
            raise self._guard.wrong_answer(slot.name, _POINT, result, "a PostFilterResult")
        return result, status

    @cached_property
    def _preemption(self) -> PluginSlot:
        slot = next((it for it in self.slots["postFilter"] if isinstance(it.plugin, Preemption)), None)
        if slot is None:
            raise NoPreemption("the profile has no DefaultPreemption")
        return slot

    def not_eligible(self, pod: Pod, nominated_node_status: Status) -> str:
        """Return why the pod must not preempt other pods, or ``""``. Raises ``PluginError`` or ``NoPreemption``."""
        slot = self._preemption
        why: str = self._guard.call(
            slot.name, _POINT, slot.plugin.pod_eligible_to_preempt_others, pod, nominated_node_status
        )
        return why

    def victims_on(self, state: CycleState, pod: Pod, node: NodeInfo) -> tuple[Victims, Status]:
        """Return the pods that must be evicted from the node and Success, or a status with the reason why evicting pods
        does not help. Raises ``PluginError`` or ``NoPreemption``.
        """
        slot = self._preemption
        select = slot.plugin.select_victims_on_node
        victims, status = self._guard.pair(slot.name, _POINT, "(Victims, Status)", select, state, pod, node)
        if not isinstance(victims, Victims):
            raise self._guard.wrong_answer(slot.name, _POINT, victims, "Victims")
        return victims, self._guard.checked(slot.name, _POINT, status)

    def for_spread(
        self, state: CycleState, pod: Pod, rejected: Mapping[str, Status], stays: Callable[[Pod], str]
    ) -> PostFilterSteps:
        """Find victims for topology spread, in steps. Raises the exceptions of ``post_filter``, or ``NoPreemption``."""
        slot = self._preemption
        steps = self._guard.call(slot.name, _POINT, slot.plugin.victims_for_spread, state, pod, rejected, stays)
        _, answer = yield from self._run_steps(slot, steps, state)
        result, status = self._checked_answer(slot, answer)
        return result, status.by(slot.name)

    def pick(self, victims: Mapping[str, Victims]) -> tuple[str, ...]:
        """Return the nodes that ``select_candidates`` finds best. Raises ``PluginError`` or ``NoPreemption``."""
        slot = self._preemption
        nodes: tuple[str, ...] = self._guard.call(slot.name, _POINT, slot.plugin.select_candidates, victims)
        return nodes


def answer_in_steps(
    filters: Filters,
    seen: Callable[[], AbstractContextManager[None]],
    pod: Pod,
    begin: Callable[[CycleState], PostFilterSteps],
) -> Generator[None, None, PostFilterAnswer | None]:
    """Run a search for victims in steps, each on the snapshot of that moment. Return the answer, or ``None`` if
    PreFilter rejects the pod.

    ``seen``: returns the context for one step, which for example leaves the pod out of the snapshot. ``begin``: starts
    the search. Raises ``PluginError``, and the exceptions of the search except ``Unprepared``.
    """
    steps: PostFilterSteps | None = None
    while True:
        try:
            with seen():
                state = CycleState()
                if not filters.pre_filter(state, pod).status.is_success:
                    return None
                begins = steps is None
                steps = steps or begin(state)
                over, answer = advance(steps, None if begins else state)
        except Unprepared as missing:
            steps = None  # the counts are not cached any more: begin again
            yield from missing.steps
            continue
        if over:
            last: PostFilterAnswer = answer
            return last
        yield


def advance(steps: PostFilterSteps, state: CycleState | None) -> tuple[bool, Any]:
    """Send ``state`` to the generator, or ``None`` to start it. Return (True, answer) if it has ended, else
    (False, ``None``).
    """
    try:
        steps.send(state)  # type: ignore[arg-type]  # a generator is started with None
    except StopIteration as end:
        return True, end.value
    return False, None
