"""Pods, nodes and budgets for the stories of preemption, and what became of them."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.controlplane import objects
from tests.controlplane.client import ApiError, Client
from tests.controlplane.controlplane import ControlPlane
from tests.integration.killed import KILLED_AFTER
from tests.integration.service import HTTP, LEASES, Homeport
from tests.integration.test_replicas import ELECTION

WEB = {"app": "web"}
HIGH, LOW, NEVER = "high", "low", "high-never"
PRIORITIES = {LOW: 10, "middle": 100, HIGH: 1000, NEVER: 1000, "highest": 2000}


def configuration(preemption: str = "Own") -> dict[str, Any]:
    return {"profiles": [{"schedulerName": "*", "preemption": preemption}], "leaderElection": ELECTION}


def zones(client: Client, *others: str) -> None:
    """Node ``a1`` and ``others`` in zone ``a``. The node of zone ``b`` takes no pods, but its zone counts."""
    for name in ("a1", *others):
        client.create(objects.node(name, zone="a"))
    client.create(objects.node("b1", zone="b", taints=[objects.taint("closed")]))


def running(client: Client, name: str, node: str = "a1", priority: str = LOW, **fields: Any) -> dict[str, Any]:
    """A pod that a kubelet runs: it is ready, and takes 30 s to end."""
    pod = objects.pod(name, priority_class_name=priority, node_name=node, **{"labels": WEB, **fields})
    pod["spec"]["terminationGracePeriodSeconds"] = 30
    client.create(pod)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": now}]
    return client.patch_status("Pod", name, {"phase": "Running", "startTime": now, "conditions": ready})


def web(name: str, priority: str = HIGH, skew: int = 1, **fields: Any) -> dict[str, Any]:
    spread = [objects.spread(WEB, max_skew=skew)]
    return objects.pod(name, labels=WEB, priority_class_name=priority, spread_constraints=spread, **fields)


def evicted(client: Client) -> list[str]:
    """Names of the pods that are terminating: a test plays no kubelet, so they stay."""
    pods = (it["metadata"] for it in client.list("Pod", "default"))
    return sorted(it["name"] for it in pods if "deletionTimestamp" in it)


def nominated(client: Client, name: str) -> str:
    return str(client.get("Pod", name).get("status", {}).get("nominatedNodeName", ""))


def plans(homeport: Homeport, before: Mapping[str, int] = {}) -> dict[str, int]:
    """Ended plans by result, without those ``before``."""
    text = HTTP.get(f"{homeport.url}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("homeport_preemption_plans_total{")]
    every = {line.partition('result="')[2].partition('"')[0]: int(float(line.rpartition(" ")[2])) for line in lines}
    return {result: count for result, it in every.items() if (count := it - before.get(result, 0))}


def refused(client: Client, name: str) -> bool:
    conditions = client.get("Pod", name)["status"].get("conditions") or []
    return any(it["type"] == "PodScheduled" and it["status"] == "False" for it in conditions)


def stays_pending(client: Client, name: str, seconds: float = 2.0) -> None:
    """The pod is refused, and nothing follows within some seconds."""
    client.wait_for(lambda: refused(client, name), what=f"{name} to be refused")
    time.sleep(seconds)
    assert ("", "") == (client.node_of(name), nominated(client, name))


def budget(client: Client, name: str, allowed: int, selector: Mapping[str, Any] | None = None) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": WEB} if selector is None else selector}
    metadata = {"name": name, "namespace": "default"}
    made = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
    client.create(made)
    status = {"disruptionsAllowed": allowed, "currentHealthy": 1 + allowed, "desiredHealthy": 1, "expectedPods": 2}
    client.patch_status("PodDisruptionBudget", name, {"observedGeneration": 1, **status})


def make_classes(client: Client) -> None:
    for name, value in PRIORITIES.items():
        policy = "Never" if name == NEVER else "PreemptLowerPriority"
        client.create(objects.priority_class(name, value, preemption_policy=policy))


def homeport_of(plane: ControlPlane, folder: Path, preemption: str = "Own", killed_after: str = "") -> Homeport:
    """A Homeport that leads, with a profile for every scheduler. It is not started."""
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    config = folder / "preemption.json"
    config.write_text(json.dumps({**head, **configuration(preemption)}))
    environment = {KILLED_AFTER: f"{killed_after}:{folder}/killed"}
    module = "tests.integration.killed" if killed_after else "homeport"
    return Homeport(plane.kubeconfig, folder, [f"--config={config}"], module, environment)


def forget_lease(plane: ControlPlane) -> None:
    """Delete the Lease, so that the replicas of the next story do not take its holder for their leader."""
    with suppress(ApiError):
        plane.client.request("DELETE", f"{LEASES}/{ELECTION['resourceName']}")
