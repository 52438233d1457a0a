"""What runs for ever is begun again after a fault, and the fault is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.telemetry.background import AGAIN_SECONDS, GIVEN_UP_SECONDS, RECOVERED_SECONDS, Background
from tests.api.virtual import now, virtual_time


class Work:
    """A task that raises ``faults`` one after the other, then runs until it is cancelled. ``begun``: its starts."""

    def __init__(self, *faults: type[BaseException]) -> None:
        self.faults = [*faults]
        self.begun: list[float] = []

    async def __call__(self) -> None:
        self.begun.append(now())
        if self.faults:
            raise self.faults.pop(0)("too bad")
        await asyncio.Event().wait()


async def ran(work: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Run for ``seconds`` and stop; then wait for a restart that must not come."""
    background = Background()
    background.begin("work", work)
    await asyncio.sleep(seconds)
    await background.stop()
    await asyncio.sleep(10 * AGAIN_SECONDS)


@virtual_time
async def test_a_fault_is_told_and_it_is_begun_again(capsys: pytest.CaptureFixture[str]) -> None:
    """That something is cancelled which the task waits for is a fault, too."""
    work = Work(ZeroDivisionError, asyncio.CancelledError)

    await ran(work, 10 * AGAIN_SECONDS)

    assert [0.0, AGAIN_SECONDS, 2 * AGAIN_SECONDS] == pytest.approx([it - work.begun[0] for it in work.begun])
    told = capsys.readouterr().out
    assert (1, True) == (told.count("background task ended"), "too bad" in told)


@virtual_time
async def test_what_is_stopped_does_not_begin_again() -> None:
    work = Work(ZeroDivisionError)

    await ran(work, AGAIN_SECONDS / 2)

    assert 1 == len(work.begun)


@virtual_time
async def test_a_fault_while_it_is_stopped_does_not_begin_it_again() -> None:
    begun = list[int]()

    async def work() -> None:
        begun.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    await ran(work, 0)

    assert [1] == begun


@virtual_time
async def test_what_has_ended_in_good_order_stays_so() -> None:
    begun = list[int]()

    async def work() -> None:
        begun.append(1)

    await ran(work, 10 * AGAIN_SECONDS)

    assert [1] == begun


@virtual_time
async def test_a_task_that_cannot_be_restarted_is_a_problem_until_it_recovers() -> None:
    background = Background()
    works = False

    async def work() -> None:
        if not works:
            raise ZeroDivisionError
        await asyncio.Event().wait()

    background.begin("work", work)
    problems: list[str] = []
    for seconds in (GIVEN_UP_SECONDS - 1, 2, RECOVERED_SECONDS / 2, RECOVERED_SECONDS):
        works = works or len(problems) == 2
        await asyncio.sleep(seconds)
        problems.append(background.problem())
    await background.stop()

    assert [False, True, True, False] == ["task work" in it for it in problems]


@virtual_time
async def test_a_task_that_fails_now_and_then_is_none() -> None:
    background = Background()

    async def work() -> None:
        await asyncio.sleep(2 * RECOVERED_SECONDS)
        raise ZeroDivisionError

    background.begin("work", work)
    for _ in range(20):
        await asyncio.sleep(GIVEN_UP_SECONDS / 7)
        assert "" == background.problem()
    await background.stop()


@virtual_time
async def test_a_task_that_fails_once_and_then_ends_is_no_problem() -> None:
    background = Background()
    faults = [ZeroDivisionError]

    async def work() -> None:
        if faults:
            raise faults.pop()

    background.begin("work", work)
    await asyncio.sleep(2 * GIVEN_UP_SECONDS)
    problem = background.problem()
    await background.stop()

    assert "" == problem
