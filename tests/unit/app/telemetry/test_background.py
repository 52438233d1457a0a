"""What runs for ever is begun again after a fault, and the fault is told."""

from __future__ import annotations

import asyncio

import pytest

from app.telemetry.background import AGAIN_SECONDS, GIVEN_UP_SECONDS, RECOVERED_SECONDS, Background
from tests.api.virtual import now, virtual_time


@virtual_time
async def test_a_fault_is_told_and_it_is_begun_again() -> None:
    background, begun = Background(), list[float]()

    async def work() -> None:
        begun.append(now())
        if len(begun) < 3:
            raise ZeroDivisionError
        await asyncio.Event().wait()

    background.begin("work", work)
    await asyncio.sleep(10 * AGAIN_SECONDS)
    await background.stop()

    assert [0.0, AGAIN_SECONDS, 2 * AGAIN_SECONDS] == pytest.approx([it - begun[0] for it in begun])


@virtual_time
async def test_to_wait_for_something_that_is_cancelled_is_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    background, begun = Background(), list[float]()

    async def work() -> None:
        begun.append(now())
        if len(begun) < 3:
            gone = asyncio.get_running_loop().create_future()
            gone.cancel()
            await gone
        await asyncio.Event().wait()

    background.begin("work", work)
    await asyncio.sleep(10 * AGAIN_SECONDS)
    told = capsys.readouterr().out
    await background.stop()

    assert (3, 1, "") == (len(begun), told.count("background task ended"), capsys.readouterr().out)
    assert "CancelledError" in told


@virtual_time
async def test_what_is_stopped_does_not_begin_again() -> None:
    background, begun = Background(), list[int]()

    async def work() -> None:
        begun.append(1)
        raise ZeroDivisionError

    background.begin("work", work)
    await asyncio.sleep(AGAIN_SECONDS / 2)
    await background.stop()
    await asyncio.sleep(10 * AGAIN_SECONDS)

    assert [1] == begun


@virtual_time
async def test_a_fault_while_it_is_stopped_does_not_begin_it_again() -> None:
    background, begun = Background(), list[int]()

    async def work() -> None:
        begun.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    background.begin("work", work)
    await asyncio.sleep(0)
    await background.stop()
    await asyncio.sleep(10 * AGAIN_SECONDS)

    assert [1] == begun


@virtual_time
async def test_what_has_ended_in_good_order_stays_so() -> None:
    background, begun = Background(), list[int]()

    async def work() -> None:
        begun.append(1)

    background.begin("work", work)
    await asyncio.sleep(10 * AGAIN_SECONDS)
    await background.stop()

    assert [1] == begun


def test_the_fault_is_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        background = Background()

        async def work() -> None:
            raise ZeroDivisionError("too bad")

        background.begin("work", work)
        await asyncio.sleep(0.01)
        await background.stop()

    asyncio.run(main())

    told = capsys.readouterr().out
    assert "background task ended" in told
    assert "too bad" in told


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
