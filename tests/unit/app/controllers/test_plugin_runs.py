"""A plugin with work of its own has it going while this process decides, whatever happens to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Final, cast

from structlog.testing import capture_logs

from app.controllers.plugin_runs import AGAIN_SECONDS, MOST_SECONDS, PluginRun, runs_of
from app.controllers.supervisor import Supervisor
from app.framework.points import BackgroundPlugin
from app.runtime.framework import Framework
from app.runtime.guard import Guard
from app.telemetry.metrics import Metrics
from tests.api.virtual import now, settle, virtual_time
from tests.builders import make_pod
from tests.unit.app.controllers.test_supervisor import Term

AGES: Final = 100 * MOST_SECONDS


async def for_ever() -> None:
    await asyncio.Event().wait()


async def _at_once() -> None:
    """The picture is complete."""


class Works(BackgroundPlugin):
    """Does what it is told by the test, and notes when it began and whether it was cancelled."""

    def __init__(self, does: Callable[[], Awaitable[None]] = for_ever) -> None:
        self.does = does
        self.began: list[float] = []
        self.cancelled = 0
        self._since = now()

    async def run(self) -> None:
        self.began.append(now() - self._since)
        try:
            await self.does()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class Fails(Works):
    """Fails after some seconds each time."""

    def __init__(self, *after: float) -> None:
        super().__init__(self._fail)
        self._after = iter(after)

    async def _fail(self) -> None:
        await asyncio.sleep(next(self._after, 0.0))
        raise OSError("not now")


def begin(
    plugin: BackgroundPlugin, metrics: Metrics, complete: Callable[[], Awaitable[None]] = _at_once
) -> asyncio.Task[None]:
    return asyncio.ensure_future(PluginRun("Works", plugin, Guard(metrics), complete).run())


async def end(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def faults(metrics: Metrics) -> dict[tuple[str, str], float]:
    (found,) = metrics.plugin_faults.collect()
    return {
        (it.labels["plugin"], it.labels["extension_point"]): it.value
        for it in found.samples
        if it.name.endswith("_total")
    }


@virtual_time
async def test_it_begins_when_the_picture_is_complete_and_ends_when_it_is_cancelled() -> None:
    works, complete = Works(), asyncio.Event()

    async def wait() -> None:
        await complete.wait()

    metrics = Metrics()
    running = begin(works, metrics, wait)
    await asyncio.sleep(5.0)
    assert [] == works.began
    complete.set()
    await asyncio.sleep(AGES)
    await end(running)

    assert ([5.0], 1) == (works.began, works.cancelled)
    assert {("Works", "Run"): 0.0} == faults(metrics)


@virtual_time
async def test_a_fault_is_told_with_its_plugin_and_it_begins_again_after_a_pause_that_grows() -> None:
    fails, metrics = Fails(), Metrics()
    with capture_logs() as logs:
        running = begin(fails, metrics)
        await asyncio.sleep(150.0)
        await end(running)

    assert [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0] == fails.began
    assert {("Works", "Run"): 8.0} == faults(metrics)
    assert [("plugin fault", "Works", "Run", "")] == [
        (it["event"], it["plugin"], it["point"], it["pod"]) for it in logs
    ]
    assert all("not now" in it["traceback"] for it in logs)


@virtual_time
async def test_one_that_went_well_for_long_begins_with_the_shortest_pause() -> None:
    fails = Fails(0.0, 0.0, MOST_SECONDS, 0.0)
    running = begin(fails, Metrics())
    await asyncio.sleep(3.0 + MOST_SECONDS + 1.5 * AGAIN_SECONDS)
    await end(running)

    assert [0.0, 1.0, 3.0, 3.0 + MOST_SECONDS + AGAIN_SECONDS] == fails.began


@virtual_time
async def test_a_fault_of_its_own_is_not_told_of_the_pod_that_was_judged_last() -> None:
    guard = Guard(Metrics())
    guard.begin_evaluation(make_pod("judged"))
    with capture_logs() as logs:
        running = asyncio.ensure_future(PluginRun("Works", Fails(), guard, _at_once).run())
        await settle()
        await end(running)

    assert [""] == [it["pod"] for it in logs]


@virtual_time
async def test_it_goes_on_while_this_process_decides() -> None:
    """One that has nothing more to do may have, once this process comes to decide anew."""
    lasting, ends = Works(), Works(_at_once)
    term = Term()
    supervisor = Supervisor(term)
    for name, plugin in (("Lasting", lasting), ("Ends", ends)):
        supervisor.while_leading(name, PluginRun(name, plugin, Guard(Metrics()), _at_once).run)
    supervisor.start()
    await settle()
    assert [] == lasting.began + ends.began

    await term.change(leads=True, may_write=True)
    await asyncio.sleep(AGES)
    assert ([0.0], [0.0], 0) == (lasting.began, ends.began, lasting.cancelled)

    await term.change(leads=False, may_write=False)
    assert 1 == lasting.cancelled
    await term.change(leads=True, may_write=True)
    assert [0.0, AGES] == lasting.began == ends.began

    await supervisor.stop()
    assert 2 == lasting.cancelled


@virtual_time
async def test_each_plugin_of_each_profile_has_a_run_of_its_own() -> None:
    one, other = Works(), Works()
    profiles = [
        cast(Framework, SimpleNamespace(scheduler_name="a", plugins={"Works": one, "Deaf": object()})),
        cast(Framework, SimpleNamespace(scheduler_name="b", plugins={"Works": other})),
    ]

    found = dict(runs_of(profiles, Guard(Metrics()), _at_once))
    assert ["Works of a", "Works of b"] == list(found)

    running = [asyncio.ensure_future(it.run()) for it in found.values()]
    await settle()
    assert [[0.0], [0.0]] == [one.began, other.began]
    for task in running:
        await end(task)
