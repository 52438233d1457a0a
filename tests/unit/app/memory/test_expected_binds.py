"""A filter waits a moment for a bind that is on its way and matters to it."""

from __future__ import annotations

import asyncio

import pytest

from app.kube.core_v1 import Pod
from app.memory.expected_binds import ExpectedBinds
from tests.api.virtual import now, settle, virtual_time
from tests.builders import make_pod
from tests.unit.app.verbs.bench import Bench, web, zones

WAIT = 0.005
NO_TIME = pytest.approx(0.0, abs=1e-9)
UNRELATED = make_pod("other", labels={"app": "other"})
ANY = make_pod("any", labels={"app": "web"})


class Waiter:
    """``ExpectedBinds`` and what it observed."""

    def __init__(self, wait_seconds: float = WAIT) -> None:
        self.observed: list[float] = []
        self.due = ExpectedBinds(now, wait_seconds=wait_seconds, observe=self.observed.append)
        self.framework = Bench(*zones()).framework

    async def waited(self, pod: Pod) -> float:
        started = now()
        await self.due.wait(self.framework.filters.depends, pod)
        return now() - started


@pytest.mark.parametrize(
    ("expected", "asking", "waits"),
    [
        pytest.param([], web("b"), NO_TIME, id="nothing is due"),
        pytest.param([web("a")], web("b"), pytest.approx(WAIT), id="a peer is due"),
        pytest.param([UNRELATED], web("b"), NO_TIME, id="only pods that do not matter are due"),
        pytest.param([web("a")], UNRELATED, NO_TIME, id="the pod has no hard constraint"),
        pytest.param([web("a")], ANY, NO_TIME, id="a peer without constraints of its own"),
        pytest.param([ANY], web("b"), pytest.approx(WAIT), id="a due pod that the selector matches"),
        pytest.param([web("b")], web("b"), NO_TIME, id="only the pod itself is due"),
        pytest.param([make_pod("a", uid="", labels={"app": "web"})], web("b"), NO_TIME, id="a pod without UID"),
        pytest.param(
            [make_pod("a", namespace="shop", labels={"app": "web"})], web("b"), NO_TIME, id="another namespace"
        ),
    ],
)
@virtual_time
async def test_what_a_pod_waits_for(expected: list[Pod], asking: Pod, waits: float) -> None:
    waiter = Waiter()
    for pod in expected:
        waiter.due.expect(pod)

    assert waits == await waiter.waited(asking)


@virtual_time
async def test_it_goes_on_while_another_bind_is_due() -> None:
    waiter = Waiter()
    for name in "ac":
        waiter.due.expect(web(name))
    asyncio.get_running_loop().call_later(0.002, waiter.due.arrived, "uid-default-a")
    asyncio.get_running_loop().call_later(0.003, waiter.due.arrived, "uid-default-c")

    assert pytest.approx(0.003) == await waiter.waited(web("b"))


@virtual_time
async def test_a_bind_is_due_for_a_second() -> None:
    waiter = Waiter()
    waiter.due.expect(web("a"))

    await asyncio.sleep(0.999)
    assert waiter.due.expects(waiter.framework.filters.depends, web("b"))
    await asyncio.sleep(0.002)
    assert not waiter.due.expects(waiter.framework.filters.depends, web("b"))


@virtual_time
async def test_one_that_was_waited_for_in_vain_is_not_waited_for_again() -> None:
    waiter = Waiter()
    waiter.due.expect(web("a"))

    assert pytest.approx(WAIT) == await waiter.waited(web("b"))
    assert NO_TIME == await waiter.waited(web("b"))
    assert [pytest.approx(WAIT)] == waiter.observed


@virtual_time
async def test_one_that_became_due_during_a_wait_in_vain_is_still_due() -> None:
    waiter = Waiter()
    waiter.due.expect(web("a"))
    asyncio.get_running_loop().call_later(WAIT / 2, waiter.due.expect, web("c"))

    assert pytest.approx(WAIT) == await waiter.waited(web("b"))
    assert pytest.approx(WAIT / 2) == await waiter.waited(web("b"))


@virtual_time
async def test_waits_in_vain_become_shorter_and_others_longer_again() -> None:
    waiter = Waiter()
    waits = []
    for in_vain in (True, True, True, True, True, True, False, False, True):
        waiter.due.expect(web("a"))
        if not in_vain:
            asyncio.get_running_loop().call_later(0.0001, waiter.due.arrived, "uid-default-a")
        waited = await waiter.waited(web("b"))
        waits += [round(waited / WAIT, 4)] if in_vain else []

    assert [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 16, 1 / 4] == waits


@virtual_time
async def test_a_pod_that_the_watch_shows_on_a_node_is_not_due() -> None:
    """Others may bind: then its bind never arrives here."""
    placed: list[str] = []
    due = ExpectedBinds(now, wait_seconds=WAIT, observe=lambda _: None, is_placed=lambda pod: pod.name in placed)
    due.expect(web("a"))
    matters = Bench(*zones()).framework.filters.depends

    assert due.expects(matters, web("b"))
    placed.append("a")
    assert not due.expects(matters, web("b"))


@virtual_time
async def test_many_callers_wait_for_the_same_bind() -> None:
    waiter = Waiter()
    waiter.due.expect(web("a"))
    callers = [asyncio.create_task(waiter.waited(web(name))) for name in "bcd"]
    await settle()

    waiter.due.arrived("uid-default-a")

    assert [NO_TIME] * 3 == [await caller for caller in callers]


@virtual_time
async def test_switched_off_nobody_waits() -> None:
    waiter = Waiter(0.0)
    waiter.due.expect(web("a"))

    assert NO_TIME == await waiter.waited(web("b"))
    assert [] == waiter.observed


@virtual_time
async def test_the_oldest_of_very_many_is_dropped() -> None:
    waiter = Waiter()
    waiter.due.expect(web("a"))
    for number in range(64):
        waiter.due.expect(make_pod(f"other-{number}", labels={"app": "other"}))

    assert NO_TIME == await waiter.waited(web("b"))


@pytest.mark.parametrize("node", [pytest.param("n1", id="assumed"), pytest.param("n9", id="failed")])
@virtual_time
async def test_a_bind_that_is_assumed_or_failed_has_arrived(node: str) -> None:
    bench = Bench(*zones(), web("a"))
    bench.due._wait_seconds = WAIT
    bench.due.expect(web("a"))

    await bench.start("a", node)
    await settle()

    started = now()
    await bench.due.wait(bench.framework.filters.depends, web("b"))
    assert NO_TIME == now() - started
