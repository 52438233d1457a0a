"""Who waits for binds in flight is woken by each that settles; those in flight themselves never wait in a circle."""

from __future__ import annotations

import asyncio

import pytest

from app.cache.assumed import AssumedPods
from app.framework.status import unschedulable
from app.verbs.settlements import ENTANGLED, UNSETTLED, Settlements
from app.writes.batches import FEW, BindBatches
from app.writes.bind_guard import NotBound
from tests.api.virtual import now, settle, virtual_time
from tests.builders import make_pod

PODS = {name: make_pod(name, node="n1") for name in "abc"}
UIDS = {name: pod.uid for name, pod in PODS.items()}


def in_flight(names: str, batches: BindBatches | None = None) -> tuple[AssumedPods, Settlements]:
    assumed = AssumedPods()
    settlements = Settlements(assumed, batches or BindBatches(0.0, now))
    for name in names:
        assumed.put(PODS[name])
    return assumed, settlements


async def waiting(settlements: Settlements, name: str, seconds: float = 60.0) -> asyncio.Task[None]:
    task = asyncio.create_task(settlements.wait_next_after(settlements.count, UIDS[name], seconds))
    await settle()
    return task


@pytest.mark.parametrize("how", ["accept", "remove", "reserve"])
@virtual_time
async def test_each_way_to_settle_wakes(how: str) -> None:
    """One that waits at Permit from now on is no longer waited for either."""
    assumed, settlements = in_flight("ab")
    task = await waiting(settlements, "a")
    assert not task.done()

    getattr(assumed, how)(UIDS["b"])

    await task
    assert 1 == settlements.count


@virtual_time
async def test_a_binding_that_is_sent_wakes_those_whose_pod_is_not_assumed() -> None:
    """A bind in flight waits for outcomes only."""
    _, settlements = in_flight("ab")
    pending = asyncio.create_task(settlements.wait_next(60.0))
    assumed = await waiting(settlements, "a")

    settlements.sent(UIDS["b"])
    await settle()

    assert (True, False) == (pending.done(), assumed.done())
    assumed.cancel()


def test_all_binds_in_flight_are_sent() -> None:
    """A Binding is no longer being sent once its outcome is unknown."""
    assumed, settlements = in_flight("ab")
    settlements.sent(UIDS["a"])
    assert not settlements.all_sent()

    settlements.sent(UIDS["b"])
    assert settlements.all_sent()

    settlements.ended(UIDS["b"])
    assumed.doubt(UIDS["b"])
    assert not settlements.all_sent()


@virtual_time
async def test_one_that_is_assumed_early_waits_for_outcomes_and_others_do_not_wait_for_it() -> None:
    """Two that wait for each other give up, although a third one is assumed early."""
    assumed, settlements = in_flight("ab")
    assumed.put(PODS["c"])
    early = asyncio.create_task(settlements.wait_early(UIDS["c"], 60.0))
    await settle()
    settlements.sent(UIDS["b"])
    await settle()
    assert (UIDS["c"], False) == (settlements.early, early.done())

    task = await waiting(settlements, "a")
    with pytest.raises(NotBound) as found:
        await settlements.wait_next_after(settlements.count, UIDS["b"], 60.0)
    assert unschedulable(ENTANGLED) == found.value.status

    assumed.accept(UIDS["b"])
    await asyncio.gather(early, task)
    assert "" == settlements.early


@virtual_time
async def test_not_for_ever() -> None:
    _, settlements = in_flight("ab")
    started = now()

    with pytest.raises(NotBound) as found:
        await settlements.wait_next(3.0)

    assert (unschedulable(UNSETTLED), 3.0) == (found.value.status, now() - started)


@virtual_time
async def test_one_that_has_settled_since_is_not_waited_for() -> None:
    assumed, settlements = in_flight("ab")
    seen, started = settlements.count, now()
    assumed.accept(UIDS["b"])

    await settlements.wait_next_after(seen, UIDS["a"], 60.0)

    assert 0.0 == now() - started


@virtual_time
async def test_the_last_that_would_close_a_circle_gives_up() -> None:
    _, settlements = in_flight("abc")
    first, second = await waiting(settlements, "a"), await waiting(settlements, "b")

    with pytest.raises(NotBound) as found:
        await settlements.wait_next_after(settlements.count, UIDS["c"], 60.0)

    assert (unschedulable(ENTANGLED), False, False) == (found.value.status, first.done(), second.done())
    for task in (first, second):
        task.cancel()


@virtual_time
async def test_who_was_woken_is_taken_to_move() -> None:
    """It has not looked again yet; the others may wait for what it will find."""
    assumed, settlements = in_flight("abc")
    first = await waiting(settlements, "a")
    assumed.accept(UIDS["c"])

    second = await waiting(settlements, "b")

    assert (True, False) == (first.done(), second.done())
    second.cancel()


@virtual_time
async def test_a_pod_at_permit_is_not_in_the_circle() -> None:
    """It does not wait for anybody in flight, and nobody is to wait for it."""
    assumed, settlements = in_flight("ab")
    assumed.reserve(UIDS["b"])

    with pytest.raises(NotBound) as found:
        await settlements.wait_next_after(settlements.count, UIDS["a"], 60.0)

    assert unschedulable(ENTANGLED) == found.value.status


@virtual_time
async def test_what_is_held_leaves_once_somebody_waits_for_it() -> None:
    """And what comes while it waits is not held."""
    batches = BindBatches(1.0, now)
    assumed, settlements = in_flight("ab", batches)
    for _ in range(FEW):
        await batches.wait_for_batch()
    held = asyncio.create_task(batches.wait_for_batch())
    await settle()
    started, before = now(), held.done()

    waiter = await waiting(settlements, "a")
    await batches.wait_for_batch()

    assert (False, True, started) == (before, held.done(), now())
    assumed.accept(UIDS["b"])
    await waiter
