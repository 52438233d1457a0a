"""A plugin asks for objects of the kinds it declared, and is told at once where it asks for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.cache.cluster import Cluster
from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.objects import Objects
from app.framework.points import FilterPlugin
from app.framework.spec import Needs, PluginArgs, PluginSpec, Writes
from app.framework.status import SUCCESS, Status
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES, PODS, REPLICA_SETS, SERVICES, VIRTUAL_MACHINE_INSTANCES, Kind, partial_kind
from app.runtime.declared import DeclaredObjects, UndeclaredKind
from app.runtime.guard import PluginError
from app.runtime.profiles import ProfileErrors
from tests.builders import controller, make_node, make_pod, make_service
from tests.harness import World, only

RACKS = partial_kind("racks.example/v1", "Rack")

Ask = Callable[[Objects, Kind[Any]], object]

ASKS: list[Any] = [
    pytest.param(lambda objects, kind: objects.get(kind, "default", "web"), id="get"),
    pytest.param(lambda objects, kind: list(objects.in_namespace(kind, "default")), id="in a namespace"),
    pytest.param(lambda objects, kind: list(objects.every(kind)), id="every"),
    pytest.param(lambda objects, kind: objects.changed(kind, objects.version(kind)), id="changed"),
    pytest.param(lambda objects, kind: objects.version(kind, "default"), id="version of a namespace"),
    pytest.param(lambda objects, kind: objects.version(kind), id="version of all"),
]


@pytest.fixture
def cluster() -> Cluster:
    found = Cluster()
    found.upsert_node(make_node("n1"))
    found.upsert_pod(make_pod(owner=controller("VirtualMachineInstance", "db"), node="n1"))
    found.others.upsert(SERVICES, make_service("web"))
    return found


@pytest.mark.parametrize("ask", ASKS)
def test_a_kind_that_was_declared_is_asked_for(cluster: Cluster, ask: Ask) -> None:
    declared = DeclaredObjects("Racks", [SERVICES, RACKS], cluster)

    assert ask(cluster, SERVICES) == ask(declared, SERVICES)
    assert ask(cluster, RACKS) == ask(declared, partial_kind("racks.example/v1", "Rack"))


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (REPLICA_SETS, "apps/v1 ReplicaSet: name the kind in kinds= of its Needs"),
        (NODES, "v1 Node: nodes are read through Handle.nodes, or from the NodeInfo in hand"),
        (PODS, "v1 Pod: pods are read from NodeInfo.pods, or counted by Handle.counts"),
    ],
)
def test_any_other_is_a_mistake_that_says_what_to_do(cluster: Cluster, ask: Ask, kind: Kind[Any], said: str) -> None:
    declared = DeclaredObjects("Racks", [SERVICES, NODES, PODS], cluster)

    with pytest.raises(UndeclaredKind) as raised:
        ask(declared, kind)

    assert f'plugin "Racks" asks Handle.objects for {said}' == str(raised.value)


def test_a_kind_made_anew_each_time_is_the_same_kind(cluster: Cluster) -> None:
    declared = DeclaredObjects("Racks", [RACKS], cluster)
    made = [partial_kind("racks.example/v1", "Rack") for _ in range(200)]

    assert [None] * 200 == [declared.get(kind, "", "r1") for kind in made]
    assert len(declared._known) < 100


def test_what_is_asked_of_pods_and_nodes_is_for_everybody(cluster: Cluster) -> None:
    declared = DeclaredObjects("Racks", [], cluster)

    assert cluster.by_controller(VIRTUAL_MACHINE_INSTANCES) is declared.by_controller(VIRTUAL_MACHINE_INSTANCES)
    assert (True, False) == (declared.has_node("n1"), declared.has_node("n9"))
    assert (False, True) == (declared.misses_node("n1"), declared.misses_node("n9"))
    assert [] == declared.annotated_pods()


class Asking(FilterPlugin):
    """Looks for a Service of the pod's name."""

    def __init__(self, args: PluginArgs, handle: Handle) -> None:
        self._handle = handle

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        self._handle.objects.get(SERVICES, pod.namespace, pod.name)
        return SUCCESS


def judged(spec: PluginSpec[Any]) -> object:
    world = World(make_node("n1"), profile=only(spec.name), specs=[spec])
    return world.framework.filters.feasible(CycleState(), make_pod(), Candidates.of(world.cluster.nodes)).rejected


@pytest.mark.parametrize("needs", [Needs(kinds=(SERVICES,)), Needs(writes=(Writes(SERVICES, "x"),))])
def test_each_plugin_of_a_profile_has_what_it_declared(needs: Needs) -> None:
    assert {} == judged(PluginSpec("Asking", PluginArgs, Asking, needs=lambda _: needs))


def test_that_another_plugin_of_the_profile_declared_it_does_not_help() -> None:
    """PodTopologySpread declares Services; a profile without it would have none."""
    spec = PluginSpec("Asking", PluginArgs, Asking)
    world = World(make_node("n1"), profile=only("PodTopologySpread", "Asking"), specs=[spec])

    with pytest.raises(PluginError) as raised:
        world.framework.filters.feasible(CycleState(), make_pod(), Candidates.of(world.cluster.nodes))

    status = raised.value.status
    assert ("Error", "Asking") == (status.code.word, status.plugin)
    assert 'plugin "Asking" asks Handle.objects for v1 Service: name the kind in kinds=' in status.message


def test_a_plugin_that_asks_when_it_is_made_keeps_the_profile_from_being_built() -> None:
    class Early(Asking):
        def __init__(self, args: PluginArgs, handle: Handle) -> None:
            handle.objects.version(SERVICES)

    with pytest.raises(ProfileErrors, match='plugin "Early" cannot be made: UndeclaredKind: plugin "Early" asks'):
        World(profile=only("Early"), specs=[PluginSpec("Early", PluginArgs, Early)])
