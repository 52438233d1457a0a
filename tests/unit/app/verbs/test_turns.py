"""One turn in each round of the event loop, in the order of arrival."""

from __future__ import annotations

import asyncio

from app.verbs.stepwise import LoopQueue
from tests.api.virtual import settle, virtual_time


class Line:
    """Tasks that take a turn each, and write down when they had it, in rounds of the loop."""

    def __init__(self) -> None:
        self.turns = LoopQueue()
        self.round = 0
        self.had: list[tuple[str, int]] = []

    def join(self, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._take(name))

    async def _take(self, name: str) -> None:
        await self.turns.wait()
        self.had.append((name, self.round))

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)
            self.round += 1


@virtual_time
async def test_who_is_alone_goes_on_at_once() -> None:
    turns = LoopQueue()
    call = turns.wait()
    try:
        call.send(None)
    except StopIteration:
        went_on = True
    else:
        went_on = False

    assert went_on


@virtual_time
async def test_of_many_one_goes_on_in_each_round() -> None:
    line = Line()
    for name in "abcd":
        line.join(name)
    await line.rounds(10)

    rounds = [at for _, at in line.had]
    assert list("abcd") == [name for name, _ in line.had]
    assert len(rounds) == len(set(rounds))


@virtual_time
async def test_who_gives_up_is_passed_over() -> None:
    line = Line()
    _, second, _ = (line.join(name) for name in "abc")
    await asyncio.sleep(0)
    second.cancel()
    await settle()

    assert ["a", "c"] == [name for name, _ in line.had]


@virtual_time
async def test_after_a_queue_the_next_one_is_alone_again() -> None:
    line = Line()
    for name in "ab":
        line.join(name)
    await settle()
    line.join("c")
    await asyncio.sleep(0)

    assert "c" == line.had[-1][0]
