"""A stock kube-scheduler without PodTopologySpread places pods evenly because Homeport says so."""

import time
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport, start_scheduler

StartHomeport = Callable[..., Homeport]

WEB = {"app": "web"}
NODES_PER_ZONE = {"zone-a": 8, "zone-b": 3, "zone-c": 1}
"""So uneven that any scheduler that goes by nodes fills zone-a."""


def make_zones(plane: ControlPlane, sizes: dict[str, int] = NODES_PER_ZONE, cpu: str = "640") -> dict[str, str]:
    """Nodes by zone; returns the zone of each node."""
    zones = {f"{zone}-{number}": zone for zone, size in sizes.items() for number in range(size)}
    for name, zone in zones.items():
        plane.client.create_node(objects.node(name, zone=zone, cpu=cpu, memory="2560Gi", pods="1000"))
    return zones


def wait_all_bound(plane: ControlPlane, names: Iterable[str], timeout: float = 60) -> dict[str, str]:
    """Pod to node once every one of the pods is bound."""
    wanted = set(names)

    def bound() -> dict[str, str]:
        found = plane.client.list("Pod", "default")
        return {it["metadata"]["name"]: it["spec"].get("nodeName", "") for it in found}

    def done() -> bool:
        found = bound()
        return all(found.get(name) for name in wanted)

    plane.client.wait_for(done, timeout=timeout, what=f"{len(wanted)} pods to be bound")
    return {name: node for name, node in bound().items() if name in wanted}


@pytest.mark.parametrize(
    ("when", "flags"),
    [
        pytest.param("DoNotSchedule", (), id="hard"),
        pytest.param(
            "ScheduleAnyway", ("--max-priority=100", "--expected-bind-wait=100ms"), id="soft", marks=pytest.mark.long
        ),
    ],
)
def test_sixty_pods_come_out_even(
    plane: ControlPlane, start_homeport: StartHomeport, when: objects.WhenUnsatisfiable, flags: tuple[str, ...]
) -> None:
    """Three zones of 8, 3 and 1 nodes, maxSkew 1: twenty pods in each zone."""
    zones = make_zones(plane)
    homeport = start_homeport(*flags)
    names = [f"web-{number}" for number in range(60)]

    with start_scheduler(plane, homeport):
        for name in names:
            plane.client.create(objects.pod(name, labels=WEB, spread_constraints=[objects.spread(WEB, when=when)]))
        bound = wait_all_bound(plane, names)

    assert Counter(zones[node] for node in bound.values()) == {"zone-a": 20, "zone-b": 20, "zone-c": 20}
    assert homeport.outcomes("bind")["bound"] == 60
    assert homeport.get("/api/v1/check") == {"consistent": True, "differences": []}


def test_a_rollout_spreads_by_itself(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """With matchLabelKeys the pods of a new revision come out even, however the old ones stand."""
    zones = make_zones(plane)
    old = plane.client.create(objects.replica_set("web-1", labels={**WEB, "pod-template-hash": "one"}))
    for pod in objects.replica_set_pods(old, 12, node_name="zone-a-0"):
        plane.client.create(pod)
    new = plane.client.create(objects.replica_set("web-2", labels={**WEB, "pod-template-hash": "two"}))
    constraint = objects.spread(WEB, matchLabelKeys=["pod-template-hash"])
    pods = objects.replica_set_pods(new, 30, spread_constraints=[constraint])
    names = [pod["metadata"]["name"] for pod in pods]

    with start_scheduler(plane, start_homeport()):
        for pod in pods:
            plane.client.create(pod)
        bound = wait_all_bound(plane, names)

    assert Counter(zones[node] for node in bound.values()) == {"zone-a": 10, "zone-b": 10, "zone-c": 10}


def test_a_pod_that_fits_nowhere_is_told_why_and_placed_when_there_is_room(
    plane: ControlPlane, start_homeport: StartHomeport
) -> None:
    """Our reason is in its event; the node update that makes room wakes it at once, not the five-minute flush."""
    make_zones(plane, {"zone-a": 1, "zone-b": 1})
    plane.client.patch("Node", "zone-b-0", {"spec": {"unschedulable": True}}, how="merge")
    plane.client.create(objects.pod("first", labels=WEB, node_name="zone-a-0"))

    with start_scheduler(plane, start_homeport()):
        plane.client.create(objects.pod("second", labels=WEB, spread_constraints=[objects.spread(WEB)]))
        plane.client.wait_for(lambda: plane.client.events("second"), what="an event")
        note = plane.client.events("second")[0]["message"]
        plane.client.patch("Node", "zone-b-0", {"spec": {"unschedulable": None}}, how="merge")
        opened = time.monotonic()
        node = plane.client.wait_bound("second", timeout=20)
        print(f"placed {time.monotonic() - opened:.3f} s after room appeared")  # noqa: T201  # a figure for the log

    assert "1 node(s) didn't match pod topology spread constraints" in note
    assert node == "zone-b-0"


def test_an_eviction_that_would_not_help_is_vetoed(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """Zone a has the cheaper victim, but one pod too many already: the victim in zone b goes, the other stays."""
    make_zones(plane, {"zone-a": 1, "zone-b": 1}, cpu="4")
    for name, value in (("low", 10), ("middle", 20), ("high", 1000)):
        plane.client.create(objects.priority_class(name, value))
    plane.client.create(objects.pod("web-0", labels=WEB, node_name="zone-a-0", requests={"cpu": "1"}))
    for name, node, priority in (("cheap", "zone-a-0", "low"), ("dear", "zone-b-0", "middle")):
        plane.client.create(objects.pod(name, node_name=node, requests={"cpu": "3"}, priority_class_name=priority))
    homeport = start_homeport()

    with start_scheduler(plane, homeport):
        urgent = objects.pod(
            "urgent",
            labels=WEB,
            requests={"cpu": "3"},
            priority_class_name="high",
            spread_constraints=[objects.spread(WEB)],
        )
        plane.client.create(urgent)
        node = plane.client.wait_bound("urgent")

    assert node == "zone-b-0"
    assert plane.client.find("Pod", "dear") is None
    assert plane.client.node_of("cheap") == "zone-a-0"
    assert homeport.outcomes("preempt") == {"candidates": 1}


def test_a_refusal_for_spread_evicts_nobody(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """With Homeport the urgent pod waits. In tree, spread is a part of preemption: its peer in zone a goes."""
    client = plane.client
    make_zones(plane, {"zone-a": 1, "zone-b": 1})
    client.patch("Node", "zone-b-0", {"spec": {"unschedulable": True}}, namespace="")
    for name, value in (("low", 10), ("high", 1000)):
        client.create(objects.priority_class(name, value))
    client.create(objects.pod("peer", labels=WEB, node_name="zone-a-0", priority_class_name="low"))
    urgent = objects.pod("urgent", labels=WEB, priority_class_name="high", spread_constraints=[objects.spread(WEB)])
    homeport = start_homeport()

    with start_scheduler(plane, homeport):
        client.create(urgent)
        client.wait_for(lambda: homeport.outcomes("filter").get("no_fit", 0) >= 2, what="the pod to be refused twice")
        assert ({}, "zone-a-0", "") == (homeport.outcomes("preempt"), client.node_of("peer"), client.node_of("urgent"))
    with plane.start_scheduler({}):
        assert "zone-a-0" == client.wait_bound("urgent")
    assert client.find("Pod", "peer") is None
