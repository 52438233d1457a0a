"""A refusal whose ground has moved a moment later wakes the pod; one that stands costs no look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest
from msgspec.structs import replace

from app.controllers.second_looks import DELAY_SECONDS, SecondLooks
from app.kube.core_v1 import Pod
from tests.api.virtual import settle, virtual_time
from tests.builders import make_node, make_pod
from tests.unit.app.verbs.bench import WEB, Bench, web

LATE = web("late")


class World:
    """Two zones of one node each, of which b has a taint: for a spread pod there is none, as a has one already."""

    def __init__(self) -> None:
        nodes = [make_node("a1", zone="a"), make_node("b1", zone="b")]
        self.bench = Bench(*nodes, make_pod("web-1", labels=WEB, node="a1"), make_pod("web-2", labels=WEB, node="a1"))
        self.cluster = self.bench.cluster
        self.cluster.upsert_node(make_node("b1", zone="b", unschedulable=True))
        self.cluster.upsert_pod(LATE)
        self.activated: list[str] = []
        self.second_looks = SecondLooks(self.bench.context, self._activate)
        self.running = asyncio.ensure_future(self.second_looks.run())

    def _activate(self, pods: Iterable[Pod]) -> None:
        self.activated += [pod.name for pod in pods]

    def cure(self) -> None:
        for name in ("web-1", "web-2"):
            self.cluster.delete_pod(("default", name))

    async def pass_by(self) -> None:
        await asyncio.sleep(DELAY_SECONDS)
        await settle()


@virtual_time
async def test_a_refusal_that_a_late_event_cures_is_followed_by_a_second_look() -> None:
    """The scheduler had seen the event before it asked: nothing else would wake the pod."""
    world = World()
    world.second_looks.refused(LATE)
    await asyncio.sleep(DELAY_SECONDS / 2)
    world.cure()
    await world.pass_by()

    assert ["late"] == world.activated
    world.running.cancel()


@virtual_time
async def test_one_that_stands_costs_no_look() -> None:
    world = World()
    for _ in range(20):
        world.second_looks.refused(LATE)
        await asyncio.sleep(0.1)

    assert ([], 0) == (world.activated, world.bench.looks)
    world.running.cancel()


@pytest.mark.parametrize(
    "then",
    [
        pytest.param(lambda it: it.bench.show(web("late", "a1")), id="bound"),
        pytest.param(lambda it: it.cluster.delete_pod(("default", "late")), id="gone"),
        pytest.param(lambda it: it.bench.show(replace(LATE, uid="another")), id="replaced"),
        pytest.param(lambda it: setattr(it.bench, "problem", "the watch is silent"), id="no picture"),
        pytest.param(lambda it: it.bench.show(make_node("a1", zone="a", unschedulable=True)), id="no node is open"),
    ],
)
@virtual_time
async def test_who_is_left_alone(then: Callable[[World], object]) -> None:
    world = World()
    world.second_looks.refused(LATE)
    world.cure()
    then(world)
    await world.pass_by()

    assert [] == world.activated
    world.running.cancel()


@virtual_time
async def test_cancelled_it_wakes_nobody_and_a_later_leader_begins_anew() -> None:
    world = World()
    world.second_looks.refused(LATE)
    world.cure()
    await settle()
    world.running.cancel()
    await world.pass_by()
    assert [] == world.activated

    world.running = asyncio.ensure_future(world.second_looks.run())
    world.second_looks.refused(LATE)
    world.cluster.upsert_pod(make_pod("web-3", labels=WEB, node="b1"))
    await world.pass_by()
    assert ["late"] == world.activated
    world.running.cancel()
