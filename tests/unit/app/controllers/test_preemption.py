"""The protocol of a preemption: when a plan begins, what it does in which order, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

from msgspec.structs import replace

from app.controllers.nominations import CountedNominations
from app.controllers.preemption import PreemptionController
from app.controllers.preemption_steps import PLAN_SECONDS
from app.feeds.saved import NullReader
from app.framework.events import EventRecorder
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import PREEMPTING
from app.memory.expected_binds import ExpectedBinds
from app.telemetry.metrics import Metrics
from app.verbs.context import VerbContext
from app.writes.evictions import Eviction, Evictor
from tests.api.virtual import now, virtual_time
from tests.builders import constraint, node_object, pod_object
from tests.harness import World as Judges
from tests.unit.app.verbs.bench import WEB

PROFILE: Final = {"schedulerName": "default-scheduler", "preemption": "Own"}
NAMES: Final = ("a1", "a2")


class Recorder:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def event(self, _regarding: object, _related: object, _type: str, reason: str, *_: str) -> None:
        self.reasons.append(reason)


class World:
    """Two nodes in zone a, and a closed one in zone b: each pod in zone a is one too many for a further one.

    It is the API server too: ``writes`` is what it was sent, and ``refuses`` has the writes that it refuses.
    """

    seconds = 0.1

    def __init__(self, *victims: str) -> None:
        nodes = [
            node_object("a1", zone="a"),
            node_object("a2", zone="a"),
            node_object("b1", zone="b", unschedulable=True),
        ]
        low = [pod_object(name, labels=WEB, node=name[-2:], priority=0) for name in victims]
        high = pod_object("high", labels=WEB, priority=10, spread=[constraint(app="web")])
        self.judges = Judges(*nodes, *low, high, profile=PROFILE)
        self.cluster = self.judges.cluster
        self.writes: list[str] = []
        self.rejected_at_writes: set[bool] = set()
        self.refuses: set[str] = set()
        self.problem = ""
        self.is_sample = False
        self.events = Recorder()
        due = ExpectedBinds(self.judges.clock, wait_seconds=0, observe=lambda _: None)
        profiles = {"default-scheduler": self.judges.framework}
        context = VerbContext(self.cluster, profiles, NullReader(), lambda: self.problem, due)
        self.metrics = Metrics()
        self.controller = PreemptionController(
            context,
            cast("Evictor", self),
            self._catch_up,
            lambda pod: "it has a hard home" if pod.name.startswith("db") else "",
            lambda _names: self.is_sample,
            now,
            self.metrics,
            cast("EventRecorder", self.events),
            CountedNominations(self.cluster),
            per_second=5,
        )

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        running = asyncio.ensure_future(self.controller.run())
        await asyncio.sleep(0.2)
        yield
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    @property
    def high(self) -> Pod:
        pod = self.cluster.pod("default", "high")
        assert pod is not None
        return pod

    def refuse(self, names: Sequence[str] = NAMES) -> None:
        """What filter reports after it has rejected all nodes."""
        self.controller.preemptors.refused(self.high, lambda: names)

    def bind(self, node: str) -> None:
        self.cluster.upsert_pod(replace(self.high, node_name=node))

    def results(self) -> dict[str, int]:
        (family,) = self.metrics.preemption_plans.collect()
        return {it.labels["result"]: int(it.value) for it in family.samples if it.name.endswith("_total")}

    # The API server

    async def _catch_up(self) -> None:
        self.writes.append("catch up")

    async def evict(self, victim: Pod, *, dry_run: bool = False) -> Eviction:
        write = f"{'try' if dry_run else 'evict'} {victim.name}"
        self.writes.append(write)
        self.rejected_at_writes.add(self.controller.preemptors.is_evicting(self.high.uid))
        if write in self.refuses:
            return Eviction("refused", "a budget")
        if not dry_run:
            self.cluster.upsert_pod(replace(victim, terminating=True))
        return Eviction("evicted")

    async def read(self, pod: Pod) -> Pod | None:
        return self.cluster.pod(*pod.key)

    async def nominate(self, pod: Pod, node_name: str) -> str:
        self.writes.append(f"nominate {node_name}")
        if f"nominate {node_name}" in self.refuses:
            return "forbidden"
        marked = replace(pod, annotations={PREEMPTING: node_name})
        self.cluster.upsert_pod(marked.nominated(node_name))
        return ""

    async def clear(self, pod: Pod, node_name: str) -> None:
        self.writes.append(f"clear {node_name}")
        self.cluster.upsert_pod(replace(self.high, annotations={}).nominated(""))


@virtual_time
async def test_the_steps_of_a_plan() -> None:
    world = World("one-a1")
    async with world.leading():
        world.refuse()
        await asyncio.sleep(0.05)
        planned = world.controller.preemptors.planned(world.high.uid)
        can_pass = not world.controller.preemptors.is_evicting(world.high.uid)
        world.bind("a1")
        await asyncio.sleep(0.2)

    assert ["catch up", "try one-a1", "nominate a1", "evict one-a1"] == world.writes
    assert ("a1", "", {"bound": 1}) == (planned, world.controller.preemptors.planned(world.high.uid), world.results())
    assert ["Preempted", "Preempting"] == world.events.reasons
    assert ({True}, True) == (world.rejected_at_writes, can_pass)


@virtual_time
async def test_only_nodes_of_the_request_are_candidates() -> None:
    world = World("one-a1")
    async with world.leading():
        world.refuse(["a2"])
        await asyncio.sleep(1)

    assert [] == world.writes


@virtual_time
async def test_no_plan_begins_while_the_scheduler_preempts() -> None:
    world = World("one-a1")
    async with world.leading():
        world.refuse()
        world.controller.preemptors.preempt_begins(world.high)
        await asyncio.sleep(1)
        during = list(world.writes)
        world.controller.preemptors.preempt_ends(world.high, helped=True)
        await asyncio.sleep(1)

    assert ([], []) == (during, world.writes)


@virtual_time
async def test_a_plan_begins_once_preempt_was_answered_with_no_node() -> None:
    world = World("one-a1")
    async with world.leading():
        world.refuse()
        world.controller.preemptors.preempt_begins(world.high)
        await asyncio.sleep(0.1)
        world.controller.preemptors.preempt_ends(world.high, helped=False)
        await asyncio.sleep(0.1)

    assert "evict one-a1" in world.writes


@virtual_time
async def test_no_plan_begins_for_a_pod_that_another_scheduler_nominated() -> None:
    world = World("one-a1")
    world.cluster.upsert_pod(world.high.nominated("a2"))
    async with world.leading():
        world.refuse()
        await asyncio.sleep(1)

    assert [] == world.writes


@virtual_time
async def test_nothing_is_evicted_if_a_dry_run_is_refused_and_another_node_is_tried() -> None:
    world = World("one-a1", "two-a2")
    world.judges.add(pod_object("two-a2", labels={"app": "other"}, node="a2", priority=0))
    world.refuses = {"try one-a1"}
    async with world.leading():
        world.refuse()
        await asyncio.sleep(2)

    assert ["catch up", "try one-a1"] == world.writes[:2]
    assert {"refused": 1} == world.results()


@virtual_time
async def test_nothing_is_evicted_if_the_pod_cannot_be_nominated() -> None:
    world = World("one-a1")
    world.refuses = {"nominate a1"}
    async with world.leading():
        world.refuse()
        await asyncio.sleep(0.5)

    assert "evict one-a1" not in world.writes
    assert {"not_nominated": 1} == world.results()


@virtual_time
async def test_it_stops_at_the_first_refused_eviction_and_clears_the_nomination() -> None:
    world = World("one-a1")
    world.judges.add(pod_object("two-a1", labels=WEB, node="a1", priority=1))
    world.refuses = {"evict two-a1"}
    async with world.leading():
        world.refuse()
        await asyncio.sleep(0.5)

    assert ["try two-a1", "try one-a1", "nominate a1", "evict two-a1", "clear a1"] == world.writes[1:]
    assert ({"interrupted": 1}, "") == (world.results(), world.high.nominated_node_name)


@virtual_time
async def test_a_plan_ends_after_ten_seconds() -> None:
    world = World("one-a1")
    async with world.leading():
        world.refuse()
        await asyncio.sleep(PLAN_SECONDS - 1)
        planned = world.controller.preemptors.planned(world.high.uid)
        await asyncio.sleep(2)

    assert ("a1", "", {"timed_out": 1}) == (
        planned,
        world.controller.preemptors.planned(world.high.uid),
        world.results(),
    )
    assert "clear a1" in world.writes


@virtual_time
async def test_a_pod_that_takes_the_place_ends_the_plan() -> None:
    world = World("one-a1")
    async with world.leading():
        world.refuse()
        await asyncio.sleep(0.1)
        world.judges.add(pod_object("highest", labels=WEB, node="a1", priority=100))
        await asyncio.sleep(2)

    assert {"overtaken": 1} == world.results()
    assert "clear a1" in world.writes


@virtual_time
async def test_a_follower_and_a_leader_without_a_current_snapshot_begin_no_plan() -> None:
    world = World("one-a1")
    world.refuse()
    await asyncio.sleep(1)
    world.problem = "the watch is silent"
    async with world.leading():
        world.refuse()
        await asyncio.sleep(1)

    assert [] == world.writes


@virtual_time
async def test_a_new_leader_clears_the_nomination_of_an_interrupted_plan() -> None:
    world = World("one-a1")
    world.cluster.upsert_pod(replace(world.high, annotations={PREEMPTING: "a1"}).nominated("a1"))
    async with world.leading():
        await asyncio.sleep(0.1)

    assert ["clear a1"] == world.writes


@virtual_time
async def test_a_new_leader_waits_for_the_bind_if_the_victims_are_evicted() -> None:
    world = World()
    world.cluster.upsert_pod(replace(world.high, annotations={PREEMPTING: "a1"}).nominated("a1"))
    async with world.leading():
        await asyncio.sleep(1)
        planned = world.controller.preemptors.planned(world.high.uid)
        world.bind("a1")
        await asyncio.sleep(1)

    assert ("a1", []) == (planned, world.writes)


@virtual_time
async def test_plans_begin_at_most_so_often() -> None:
    """Searches of pods with other specs too: each second, five of them begin."""
    world = World("one-a1")
    world.refuses = {"try one-a1"}
    begins: list[float] = []

    def names() -> list[str]:
        begins.append(now())
        return ["a1"]

    async with world.leading():
        for number in range(20):
            pod = pod_object(f"high-{number}", labels={**WEB, "n": str(number)}, priority=10 + number)
            world.judges.add({**pod, "spec": {**pod["spec"], "topologySpreadConstraints": [constraint(app="web")]}})
            known = world.cluster.pod("default", f"high-{number}")
            assert known is not None
            world.controller.preemptors.refused(known, names)
        await asyncio.sleep(2)

    assert 5 <= len({round(it, 3) for it in begins}) <= 11


@virtual_time
async def test_no_plan_begins_if_a_node_outside_the_sample_passes() -> None:
    world = World("one-a1")
    world.is_sample = True
    world.judges.add(node_object("b2", zone="b"))
    async with world.leading():
        world.refuse()
        await asyncio.sleep(1)

    assert [] == world.writes


@virtual_time
async def test_no_plan_begins_once_the_pod_has_passed() -> None:
    world = World("one-a1")
    async with world.leading():
        world.refuse()
        world.controller.preemptors.passed(world.high)
        await asyncio.sleep(30)

    assert [] == world.writes


@virtual_time
async def test_a_fault_that_passes_delays_the_plan() -> None:
    world = World("one-a1")
    world.refuses = {"nominate a1"}
    async with world.leading():
        world.refuse()
        await asyncio.sleep(5)
        world.refuses = set()
        await asyncio.sleep(60)

    assert "evict one-a1" in world.writes


@virtual_time
async def test_the_pod_of_the_highest_priority_comes_first_and_others_do_not_delay_it() -> None:
    world = World("one-a1")
    async with world.leading():
        for number in range(300):
            low = pod_object(f"low-{number}", labels=WEB, priority=0, spread=[constraint(app="web")])
            world.judges.add(low)
            known = world.cluster.pod("default", f"low-{number}")
            assert known is not None
            world.controller.preemptors.refused(known, lambda: NAMES)
        world.refuse()
        await asyncio.sleep(1)

    assert "evict one-a1" in world.writes


@virtual_time
async def test_a_search_without_result_is_repeated_less_and_less_often() -> None:
    world = World("db-a1")
    searches: list[float] = []

    def names() -> list[str]:
        searches.append(now())
        return ["a1"]

    async with world.leading():
        for _ in range(600):
            world.controller.preemptors.refused(world.high, names)
            await asyncio.sleep(0.1)

    assert len(searches) <= 10


@virtual_time
async def test_a_second_term_begins_anew() -> None:
    world = World("one-a1")
    async with world.leading():
        world.refuse()
    async with world.leading():
        world.refuse()
        await asyncio.sleep(0.1)

    assert "evict one-a1" in world.writes


@virtual_time
async def test_refused_dry_runs_are_not_repeated_without_end() -> None:
    world = World("one-a1", "two-a2")
    world.refuses = {"try one-a1", "try two-a2"}
    async with world.leading():
        world.judges.add(pod_object("high", labels=WEB, priority=10, spread=[constraint(app="web", skew=2)]))
        world.refuse()
        await asyncio.sleep(120)

    assert len(world.writes) <= 60


@virtual_time
async def test_a_node_is_tried_again_after_some_time_although_nothing_calls() -> None:
    world = World("one-a1")
    world.judges.add(pod_object("two-a1", labels=WEB, node="a1", priority=1))
    world.judges.add(pod_object("high", labels=WEB, priority=10, spread=[constraint(app="web", skew=2)]))
    async with world.leading():
        world.refuse(["a1"])
        await asyncio.sleep(0.1)
        world.judges.add(pod_object("highest", labels=WEB, node="a1", priority=100))
        await asyncio.sleep(60)

    assert ["evict one-a1", "evict two-a1"] == [it for it in world.writes if it.startswith("evict")]
