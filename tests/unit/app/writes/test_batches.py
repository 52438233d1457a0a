"""Bindings leave as they come where few do; where many do, those of a moment leave together."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from app.writes.batches import FEW, MOST, PAUSE_SECONDS, BindBatches
from tests.api.virtual import now, settle, virtual_time

WINDOW = 0.05


class Bindings:
    """Begins to send one after the other. ``left``: when each left, in milliseconds since the start.

    ``held``: for how many milliseconds those were that were.
    """

    def __init__(self, window: float = WINDOW) -> None:
        self.left: list[int] = []
        self.held: list[int] = []
        self.batches = BindBatches(window, now, lambda seconds: self.held.append(round(seconds * 1000)))
        self._started = now()
        self._tasks: list[asyncio.Task[None]] = []

    async def send(self, seconds_left: float = inf) -> None:
        await self.batches.wait_for_batch(seconds_left)
        self.left.append(round((now() - self._started) * 1000))

    def one(self) -> asyncio.Task[None]:
        self._tasks.append(asyncio.create_task(self.send()))
        return self._tasks[-1]

    async def come(self, count: int, every: float = 0.0) -> None:
        for _ in range(count):
            self.one()
            await asyncio.sleep(every)
            await settle()

    async def all_left(self) -> list[int]:
        await asyncio.gather(*self._tasks)
        return self.left


@virtual_time
async def test_few_leave_as_they_come() -> None:
    """Spaced evenly, up to 80 a second."""
    bindings = Bindings()

    await bindings.come(12, every=0.0126)

    assert [round(number * 12.6) for number in range(12)] == await bindings.all_left()
    assert [] == bindings.held


@virtual_time
async def test_many_leave_together() -> None:
    """The first ones at once, then those that have come until the last one is as old as the window; the last ones
    when nobody joins them any more."""
    bindings = Bindings()

    await bindings.come(24, every=0.006)

    assert [0, 6, 12, 18, *[68] * 8, *[118] * 8, *[163] * 4] == await bindings.all_left()
    assert [44, 38, 32, 26, 20, 14, 8, 2] == bindings.held[:8]


@virtual_time
async def test_no_more_than_so_many_leave_together() -> None:
    """The sixteenth takes the others with it, and is not held."""
    bindings = Bindings()

    await bindings.come(FEW + MOST, every=0.001)

    assert [0, 1, 2, 3, *[19] * MOST] == await bindings.all_left()
    assert list(range(15, 0, -1)) == bindings.held


@virtual_time
async def test_who_binds_one_by_one_is_not_held_again_and_again() -> None:
    """Nobody joins the fifth, nor the sixth: each is noticed within half a window, and for a second nothing is held."""
    bindings = Bindings()

    while now() < 1000.0 + 1.1:
        await bindings.send()
        await asyncio.sleep(0.005)

    assert [25, 25, 25] == bindings.held
    assert 200 < len(bindings.left)


@virtual_time
async def test_one_that_is_alone_once_changes_nothing() -> None:
    """A scheduler pauses now and then."""
    bindings = Bindings()
    for count in (FEW + 1, 3, 1):
        await bindings.come(count)
        await asyncio.sleep(0.03)

    await bindings.come(2)

    assert ([0, 0, 0, 0, 25, 55, 55, 55, 85], [25] * 5) == (bindings.left, bindings.held)


@virtual_time
async def test_after_a_pause_each_leaves_at_once_again() -> None:
    bindings = Bindings()
    await bindings.come(8)
    await asyncio.sleep(0.2)
    before = len(bindings.left)

    await bindings.come(FEW)

    assert (8, [200] * FEW) == (before, bindings.left[before:])


@virtual_time
async def test_who_waits_for_a_bind_lets_all_leave() -> None:
    bindings = Bindings()
    await bindings.come(10, every=0.001)
    assert FEW == len(bindings.left)

    with bindings.batches.awaited():
        await settle()
        assert [0, 1, 2, 3, *[10] * 6] == bindings.left
        await bindings.come(3)

    assert [10] * 3 == bindings.left[10:]


@virtual_time
async def test_after_a_wait_bindings_are_held_again() -> None:
    bindings = Bindings()
    with bindings.batches.awaited():
        await bindings.come(2 * FEW)

    await bindings.come(1)

    assert 2 * FEW == len(bindings.left)


@virtual_time
async def test_bindings_that_others_wait_for_one_by_one_are_not_held() -> None:
    """After the second batch of one Binding that a wait ends."""
    bindings = Bindings()
    await bindings.come(FEW)
    for _ in range(2):
        await bindings.come(1)
        with bindings.batches.awaited():
            await settle()

    await bindings.come(2 * FEW)

    assert (3 * FEW + 2, 2) == (len(bindings.left), len(bindings.held))


@virtual_time
async def test_as_long_as_one_of_several_waits_nothing_is_held() -> None:
    bindings = Bindings()
    with bindings.batches.awaited():
        with bindings.batches.awaited():
            pass
        await asyncio.sleep(PAUSE_SECONDS)
        await bindings.come(2 * FEW)

    assert 2 * FEW == len(bindings.left)


@virtual_time
async def test_one_that_is_given_up_holds_nobody_back() -> None:
    bindings = Bindings()
    await bindings.come(FEW)
    given_up = bindings.one()
    await settle()
    await asyncio.sleep(0.01)

    given_up.cancel()
    await asyncio.sleep(0.02)
    await bindings.come(1)

    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert ([0] * FEW, []) == (bindings.left, bindings.held)
    await asyncio.sleep(0.02)
    assert ([*[0] * FEW, 50], [20]) == (bindings.left, bindings.held)


@pytest.mark.parametrize(("seconds_left", "held"), [(WINDOW, False), (WINDOW + 0.01, True)])
@virtual_time
async def test_who_has_no_time_left_is_not_held(seconds_left: float, held: bool) -> None:
    """A scheduler that is told that time is up gives the room away."""
    bindings = Bindings()
    await bindings.come(FEW)

    await bindings.send(seconds_left)

    assert held == bool(bindings.held)


@virtual_time
async def test_without_a_window_nothing_is_held() -> None:
    bindings = Bindings(0.0)

    await bindings.come(100)

    assert ([0] * 100, []) == (bindings.left, bindings.held)
