"""The task that relaxes constraints: judgements in, an Event and a retry out; see also the table's own tests."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from app.analysis.spread_blocks import SpreadBlock
from app.controllers.fallbacks import CHECK_SECONDS, LONGEST_PAUSE
from app.controllers.spread_events import SEARCH_SECONDS, TICK_SECONDS
from tests.api.virtual import virtual_time
from tests.builders import make_pod
from tests.fakes import Told
from tests.unit.app.controllers.test_spread_events import SOON, Case, running

ZONE = "topology.kubernetes.io/zone"
AFTER = 600.0
BLOCK = SpreadBlock("zone", "zone: a 1, b 3; maxSkew 1", frozenset({ZONE}))
SOFT = Told(
    "Pod default/web-1",
    "",
    "Normal",
    "SpreadRelaxed",
    "Filtering",
    f"{ZONE}: the constraint is soft for this pod from now on (fallback), "
    "because it alone kept the pod waiting for 10m",
)


class FallbackCase(Case):
    """A case whose profile has the option, with both tasks running."""

    def __init__(self) -> None:
        super().__init__()
        self.table.enable("default-scheduler", AFTER)
        self.block = BLOCK

    def relaxed(self, name: str = "web-1") -> bool:
        pod = self.cluster.pod("default", name)
        return pod is not None and self.table.relaxed(pod.uid) == {ZONE}


class Checking:
    """Runs the task that checks the data."""

    def __init__(self, case: Case) -> None:
        self._case = case

    async def __aenter__(self) -> None:
        self._task = asyncio.ensure_future(self._case.fallbacks.run())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@virtual_time
async def test_the_constraint_is_soft_at_its_time_with_one_event_and_one_retry() -> None:
    case = FallbackCase()
    case.refuse()
    async with running(case), Checking(case):
        await asyncio.sleep(AFTER)
        early = case.relaxed()
        await asyncio.sleep(SOON + TICK_SECONDS)
        assert (early, case.relaxed(), case.activated) == (False, True, ["web-1"])
        await asyncio.sleep(10 * LONGEST_PAUSE)

    assert [it for it in case.told if it.reason == "SpreadRelaxed"] == [SOFT]


@virtual_time
async def test_the_pod_stays_observed_while_filter_accepts_it() -> None:
    case = FallbackCase()
    pod = case.refuse()
    async with running(case), Checking(case):
        await asyncio.sleep(AFTER + SOON)
        case.refused.fits(pod)
        await asyncio.sleep(3 * LONGEST_PAUSE)
        kept = case.relaxed()
        case.block = SpreadBlock("zone", "other")
        await asyncio.sleep(2 * LONGEST_PAUSE)

    assert (kept, case.relaxed()) == (True, False)


@virtual_time
@pytest.mark.parametrize("block", [None, SpreadBlock("zone", "with a node"), OSError])
async def test_an_interruption_counts_anew(block: Any) -> None:
    """A node that takes the pod, or another rule that keeps it from all nodes."""
    case = FallbackCase()
    case.refuse()
    async with running(case), Checking(case):
        await asyncio.sleep(AFTER / 2)
        case.block = None if block is OSError else block
        await asyncio.sleep(2 * LONGEST_PAUSE)
        case.block = BLOCK
        await asyncio.sleep(AFTER / 2)

    assert not case.relaxed()


@virtual_time
async def test_missing_data_makes_it_hard_until_the_data_is_back() -> None:
    case = FallbackCase()
    case.refuse()
    async with running(case), Checking(case):
        await asyncio.sleep(AFTER + SOON)
        case.problem = "no permission to list persistentvolumes"
        await asyncio.sleep(CHECK_SECONDS + 0.1)
        without = case.relaxed()
        case.problem = ""
        await asyncio.sleep(CHECK_SECONDS + 0.1)
        assert (without, case.relaxed(), case.activated) == (False, True, ["web-1", "web-1"])


@virtual_time
async def test_a_bind_in_flight_keeps_its_rule_and_a_bound_pod_is_forgotten() -> None:
    case = FallbackCase()
    pod = case.refuse()
    async with running(case), Checking(case):
        await asyncio.sleep(AFTER + SOON)
        case.cluster.assume(pod, "n1")
        await asyncio.sleep(CHECK_SECONDS + 0.1)
        in_flight = case.table.has(pod.uid)
        case.cluster.upsert_pod(replace(pod, node_name="n1", resource_version="2"))
        await asyncio.sleep(CHECK_SECONDS + 0.1)

    assert (in_flight, case.table.has(pod.uid)) == (True, False)


@virtual_time
@pytest.mark.parametrize(("value", "is_soft", "unknown"), [("never", False, 0), ("nevr", True, 1)])
async def test_a_pod_can_keep_its_constraints_hard(value: str, is_soft: bool, unknown: int) -> None:
    case = FallbackCase()
    case.refuse(annotations={"homeport.dev/fallback": value})
    async with running(case), Checking(case):
        await asyncio.sleep(AFTER + SOON)
        assert case.relaxed() == is_soft

    told = [it for it in case.told if it.reason == "FallbackUnknown"]
    assert (unknown, {"Warning"} if unknown else set()) == (len(told), {it.kind for it in told})


@virtual_time
async def test_a_new_leader_counts_anew() -> None:
    case = FallbackCase()
    case.refuse()
    async with running(case), Checking(case):
        await asyncio.sleep(AFTER + SOON)
    after_the_end = case.relaxed()
    async with running(case), Checking(case):
        await asyncio.sleep(AFTER / 2 + SEARCH_SECONDS)

    assert (after_the_end, case.relaxed()) == (False, False)


def test_a_profile_without_the_option_is_never_relaxed() -> None:
    case = Case()
    case.fallbacks.judged(make_pod("web-1"), {ZONE})

    assert not case.table.has(make_pod("web-1").uid)
