"""kube-scheduler shows a sample of the nodes: a pod with few open nodes is nominated to one that it was not shown."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.integration.service import Homeport, scheduler_config
from tests.integration.test_spread_stories import WEB

StartHomeport = Callable[..., Homeport]

CROWD = 400
SHARE = 10
"""Percent of the nodes that are shown: kube-scheduler's own choice for 5,000 nodes. At least 100 nodes are."""

OUT_SECONDS = 10
"""For so long a node that in-tree filters refused is not tried again."""


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
    text = httpx.get(f"{homeport.url}/metrics", trust_env=False).text
    lines = [line for line in text.splitlines() if line.startswith("homeport_nominations_total{")]
    return {line.partition('result="')[2].partition('"')[0]: int(float(line.rpartition(" ")[2])) for line in lines}


def test_pods_are_led_to_nodes_that_they_were_not_shown(plane: ControlPlane, start_homeport: StartHomeport) -> None:
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
    """Refused on the nodes of two windows, and nothing leads it to the one node that would do."""
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


def test_a_node_without_room_is_not_tried_again_at_once(plane: ControlPlane, start_homeport: StartHomeport) -> None:
    """The one node that would do is full: it is tried once; a second one that comes gets the pod."""
    client = plane.client
    make_left(client, "left-0")
    crowd_has(client, 1)
    client.create(objects.pod("full", node_name="left-0", requests={"cpu": "4"}))
    homeport = start_homeport()

    with start_sampling(plane, homeport):
        started = time.monotonic()
        client.create(web("late", requests={"cpu": "1"}))
        client.wait_for(lambda: results(homeport).keys() - {"lost"}, what="a nomination to come to something")
        for _ in range(8):
            wake(client, homeport, "late")
        make_left(client, "left-1")
        bound = client.wait_bound("late")
        seconds = time.monotonic() - started

    assert "left-1" == bound
    assert 1 <= results(homeport)["refused"] <= 1 + seconds // OUT_SECONDS
