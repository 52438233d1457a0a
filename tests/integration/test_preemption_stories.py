"""Preemption for topology spread (``preemption: Own``) before a stock kube-scheduler. Numbers: issue stories P1 to P9."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, Homeport, start_scheduler
from tests.integration.test_replicas import ELECTION

WEB = {"app": "web"}
HIGH, LOW = "high", "low"

Start = Callable[..., Homeport]


@pytest.fixture
def start(plane: ControlPlane, tmp_path: Path) -> Iterator[Start]:
    """Starts a Homeport that leads, with a profile for every scheduler; its settings can be replaced."""
    for name, value in ((HIGH, 1000), (LOW, 10)):
        plane.client.create(objects.priority_class(name, value))
    started: list[Homeport] = []

    def begin(preemption: str = "Own", **settings: Any) -> Homeport:
        profile = {"schedulerName": "*", "preemption": preemption}
        document = {"profiles": [profile], "leaderElection": ELECTION, **settings}
        config = tmp_path / f"homeport-{len(started)}.json"
        config.write_text(json.dumps(document))
        homeport = Homeport(plane.kubeconfig, tmp_path, [f"--config={config}"])
        started.append(homeport)
        homeport.start()
        return homeport

    yield begin
    for homeport in started:
        homeport.__exit__(None, None, None)
    for name in (HIGH, LOW):
        plane.client.delete("PriorityClass", name)


def zones(client: Client) -> None:
    """Zone ``b`` has a node without room for the pods here: only node ``a1`` of zone ``a`` is tried."""
    client.create(objects.node("a1", zone="a", cpu="8"))
    client.create(objects.node("b1", zone="b", cpu="8", taints=[objects.taint("closed")]))


def running(client: Client, name: str, node: str, priority: str = LOW, **fields: Any) -> dict[str, Any]:
    """A pod that a kubelet runs: it is ready, and takes 30 s to end."""
    pod = objects.pod(name, labels=WEB, priority_class_name=priority, node_name=node, **fields)
    pod["spec"]["terminationGracePeriodSeconds"] = 30
    client.create(pod)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": now}]
    return client.patch_status("Pod", name, {"phase": "Running", "startTime": now, "conditions": ready})


def web(name: str, priority: str = HIGH, **fields: Any) -> dict[str, Any]:
    spread = [objects.spread(WEB)]
    return objects.pod(name, labels=WEB, priority_class_name=priority, spread_constraints=spread, **fields)


def evicted(client: Client) -> set[str]:
    """Names of the pods that are terminating or gone, of those named ``low-…``."""
    pods = {it["metadata"]["name"]: it["metadata"] for it in client.list("Pod", "default")}
    every = {f"low-{it}" for it in range(3)}
    return {name for name in every if name not in pods or "deletionTimestamp" in pods[name]}


def plans(homeport: Homeport) -> dict[str, int]:
    text = HTTP.get(f"{homeport.url}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("homeport_preemption_plans_total{")]
    return {line.partition('result="')[2].partition('"')[0]: int(float(line.rpartition(" ")[2])) for line in lines}


def test_p1_the_fewest_low_pods_go_and_the_high_pod_is_bound_at_once(plane: ControlPlane, start: Start) -> None:
    client = plane.client
    zones(client)
    for number in range(2):
        running(client, f"low-{number}", "a1")
    homeport = start()

    with start_scheduler(plane, homeport):
        began = time.monotonic()
        client.create(web("high"))
        bound = client.wait_bound("high")
        seconds = time.monotonic() - began
    calls = sum(homeport.outcomes("filter").values())
    print(f"bound after {seconds:.2f} s and {calls} filter calls")  # noqa: T201  # a figure for the log

    assert ("a1", 2) == (bound, len(evicted(client)))
    assert {"bound": 1} == plans(homeport)
    assert calls <= 15
    assert "Preempting" in {it["reason"] for it in client.events("high")}
    assert {"Preempted"} <= {it["reason"] for it in client.events("low-0")}
