"""What runs for ever is begun again after a fault, and the fault is told."""

from __future__ import annotations

import asyncio

import pytest

from app.telemetry.background import AGAIN_SECONDS, Background
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

    assert (3, 2, "") == (len(begun), told.count("background task ended"), capsys.readouterr().out)
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
