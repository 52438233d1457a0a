"""Extension points from Reserve to PostBind, which run after a node is chosen.

Source of the rules: ``pkg/scheduler/framework/runtime`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from time import perf_counter
from typing import Any, Final, TypeVar, cast

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
_WAIT: Final = Status(Code.WAIT)


M = TypeVar("M", bound=Callable[..., Any])


def _timed(point: str) -> Callable[[M], M]:
    """Time all plugins of an asynchronous extension point together, like ``timed_point``."""

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
    """Plugins of one profile for the binding cycle. ``waiting`` holds the pods that wait at Permit."""

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
        """Run the Reserve plugins in order; the first failure stops. After a failure here or later in the bind, the
        caller must call ``unreserve``.
        """
        for slot in self.slots["reserve"]:
            status = self.guard.status(slot.name, "Reserve", slot.plugin.reserve, state, pod, node_name)
            if status.code is not Code.SUCCESS:
                return status.by(slot.name)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Undo all Reserve plugins in reverse order, also those that never reserved. A fault of one does not stop the
        others.
        """
        for slot in reversed(self.slots["reserve"]):
            try:
                self.guard.call(slot.name, "Unreserve", slot.plugin.unreserve, state, pod, node_name)
            except PluginError:
                continue

    async def permit(self, state: CycleState, pod: Pod, node_name: str, *, limit: float) -> Status:
        """Run Permit and, if a plugin returns Wait, wait at most ``limit`` seconds without blocking other pods."""
        status, waits = self._permit(state, pod, node_name, limit)
        if status.code is not Code.WAIT:
            return status
        started = perf_counter()
        settled = await self._waiting.wait(pod, node_name, waits)
        self.guard.observe_wait(settled, perf_counter() - started)
        return settled

    @timed_point("Permit")
    def _permit(self, state: CycleState, pod: Pod, node_name: str, limit: float) -> tuple[Status, dict[str, float]]:
        """Return Success, a rejection, or Wait with each plugin's wait time in seconds."""
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
        """Limit a wait to ``limit`` seconds. The client of the bind request stops waiting then, and a pod that waits
        longer is never bound.
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
        """Run the PreBind plugins in order; the first failure stops."""
        for slot in self.slots["preBind"]:
            answer = await self.guard.acall(slot.name, "PreBind", slot.plugin.pre_bind, state, pod, node_name)
            status = self.guard.checked(slot.name, "PreBind", answer)
            if status.code is not Code.SUCCESS:
                return status.by(slot.name)
        return SUCCESS

    @_timed("Bind")
    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Return the status of the first bind plugin that does not answer Skip, or an error if all skip."""
        for slot in self.slots["bind"]:
            answer = await self.guard.acall(slot.name, "Bind", slot.plugin.bind, state, pod, node_name)
            status = self.guard.checked(slot.name, "Bind", answer)
            if status.code is not Code.SKIP:
                return status.by(slot.name)
        return error("every bind plugin skipped the pod")

    @_timed("PostBind")
    async def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Call every PostBind plugin. The pod is bound already, so the guard only logs a fault."""
        for slot in self.slots["postBind"]:
            try:
                await self.guard.acall(slot.name, "PostBind", slot.plugin.post_bind, state, pod, node_name)
            except PluginError:
                continue
