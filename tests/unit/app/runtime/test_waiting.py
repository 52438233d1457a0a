"""Rules of Permit's waiting room: a pod goes on when every plugin has allowed it, never once one rejects it."""

import asyncio

import pytest

from app.framework.status import SUCCESS, Status, unschedulable
from app.runtime.waiting import WaitingPod, WaitingPods
from tests.builders import make_pod

POD = make_pod("web-1")
A_WHILE = 600.0


async def waiting_for(**waits: float) -> tuple[asyncio.Task[Status], WaitingPods, WaitingPod]:
    pods = WaitingPods()
    task = asyncio.create_task(pods.wait(POD, "n1", waits))
    await asyncio.sleep(0)
    waiting = pods.get(POD.uid)
    assert waiting is not None
    return task, pods, waiting


async def test_a_waiting_pod_is_found() -> None:
    task, pods, waiting = await waiting_for(A=A_WHILE, B=A_WHILE)

    assert ((POD, "n1"), ("A", "B")) == ((waiting.pod, waiting.node_name), waiting.pending_plugins())
    assert ((waiting,), None) == (pods.all(), pods.get("unknown"))

    waiting.reject("A", "enough")
    await task
    assert ((), None) == (pods.all(), pods.get(POD.uid))


async def test_it_goes_on_when_all_have_allowed_it() -> None:
    task, _, waiting = await waiting_for(A=A_WHILE, B=A_WHILE)

    waiting.allow("A")
    waiting.allow("unknown")
    assert (("B",), False) == (waiting.pending_plugins(), task.done())
    waiting.allow("B")

    assert SUCCESS == await task


async def test_one_rejection_settles_it() -> None:
    task, _, waiting = await waiting_for(A=A_WHILE, B=A_WHILE)

    assert waiting.reject("B", "no room")
    assert not waiting.reject("A", "too late")
    waiting.allow("A")

    assert unschedulable("no room").by("B") == await task


async def test_the_first_time_that_is_up_rejects_it() -> None:
    task, _, _ = await waiting_for(A=A_WHILE, B=0.0)

    assert unschedulable("rejected due to timeout after waiting 0s at plugin B").by("B") == await task


async def test_who_stops_waiting_leaves_nothing_behind() -> None:
    task, pods, waiting = await waiting_for(A=A_WHILE)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert () == pods.all()
    assert not waiting.reject("A", "too late")
