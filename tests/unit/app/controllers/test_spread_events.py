"""A pod that spread keeps waiting gets one Event for each verdict, from the leader, and never from a verb."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any, Final

import pytest
from msgspec.structs import replace

from app.analysis.spread_blocks import SpreadBlock
from app.cache.cluster import Cluster
from app.controllers.fallbacks import SpreadFallbacks
from app.controllers.spread_events import (
    AGAIN_SECONDS,
    FIRST_SECONDS,
    LONGEST_AGAIN_SECONDS,
    MOST,
    MOST_OF_NAMESPACE,
    REST_SECONDS,
    SEARCH_SECONDS,
    TICK_SECONDS,
    SpreadEvents,
)
from app.controllers.supervisor import Supervisor
from app.framework.status import error
from app.kube.core_v1 import Pod
from app.memory.fallbacks import FallbackTable
from app.memory.recent_refusals import RecentRefusals
from app.runtime.guard import PluginError
from app.telemetry.metrics import Metrics
from app.verbs.outcome import VerbFailure
from app.writes.events import IDLE_SECONDS
from tests.api.virtual import now, virtual_time
from tests.builders import make_node, make_pod
from tests.fakes import RecordingRecorder, Told
from tests.unit.app.controllers.test_supervisor import Term

SPREAD: Final = (("PodTopologySpread", "too many"),)
SOON: Final = SEARCH_SECONDS + FIRST_SECONDS + 2 * TICK_SECONDS
"""Seconds after a refusal by when a pod has been judged, if no other waits."""

CPU: Final = SpreadBlock("cpu", "zone: a 1, b 3; maxSkew 1; a: Insufficient cpu")


class Case:
    """A cluster, the pods that filter refused, and what keeps each of them waiting by its namespace."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.upsert_node(make_node())
        self.refused = RecentRefusals(Metrics().refusals.labels)
        self.recorder = RecordingRecorder()
        self.block: SpreadBlock | Exception | None = CPU
        self.judged: list[tuple[str, float]] = []
        self.meanwhile: Callable[[], object] = lambda: None
        self.table = FallbackTable()
        self.activated: list[str] = []
        self.problem = ""
        self.fallbacks = SpreadFallbacks(
            self.table,
            self.cluster,
            lambda pod: pod.spec.scheduler_name,
            lambda _pod, _profile: self.problem,
            self.recorder,
            lambda pods: self.activated.extend(it.name for it in pods),
            now,
        )
        self.events = SpreadEvents(
            self.cluster, lambda: self.refused, self._block_of, self.recorder, self.fallbacks, now
        )

    async def _block_of(self, pod: Pod) -> SpreadBlock | None:
        self.judged.append((pod.name, now()))
        await asyncio.sleep(0)
        self.meanwhile()
        if isinstance(self.block, Exception):
            raise self.block
        return self.block

    def refuse(self, name: str = "web-1", causes: Any = SPREAD, **fields: Any) -> Pod:
        pod = make_pod(name, **fields)
        self.cluster.upsert_pod(pod)
        self.refused.refused(pod, "default-scheduler", causes)
        return pod

    @property
    def told(self) -> list[Told]:
        return self.recorder.told

    @property
    def notes(self) -> list[str]:
        return [it.note for it in self.told]


@asynccontextmanager
async def running(case: Case) -> AsyncIterator[None]:
    task = asyncio.ensure_future(case.events.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@virtual_time
async def test_a_pod_that_waits_gets_one_event() -> None:
    """However often its numbers change and it is refused again."""
    case = Case()
    pod = case.refuse()

    async with running(case):
        await asyncio.sleep(FIRST_SECONDS)
        early = list(case.told)
        await asyncio.sleep(SOON)
        for number in range(2, 9):
            case.block = SpreadBlock("cpu", f"zone: a 1, b {number}; maxSkew 1; a: Insufficient cpu")
            case.refused.refused(pod, "default-scheduler", SPREAD)
            await asyncio.sleep(REST_SECONDS)

    assert [] == early
    assert [Told("Pod default/web-1", "", "Normal", "SpreadBlocked", "Filtering", CPU.note)] == case.told
    assert len(case.judged) > 4


@virtual_time
async def test_another_reason_is_news_once_the_series_of_the_last_event_has_ended() -> None:
    """An Event before that would be counted, with the note of the last one."""
    case = Case()
    case.refuse()

    async with running(case):
        await asyncio.sleep(SOON)
        case.block = SpreadBlock("cordon", "cordoned")
        await asyncio.sleep(REST_SECONDS - SOON)
        before = case.notes
        await asyncio.sleep(SOON)
        case.block = CPU
        await asyncio.sleep(REST_SECONDS + LONGEST_AGAIN_SECONDS)

    assert REST_SECONDS > IDLE_SECONDS
    assert ([CPU.note], [CPU.note, "cordoned", CPU.note]) == (before, case.notes)


@virtual_time
async def test_a_reason_that_comes_and_goes_is_no_flood() -> None:
    case = Case()
    case.refuse()

    async with running(case):
        for number in range(3600):
            case.block = SpreadBlock(number, str(number))
            await asyncio.sleep(1.0)

    assert 2 <= len(case.told) <= 3600 / REST_SECONDS + 1


@virtual_time
async def test_a_pod_that_nothing_blocks_any_more_and_then_for_the_same_reason() -> None:
    """It still waits for what its Event says."""
    case = Case()
    case.refuse()

    async with running(case):
        for block in (CPU, None, CPU):
            case.block = block
            await asyncio.sleep(REST_SECONDS + LONGEST_AGAIN_SECONDS)

    assert [CPU.note] == case.notes


def bound(case: Case, pod: Pod) -> None:
    case.cluster.upsert_pod(replace(pod, node_name="n1", resource_version="2"))


def deleted(case: Case, pod: Pod) -> None:
    case.cluster.delete_pod(pod.key, pod.uid)


def terminating(case: Case, pod: Pod) -> None:
    case.cluster.upsert_pod(replace(pod, terminating=True, resource_version="2"))


def recreated(case: Case, pod: Pod) -> None:
    case.cluster.upsert_pod(replace(pod, uid="another", resource_version="2"))


def fits(case: Case, pod: Pod) -> None:
    case.refused.fits(pod)


def refused_by_others(case: Case, pod: Pod) -> None:
    case.refused.refused(pod, "default-scheduler", (("StickyNode", "not its home"),))


GONE: Final = (bound, deleted, terminating, recreated)


@pytest.mark.parametrize("becomes", [*GONE, fits, refused_by_others])
def test_a_pod_that_spread_keeps_waiting_no_longer_is_not_judged(becomes: Callable[[Case, Pod], None]) -> None:
    @virtual_time
    async def story() -> None:
        case = Case()
        pod = case.refuse()
        async with running(case):
            await asyncio.sleep(SEARCH_SECONDS + TICK_SECONDS)
            becomes(case, pod)
            await asyncio.sleep(REST_SECONDS)
        assert ([], []) == (case.judged, case.told)

    story()


@pytest.mark.parametrize("becomes", GONE)
def test_nothing_is_said_of_a_pod_that_was_bound_or_went_while_it_was_judged(
    becomes: Callable[[Case, Pod], None],
) -> None:
    @virtual_time
    async def story() -> None:
        case = Case()
        pod = case.refuse()
        case.meanwhile = lambda: becomes(case, pod)
        async with running(case):
            await asyncio.sleep(REST_SECONDS)
        assert (["web-1"], []) == ([name for name, _ in case.judged], case.told)

    story()


@virtual_time
async def test_pods_that_another_plugin_refused_are_not_judged() -> None:
    case = Case()
    case.refuse(causes=(("StickyNode", "not its home"),))

    async with running(case):
        await asyncio.sleep(SOON)

    assert ([], []) == (case.judged, case.told)


@virtual_time
async def test_equal_pods_are_judged_once() -> None:
    case = Case()
    for number in range(5):
        case.refuse(f"web-{number}", labels={"app": "web"})
    case.refuse("other", labels={"app": "other"})

    async with running(case):
        await asyncio.sleep(SOON)

    assert (2, 6) == (len(case.judged), len({it.regarding for it in case.told}))


@virtual_time
async def test_different_pods_are_judged_one_a_second_new_ones_first() -> None:
    case = Case()
    for number in range(60):
        case.refuse(f"web-{number}", labels={"app": f"web-{number}"})

    async with running(case):
        await asyncio.sleep(SEARCH_SECONDS + FIRST_SECONDS + 70 * TICK_SECONDS)

    times = [at for _, at in case.judged]
    assert all(after - before >= TICK_SECONDS for before, after in pairwise(times))
    assert (60, True) == (len({name for name, _ in case.judged[:60]}), AGAIN_SECONDS < 60 * TICK_SECONDS)


@virtual_time
async def test_a_namespace_leaves_room_for_others() -> None:
    case = Case()
    for number in range(MOST_OF_NAMESPACE + 40):
        case.refuse(f"web-{number}", namespace="large")
    case.refuse("web-1", namespace="small")

    async with running(case):
        await asyncio.sleep(SOON + TICK_SECONDS)

    large = [it for it in case.told if it.regarding.startswith("Pod large/")]
    assert (MOST_OF_NAMESPACE, MOST_OF_NAMESPACE + 1) == (len(large), len(case.told))


@virtual_time
async def test_pods_that_are_gone_take_no_room() -> None:
    """The memory of refusals keeps them for a while."""
    case = Case()
    for number in range(MOST_OF_NAMESPACE):
        deleted(case, case.refuse(f"gone-{number}"))
    for number in range(MOST_OF_NAMESPACE):
        case.refuse(f"web-{number}")

    async with running(case):
        await asyncio.sleep(SOON)
        for number in range(MOST_OF_NAMESPACE):
            bound(case, make_pod(f"web-{number}"))
        case.refuse("late")
        await asyncio.sleep(SOON)

    assert MOST_OF_NAMESPACE + 1 == len({it.regarding for it in case.told if "gone" not in it.regarding})


@virtual_time
async def test_all_namespaces_together_are_bounded() -> None:
    case = Case()
    namespaces = MOST // MOST_OF_NAMESPACE + 2
    for namespace in range(namespaces):
        for number in range(MOST_OF_NAMESPACE):
            case.refuse(f"web-{number}", namespace=f"n{namespace}")

    async with running(case):
        await asyncio.sleep(SOON + namespaces * TICK_SECONDS)

    assert MOST == len(case.told)


@virtual_time
@pytest.mark.parametrize(
    "problem", [VerbFailure("not_ready", "pods: not listed yet"), PluginError(error("x", "PodTopologySpread"))]
)
async def test_a_fault_is_no_verdict(problem: Exception) -> None:
    """It is tried again later."""
    case = Case()
    case.block = problem
    case.refuse()

    async with running(case):
        await asyncio.sleep(SOON)
        before = list(case.told)
        case.block = CPU
        await asyncio.sleep(2 * AGAIN_SECONDS)

    assert ([], [CPU.note]) == (before, case.notes)


@virtual_time
async def test_only_the_leader_judges_and_a_new_one_begins_anew() -> None:
    case, term = Case(), Term()
    case.refuse()
    supervisor = Supervisor(term)
    supervisor.while_leading("spread events", case.events.run)
    supervisor.start()

    await asyncio.sleep(10 * SOON)
    follows: Sequence[object] = (*case.judged, *case.told)
    await term.change(leads=True, may_write=True)
    await asyncio.sleep(SOON)
    leads = case.notes
    await term.change(leads=False, may_write=False)
    await asyncio.sleep(10 * SOON)
    lost = case.notes
    await term.change(leads=True, may_write=True)
    await asyncio.sleep(SOON)
    await supervisor.stop()

    assert ((), [CPU.note], [CPU.note], [CPU.note, CPU.note]) == (follows, leads, lost, case.notes)
