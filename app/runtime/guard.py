"""Calls one plugin: times it, counts it, and turns a fault into an Error status that names it."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import wraps
from time import perf_counter
from typing import Any, Final, ParamSpec, TypeVar, cast

import structlog
from prometheus_client import Histogram

from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.framework.node_info import NodeInfo
from app.framework.objects import Unreadable
from app.framework.points import Plugin
from app.framework.status import SKIP, SUCCESS, WORDS, Code, Status, error
from app.kube.core_v1 import Pod
from app.kube.kinds import Kind
from app.runtime.clock_reads import UndatedAnswer
from app.telemetry.metrics import Metrics
from app.telemetry.throttle import Throttle

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=Callable[..., Any])

SAMPLE_EVERY: Final = 17
"""Evaluations of which one is timed, with every call in it. A prime: requests come in the same order over and over."""

_FAULT: Final = error("")
_PAIR: Final = 2
_TRIPLE: Final = 3
_SKIPPABLE: Final = ("PreFilter", "PreScore")
_WORDS: Final = {
    "PreFilterExtensionAddPod": 'running AddPod on PreFilter plugin "{}": {}',
    "PreFilterExtensionRemovePod": 'running RemovePod on PreFilter plugin "{}": {}',
    "Filter": 'running "{}" filter plugin: {}',
    "Score": 'running Score plugins: plugin "{}" failed with: {}',
    "NormalizeScore": 'running Normalize on Score plugins: plugin "{}" failed with: {}',
}
"""kube-scheduler's words where they are not the usual ones: `running PreFilter plugin "X": …`."""

_LOG = structlog.get_logger(__name__)


class PluginError(Exception):
    """The evaluation cannot go on. ``status`` is an Error with the plugin's name and what it said."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


def plugin_error(plugin: str, point: str, what: object) -> PluginError:
    """An error at an extension point, in kube-scheduler's words."""
    words = _WORDS.get(point)
    text = f'running {point} plugin "{plugin}": {what}' if words is None else words.format(plugin, what)
    return PluginError(error(text, plugin))


class WrongAnswer(TypeError):
    """What a plugin returned is not what its extension point asks for."""


class FaultAtNode(Exception):
    """What a plugin raised, and at which node."""

    def __init__(self, fault: Exception, node: NodeInfo) -> None:
        super().__init__()
        self.fault = fault
        self.node = node.name


def filter_each(
    judge: Callable[[CycleState, Pod, NodeInfo], Status], state: CycleState, pod: Pod, nodes: Iterable[NodeInfo]
) -> tuple[list[str], dict[str, Status]]:
    """Return the nodes that pass and those that are rejected, by a plugin that judges one: one guarded call for all."""
    passed: list[str] = []
    rejected: dict[str, Status] = {}
    add = passed.append
    for node in nodes:
        try:
            status = judge(state, pod, node)
        except Unprepared:
            raise
        except Exception as fault:  # noqa: BLE001  # whatever it is, with its place
            raise FaultAtNode(fault, node) from None
        if status is SUCCESS:
            add(node.node.name)
        elif _flaw(status):
            raise FaultAtNode(WrongAnswer(f"returned {_flaw(status)}, not a Status"), node)
        elif status.is_success:
            add(node.node.name)
        else:
            rejected[node.node.name] = status
    return passed, rejected


def score_each(
    score: Callable[[CycleState, Pod, NodeInfo], int], state: CycleState, pod: Pod, nodes: Iterable[NodeInfo]
) -> list[int]:
    """Return the raw scores by a plugin that scores one node: one guarded call for all."""
    found: list[int] = []
    add = found.append
    for node in nodes:
        try:
            add(score(state, pod, node))
        except Unprepared:
            raise
        except Exception as fault:  # noqa: BLE001  # whatever it is, with its place
            raise FaultAtNode(fault, node) from None
    return found


def required_objects(plugin: Plugin, pod: Pod) -> tuple[tuple[Kind[Any], str, str], ...]:
    found: tuple[Any, ...] = tuple(plugin.required_objects(pod))
    if found and not all(isinstance(it, tuple) and len(it) == _TRIPLE for it in found):
        raise WrongAnswer("returned something else than triples of a kind, a namespace and a name")
    return found


def _flaw(status: Any) -> str:
    """What keeps an answer from being a status; empty if it is one."""
    if not isinstance(status, Status):
        return _described(status)
    code: Any = status.code
    reasons: Any = status.reasons
    if not isinstance(code, Code):
        return f"a Status whose code is {_described(code)}"
    if not isinstance(reasons, tuple | list) or not all(isinstance(it, str) for it in reasons):
        return "a Status whose reasons are no texts"
    return ""


def _described(found: object) -> str:
    """A value by its type, and by itself where that is short."""
    return repr(found) if found is None or isinstance(found, bool | int | float) else f"a {type(found).__name__}"


def status_label(answer: object) -> str:
    """The code of a plugin's answer: of a status, alone or first of a pair. Whatever else was answered is a success."""
    first = answer[0] if isinstance(answer, tuple) and answer else answer
    return WORDS[first.code] if isinstance(first, Status) and isinstance(first.code, Code) else WORDS[Code.SUCCESS]


class Guard:
    """Has a broad ``except``: whatever a plugin raises must not end the service.

    A fault is logged once a minute for each plugin, extension point and type. ``sampled``: whether the evaluation that
    runs is timed.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._evaluations = 0
        self._pod: Pod | None = None
        self.sampled = False
        self._throttle = Throttle()
        self._expected: set[tuple[str, str, str]] = set()
        self._of_plugin: dict[tuple[str, ...], Histogram] = {}
        self._of_point: dict[tuple[str, ...], Histogram] = {}

    def call(self, plugin: str, point: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The plugin's answer. Raises ``PluginError``."""
        started = perf_counter() if self.sampled else 0.0
        answer: object = _FAULT
        try:
            answer = function(*args, **kwargs)
        except Unprepared:
            started = 0.0
            raise  # no fault: the caller makes it ready and asks again
        except PluginError:
            raise  # another plugin's, met by what this one asked for, as in a dry run: told already
        except FaultAtNode as found:
            raise self._fault(plugin, point, found.fault, args, node=found.node) from found.fault
        except Exception as fault:  # the guard: see the class
            raise self._fault(plugin, point, fault, args) from fault
        finally:
            if started:
                self._observe(plugin, point, answer, started)
        return answer

    def begin_evaluation(self, pod: Pod) -> None:
        """An evaluation begins: the filters for a pod, or its scores. Nobody else runs before it ends."""
        self._pod = pod
        self._evaluations += 1
        self.sampled = self._evaluations % SAMPLE_EVERY == 0

    def status(self, plugin: str, point: str, function: Callable[..., Any], *args: Any) -> Status:
        """Return the plugin's answer where it is to be a status. Raises ``PluginError``."""
        return self.checked(plugin, point, self.call(plugin, point, function, *args))

    def pair(self, plugin: str, point: str, wanted: str, function: Callable[..., Any], *args: Any) -> Any:
        """Return the plugin's answer where it is to be two values. Raises ``PluginError``."""
        found = self.call(plugin, point, function, *args)
        if type(found) is not tuple or len(found) != _PAIR:
            raise self.wrong_answer(plugin, point, found, wanted)
        return found

    async def acall(
        self, plugin: str, point: str, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """The same for an acting extension point; these are few and all timed."""
        started = perf_counter()
        answer: object = _FAULT
        try:
            answer = await function(*args, **kwargs)
        except PluginError:
            raise  # another plugin's, met by what this one asked for, as a bind plugin's binder: told already
        except Exception as fault:  # the guard: see the class
            raise self._fault(plugin, point, fault, args) from fault
        finally:
            self._observe(plugin, point, answer, started)
        return answer

    async def watched(self, plugin: str, point: str, function: Callable[[], Awaitable[None]]) -> None:
        """The same for what goes on until it is cancelled: how long that takes says nothing."""
        try:
            await function()
        except PluginError:
            raise  # another plugin's: told already
        except Exception as fault:  # the guard: see the class
            self._pod = None  # whichever was asked about last has nothing to do with it
            raise self._fault(plugin, point, fault) from fault

    def expect(self, plugin: str, point: str, profile: str = "") -> None:
        """Begin the series of the plugin at 0. ``profile``: empty for a method that is no extension point."""
        if (plugin, point, profile) in self._expected:
            return
        self._expected.add((plugin, point, profile))
        for status in (SUCCESS, SKIP) if point in _SKIPPABLE else (SUCCESS,):
            self._plugin_series(plugin, point, status.code.word)
        if profile:
            self._point_series(point, SUCCESS.code.word, profile)
        self._metrics.plugin_faults.labels(plugin, point)

    def expect_faults(self, plugin: str, point: str) -> None:
        """The plugin does what is watched and not timed."""
        self._metrics.plugin_faults.labels(plugin, point)

    def _plugin_series(self, *labels: str) -> Histogram:
        found = self._of_plugin.get(labels)
        if found is None:
            found = self._of_plugin[labels] = self._metrics.plugin_duration.labels(*labels)
        return found

    def _point_series(self, *labels: str) -> Histogram:
        found = self._of_point.get(labels)
        if found is None:
            found = self._of_point[labels] = self._metrics.point_duration.labels(*labels)
        return found

    def _observe(self, plugin: str, point: str, answer: object, started: float) -> None:
        self._plugin_series(plugin, point, status_label(answer)).observe(perf_counter() - started)

    def observe_point(self, point: str, answer: object, profile: str, started: float) -> None:
        """Observe the time of all plugins of an extension point. ``started``: by ``perf_counter``."""
        self._point_series(point, status_label(answer), profile).observe(perf_counter() - started)

    def observe_wait(self, status: Status, seconds: float) -> None:
        """A pod waited at Permit."""
        self._metrics.permit_wait.labels(status_label(status)).observe(seconds)

    def wrong_answer(self, plugin: str, point: str, found: object, wanted: str) -> PluginError:
        """The fault of an answer that is none: ``wanted`` is what the extension point asks for."""
        return self._fault(plugin, point, WrongAnswer(f"returned {_described(found)}, not {wanted}"))

    def undated_answer(self, plugin: str, point: str, node: str = "") -> PluginError:
        """Return the fault of a cached answer that rests on a clock and does not expire."""
        return self._fault(plugin, point, UndatedAnswer(point), node=node)

    def out_of_range(self, plugin: str, pod: Pod, node: str, score: int) -> None:
        """Count a score below 0 or above 100; log one of each plugin a minute."""
        self._metrics.scores_out_of_range.labels(plugin).inc()
        held_back = self._throttle.admit(f"{plugin} score")
        if held_back is not None:
            _LOG.warning(
                "score out of range",
                plugin=plugin,
                pod=str(pod),
                node=node,
                score=score,
                since_the_last_line=held_back,
            )

    def checked(self, plugin: str, point: str, status: Any) -> Status:
        """A status that may be passed on. Raises ``PluginError`` for anything else."""
        if status is not SUCCESS and status is not SKIP and (found := _flaw(status)):
            raise self._fault(plugin, point, WrongAnswer(f"returned {found}, not a Status"))
        good: Status = status
        return good

    def _fault(
        self, plugin: str, point: str, fault: Exception, args: Sequence[object] = (), node: str = ""
    ) -> PluginError:
        if isinstance(fault, Unreadable):
            return plugin_error(plugin, point, fault)  # no fault of the plugin's, and told when it was left out
        self._metrics.plugin_faults.labels(plugin, point).inc()
        held_back = self._throttle.admit(f"{plugin} {point} {type(fault).__name__}")
        if held_back is not None:
            pod = next((it for it in args if isinstance(it, Pod)), self._pod)
            trace = "".join(traceback.format_exception(fault))
            _LOG.error(
                "plugin fault",
                plugin=plugin,
                point=point,
                pod=str(pod or ""),
                node=node,
                traceback=trace,
                since_the_last_line=held_back,
            )
        return plugin_error(plugin, point, fault)


def timed_point(point: str) -> Callable[[M], M]:
    """Time all plugins of a point together, each time.

    For methods of what has a ``guard`` and a ``scheduler_name``, as has ``timed_async``.
    """

    def decorate(method: M) -> M:
        @wraps(method)
        def measured(self: Any, *args: Any) -> Any:
            started = perf_counter()
            try:
                answer = method(self, *args)
            except PluginError as fault:
                self.guard.observe_point(point, fault.status, self.scheduler_name, started)
                raise
            self.guard.observe_point(point, getattr(answer, "status", answer), self.scheduler_name, started)
            return answer

        return cast("M", measured)

    return decorate
