"""The options of spread beyond kube-scheduler's rules, on a real control plane, each beside a profile without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects
from tests.controlplane.client import Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport, start_scheduler
from tests.integration.test_events import told
from tests.integration.test_permissions import configured
from tests.integration.test_spread_stories import WEB, make_zones, wait_all_bound

SPREAD = [objects.spread(WEB)]
COST = "controller.kubernetes.io/pod-deletion-cost"
TAINT = {"key": "gone", "effect": "NoSchedule"}


@contextmanager
def scheduling(plane: ControlPlane, folder: Path, beyond: Json, **settings: Any) -> Iterator[Homeport]:
    """A scheduler and a Homeport with these options for the pods of default-scheduler."""
    args = [{"name": "PodTopologySpread", "args": {"beyond": beyond} if beyond else {}}]
    profiles = [{"schedulerName": "default-scheduler", "pluginConfig": args}]
    config = configured(folder, profiles=profiles, **settings)
    with Homeport(plane.kubeconfig, folder, [f"--config={config}"]) as homeport, start_scheduler(plane, homeport):
        yield homeport


def costs(plane: ControlPlane) -> list[tuple[str, str]]:
    """Zone and deletion cost of each pod that is bound."""
    pods = [it for it in plane.client.list("Pod", "default") if it["spec"].get("nodeName")]
    return sorted((it["spec"]["nodeName"][:6], it["metadata"].get("annotations", {}).get(COST, "")) for it in pods)


def wait_refused(plane: ControlPlane, name: str) -> None:
    plane.client.wait_for(lambda: plane.client.events(name), what=f"{name} to be refused")


def running(plane: ControlPlane, **zones: int) -> None:
    """So many pods of the app in the zones a, b and c, each with one node."""
    for zone, count in zones.items():
        for number in range(count):
            plane.client.create(objects.pod(f"{zone}-{number}", labels=WEB, node_name=f"zone-{zone}-0"))


def change(plane: ControlPlane, name: str, spec: Json) -> None:
    plane.client.patch("Node", name, {"spec": spec}, how="merge")


@pytest.mark.parametrize(
    ("beyond", "is_bound"),
    [
        pytest.param({}, False, id="in-tree", marks=pytest.mark.long),
        pytest.param({"untoleratedDomains": "Ignore"}, True, id="untoleratedDomains"),
        pytest.param({"defaults": {"nodeTaintsPolicy": "Honor"}}, True, id="defaults", marks=pytest.mark.long),
    ],
)
def test_a_tainted_zone(plane: ControlPlane, tmp_path: Path, beyond: Json, *, is_bound: bool) -> None:
    """In-tree, it keeps the other zones at one pod each."""
    make_zones(plane, {"zone-a": 1, "zone-b": 1, "zone-c": 1})
    change(plane, "zone-c-0", {"taints": [TAINT]})
    running(plane, a=1, b=1)

    with scheduling(plane, tmp_path, beyond):
        plane.client.create(objects.pod("late", labels=WEB, spread_constraints=SPREAD))
        if is_bound:
            assert plane.client.wait_bound("late") in ("zone-a-0", "zone-b-0")
        else:
            wait_refused(plane, "late")
            change(plane, "zone-c-0", {"taints": None})
            assert plane.client.wait_bound("late") == "zone-c-0"


@pytest.mark.parametrize(
    ("beyond", "node"),
    [
        pytest.param({}, "zone-c-0", id="in-tree", marks=pytest.mark.long),
        pytest.param({"onViolation": "AllowNotWorse"}, "zone-b-0", id="onViolation"),
    ],
)
def test_a_violated_constraint(plane: ControlPlane, tmp_path: Path, beyond: Json, node: str) -> None:
    """Zone c is empty and has no room. In-tree, the pod waits for it."""
    make_zones(plane, {"zone-a": 1, "zone-b": 1, "zone-c": 1}, cpu="8")
    running(plane, a=3, b=2)
    plane.client.create(objects.pod("fills-c", node_name="zone-c-0", requests={"cpu": "8"}))

    with scheduling(plane, tmp_path, beyond):
        plane.client.create(objects.pod("late", labels=WEB, requests={"cpu": "1"}, spread_constraints=SPREAD))
        if node == "zone-c-0":
            wait_refused(plane, "late")
            plane.client.delete("Pod", "fills-c")
        assert plane.client.wait_bound("late") == node


@pytest.mark.long
def test_a_constraint_that_alone_keeps_a_pod_waiting_falls_back(plane: ControlPlane, tmp_path: Path) -> None:
    """After its time, with an Event, and without the condition that the pod refuses it."""
    client = plane.client
    make_zones(plane, {"zone-a": 1, "zone-b": 1, "zone-c": 1}, cpu="8")
    running(plane, a=1, b=1)
    client.create(objects.pod("fills-c", node_name="zone-c-0", requests={"cpu": "8"}))
    fields: Json = {"labels": WEB, "requests": {"cpu": "1"}, "spread_constraints": SPREAD}
    never = {"homeport.dev/fallback": "never"}

    with scheduling(plane, tmp_path, {"fallback": {"after": "10s"}}, explain="complete") as homeport:
        client.create(objects.pod("late", **fields))
        client.create(objects.pod("never", annotations=never, **fields))
        client.create(objects.pod("elsewhere", node_selector={"disk": "none"}, **fields))
        node = client.wait_bound("late", timeout=60)
        client.wait_for(lambda: "SpreadRelaxed" in told(client, "late"), what="the Event")
        found = {name: told(client, name) for name in ("late", "never", "elsewhere")}
        outcomes = homeport.outcomes("bind")
        waiting = [it["metadata"]["name"] for it in client.list("Pod", "default") if not it["spec"].get("nodeName")]

    note = "topology.kubernetes.io/zone: the constraint is soft for this pod from now on (fallback), "
    assert node in ("zone-a-0", "zone-b-0")
    assert found["late"]["SpreadRelaxed"]["note"] == f"{note}because it alone kept the pod waiting for 10s"
    assert (["elsewhere", "never"], 1) == (sorted(waiting), outcomes["bound"])
    assert "SpreadRelaxed" not in {*found["never"], *found["elsewhere"]}


def test_a_domain_that_has_no_node_is_told_with_the_min_domains_to_set(plane: ControlPlane, tmp_path: Path) -> None:
    """Once for the workload, and not for one that has ``minDomains``."""
    client = plane.client
    make_zones(plane, {"zone-a": 1, "zone-b": 1})
    enough = [objects.spread(WEB, minDomains=3)]
    for name, spread in (("few", SPREAD), ("enough", enough)):
        owner = client.create(objects.replica_set(name, labels=WEB))
        for pod in objects.replica_set_pods(owner, 2, node_name="zone-a-0", spread_constraints=spread):
            client.create(pod)
    zones = {"domains": {"topology.kubernetes.io/zone": ["zone-a", "zone-b", "zone-c"]}}

    with scheduling(plane, tmp_path, zones):
        pods = [it["metadata"]["name"] for it in client.list("Pod", "default")]
        client.wait_for(lambda: any(told(client, name) for name in pods), what="the Event")
        found = {name: events["DomainsWithoutNodes"]["note"] for name in pods if (events := told(client, name))}

    ((name, note),) = found.items()
    assert name.startswith("few-")
    assert note == (
        "topology.kubernetes.io/zone: zone-c has no node, so the constraint does not count it. "
        "Set minDomains: 3 if pods should wait for a node there"
    )


@pytest.mark.parametrize(
    ("beyond", "ranks"),
    [
        pytest.param({}, ("", ""), id="in-tree", marks=pytest.mark.long),
        pytest.param({"scaleDown": "Spread"}, ("-1", "0"), id="scaleDown"),
    ],
)
def test_pods_get_deletion_costs(plane: ControlPlane, tmp_path: Path, beyond: Json, ranks: tuple[str, ...]) -> None:
    """Two pods in each zone, with the ranks 0 and 1. A pod that nobody owns gets none."""
    make_zones(plane, {"zone-a": 1, "zone-b": 1, "zone-c": 1})
    owner = plane.client.create(objects.replica_set("web", labels=WEB))
    pods = objects.replica_set_pods(owner, 6, spread_constraints=SPREAD)

    with scheduling(plane, tmp_path, beyond) as homeport:
        for pod in pods:
            plane.client.create(pod)
        wait_all_bound(plane, [it["metadata"]["name"] for it in pods])
        found = costs(plane)
        plane.client.create(objects.pod("alone", labels=WEB, spread_constraints=SPREAD))
        plane.client.wait_bound("alone")
        alone = plane.client.get("Pod", "alone")["metadata"].get("annotations", {})
        is_consistent = homeport.get("/api/v1/check")["consistent"]

    assert found == [(zone, rank) for zone in ("zone-a", "zone-b", "zone-c") for rank in ranks]
    assert (COST in alone, is_consistent) == (False, True)


@pytest.mark.long
def test_a_hole_in_the_ranks_is_closed(plane: ControlPlane, tmp_path: Path) -> None:
    """By one patch, of the pod with the highest rank."""
    make_zones(plane, {"zone-a": 1, "zone-b": 1})
    owner = plane.client.create(objects.replica_set("web", labels=WEB))
    ranks = ("-1", "-2", "-3")
    (*pods,) = objects.replica_set_pods(owner, 3, spread_constraints=SPREAD, node_name="zone-a-0")
    for pod, rank in zip(pods, ranks, strict=True):
        pod["metadata"]["annotations"] = {COST: rank}
        plane.client.create(pod)

    with scheduling(plane, tmp_path, {"scaleDown": "Spread", "rerank": True}) as homeport:
        expected = [("zone-a", "-1"), ("zone-a", "-2"), ("zone-a", "0")]
        plane.client.wait_for(lambda: costs(plane) == expected, timeout=60, what="the hole to be closed")
        log = homeport.log()

    assert 1 == log.count("deletion cost written")
    assert plane.client.get("Pod", "web-2")["metadata"]["annotations"][COST] == "0"
