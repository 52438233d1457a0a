"""Guard around each plugin call: times some of the calls, counts faults, and converts an exception into a
``PluginError`` with the plugin's name.
"""

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
from app.runtime.clock_reads import MissingExpiry
from app.telemetry.metrics import Metrics
from app.telemetry.throttle import Throttle

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=Callable[..., Any])

SAMPLE_EVERY: Final = 17
"""One in this many evaluations is timed, with all plugin calls in it. The number is prime, so that each request of a
repeated sequence is timed in turn.
"""

_FAULT: Final = error("")
_PAIR: Final = 2
_TRIPLE: Final = 3
_SKIPPABLE: Final = ("PreFilter", "PreScore")
_MESSAGES: Final = {
    "PreFilterExtensionAddPod": 'running AddPod on PreFilter plugin "{}": {}',
    "PreFilterExtensionRemovePod": 'running RemovePod on PreFilter plugin "{}": {}',
    "Filter": 'running "{}" filter plugin: {}',
    "Score": 'running Score plugins: plugin "{}" failed with: {}',
    "NormalizeScore": 'running Normalize on Score plugins: plugin "{}" failed with: {}',
}
"""kube-scheduler's message formats by extension point. All other extension points have the same format, for example
``running PreFilter plugin "X": …``.
"""

_LOG = structlog.get_logger(__name__)


class PluginError(Exception):
    """Error: a plugin failed, so the evaluation must end. ``status`` is an Error with the plugin's name and message."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


def plugin_error(plugin: str, point: str, what: object) -> PluginError:
    """Return the error of a plugin at an extension point, with kube-scheduler's text. ``what``: the cause."""
    message = _MESSAGES.get(point)
    text = f'running {point} plugin "{plugin}": {what}' if message is None else message.format(plugin, what)
    return PluginError(error(text, plugin))


class WrongAnswer(TypeError):
    """Error: a plugin returned a value that its extension point does not allow."""


class FaultAtNode(Exception):
    """Wrapper of an exception that a plugin raised, with the name of the node that it evaluated."""

    def __init__(self, fault: Exception, node: NodeInfo) -> None:
        super().__init__()
        self.fault = fault
        self.node = node.name


def filter_each(
    evaluate: Callable[[CycleState, Pod, NodeInfo], Status], state: CycleState, pod: Pod, nodes: Iterable[NodeInfo]
) -> tuple[list[str], dict[str, Status]]:
    """Call ``evaluate`` for each node, and return the passing nodes and the rejections by node.

    The guard is entered once for all nodes, because a guarded call per node would be slow.
    """
    passed: list[str] = []
    rejected: dict[str, Status] = {}
    add = passed.append
    for node in nodes:
        try:
            status = evaluate(state, pod, node)
        except Unprepared:
            raise
        except Exception as fault:  # noqa: BLE001  # wraps any exception, to name the node
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
    """Call ``score`` for each node and return the raw scores. The guard is entered once for all nodes."""
    scores: list[int] = []
    add = scores.append
    for node in nodes:
        try:
            add(score(state, pod, node))
        except Unprepared:
            raise
        except Exception as fault:  # noqa: BLE001  # wraps any exception, to name the node
            raise FaultAtNode(fault, node) from None
    return scores


def required_objects(plugin: Plugin, pod: Pod) -> tuple[tuple[Kind[Any], str, str], ...]:
    """Return the answer of ``Plugin.required_objects`` as a tuple. Raises ``WrongAnswer``."""
    required: tuple[Any, ...] = tuple(plugin.required_objects(pod))
    if required and not all(isinstance(it, tuple) and len(it) == _TRIPLE for it in required):
        raise WrongAnswer("returned something other than tuples of a kind, a namespace and a name")
    return required


def _flaw(status: Any) -> str:
    """Describe a value that is not a valid ``Status``, for error messages. Return an empty text for a valid one."""
    if not isinstance(status, Status):
        return _described(status)
    code: Any = status.code
    reasons: Any = status.reasons
    if not isinstance(code, Code):
        return f"a Status whose code is {_described(code)}"
    if not isinstance(reasons, tuple | list) or not all(isinstance(it, str) for it in reasons):
        return "a Status whose reasons are not strings"
    return ""


def _described(value: object) -> str:
    """Return a short description of a value for error messages."""
    return repr(value) if value is None or isinstance(value, bool | int | float) else f"a {type(value).__name__}"


def status_label(answer: object) -> str:
    """Return the value of the metric label ``status`` for an answer. The label is Success for an answer without a
    ``Status``.
    """
    first = answer[0] if isinstance(answer, tuple) and answer else answer
    return WORDS[first.code] if isinstance(first, Status) and isinstance(first.code, Code) else WORDS[Code.SUCCESS]


class Guard:
    """Calls plugins, and raises ``PluginError`` in place of every exception but ``Unprepared``.

    A fault is logged at most once a minute per plugin, extension point and exception type. ``sampled``: True if the
    current evaluation is timed.
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
        """Call a plugin and return its answer. Raises ``PluginError`` or ``Unprepared``."""
        started = perf_counter() if self.sampled else 0.0
        answer: object = _FAULT
        try:
            answer = function(*args, **kwargs)
        except Unprepared:
            started = 0.0
            raise  # not a fault: the caller runs the steps and repeats the evaluation
        except PluginError:
            raise  # fault of another plugin, which this plugin called, for example in a dry run; already logged
        except FaultAtNode as at_node:
            raise self._fault(plugin, point, at_node.fault, args, node=at_node.node) from at_node.fault
        except Exception as fault:  # a plugin can raise anything
            raise self._fault(plugin, point, fault, args) from fault
        finally:
            if started:
                self._observe(plugin, point, answer, started)
        return answer

    def begin_evaluation(self, pod: Pod) -> None:
        """Record the pod whose filters or scores run now, and decide if they are timed. Evaluations never overlap."""
        self._pod = pod
        self._evaluations += 1
        self.sampled = self._evaluations % SAMPLE_EVERY == 0

    def status(self, plugin: str, point: str, function: Callable[..., Any], *args: Any) -> Status:
        """Call a plugin that must return a ``Status``. Raises ``PluginError`` or ``Unprepared``."""
        return self.checked(plugin, point, self.call(plugin, point, function, *args))

    def pair(self, plugin: str, point: str, expected: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a plugin that must return two values (``expected``). Raises ``PluginError`` or ``Unprepared``."""
        answer = self.call(plugin, point, function, *args)
        if type(answer) is not tuple or len(answer) != _PAIR:
            raise self.wrong_answer(plugin, point, answer, expected)
        return answer

    async def acall(
        self, plugin: str, point: str, function: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Like ``call``, for asynchronous extension points. All calls are timed, because there are few."""
        started = perf_counter()
        answer: object = _FAULT
        try:
            answer = await function(*args, **kwargs)
        except PluginError:
            raise  # a filter failed in the last check of ``Binder.bind``, which this plugin called; already logged
        except Exception as fault:  # a plugin can raise anything
            raise self._fault(plugin, point, fault, args) from fault
        finally:
            self._observe(plugin, point, answer, started)
        return answer

    async def watched(self, plugin: str, point: str, function: Callable[[], Awaitable[None]]) -> None:
        """Like ``acall``, for tasks that run until they are cancelled; durations are not recorded."""
        try:
            await function()
        except PluginError:
            raise  # fault of another plugin; already logged
        except Exception as fault:  # a plugin can raise anything
            self._pod = None  # the log line must not name the pod of the last evaluation
            raise self._fault(plugin, point, fault) from fault

    def expect(self, plugin: str, point: str, profile: str = "") -> None:
        """Create the metric series of a plugin's method at 0. With ``profile``, also create the point's series."""
        if (plugin, point, profile) in self._expected:
            return
        self._expected.add((plugin, point, profile))
        for status in (SUCCESS, SKIP) if point in _SKIPPABLE else (SUCCESS,):
            self._plugin_series(plugin, point, status.code.word)
        if profile:
            self._point_series(point, SUCCESS.code.word, profile)
        self._metrics.plugin_faults.labels(plugin, point)

    def expect_faults(self, plugin: str, point: str) -> None:
        """Create the fault counter of a plugin at 0, for a method that is not timed."""
        self._metrics.plugin_faults.labels(plugin, point)

    def _plugin_series(self, *labels: str) -> Histogram:
        series = self._of_plugin.get(labels)
        if series is None:
            series = self._of_plugin[labels] = self._metrics.plugin_duration.labels(*labels)
        return series

    def _point_series(self, *labels: str) -> Histogram:
        series = self._of_point.get(labels)
        if series is None:
            series = self._of_point[labels] = self._metrics.point_duration.labels(*labels)
        return series

    def _observe(self, plugin: str, point: str, answer: object, started: float) -> None:
        self._plugin_series(plugin, point, status_label(answer)).observe(perf_counter() - started)

    def observe_point(self, point: str, answer: object, profile: str, started: float) -> None:
        """Record the duration of all plugins at an extension point. ``started``: ``perf_counter`` at the start."""
        self._point_series(point, status_label(answer), profile).observe(perf_counter() - started)

    def observe_wait(self, status: Status, seconds: float) -> None:
        """Record how many seconds a pod waited at Permit, by the status with which the wait ended."""
        self._metrics.permit_wait.labels(status_label(status)).observe(seconds)

    def wrong_answer(self, plugin: str, point: str, answer: object, expected: str) -> PluginError:
        """Count and log a wrong answer, and return the error to raise. ``expected``: description of a right answer."""
        return self._fault(plugin, point, WrongAnswer(f"returned {_described(answer)}, not {expected}"))

    def missing_expiry(self, plugin: str, point: str, node: str = "") -> PluginError:
        """Count and log a ``MissingExpiry`` of the plugin, and return the error to raise."""
        return self._fault(plugin, point, MissingExpiry(point), node=node)

    def out_of_range(self, plugin: str, pod: Pod, node: str, score: int) -> None:
        """Count a score below 0 or above 100. At most one per plugin and minute is logged."""
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
        """Return the value if it is a valid ``Status``. Raises ``PluginError`` otherwise."""
        if status is not SUCCESS and status is not SKIP and (flaw := _flaw(status)):
            raise self._fault(plugin, point, WrongAnswer(f"returned {flaw}, not a Status"))
        good: Status = status
        return good

    def _fault(
        self, plugin: str, point: str, fault: Exception, args: Sequence[object] = (), node: str = ""
    ) -> PluginError:
        if isinstance(fault, Unreadable):
            return plugin_error(plugin, point, fault)  # not the plugin's fault; logged when decoding failed
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
    """Return a decorator that records the duration of each call of a method, which runs all plugins of the point.

    Calls that raise ``Unprepared`` are not recorded. The method's object must have ``guard`` and ``scheduler_name``.
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
