"""What every part of the engine has: the slots of a profile, the guard, and the times that are taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from time import perf_counter
from typing import Any, Final, TypeVar, cast

from app.framework.cycle_state import CycleState
from app.framework.interface import Reads
from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import Status, error
from app.kube.core_v1 import Pod
from app.runtime.guard import Guard, PluginError
from app.runtime.kept import KeptVerdicts
from app.runtime.kept_scores import KeptRows
from app.runtime.picture import Picture
from app.runtime.slots import PluginSlot
from app.runtime.views import NodeView

_PAIR: Final = 2
_FAULT: Final = error("")

M = TypeVar("M", bound=Callable[..., Any])


class Runner:
    """Runs plugins of one profile. ``slots`` holds those of every extension point, in order.

    The parts of the engine derive from it, and the engine from them: each takes what is its own and passes on the rest.
    """

    def __init__(
        self, *, scheduler_name: str, slots: Mapping[str, Sequence[PluginSlot]], guard: Guard, picture: Picture
    ) -> None:
        self.scheduler_name = scheduler_name
        self.slots = slots
        self._guard = guard
        self._picture = picture
        self._kept = KeptVerdicts(picture)
        self._rows = KeptRows(picture)

    def took(self, point: str, answer: object, started: float) -> None:
        """An extension point was run, beginning at ``started`` by ``perf_counter``; ``answer`` came of it."""
        self._guard.observe_point(point, getattr(answer, "status", answer), self.scheduler_name, started)

    def _status(self, slot: PluginSlot, point: str, function: Callable[..., Any], *args: Any) -> Status:
        """A plugin's answer where a status is asked for. Raises ``PluginError``."""
        return self._guard.checked(slot.name, point, self._guard.call(slot.name, point, function, *args))

    def _pair(self, slot: PluginSlot, point: str, wanted: str, function: Callable[..., Any], *args: Any) -> Any:
        """A plugin's answer where two things are asked for. Raises ``PluginError``."""
        found = self._guard.call(slot.name, point, function, *args)
        if type(found) is not tuple or len(found) != _PAIR:
            raise self._guard.wrong(slot.name, point, found, wanted)
        return found


def sees(slot: PluginSlot, state: CycleState, pod: Pod) -> Pod:
    """The pod as the plugin sees it where it decides."""
    parts = slot.parts
    if parts is None:
        return pod
    view = state.views.get(parts)
    if view is None:
        view = state.views[parts] = parts.view(pod)
    return view


def sees_node(slot: PluginSlot, node: NodeInfo) -> NodeInfo:
    """The node as the plugin sees it where it decides."""
    return NodeView(node) if slot.reads is Reads.NODE else node


def sees_nodes(slot: PluginSlot, nodes: Candidates) -> Candidates:
    """The same of many."""
    return nodes.seen_as(NodeView) if slot.reads is Reads.NODE else nodes


def sampled(point: str, *, always: bool = False) -> Callable[[M], M]:
    """The time that all plugins of a point take together: in an evaluation that is timed, or each time."""

    def decorate(method: M) -> M:
        @wraps(method)
        def measured(self: Runner, *args: Any) -> Any:
            if not always and not self._guard.sampled:
                return method(self, *args)
            started = perf_counter()
            try:
                answer = method(self, *args)
            except PluginError as fault:
                self.took(point, fault.status, started)
                raise
            self.took(point, answer, started)
            return answer

        return cast("M", measured)

    return decorate


def timed(point: str) -> Callable[[M], M]:
    """The time that all plugins of an acting point take together, each time."""

    def decorate(method: M) -> M:
        @wraps(method)
        async def measured(self: Runner, *args: Any) -> Any:
            started = perf_counter()
            answer: object = _FAULT
            try:
                answer = await method(self, *args)
            finally:
                self.took(point, answer, started)
            return answer

        return cast("M", measured)

    return decorate
