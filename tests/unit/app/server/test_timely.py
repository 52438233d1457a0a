"""A time limit costs nothing where nothing is waited for, and holds where something is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from app.server.timely import OutOfTime, with_margin, within
from tests.api.virtual import now, virtual_time

Call = Callable[[], Coroutine[Any, Any, str]]


async def at_once() -> str:
    return "done"


async def sleeps() -> str:
    await asyncio.sleep(1)
    return "done"


async def waits_twice() -> str:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.5, future.set_result, "done")
    await asyncio.sleep(0.5)
    found: str = await future
    return found


@pytest.mark.parametrize("call", [at_once, sleeps, waits_twice])
@virtual_time
async def test_what_is_returned(call: Call) -> None:
    assert "done" == await within(2, call())


@virtual_time
async def test_a_call_that_waits_too_long_is_cancelled() -> None:
    cleaned = []

    async def call() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(now())

    began = now()
    with pytest.raises(OutOfTime):
        await within(3, call())
    assert [began + 3] == cleaned
    task = asyncio.current_task()
    assert task is not None
    assert 0 == task.cancelling()


@virtual_time
async def test_the_time_before_the_first_wait_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()

    async def call() -> None:
        began = loop.time()
        monkeypatch.setattr(loop, "time", lambda: began + 2.0)
        await asyncio.Event().wait()

    scheduled: list[float] = []

    def call_at(at: float, *_: object, **__: object) -> asyncio.Handle:
        scheduled.append(at)
        return loop.call_soon(lambda: None)

    monkeypatch.setattr(loop, "call_at", call_at)
    task = asyncio.create_task(within(3, call()))
    began = loop.time()
    await asyncio.sleep(0)
    assert [began + 3] == scheduled
    task.cancel()


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("its own")])
@pytest.mark.parametrize("waits", [False, True])
@virtual_time
async def test_its_own_errors_are_its_own(error: Exception, waits: bool) -> None:
    async def call() -> None:
        if waits:
            await asyncio.sleep(0.1)
        raise error

    with pytest.raises(type(error)) as raised:
        await within(3, call())
    assert raised.value is error


@virtual_time
async def test_it_may_catch_what_is_thrown_at_it_and_go_on() -> None:
    async def call() -> str:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.1, future.set_exception, ValueError("no"))
        try:
            await future
        except ValueError:
            await asyncio.sleep(0.1)
        return "went on"

    assert "went on" == await within(3, call())


@virtual_time
async def test_the_task_may_be_cancelled_from_outside() -> None:
    task = asyncio.create_task(within(3, sleeps()))
    await asyncio.sleep(0.1)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("seconds", "left"),
    [
        pytest.param(4.0, 3.8, id="a part of it"),
        pytest.param(900.0, 899.5, id="half a second at most"),
        pytest.param(0.0, 0.0, id="nothing"),
    ],
)
def test_what_is_left_for_somebody_further_on(seconds: float, left: float) -> None:
    assert left == pytest.approx(with_margin(seconds, 0.05))
