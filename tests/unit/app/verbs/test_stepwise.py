"""What is to be counted first is counted in slices, and the decision is taken on the picture as it is then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest

from app.cache import counters
from app.cache.cluster import Cluster
from app.framework.counts import all_prepared
from app.kube.selectors import DOES_NOT_EXIST, Requirement, Selector, of_labels
from app.verbs import stepwise
from app.verbs.stepwise import decide_prepared, run_stepwise
from tests.builders import ZONE, make_node, make_pod

WEB = of_labels({"app": "web"})
NODES = 2000


def wide() -> Cluster:
    cluster = Cluster()
    for number in range(NODES):
        cluster.upsert_node(make_node(f"n{number}", zone=f"z{number % 3}"))
    return cluster


def smallest(cluster: Cluster) -> int:
    return cluster.counts.domains("default", WEB, ZONE, frozenset({ZONE})).minimum()


def fill(cluster: Cluster) -> None:
    for number in range(3):
        cluster.upsert_pod(make_pod(f"web-{number}", labels={"app": "web"}, node=f"n{number}"))


async def test_the_answer_is_that_of_a_picture_that_moved_on_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepwise, "STEP_SECONDS", 0.0)
    cluster = wide()

    asked = asyncio.create_task(decide_prepared(lambda: smallest(cluster)))
    await asyncio.sleep(0)
    fill(cluster)

    assert (False, 1, []) == (asked.done(), await asked, cluster.check())


async def test_a_call_that_ran_out_of_time_is_gone_on_with_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepwise, "STEP_SECONDS", 0.0)
    cluster = wide()
    turns = []
    for given_up in (True, False):
        asked = asyncio.create_task(decide_prepared(lambda: smallest(cluster)))
        taken = 0
        while not asked.done() and not (given_up and taken == 10):
            await asyncio.sleep(0)
            taken += 1
        asked.cancel()
        turns.append(taken)

    cold = wide()
    asked = asyncio.create_task(decide_prepared(lambda: smallest(cold)))
    from_the_start = 0
    while not asked.done():
        await asyncio.sleep(0)
        from_the_start += 1

    assert turns[1] < from_the_start
    assert sum(turns) - from_the_start in range(5)


async def test_what_is_there_is_answered_at_once() -> None:
    cluster = wide()
    await decide_prepared(lambda: smallest(cluster))
    asked = decide_prepared(lambda: smallest(cluster))

    with pytest.raises(StopIteration):
        asked.send(None)


async def test_a_pod_that_asks_for_more_than_is_kept_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its selections alone is more than the limit; two such pods at once take turns."""
    monkeypatch.setattr(counters, "_MIN_ENTRIES", 0)
    monkeypatch.setattr(counters, "_MOST_SELECTION_BYTES", 1)
    monkeypatch.setattr(counters, "_PIECE", 4)
    cluster = Cluster()
    for number in range(20):
        cluster.upsert_pod(make_pod(f"web-{number}", labels={"app": f"web-{number}"}, node="n0"))
    selectors = [Selector((Requirement(f"x{number}", DOES_NOT_EXIST),)) for number in range(16)]

    def counted(some: list[Selector]) -> list[int]:
        found: list[int] = []
        all_prepared(partial(ask, found, it) for it in some)
        return found

    def ask(found: list[int], selector: Selector) -> None:
        found.append(sum(cluster.counts.pods_by_node("default", selector).values()))

    async with asyncio.timeout(10):
        answers = await asyncio.gather(
            decide_prepared(partial(counted, selectors)), decide_prepared(partial(counted, selectors[::-1]))
        )

    assert [[20] * 16, [20] * 16] == list(answers)
    cluster.counts.pods_by_node("elsewhere", WEB)
    assert 1 == cluster.counts.statistics()["selection"]["entries"]


async def test_only_one_slice_runs_in_a_round_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gives up meanwhile holds up nobody."""
    monkeypatch.setattr(stepwise, "STEP_SECONDS", -1.0)
    in_this_round = most = 0

    def steps() -> Iterator[None]:
        nonlocal in_this_round, most
        for _ in range(10):
            in_this_round += 1
            most = max(most, in_this_round)
            yield

    tasks = [asyncio.create_task(run_stepwise(steps())) for _ in range(20)]
    rounds = 0
    while not all(it.done() for it in tasks):
        in_this_round = 0
        await asyncio.sleep(0)
        rounds += 1
        if rounds == 50:
            for task in tasks[:5]:
                task.cancel()

    assert (1, 15) == (most, sum(not it.cancelled() for it in tasks))
