"""Homes and pods are watched side by side: what holds up the one does not hold up the other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from app.kube.kinds import AnnotatedObject, Kind
from plugins.sticky_node.watching import TICK_SECONDS
from tests.api.virtual import now, virtual_time
from tests.unit.plugins.sticky_node.watched import BEGINS, Watched, launcher

LATEST = 2.0


class Slow(Watched):
    """Each write takes its time, and then fails."""

    async def annotate(self, kind: Kind[Any], found: AnnotatedObject, annotations: Mapping[str, str | None]) -> None:
        self.writes.append(now() - BEGINS)
        await asyncio.sleep(10)
        raise OSError("no answer")


@virtual_time
async def test_writes_that_nobody_answers_keep_no_pod_from_being_woken() -> None:
    machines = Slow()
    for number in range(100):
        machines.machine(f"vm-{number}", home="n1")
    machines.machine(home="n2")
    machines.cordon("n1", "n2")
    async with machines.leading():
        await asyncio.sleep(1)
        machines.asks(launcher())
        await asyncio.sleep(9)
        machines.uncordon("n2")
        await asyncio.sleep(60)

    (when, _) = next(it for it in machines.woken if it[0] > 1)
    assert 10 <= when <= 10 + LATEST
    assert len(machines.writes) > 3


@virtual_time
async def test_writes_that_wait_keep_no_pod_from_being_woken() -> None:
    """A thousand machines lived on the node that went: twenty seconds of writing."""
    machines = Watched()
    for number in range(1000):
        machines.machine(f"vm-{number}", home="n1")
    machines.machine(home="n2")
    machines.cordon("n1", "n2")
    async with machines.leading():
        await asyncio.sleep(1)
        machines.asks(launcher())
        await asyncio.sleep(9)
        machines.uncordon("n2")
        await asyncio.sleep(60)

    assert machines.writes[-1] > 20
    assert [10] == [int(when) // 2 * 2 for when, _ in machines.woken]


@virtual_time
async def test_an_hour_without_anything_to_do_is_spent_asleep() -> None:
    machines = Watched()
    machines.machine(home="n1")
    slept: list[float] = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(seconds)

    machines.plugin._watch._sleep = counted
    async with machines.leading():
        await asyncio.sleep(3600)

    assert {TICK_SECONDS} == set(slept[4:])
    assert abs(len(slept) - 2 * 3600 / TICK_SECONDS) < 10
