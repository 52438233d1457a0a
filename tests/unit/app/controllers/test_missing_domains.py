"""A workload whose constraint ignores a known domain gets one Event, with the minDomains to set."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from app.analysis.skew_estimate import Key
from app.controllers import missing_domains
from app.controllers.missing_domains import AGAIN_SECONDS, CHECK_SECONDS, MissingDomains
from app.framework.counts import Unprepared
from app.kube.core_v1 import Pod
from app.memory.known_domains import DomainTable
from app.verbs.outcome import VerbFailure
from tests.api.virtual import now, virtual_time
from tests.builders import HOSTNAME, ZONE, constraint, make_node, make_pod
from tests.fakes import RecordingRecorder, Told
from tests.harness import World

DOMAINS = {ZONE: ("a", "b", "c")}


class Case:
    """Zones a and b, and workloads by name."""

    def __init__(self) -> None:
        self.world = World(make_node("na", zone="a"), make_node("nb", zone="b"))
        self.table = DomainTable(now)
        self.recorder = RecordingRecorder()
        self.pods: dict[str, Pod] = {}
        self.problem = False
        self.task = MissingDomains(
            self.table,
            self.world.cluster.counts,
            self._workloads,
            lambda pod: "" if pod.name == "no-profile" else "default-scheduler",
            self.recorder,
        )

    async def _workloads(self) -> Mapping[Key, Sequence[Pod]]:
        if self.problem:
            raise VerbFailure("not_ready", "pods: not listed yet")
        return {("default", "Deployment", it.name, it.spec.spread, ()): [it] for it in self.pods.values()}

    def add(self, name: str, *spread: Any, **fields: Any) -> None:
        self.pods[name] = make_pod(name, spread=list(spread or [constraint(app="web")]), **fields)

    async def run(self, seconds: float) -> None:
        task = asyncio.ensure_future(self.task.run())
        await asyncio.sleep(seconds)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    @property
    def told(self) -> list[str]:
        return [f"{it.regarding.rpartition('/')[2]}: {it.note}" for it in self.recorder.told]


NOTE = (
    f"{ZONE}: c has no node, so the constraint does not count it. "
    "Set minDomains: 3 if pods should wait for a node there"
)


@virtual_time
async def test_one_event_for_a_workload() -> None:
    case = Case()
    case.table.of("default-scheduler").declare(DOMAINS, None)
    case.add("web")
    await case.run(5 * CHECK_SECONDS)

    assert case.recorder.told == [Told("Pod default/web", "", "Normal", "DomainsWithoutNodes", "Watching", NOTE)]


@virtual_time
async def test_constraints_that_need_no_advice() -> None:
    case = Case()
    case.table.of("default-scheduler").declare(DOMAINS, None)
    case.add("enough", constraint(min_domains=3, app="web"))
    case.add("soft", constraint(soft=True, app="web"))
    case.add("hosts", constraint(HOSTNAME, app="web"))
    case.add("other-key", constraint("rack", app="web"))
    case.add("no-profile")
    case.add("few", constraint(min_domains=2, app="web"))
    await case.run(1.0)

    assert case.told == [f"few: {NOTE}"]


@virtual_time
async def test_a_zone_that_had_nodes_and_is_lost() -> None:
    case = Case()
    case.table.of("default-scheduler").declare({}, 3600.0)
    case.add("web")
    task = asyncio.ensure_future(case.run(10_000.0))
    await asyncio.sleep(1.0)
    before = list(case.told)
    case.world.cluster.delete_node("nb")
    await asyncio.sleep(CHECK_SECONDS)
    lost = list(case.told)
    case.world.add(make_node("nb", zone="b"))
    await asyncio.sleep(CHECK_SECONDS)
    case.world.cluster.delete_node("nb")
    await asyncio.sleep(CHECK_SECONDS)
    task.cancel()

    note = f"web: {NOTE.replace(': c has', ': b has').replace('minDomains: 3', 'minDomains: 2')}"
    assert (before, lost, case.told) == ([], [note], [note, note])


@virtual_time
async def test_many_workloads_are_told_over_several_checks(monkeypatch: Any) -> None:
    monkeypatch.setattr(missing_domains, "MOST_EVENTS", 2)
    case = Case()
    case.table.of("default-scheduler").declare({ZONE: [f"z{it}" for it in range(20)]}, None)
    for number in range(5):
        case.add(f"web-{number}")
    await case.run(1.0)
    first = len(case.told)
    await case.run(4 * CHECK_SECONDS)

    assert (first, len(case.told), case.told[0].count(", z")) == (2, 2 + 5, 9)
    assert "z0, z1, z10" in case.told[0]
    assert " and 10 more have no node, so the constraint does not count them. Set minDomains: 22 " in case.told[0]


@virtual_time
async def test_counts_of_many_nodes_are_prepared_in_steps() -> None:
    case = Case()
    case.world.add(*(make_node(f"n{number}", zone="a") for number in range(3000)))
    case.table.of("default-scheduler").declare(DOMAINS, None)
    case.add("web")
    with pytest.raises(Unprepared):
        case.world.cluster.counts.values(ZONE)
    await case.run(1.0)

    assert len(case.told) == 1


@virtual_time
async def test_without_a_snapshot_it_tries_again() -> None:
    case = Case()
    case.table.of("default-scheduler").declare(DOMAINS, None)
    case.add("web")
    case.problem = True
    task = asyncio.ensure_future(case.run(10_000.0))
    await asyncio.sleep(1.0)
    case.problem = False
    before = list(case.told)
    await asyncio.sleep(AGAIN_SECONDS)
    task.cancel()

    assert (before, len(case.told)) == ([], 1)
