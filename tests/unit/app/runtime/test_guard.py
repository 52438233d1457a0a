"""Rules of the guard: whatever a plugin raises becomes an Error status that names it, and is counted and logged."""

import asyncio

import pytest
from structlog.testing import capture_logs

from app.framework.counts import Unprepared
from app.framework.status import SKIP, SUCCESS, error, unresolvable
from app.runtime.guard import SAMPLE_EVERY, Guard, PluginError, plugin_error, status_label
from app.telemetry.metrics import Metrics
from tests.builders import make_pod

POD = make_pod("pending")
EXPECTED = error('running "Broken" filter plugin: no such thing', "Broken")


def broken() -> None:
    raise LookupError("no such thing")


async def broken_later() -> None:
    raise LookupError("no such thing")


def faults(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value(
        "homeport_plugin_faults_total", {"plugin": "Broken", "extension_point": "Filter"}
    )


def timed(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value(
        "homeport_plugin_execution_duration_seconds_count",
        {"plugin": "Fine", "extension_point": "Filter", "status": "Success"},
    )


async def test_a_fault_becomes_an_error_status_with_the_plugins_name() -> None:
    metrics = Metrics()
    guard = Guard(metrics)

    with capture_logs() as logs:
        with pytest.raises(PluginError) as raised:
            guard.call("Broken", "Filter", broken)
        with pytest.raises(PluginError) as raised_later:
            await guard.acall("Broken", "Filter", broken_later)

    assert (EXPECTED, EXPECTED) == (raised.value.status, raised_later.value.status)
    assert EXPECTED.message == str(raised.value)
    assert isinstance(raised.value.__cause__, LookupError)
    assert 2.0 == faults(metrics)
    (line,) = logs
    assert ("error", "plugin fault", "Broken", "Filter") == (
        line["log_level"],
        line["event"],
        line["plugin"],
        line["point"],
    )
    assert "no such thing" in line["traceback"]


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("PreFilter", 'running PreFilter plugin "Broken": no such thing'),
        ("PreFilterExtensionAddPod", 'running AddPod on PreFilter plugin "Broken": no such thing'),
        ("PreFilterExtensionRemovePod", 'running RemovePod on PreFilter plugin "Broken": no such thing'),
        ("Filter", 'running "Broken" filter plugin: no such thing'),
        ("Score", 'running Score plugins: plugin "Broken" failed with: no such thing'),
        ("NormalizeScore", 'running Normalize on Score plugins: plugin "Broken" failed with: no such thing'),
    ],
)
def test_an_error_is_told_in_kube_schedulers_words(point: str, expected: str) -> None:
    """Returned or raised, an error of a plugin reads the same."""
    with pytest.raises(PluginError) as raised:
        Guard(Metrics()).call("Broken", point, broken)

    assert error(expected, "Broken") == raised.value.status == plugin_error("Broken", point, "no such thing").status


def test_a_fault_of_another_plugin_that_it_asked_for_is_told_once() -> None:
    """As in a dry run: one plugin has the filters run, and one of these fails."""
    guard = Guard(Metrics())

    with capture_logs() as logs, pytest.raises(PluginError) as raised:
        guard.call("Tries", "PostFilter", guard.call, "Broken", "Filter", broken)

    assert "Broken" == raised.value.status.plugin
    assert ["Broken"] == [it["plugin"] for it in logs]


def test_of_one_kind_of_fault_one_is_logged_in_a_minute_and_all_are_counted() -> None:
    """A plugin may fail on thousands of nodes, and for each client that asks again."""
    metrics = Metrics()
    guard = Guard(metrics)

    with capture_logs() as logs:
        for plugin in ("A", "A", "A", "B"):
            with pytest.raises(PluginError):
                guard.call(plugin, "Filter", broken)

    assert ["A", "B"] == [it["plugin"] for it in logs]
    labels = {"plugin": "A", "extension_point": "Filter"}
    assert 3.0 == metrics.registry.get_sample_value("homeport_plugin_faults_total", labels)


async def test_a_cancelled_call_is_cancelled_and_not_a_fault() -> None:
    """A caller that goes away is no fault of the plugin."""

    async def waits() -> None:
        await asyncio.Event().wait()

    metrics = Metrics()
    task = asyncio.create_task(Guard(metrics).acall("Broken", "Filter", waits))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task

    assert None is faults(metrics)


async def test_deciding_calls_are_timed_now_and_then_acting_ones_always() -> None:
    async def acts() -> None:
        return None

    metrics = Metrics()
    guard = Guard(metrics)

    for _ in range(2 * SAMPLE_EVERY):
        guard.begin_evaluation(POD)
        guard.call("Fine", "Filter", int)
        guard.call("Fine", "Filter", int)
    assert 4.0 == timed(metrics), "every call of two evaluations"

    await guard.acall("Fine", "Filter", acts)
    assert 5.0 == timed(metrics)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (SUCCESS, "Success"),
        (unresolvable("no"), "UnschedulableAndUnresolvable"),
        ((SKIP, None), "Skip"),
        ({"n1": unresolvable("no")}, "Success"),
        ((), "Success"),
    ],
)
def test_the_status_of_an_answer_is_its_code(answer: object, word: str) -> None:
    assert word == status_label(answer)


def test_a_timed_call_tells_its_status() -> None:
    metrics = Metrics()
    guard = Guard(metrics)
    for _ in range(SAMPLE_EVERY):
        guard.begin_evaluation(POD)
        guard.call("A", "PreFilter", lambda: (SKIP, None))
        with pytest.raises(PluginError):
            guard.call("B", "Filter", broken)

    assert (1, 1) == tuple(
        metrics.registry.get_sample_value(
            "homeport_plugin_execution_duration_seconds_count",
            {"plugin": plugin, "extension_point": point, "status": status},
        )
        for plugin, point, status in (("A", "PreFilter", "Skip"), ("B", "Filter", "Error"))
    )


def test_what_is_not_counted_yet_is_not_timed() -> None:
    def unprepared() -> None:
        raise Unprepared(iter(()))

    metrics = Metrics()
    guard = Guard(metrics)
    for _ in range(SAMPLE_EVERY):
        guard.begin_evaluation(POD)
        with pytest.raises(Unprepared):
            guard.call("A", "Filter", unprepared)

    assert [] == [it for it in metrics.plugin_duration.collect() if it.samples]
