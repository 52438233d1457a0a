"""Every long-running task of a process survives an exception at each of its awaits, and the fault is logged once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from structlog.testing import capture_logs

import app.main
from app.config.settings import Settings
from app.feeds import live
from app.main import HomeportService
from app.telemetry.background import GIVEN_UP_SECONDS, RECOVERED_SECONDS
from app.telemetry.throttle import Throttle
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.virtual import now, virtual_time
from tests.apiserver import ApiServer, client_of, kubeconfig
from tests.builders import node_object, pod_object

ROOT: Final = str(Path(app.main.__file__).parents[1])
OURS: Final = (f"{ROOT}/app/", f"{ROOT}/plugins/")
LONG_SECONDS: Final = 5.0
"""A task that lives for this long in a service at rest is a long-running one."""

TASKS: Final = frozenset(
    {
        "ApiActivator.run",
        "ApiRecorder._look_forever",
        "ApiRecorder._write_forever",
        "BindConfirmation.run",
        "Elector._elect_forever",
        "Elector._watch_forever",
        "Elector.run",
        "Outage.run",
        "PermissionCheck.run",
        "PluginRun.run",
        "RecountController.run",
        "Reflector.keep_fresh",
        "Reflector.run",
        "Replica._follow_terms",
        "Replica.lost",
        "SamplingGuard.run",
        "SecondLooks.run",
        "Skews.run",
        "SpreadEvents.run",
        "run_together.<locals>.one",  # parts of StickyNode's run
        "watch_lag",
    }
)
"""Tasks that run at rest in a process that leads. The accept loops have a test of their own."""

Point = tuple[str, str, int]
"""A task, and the line of ours at which it waits."""


class Faults:
    """Throws one exception at each point that a long-running task reaches, each after the last has been recovered."""

    def __init__(self) -> None:
        self.always = ""
        self.thrown: list[Point] = []
        self.tasks: Counter[str] = Counter()
        self._not_before = now() + LONG_SECONDS
        self.driven: dict[_Driven, asyncio.Task[Any]] = {}

    def factory(self, loop: asyncio.AbstractEventLoop, made: Any, **more: Any) -> Any:
        driven = _Driven(made, now(), self)

        async def drive() -> Any:
            return await driven

        self.driven[driven] = task = asyncio.Task(drive(), loop=loop, **more)
        task.add_done_callback(lambda _: (self.driven.pop(driven), made.close()))
        return task

    def strike(self) -> None:
        """Throw an exception into a task that has waited at one point all the time."""
        for driven, task in list(self.driven.items()):
            error = self.due(driven.made, driven.began)
            if error is not None:
                driven.struck = error
                task.cancel()

    def due(self, made: Coroutine[Any, Any, Any], began: float) -> BaseException | None:
        """Return what to throw where a task waits now."""
        name, at = name_of(made), line_of(made)
        if at is None:
            return None
        if name == self.always:
            return RuntimeError(f"a screw of {name} is loose")
        point = (name, *at)
        if point in self.thrown or now() < self._not_before or not self._is_long_running(name, began):
            return None
        self.thrown.append(point)
        self._not_before = now() + 3.0
        if name == "Elector.run":  # nothing but this test throws into a TaskGroup, whose tasks would go on
            for driven, task in self.driven.items():
                if name_of(driven.made).startswith("Elector._"):
                    task.cancel()
        return RuntimeError(f"screw {len(self.thrown)} is loose")

    def _is_long_running(self, name: str, began: float) -> bool:
        """Return whether the task is one, or was started again for one that is."""
        if now() - began >= LONG_SECONDS:
            self.tasks[name] += 1
        return self.tasks[name] > 0


class _Driven:
    def __init__(self, made: Coroutine[Any, Any, Any], began: float, faults: Faults) -> None:
        self.made = made
        self.began = began
        self.struck: BaseException | None = None
        self._faults = faults

    def __await__(self) -> Generator[Any, Any, Any]:
        thrown: BaseException | None = None
        while True:
            try:
                waits_for = self.made.send(None) if thrown is None else self.made.throw(thrown)
            except StopIteration as ended:
                return ended.value
            thrown = self._faults.due(self.made, self.began)
            if thrown is None:
                try:
                    yield waits_for
                except BaseException as error:  # noqa: BLE001  # whatever it is goes on to the task
                    thrown, self.struck = self.struck or error, None
                    if thrown is not error:
                        self._faults.driven[self].uncancel()


def name_of(made: Any) -> str:
    """Return the name of what a task runs: for one of ``Background`` the work that it was given."""
    frame = made.cr_frame
    work: Any = frame.f_locals.get("work") if made.__qualname__ == "_run" and frame is not None else None
    while hasattr(work, "func"):
        work = (work.args or (work.func,))[0] if work.func.__name__ == "_run_while_leading" else work.func
    return str(getattr(work, "__qualname__", made.__qualname__))


def line_of(made: Any) -> tuple[str, int] | None:
    """Return the innermost line of ours at which it waits."""
    found = None
    while made is not None and getattr(made, "cr_frame", None) is not None:
        if made.cr_code.co_filename.startswith(OURS):
            found = (made.cr_code.co_filename.removeprefix(ROOT), made.cr_frame.f_lineno)
        made = made.cr_await
    return found


class Running:
    """A service on a live cluster in virtual time, with Events and an election, and its pages."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plane = ApiServer(node_object("n1"), pod_object("web-1", node="n1"))
        for module in (live, app.main):
            monkeypatch.setattr(module, "KubeClient", lambda *_, **__: client_of(self.plane))
            monkeypatch.setattr(module, "monotonic", now)
        monkeypatch.setattr(app.main, "never_stopping", now)
        monkeypatch.setattr(Throttle, "admit", lambda *_: 0)
        election = {"leader_elect": True, "resource_namespace": "here", "resource_name": "homeport"}
        settings = Settings(
            kubeconfig=str(kubeconfig(folder)), leader_election=election, advertise_address="10.0.0.1:8888", port=0
        )
        self.service = HomeportService(settings, SHIPPED, DEFAULT_WEIGHTS, version="1")
        self.web = self.service.web()

    async def get(self, path: str) -> tuple[int, str]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.web), base_url="http://homeport") as http:
            answer = await http.get(path)
        return answer.status_code, answer.text


@virtual_time
async def test_each_task_goes_on_after_a_fault_at_each_of_its_awaits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, faults = Running(tmp_path, monkeypatch), Faults()
    asyncio.get_running_loop().set_task_factory(faults.factory)
    with capture_logs() as logs:
        async with running.web.router.lifespan_context(running.web):
            quiet = now()
            while now() - quiet < 120:
                before = len(faults.thrown)
                await asyncio.sleep(5)
                faults.strike()
                quiet = now() if len(faults.thrown) > before else quiet
            asyncio.get_running_loop().set_task_factory(None)
            await asyncio.sleep(RECOVERED_SECONDS)
            alive, ready = await running.get("/livez"), await running.get("/readyz")

    told = [sum(f"screw {number} is loose" in str(line) for line in logs) for number, _ in enumerate(faults.thrown, 1)]
    assert [] == [(point, times) for point, times in zip(faults.thrown, told, strict=True) if times != 1]
    assert ((200, "ok\n"), 200) == (alive, ready[0]), ready
    assert set() == TASKS - {name for name, *_ in faults.thrown}


@virtual_time
@pytest.mark.parametrize("task", ["Reflector.run", "ApiRecorder._write_forever", "Elector._elect_forever", "watch_lag"])
async def test_a_task_that_cannot_be_restarted_is_the_end_of_the_process(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, faults = Running(tmp_path, monkeypatch), Faults()
    faults.always = task
    asyncio.get_running_loop().set_task_factory(faults.factory)
    with capture_logs():
        async with running.web.router.lifespan_context(running.web):
            await asyncio.sleep(GIVEN_UP_SECONDS / 2)
            alive = await running.get("/livez")
            await asyncio.sleep(GIVEN_UP_SECONDS / 2 + 5)
            dead = await running.get("/livez")
            asyncio.get_running_loop().set_task_factory(None)

    assert (200, "ok\n") == alive
    assert (503, True) == (dead[0], "fails after every restart" in dead[1])
