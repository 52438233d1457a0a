"""A difference between what is kept and a recount is counted and told, and hides nobody."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from app.cache.cluster import Cluster
from app.controllers import recount
from app.controllers.recount import BETWEEN_SECONDS, RecountController
from app.runtime.framework import Framework
from tests.api.virtual import settle, virtual_time
from tests.builders import make_node, make_pod


class World:
    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.upsert_node(make_node("n1"))
        self.cluster.upsert_pod(make_pod("web-1", node="n1"))
        self.counted: list[bool] = []
        self.complete = asyncio.Event()
        self.recount = RecountController(self.cluster, (), self._complete, self.counted.append)

    async def _complete(self) -> None:
        await self.complete.wait()

    def spoil(self) -> None:
        """A pod that the node has no longer heard of."""
        self.cluster.nodes["n1"].pods.clear()


@virtual_time
async def test_it_is_taken_every_hour_once_the_picture_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    running = asyncio.ensure_future(world.recount.run())
    await asyncio.sleep(2 * BETWEEN_SECONDS)
    assert [] == world.counted
    world.complete.set()
    await asyncio.sleep(2.5 * BETWEEN_SECONDS)
    running.cancel()
    await settle()

    assert ([False, False], "") == (world.counted, capsys.readouterr().out)


@virtual_time
async def test_a_difference_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.complete.set()
    world.spoil()
    running = asyncio.ensure_future(world.recount.run())
    await asyncio.sleep(1.5 * BETWEEN_SECONDS)
    running.cancel()
    await settle()

    assert [True] == world.counted
    assert "snapshot differs from a recount" in capsys.readouterr().out


async def test_asked_for_it_answers_in_words() -> None:
    world = World()
    before = await world.recount.once()
    world.spoil()
    after = await world.recount.once()

    assert ([], ["pods on nodes differ from the pods"], [False, True]) == (before, after, world.counted)


async def test_many_differences_are_told_in_a_few(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log names ten; who asks gets all."""

    async def differs(_: Cluster, *_more: object) -> list[str]:
        return [f"difference {number}" for number in range(12)]

    monkeypatch.setattr(recount, "check_in_steps", differs)
    monkeypatch.setattr(recount, "BETWEEN_SECONDS", 0.0)
    world = World()
    world.complete.set()
    assert 12 == len(await world.recount.once())
    running = asyncio.ensure_future(world.recount.run())
    while len(world.counted) < 2:  # noqa: ASYNC110  # it tells nobody else
        await asyncio.sleep(0)
    await settle()
    running.cancel()

    told = capsys.readouterr().out
    assert (True, False) == ("difference 9" in told, "difference 10" in told)


async def test_what_profiles_keep_is_looked_through_too() -> None:
    profile = cast(Framework, SimpleNamespace(checking=lambda: iter(["", "a kept verdict differs"])))
    world = World()
    found = await RecountController(world.cluster, [profile], world.recount._complete, world.counted.append).once()

    assert (["a kept verdict differs"], [True]) == (found, world.counted)
