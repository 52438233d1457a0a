"""Extension points from Reserve to PostBind, which run after a node is chosen.

Source of the rules: ``pkg/scheduler/framework/runtime`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar, cast, runtime_checkable

import structlog

from app.framework.cycle_state import CycleState
from app.framework.status import SUCCESS, Code, Status, error
from app.kube.core_v1 import Pod
from app.runtime.guard import Guard, PluginError, plugin_error, timed_point
from app.runtime.slots import PluginSlot
from app.runtime.waiting import MAX_WAIT_SECONDS, PodsAtPermit
from app.telemetry.throttle import Throttle

_LOG: Final = structlog.get_logger(__name__)
_FAULT: Final = error("")
"""Status that is recorded for a call that raises an exception or is cancelled."""

_WAIT: Final = Status(Code.WAIT)


@runtime_checkable
class DeletionCosts(Protocol):
    """Interface of a Reserve plugin that sets the deletion costs of pods. It is not part of the plugin contract.

    PodTopologySpread implements it for the option ``scaleDown: Spread``.
    """

    def deletion_cost_on(self, pod: Pod, node_name: str) -> int | None:
        """Return the deletion cost that the pod would get on the node; ``None`` if it would get none."""
        ...


M = TypeVar("M", bound=Callable[..., Any])


def _timed(point: str) -> Callable[[M], M]:
    """Return a decorator like ``timed_point``, for asynchronous methods. A call that raises an exception or is
    cancelled is recorded as an Error.
    """

    def decorate(method: M) -> M:
        @wraps(method)
        async def measured(self: Any, *args: Any) -> Any:
            started = perf_counter()
            answer: object = _FAULT
            try:
                answer = await method(self, *args)
            finally:
                self.guard.observe_point(point, answer, self.scheduler_name, started)
            return answer

        return cast("M", measured)

    return decorate


class BindingCycle:
    """Runs the plugins of one profile from Reserve to PostBind. ``waiting`` holds the pods that wait at Permit."""

    def __init__(
        self, scheduler_name: str, slots: Mapping[str, Sequence[PluginSlot]], *, guard: Guard, waiting: PodsAtPermit
    ) -> None:
        self.scheduler_name = scheduler_name
        self.slots = slots
        self.guard = guard
        self._waiting = waiting
        self._clips = Throttle()

    @timed_point("Reserve")
    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Run the Reserve plugins in order, up to the first status that is not Success, and return that status.

        After a failure here or later in the bind, the caller must call ``unreserve``. Raises ``PluginError``.
        """
        for slot in self.slots["reserve"]:
            status = self.guard.status(slot.name, "Reserve", slot.plugin.reserve, state, pod, node_name)
            if status.code is not Code.SUCCESS:
                return status.by(slot.name)
        return SUCCESS

    def deletion_cost_on(self, pod: Pod, node_name: str) -> int | None:
        """Return the deletion cost that a bind of the pod to the node would set; ``None`` if it would set none.

        Unlike ``reserve``, the call changes no state of the plugin. Raises ``PluginError``.
        """
        for slot in self.slots["reserve"]:
            if isinstance(slot.plugin, DeletionCosts):
                cost: int | None = self.guard.call(slot.name, "Reserve", slot.plugin.deletion_cost_on, pod, node_name)
                return cost
        return None

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Call ``unreserve`` of all Reserve plugins in reverse order, even if their ``reserve`` did not run. After a
        fault of one plugin, the remaining ones still run.
        """
        for slot in reversed(self.slots["reserve"]):
            try:
                self.guard.call(slot.name, "Unreserve", slot.plugin.unreserve, state, pod, node_name)
            except PluginError:
                continue

    async def permit(self, state: CycleState, pod: Pod, node_name: str, *, limit: float) -> Status:
        """Run the Permit plugins, and return Success or a rejection. Raises ``PluginError``.

        If a plugin returns Wait, wait until the pod is allowed or rejected. After at most ``limit`` seconds the pod is
        rejected. Other pods are not blocked meanwhile.
        """
        status, waits = self._permit(state, pod, node_name, limit)
        if status.code is not Code.WAIT:
            return status
        started = perf_counter()
        settled = await self._waiting.wait(pod, node_name, waits)
        self.guard.observe_wait(settled, perf_counter() - started)
        return settled

    @timed_point("Permit")
    def _permit(self, state: CycleState, pod: Pod, node_name: str, limit: float) -> tuple[Status, dict[str, float]]:
        """Return Success, a rejection, or Wait with the timeout in seconds of each plugin that returned Wait."""
        waits: dict[str, float] = {}
        status: Status
        for slot in self.slots["permit"]:
            status, seconds = self.guard.pair(
                slot.name, "Permit", "(Status, seconds)", slot.plugin.permit, state, pod, node_name
            )
            self.guard.checked(slot.name, "Permit", status)
            if status.is_rejected:
                return status.by(slot.name), {}
            if status.code is Code.WAIT:
                if not isinstance(seconds, int | float) or not seconds >= 0:
                    raise self.guard.wrong_answer(slot.name, "Permit", seconds, "seconds to wait")
                waits[slot.name] = self._clipped(slot.name, min(seconds, MAX_WAIT_SECONDS), limit)
            elif status.code is not Code.SUCCESS:
                raise plugin_error(slot.name, "Permit", status.message)
        return (_WAIT if waits else SUCCESS), waits

    def _clipped(self, plugin: str, seconds: float, limit: float) -> float:
        """Return ``seconds``, or ``limit`` if that is less. After ``limit`` seconds the deadline of the bind has
        passed, and the pod can no longer be bound.
        """
        if seconds > limit and (held_back := self._clips.admit(plugin)) is not None:
            _LOG.warning(
                "permit wait clipped to the caller's time limit",
                plugin=plugin,
                asked=seconds,
                limit=limit,
                since_the_last_line=held_back,
            )
        return min(seconds, limit)

    @_timed("PreBind")
    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Run the PreBind plugins in order, up to the first status that is not Success, and return that status.

        Raises ``PluginError``.
        """
        for slot in self.slots["preBind"]:
            answer = await self.guard.acall(slot.name, "PreBind", slot.plugin.pre_bind, state, pod, node_name)
            status = self.guard.checked(slot.name, "PreBind", answer)
            if status.code is not Code.SUCCESS:
                return status.by(slot.name)
        return SUCCESS

    @_timed("Bind")
    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Run the Bind plugins up to the first that does not return Skip. Return its status, or an Error if all skip.

        Raises ``PluginError``.
        """
        for slot in self.slots["bind"]:
            answer = await self.guard.acall(slot.name, "Bind", slot.plugin.bind, state, pod, node_name)
            status = self.guard.checked(slot.name, "Bind", answer)
            if status.code is not Code.SKIP:
                return status.by(slot.name)
        return error("every bind plugin skipped the pod")

    @_timed("PostBind")
    async def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Call every PostBind plugin. A fault is logged and otherwise ignored, because the pod is bound already."""
        for slot in self.slots["postBind"]:
            try:
                await self.guard.acall(slot.name, "PostBind", slot.plugin.post_bind, state, pod, node_name)
            except PluginError:
                continue
