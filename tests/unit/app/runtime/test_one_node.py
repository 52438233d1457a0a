"""In-tree filters asked of one node: each in kube-scheduler's words, and none blamed for what is not known."""

from __future__ import annotations

from typing import Final

import pytest

from app.config.profile import Profile
from app.framework.cycle_state import CycleState
from app.framework.handle import NodeVerdict
from app.framework.node_info import NodeInfo
from app.framework.points import FilterPlugin
from app.framework.spec import PluginSpec
from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.runtime.guard import Guard
from app.runtime.one_node import OneNodeFilters
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from app.telemetry.metrics import Metrics
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.builders import JsonObject, encoded, node_object, pod_object, taint
from tests.fakes import FromSpec
from tests.harness import World, only

UNASKED: Final = (
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "InterPodAffinity",
    "DynamicResources",
)
"""Of the default profile of Homeport, which runs PodTopologySpread itself."""

PORT_TAKEN: Final = "node(s) didn't have free ports for the requested pod ports"
GPU: Final = "example.com/gpu"


def filters_of(profile: JsonObject | None = None) -> OneNodeFilters:
    registry = Registry(SHIPPED, DEFAULT_WEIGHTS)
    (resolved,) = resolve([Profile.model_validate(profile or {})], registry)
    return OneNodeFilters(resolved, registry, World().handle, Guard(Metrics()))


FILTERS: Final = filters_of()


def asking(
    name: str = "db", *, filters: OneNodeFilters = FILTERS, port: int = 0, gpu: str = "", **requests: str
) -> Pod:
    container: JsonObject = {"name": "main", "resources": {"requests": {**requests, **({GPU: gpu} if gpu else {})}}}
    if port:
        container["ports"] = [{"hostPort": port, "containerPort": port}]
    return filters.core.decode_pod(encoded(pod_object(name, containers=[container])))


def node_of(*pods: Pod, filters: OneNodeFilters = FILTERS, unschedulable: bool = False, gpu: str = "") -> NodeInfo:
    there = {"cpu": "2", "memory": "4Gi", "pods": "3", **({GPU: gpu} if gpu else {})}
    found = node_object("n1", status={"allocatable": there}, unschedulable=unschedulable)
    return NodeInfo(filters.core.decode_node(encoded(found)), {it.uid: it for it in pods})


def said(pod: Pod, node: NodeInfo, filters: OneNodeFilters = FILTERS) -> tuple[str, ...]:
    return filters.verdict(pod, node).reasons


@pytest.mark.parametrize(
    ("pod", "node", "reasons"),
    [
        (asking(cpu="1"), node_of(), ()),
        (
            asking(cpu="2", memory="8Gi"),
            node_of(asking("web", cpu="1")),
            ("Insufficient cpu", "Insufficient memory"),
        ),
        (asking(), node_of(*(asking(f"web-{it}") for it in range(3))), ("Too many pods",)),
        (asking(port=80), node_of(asking("web", port=80)), (PORT_TAKEN,)),
        (asking(), node_of(unschedulable=True), ("node(s) were unschedulable",)),
    ],
)
def test_the_reasons_are_those_of_kube_scheduler(pod: Pod, node: NodeInfo, reasons: tuple[str, ...]) -> None:
    assert NodeVerdict(reasons, UNASKED) == FILTERS.verdict(pod, node)


def test_each_that_refuses_is_heard() -> None:
    found = node_object("n1", taints=[taint("dedicated")], status={"allocatable": {"pods": "0"}})
    pod = FILTERS.core.decode_pod(encoded(pod_object("db", node_selector={"disk": "ssd"})))

    assert (
        "node(s) had untolerated taint(s)",
        "node(s) didn't match Pod's node affinity/selector",
        "Too many pods",
    ) == said(pod, NodeInfo(FILTERS.core.decode_node(encoded(found))))


def test_a_resource_that_devices_may_stand_for_is_not_called_missing() -> None:
    """What DeviceClasses there are is not known here; where the node has some of it, they are not asked."""
    wants = asking(gpu="2")

    assert () == said(wants, node_of())
    assert (f"Insufficient {GPU}",) == said(wants, node_of(gpu="1"))


def test_a_profile_that_runs_a_filter_gives_its_arguments() -> None:
    ignoring = filters_of(only("NodeResourcesFit", NodeResourcesFit={"ignoredResources": [GPU]}))
    wants = asking(filters=ignoring, gpu="2")

    assert () == said(wants, node_of(filters=ignoring, gpu="1"), ignoring)


def test_what_the_profile_runs_itself_is_known_elsewhere() -> None:
    assert () == filters_of({"preset": "complete"}).unasked
    assert UNASKED == FILTERS.unasked
    assert UNASKED == filters_of({"bindRecheck": ["InterPodAffinity"]}).unasked


def test_of_another_release_others_are_asked() -> None:
    asked = {it for it in FILTERS.nothing.unasked if it not in UNASKED}

    assert asked - {*filters_of({"release": "1.35"}).nothing.unasked} == {"NodeDeclaredFeatures"}


class BrokenPorts(FromSpec, FilterPlugin):
    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        raise RuntimeError("broken")


def test_a_filter_that_fails_is_one_that_was_not_asked() -> None:
    spec = next(it for it in SHIPPED if it.name == "NodePorts")
    broken = PluginSpec(spec.name, spec.args, BrokenPorts, reads=spec.reads, parts=spec.parts)
    registry = Registry([broken if it is spec else it for it in SHIPPED], DEFAULT_WEIGHTS)
    (resolved,) = resolve([Profile.model_validate({})], registry)
    filters = OneNodeFilters(resolved, registry, World().handle, Guard(Metrics()))

    found = filters.verdict(asking(filters=filters, cpu="3"), node_of(filters=filters))

    assert NodeVerdict(("Insufficient cpu",), ("NodePorts", *UNASKED)) == found
