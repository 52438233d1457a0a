"""kube-scheduler shows a sample of the nodes: a pod with few open nodes is nominated to one outside of it."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.integration.attempts import attempts
from tests.integration.service import HTTP, Homeport, scheduler_config, start_scheduler
from tests.integration.test_spread_stories import WEB

StartHomeport = Callable[..., Homeport]

CROWD = 400
SHARE = 10
"""Percent of the nodes that are shown: kube-scheduler's own choice for 5,000 nodes. At least 100 nodes are."""

PODS = 20
WINDOW_SECONDS = 5
"""Time in which no further attempt may come: as long as several of the nominations that the guard would make."""


@pytest.fixture(scope="module")
def crowded(running: ControlPlane) -> Iterator[ControlPlane]:
    """Zone ``crowd`` has nearly all nodes; they are there for all stories."""
    for number in range(CROWD):
        running.client.create(objects.node(f"crowd-{number}", zone="crowd", cpu="4"))
    yield running
    running.client.clear()


@pytest.fixture
def plane(crowded: ControlPlane) -> Iterator[ControlPlane]:
    yield crowded
    for pod in crowded.client.list("Pod", "default"):
        crowded.client.delete("Pod", pod["metadata"]["name"])
    for node in crowded.client.list("Node", labels=f"{objects.ZONE_LABEL}=left"):
        crowded.client.delete("Node", node["metadata"]["name"])


def make_left(client: Client, *names: str) -> None:
    """Nodes of zone ``left``. The scheduler takes its zones in turn: they are among the first in its order."""
    for name in names:
        client.create(objects.node(name, zone="left", cpu="4"))


def start_sampling(plane: ControlPlane, homeport: Homeport) -> Scheduler:
    """A stock kube-scheduler that samples, past its first window: the nodes of zone ``left`` are seen last."""
    config = {**scheduler_config(homeport), "percentageOfNodesToScore": SHARE}
    scheduler = plane.start_scheduler(config)
    plane.client.create(objects.pod("first-window"))
    plane.client.wait_bound("first-window")
    return scheduler


def web(name: str, **fields: Any) -> dict[str, Any]:
    """A pod that is spread hard over the zones."""
    return objects.pod(name, labels=WEB, spread_constraints=[objects.spread(WEB)], **fields)


def crowd_has(client: Client, pods: int) -> None:
    """So many pods in zone ``crowd`` that as many must go to zone ``left`` first."""
    for number in range(pods):
        client.create(objects.pod(f"crowded-{number}", labels=WEB, node_name=f"crowd-{number}"))


def refusals(homeport: Homeport) -> int:
    return homeport.outcomes("filter").get("no_fit", 0)


def wake(client: Client, homeport: Homeport, pod: str) -> None:
    """A change of the pod makes the scheduler try it again, on its next window."""
    before = refusals(homeport)
    client.patch("Pod", pod, {"metadata": {"annotations": {"example.com/woken": str(before)}}})
    client.wait_for(lambda: refusals(homeport) > before, what="the scheduler to try again")


def pods_known(homeport: Homeport) -> int:
    return int(homeport.get("/api/v1/status")["feeds"]["v1 Pod"]["objects"])


def results(homeport: Homeport) -> dict[str, int]:
    """What became of nominations."""
    text = HTTP.get(f"{homeport.url}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("homeport_nominations_total{")]
    return {line.partition('result="')[2].partition('"')[0]: int(float(line.rpartition(" ")[2])) for line in lines}


def test_pods_are_nominated_to_nodes_outside_of_the_sample(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """Six pods may only go to the two nodes of a zone among 402 nodes, of which 100 are shown at a time."""
    client = plane.client
    make_left(client, "left-0", "left-1")
    crowd_has(client, 6)
    homeport = start_homeport()
    names = [f"web-{number}" for number in range(6)]

    with start_sampling(plane, homeport):
        bound = {}
        for name in names:
            client.create(web(name))
            bound[name] = client.wait_bound(name)

    found = results(homeport)
    print(f"nominations {found}, filter {homeport.outcomes('filter')}")  # noqa: T201  # a figure for the log
    assert {"left-0", "left-1"} == set(bound.values())
    assert found["hit"] >= 1
    assert {"consistent": True, "differences": []} == homeport.get("/api/v1/check")


def test_without_the_guard_a_pod_waits_though_there_is_room(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """Refused on the nodes of two windows; nothing points the scheduler to the one node that would do."""
    client = plane.client
    make_left(client, "left-0")
    crowd_has(client, 1)
    homeport = start_homeport("--sampling-guard=false")

    with start_sampling(plane, homeport):
        client.create(web("late"))
        client.wait_for(lambda: refusals(homeport) >= 2, what="the pod and its retry to be refused")
        known = pods_known(homeport)
        client.create(objects.pod("bystander", scheduler_name="nobody"))
        client.wait_for(lambda: pods_known(homeport) > known, what="Homeport to hear of the world going on")
        waiting = client.get("Pod", "late")

    assert ("", "") == (waiting["spec"].get("nodeName", ""), waiting["status"].get("nominatedNodeName", ""))
    assert {} == results(homeport)


def test_a_node_without_room_is_not_nominated(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """In-tree filters refuse the one node that Homeport passes, since it is full; a second one gets the pod."""
    client = plane.client
    make_left(client, "left-0")
    crowd_has(client, 1)
    client.create(objects.pod("full", node_name="left-0", requests={"cpu": "4"}))
    homeport = start_homeport()

    with start_sampling(plane, homeport):
        client.create(web("late", requests={"cpu": "1"}))
        client.wait_for(lambda: refusals(homeport) >= 2, what="the pod and its retry to be refused")
        for _ in range(8):
            wake(client, homeport, "late")
        before = results(homeport)
        make_left(client, "left-1")
        bound = client.wait_bound("late")

    assert ({}, "left-1") == (before, bound)


def test_a_node_that_an_unknown_filter_refuses_is_nominated_once(
    plane: ControlPlane, start_homeport: StartHomeport
) -> None:
    """The pod keeps away from one that runs there: of terms between pods Homeport's profile knows nothing."""
    client = plane.client
    make_left(client, "left-0")
    crowd_has(client, 1)
    client.create(objects.pod("foe", labels={"app": "foe"}, node_name="left-0"))
    homeport = start_homeport()
    foes = {"labelSelector": {"matchLabels": {"app": "foe"}}, "topologyKey": objects.HOSTNAME_LABEL}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [foes]}}

    with start_sampling(plane, homeport):
        client.create(web("late", affinity=affinity))
        client.wait_for(lambda: results(homeport).keys() - {"lost"}, what="a nomination to come to something")
        for _ in range(8):
            wake(client, homeport, "late")
        before = results(homeport)
        client.delete("Pod", "foe")
        bound = client.wait_bound("late")

    assert (1, "left-0") == (before["refused"], bound)


def test_a_full_zone_beside_all_nodes_is_no_sample(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """Twenty pods that only a full zone could take, and 400 names in each request: the guard costs no attempt."""
    client = plane.client
    names = [f"left-{number}" for number in range(3)]
    make_left(client, *names)
    crowd_has(client, 1)
    for name in names:
        client.create(objects.pod(f"full-{name}", node_name=name, requests={"cpu": "4"}))
    homeport = start_homeport()

    with start_scheduler(plane, homeport) as scheduler:
        for number in range(PODS):
            client.create(web(f"late-{number}", requests={"cpu": "1"}))
        client.wait_for(lambda: attempts(scheduler) >= 2 * PODS, what="each pod and its retry to be refused")
        time.sleep(WINDOW_SECONDS)
        found = attempts(scheduler)

    assert (2 * PODS, {}) == (found, results(homeport))
