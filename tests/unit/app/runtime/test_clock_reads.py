"""A plugin that reads nodes may read a clock if its verdicts say when they end; then the node is judged anew."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.parts import Part
from app.framework.points import FilterPlugin, ScorePlugin
from app.framework.spec import PluginArgs, PluginSpec, Reads
from app.framework.status import SUCCESS, Status, success, unresolvable
from app.kube.core_v1 import Pod
from app.runtime.guard import PluginError
from tests.builders import make_node, make_pod
from tests.harness import WALL_CLOCK, World

CLOSED = "node(s) were closed"
OPENS_AT = WALL_CLOCK + 100

Verdict = Callable[[float], Status]


def dated(now: float) -> Status:
    """Closed until a time, then open for good."""
    return success(until=inf) if now >= OPENS_AT else unresolvable(CLOSED, until=OPENS_AT)


def undated(now: float) -> Status:
    return SUCCESS if now >= OPENS_AT else unresolvable(CLOSED)


def spec_with(verdict: Verdict, *, reads: Reads = Reads.NODE, clock: str = "wall_clock") -> PluginSpec[Any]:
    class Opens(FilterPlugin):
        calls = 0

        def __init__(self, args: PluginArgs, handle: Handle) -> None:
            self._clock = getattr(handle.timing, clock)

        def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
            Opens.calls += 1
            return verdict(self._clock()) if node.name != "always" else SUCCESS

    return PluginSpec("Opens", PluginArgs, Opens, reads=reads, parts=[Part.LABELS] if reads is Reads.NODE else None)


class Scores(ScorePlugin):
    """Scores by the time of day."""

    def __init__(self, args: PluginArgs, handle: Handle) -> None:
        self._clock = handle.timing.wall_clock

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return int(self._clock() % 100)


def world_with(spec: PluginSpec[Any]) -> World:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": spec.name}]}}}
    return World(make_node("always"), make_node("n1"), profile=profile, specs=[spec])


def rejected(world: World) -> dict[str, str]:
    found = world.framework.search.find_nodes_that_fit(make_pod("web"), Candidates.of(world.cluster.nodes))
    return {name: status.message for name, status in found.rejected().items()}


def test_a_verdict_is_judged_anew_when_it_ends() -> None:
    spec = spec_with(dated)
    world = world_with(spec)

    assert {"n1": CLOSED} == rejected(world)
    asked = spec.plugin.calls
    assert {"n1": CLOSED} == rejected(world)
    assert asked == spec.plugin.calls, "it is cached until then"

    world.wall_clock.now = OPENS_AT
    assert {"Opens"} == world.cluster.expiries.expire(OPENS_AT)
    assert {} == rejected(world)
    assert frozenset() == world.cluster.expiries.expire(inf), "a verdict until inf does not end"


@pytest.mark.parametrize("clock", ["wall_clock", "clock"])
@pytest.mark.parametrize("reads", [Reads.NODE, Reads.PODS_ON_NODE])
def test_a_verdict_that_does_not_end_is_a_fault_that_names_the_cure(reads: Reads, clock: str) -> None:
    with pytest.raises(PluginError, match=r'"Opens" filter plugin: read a clock .* until= .* Reads\.CLUSTER'):
        rejected(world_with(spec_with(undated, reads=reads, clock=clock)))


def test_a_plugin_that_reads_the_cluster_reads_clocks_as_it_likes() -> None:
    world = world_with(spec_with(undated, reads=Reads.CLUSTER))

    assert {"n1": CLOSED} == rejected(world)
    world.wall_clock.now = OPENS_AT
    assert {} == rejected(world)


def test_a_score_that_is_cached_does_not_rest_on_a_clock() -> None:
    world = world_with(PluginSpec("Scores", PluginArgs, Scores, reads=Reads.NODE, parts=[Part.LABELS]))

    with pytest.raises(PluginError, match=r"read a clock, but answers of Score are cached: declare Reads\.CLUSTER"):
        world.framework.scoring.score(CycleState(), make_pod("web"), Candidates.of(world.cluster.nodes))
