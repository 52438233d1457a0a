"""Calls one plugin: times it, counts it, and turns a fault into an Error status that names it."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final, ParamSpec, TypeVar

import structlog
from prometheus_client import Histogram

from app.framework.interface import Unprepared, Unreadable
from app.framework.status import SKIP, SUCCESS, Code, Status, error
from app.telemetry.metrics import Metrics

P = ParamSpec("P")
R = TypeVar("R")

SAMPLE_EVERY: Final = 17
"""A prime: a request makes the same few calls in the same order, and a divisor of theirs would always meet one."""

_FAULT: Final = error("")
_SKIPPABLE: Final = ("PreFilter", "PreScore")
_WORDS: Final = {
    "PreFilterExtensionAddPod": 'running AddPod on PreFilter plugin "{}": {}',
    "PreFilterExtensionRemovePod": 'running RemovePod on PreFilter plugin "{}": {}',
    "Filter": 'running "{}" filter plugin: {}',
    "Score": 'running Score plugins: plugin "{}" failed with: {}',
    "NormalizeScore": 'running Normalize on Score plugins: plugin "{}" failed with: {}',
    "PreBindPreFlight": 'running PreBindPreFlight "{}": {}',
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


def word_of(answer: object) -> str:
    """The code of a plugin's answer: of a status, alone or first of a pair. Whatever else was answered is a success."""
    first = answer[0] if isinstance(answer, tuple) and answer else answer
    return first.code.word if isinstance(first, Status) and isinstance(first.code, Code) else SUCCESS.code.word


class Guard:
    """One of the two places with a broad ``except``: whatever a plugin raises must not end the service.

    ``terse``: faults are answers too, so of one kind of fault at one point only the first is logged.
    """

    def __init__(self, metrics: Metrics, *, terse: bool = False) -> None:
        self._metrics = metrics
        self._calls = 0
        self._terse = terse
        self._of_plugin: dict[tuple[str, ...], Histogram] = {}
        self._of_point: dict[tuple[str, ...], Histogram] = {}
        self._logged: set[tuple[str, str, type[Exception]]] = set()

    def call(self, plugin: str, point: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The plugin's answer. Raises ``PluginError``. Every seventeenth call is timed."""
        self._calls += 1
        started = perf_counter() if self._calls % SAMPLE_EVERY == 0 else 0.0
        answer: object = _FAULT
        try:
            answer = function(*args, **kwargs)
        except Unprepared:
            started = 0.0
            raise  # no fault: the caller makes it ready and asks again
        except Exception as fault:  # the guard: see the class
            raise self._fault(plugin, point, fault) from fault
        finally:
            if started:
                self._observe(plugin, point, answer, started)
        return answer

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
            raise self._fault(plugin, point, fault) from fault
        finally:
            self._observe(plugin, point, answer, started)
        return answer

    def expect(self, plugin: str, point: str, profile: str) -> None:
        """The plugin takes part there: its series begin at 0, and not with what happens first."""
        for status in (SUCCESS, SKIP) if point in _SKIPPABLE else (SUCCESS,):
            self._plugin_series(plugin, point, status.code.word)
        self._point_series(point, SUCCESS.code.word, profile)
        self._metrics.plugin_faults.labels(plugin, point)

    def expect_also(self, plugin: str, method: str) -> None:
        """The plugin is asked for what belongs to no extension point of its own."""
        self._plugin_series(plugin, method, SUCCESS.code.word)
        self._metrics.plugin_faults.labels(plugin, method)

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
        seconds = perf_counter() - started
        self._plugin_series(plugin, point, word_of(answer)).observe(seconds)

    def observe_point(self, point: str, answer: object, profile: str, started: float) -> None:
        """All plugins of an extension point were called. ``started``: by ``perf_counter``."""
        seconds = perf_counter() - started
        self._point_series(point, word_of(answer), profile).observe(seconds)

    def observe_wait(self, status: Status, seconds: float) -> None:
        """A pod waited at Permit."""
        self._metrics.permit_wait.labels(word_of(status)).observe(seconds)

    def wrong(self, plugin: str, point: str, found: object, wanted: str) -> PluginError:
        """The fault of an answer that is none: ``wanted`` is what the extension point asks for."""
        return self._fault(plugin, point, WrongAnswer(f"returned {_described(found)}, not {wanted}"))

    def checked(self, plugin: str, point: str, status: Any) -> Status:
        """A status that may be passed on. Raises ``PluginError`` for anything else."""
        if status is not SUCCESS and status is not SKIP and (found := _flaw(status)):
            raise self._fault(plugin, point, WrongAnswer(f"returned {found}, not a Status"))
        good: Status = status
        return good

    def _fault(self, plugin: str, point: str, fault: Exception) -> PluginError:
        if isinstance(fault, Unreadable):
            return plugin_error(plugin, point, fault)  # no fault of the plugin's, and told when it was left out
        self._metrics.plugin_faults.labels(plugin, point).inc()
        kind = (plugin, point, type(fault))
        if not self._terse or kind not in self._logged:
            self._logged.add(kind)
            _LOG.error("plugin fault", plugin=plugin, point=point, traceback="".join(traceback.format_exception(fault)))
        return plugin_error(plugin, point, fault)
