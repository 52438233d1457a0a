"""Room for a pod: what other pods leave, as the filter of resources counts them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from app.analysis.judging import Judge
from app.analysis.needs import ResourceNeed, add_needs
from app.kube.core_v1 import Pod
from tests.builders import JsonObject
from tests.harness import World
from tests.unit.app.analysis.test_judging import COMPLETE, judged, node, pod


def needs(world: World, asked: Pod, added: Sequence[Pod] = ()) -> list[tuple[int, int, str]]:
    """Free CPU, most free CPU and its node, in thousandths."""
    found: list[ResourceNeed] = []
    judge = Judge(world.framework, world.cluster, (), added)
    for _ in add_needs(judge, asked, tuple(world.cluster.nodes), found):
        pass
    return [(it.free, it.most_free, it.node) for it in found]


def nominated(name: str, cpu: str, priority: int) -> JsonObject:
    return pod(name, cpu, status={"nominatedNodeName": "a"}, priority=priority)


def test_the_pod_itself_takes_no_room() -> None:
    world = World(node("a"), pod("bound", "3", node="a"), pod("other", "500m", node="a"), profile=COMPLETE)
    (bound,) = (it for it in world.cluster.pods() if it.name == "bound")

    assert [(3500, 3500, "a")] == needs(world, replace(bound, node_name=""))


def test_pods_in_flight_take_room() -> None:
    """They have a node in the snapshot of the decisions only."""
    world = World(node("a"), node("b", cpu="2"), pod("flies", "3"), profile=COMPLETE)
    (flies,) = world.cluster.pods()

    assert [(3000, 2000, "b")] == needs(world, world.pod(pod()), [replace(flies, node_name="a")])


def test_nominated_pods_take_room_from_pods_of_lower_priority() -> None:
    """Like for the filter, which rejects the node only for the pod of equal priority."""
    world = World(node("a"), nominated("soon", "3", 5), profile=COMPLETE)
    equal, higher = (world.pod(pod(cpu="2", priority=priority)) for priority in (5, 6))

    assert [[(1000, 1000, "a")], [(4000, 4000, "a")]] == [needs(world, it) for it in (equal, higher)]
    assert [[], ["a"]] == [judged(world, it).feasible for it in (equal, higher)]
