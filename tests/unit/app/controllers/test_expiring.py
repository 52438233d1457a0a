"""When a verdict ends, the pods that its plugin refused are looked at again, and woken if a node passes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf
from typing import Any

from app.controllers.expiring import CHECK_SECONDS, ExpiringVerdicts
from app.controllers.second_looks import SecondLooks
from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import FilterPlugin
from app.framework.spec import PluginArgs, PluginSpec, Reads
from app.framework.status import Status, success, unresolvable
from app.kube.core_v1 import Pod
from app.memory.recent_refusals import RecentRefusals
from app.telemetry.metrics import Metrics
from tests.api.virtual import settle, virtual_time
from tests.builders import make_node, make_pod
from tests.unit.app.verbs.bench import Bench

OPENS_AFTER = 30.0


class Opens(FilterPlugin):
    """Nodes are closed for half a minute of the world's clock."""

    def __init__(self, args: PluginArgs, handle: Handle) -> None:
        self._now = asyncio.get_running_loop().time
        self._opens_at = self._now() + OPENS_AFTER
        self._clock = handle.timing.wall_clock

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        self._clock()
        if self._now() >= self._opens_at:
            return success(until=inf)
        return unresolvable("node(s) were closed", until=self._opens_at)


SPEC: PluginSpec[Any] = PluginSpec("Opens", PluginArgs, Opens, reads=Reads.NODE, parts=[Part.LABELS])
PROFILE = {"plugins": {"multiPoint": {"enabled": [{"name": "Opens"}]}}}


@virtual_time
async def test_a_refused_pod_is_woken_when_the_verdict_ends() -> None:
    """No event would do it: nothing in the cluster changes."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    bench = Bench(make_node("n1"), profile=PROFILE, specs=[SPEC])
    waits, other = make_pod("waits"), make_pod("other")
    for pod in (waits, other):
        bench.cluster.upsert_pod(pod)
    woken: list[tuple[str, float]] = []

    def activate(pods: Iterable[Pod]) -> None:
        woken.extend((pod.name, loop.time() - began) for pod in pods)

    second_looks = SecondLooks(bench.context, activate)
    refused = RecentRefusals(Metrics().refusals.labels)
    refused.refused(waits, "default-scheduler", (("Opens", "node(s) were closed"),))
    refused.refused(other, "default-scheduler", (("PodTopologySpread", "x"),))
    expiring = ExpiringVerdicts(bench.cluster, lambda: refused, second_looks, loop.time)
    assert bench.framework.search.find_nodes_that_fit(waits, Candidates.of(bench.cluster.nodes)).rejected()

    tasks = [asyncio.ensure_future(it) for it in (second_looks.run(), expiring.run())]
    await asyncio.sleep(OPENS_AFTER + 2 * CHECK_SECONDS)
    await settle()

    ((name, at),) = woken
    assert ("waits", True) == (name, OPENS_AFTER <= at <= OPENS_AFTER + 2 * CHECK_SECONDS)
    for task in tasks:
        task.cancel()
