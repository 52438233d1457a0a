"""Rules of Permit's waiting room: a pod goes on when every plugin has allowed it, never once one rejects it."""

import asyncio

import pytest

from app.framework.status import SUCCESS, Status, unschedulable
from app.runtime.waiting import PodAtPermit, PodsAtPermit
from tests.builders import make_pod

POD = make_pod("web-1")
A_WHILE = 600.0


class Places:
    """Writes down for whom a place is kept."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def reserve(self, uid: str) -> None:
        self.log.append(f"reserve {uid}")

    def proceed(self, uid: str) -> None:
        self.log.append(f"proceed {uid}")


async def waiting_for(
    places: Places | None = None, **waits: float
) -> tuple[asyncio.Task[Status], PodsAtPermit, PodAtPermit]:
    pods = PodsAtPermit(places or Places())
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


class TestReservations:
    RESERVED, PROCEEDED = f"reserve {POD.uid}", f"proceed {POD.uid}"

    async def test_its_place_is_kept_while_it_waits(self) -> None:
        places = Places()
        task, pods, _ = await waiting_for(places, A=A_WHILE)
        assert [self.RESERVED] == places.log

        pods.reject(POD.uid, "enough")

        assert [self.RESERVED, self.PROCEEDED] == places.log
        assert unschedulable("enough") == await task

    async def test_it_goes_on_in_the_step_in_which_it_is_allowed(self) -> None:
        """Pods that are allowed together see one another in flight."""
        places = Places()
        task, _, waiting = await waiting_for(places, A=A_WHILE)

        waiting.allow("A")

        assert self.PROCEEDED == places.log[-1]
        await task

    async def test_who_stops_waiting_leaves_nothing_behind(self) -> None:
        places = Places()
        task, pods, waiting = await waiting_for(places, A=A_WHILE)

        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert ((), self.PROCEEDED) == (pods.all(), places.log[-1])
        assert not waiting.reject("A", "too late")


class TestGivenBack:
    async def test_all(self) -> None:
        pods, others = PodsAtPermit(), [make_pod(name) for name in "ab"]
        tasks = [asyncio.create_task(pods.wait(it, "n1", {"A": A_WHILE})) for it in others]
        await asyncio.sleep(0)

        pods.reject_all("this replica no longer leads")

        assert [unschedulable("this replica no longer leads")] * 2 == [await it for it in tasks]
        later = asyncio.create_task(pods.wait(POD, "n1", {"A": A_WHILE}))
        await asyncio.sleep(0)
        assert not later.done()
        pods.reject_all("enough")
        await later

    async def test_nobody_begins_to_wait_where_it_may_not_be_bound(self) -> None:
        places, barred = Places(), ["this replica no longer leads"]
        pods = PodsAtPermit(places, lambda: barred[0])

        assert unschedulable(barred[0]) == await pods.wait(POD, "n1", {"A": A_WHILE})
        assert ((), []) == (pods.all(), places.log)

        barred[0] = ""
        later = asyncio.create_task(pods.wait(POD, "n1", {"A": A_WHILE}))
        await asyncio.sleep(0)
        assert [POD.uid] == [it.pod.uid for it in pods.all()]
        pods.reject_all("enough")
        await later

    async def test_after_the_end_nobody_waits(self) -> None:
        task, pods, _ = await waiting_for(A=A_WHILE)

        pods.close("the process ends")

        assert unschedulable("the process ends") == await task
        assert unschedulable("the process ends") == await pods.wait(POD, "n1", {"A": A_WHILE})
