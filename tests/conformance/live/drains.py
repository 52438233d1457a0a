"""Does a drain do what the plan of it said?

Each case is a busy cluster with budgets, and one or two of its nodes. Homeport plans the drain. Then the nodes are
cordoned, their pods are evicted by the Eviction API in waves, and new pods are created for a stock kube-scheduler. No
controllers run here, so this module plays the disruption controller: new pods become ready, and budgets are counted
again. As many pods as planned must be placed, wait, and stay because of a budget. Where several nodes have the same
score, or a waiting pod is tried again, kube-scheduler can go on in another way: if the numbers differ then, the case is
passed over.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.conformance.live.clusters import BusyCluster
from tests.conformance.live.simulations import SCHEDULED_BY, SimulationTrial, settled
from tests.controlplane import objects
from tests.controlplane.client import ApiError, Client, Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, Homeport

READY: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
UNREADY: Final = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
CORDON: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
SECONDS: Final = 5.0
"""Time in which kube-scheduler tries a waiting pod again after an event."""


@dataclass
class DrainTally:
    """``cases``: drained clusters with equal numbers, of which ``unique`` had no ties. Pods: ``placed``, ``waiting``,
    ``blocked`` and ``lost``, and ``waves``: in the cases with equal numbers. ``passed_over``: cases with other numbers
    after a tie or a retry.
    """

    cases: int = 0
    equal: int = 0
    unique: int = 0
    passed_over: int = 0
    placed: int = 0
    waiting: int = 0
    blocked: int = 0
    lost: int = 0
    waves: int = 0
    wrong: list[str] = field(default_factory=list)


class DrainCase:
    """A cluster with owners, readiness and budgets for its residents, and the nodes to drain."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"drain-{seed}")
        self.cluster = BusyCluster(seed, SCHEDULED_BY)
        self.status: dict[str, Json] = {}
        for pod in self.cluster.residents:
            app = pod["metadata"]["labels"]["app"]
            if self.random.random() < 0.9:
                owner = objects.owner_reference_to("apps/v1", "ReplicaSet", app, f"uid-{app}")
                pod["metadata"]["ownerReferences"] = [owner]
            self.status[pod["metadata"]["name"]] = self.random.choices((READY, UNREADY, {}), (8, 1, 1))[0]
        names = [it["metadata"]["name"] for it in self.cluster.nodes]
        crowded = sorted(
            names, key=lambda it: (-sum(pod["spec"]["nodeName"] == it for pod in self.cluster.residents), it)
        )
        self.nodes = crowded[: self.random.choice((1, 1, 2))]
        self.keeps_cordoned = self.random.random() < 0.5
        self.budgets = [self._budget(app) for app in self._apps() if self.random.random() < 0.6]
        if self.budgets and self.random.random() < 0.1:
            self.budgets.append(self._budget(self.budgets[0]["spec"]["selector"]["matchLabels"]["app"], "-too"))

    def _apps(self) -> list[str]:
        return sorted({it["metadata"]["labels"]["app"] for it in self.cluster.residents})

    def _budget(self, app: str, suffix: str = "") -> Json:
        healthy = self.healthy(app, self.cluster.residents)
        least = max(0, healthy - self.random.randint(0, 2))
        budget = objects.pod_disruption_budget(f"{app}{suffix}", {"app": app}, min_available=least)
        if self.random.random() < 0.3:
            budget["spec"]["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
        return budget

    def healthy(self, app: str, pods: list[Json]) -> int:
        names = [it["metadata"]["name"] for it in pods if it["metadata"]["labels"]["app"] == app]
        return sum(self.status[it] is READY for it in names)


class DrainTrial(SimulationTrial):
    """Plans drains on a real control plane, and carries them out."""

    def carry_out(self, tally: DrainTally, number: int, case: DrainCase) -> None:
        """Plan the drain of a case, carry it out, and compare."""
        try:
            self.stage(case.cluster, [])
            for name, status in case.status.items():
                if status:
                    self._client.patch_status("Pod", name, status)
            for budget in case.budgets:
                self._client.create(budget)
            run = _Run(self._client, case)
            run.count_budgets()
            plan = self._client.wait_for(lambda: self._planned(case), what="the budgets to be known")
            run.begin()
            found = [run.drained(name, plan["items"][at], at) for at, name in enumerate(case.nodes)]
            _compare(tally, number, plan, found)
        finally:
            self._client.clear()

    def _planned(self, case: DrainCase) -> Json | None:
        """The plan, once it knows the budgets."""
        asked = {"nodes": case.nodes, "keepCordoned": case.keeps_cordoned}
        answer = HTTP.post(f"{self._homeport.url}/api/v1/drain", json=asked, timeout=90)
        assert answer.is_success, answer.text
        plan: Json = answer.json()
        assert not plan["notJudged"], plan["notJudged"]
        allowed = {it["name"]: it["disruptionsAllowed"] for it in plan["items"][0]["budgets"]}
        now = {it["metadata"]["name"]: it["status"]["disruptionsAllowed"] for it in self._budgets()}
        return plan if all(now[name] == count for name, count in allowed.items()) else None

    def _budgets(self) -> list[Json]:
        return self._client.list("PodDisruptionBudget", "default")


class _Run:
    """Carries out one case."""

    def __init__(self, client: Client, case: DrainCase) -> None:
        self._client = client
        self._case = case
        self._waiting: list[str] = []

    def begin(self) -> None:
        """Cordon all nodes, if they are to stay cordoned."""
        for name in self._case.nodes if self._case.keeps_cordoned else ():
            self._cordon(name)

    def _cordon(self, name: str) -> None:
        taints = self._client.get("Node", name)["spec"].get("taints", [])
        was = [it for it in taints if it["key"] != CORDON["key"]]
        self._client.patch("Node", name, {"spec": {"unschedulable": True, "taints": [*was, CORDON]}})

    def _uncordon(self, name: str) -> None:
        (node,) = [it for it in self._case.cluster.nodes if it["metadata"]["name"] == name]
        spec = {"unschedulable": node["spec"].get("unschedulable"), "taints": node["spec"].get("taints", [])}
        self._client.patch("Node", name, {"spec": spec})

    def count_budgets(self) -> None:
        """Count the healthy pods of each budget, as the disruption controller does."""
        pods = [it for it in self._client.list("Pod", "default") if it["spec"].get("nodeName")]
        for budget in self._case.budgets:
            app = budget["spec"]["selector"]["matchLabels"]["app"]
            healthy, desired = self._case.healthy(app, pods), budget["spec"]["minAvailable"]
            status = {
                "observedGeneration": 1,
                "disruptionsAllowed": max(0, healthy - desired),
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": len(pods),
                "disruptedPods": None,
            }
            self._client.patch_status("PodDisruptionBudget", budget["metadata"]["name"], status)

    def drained(self, name: str, planned: Json, at: int) -> Json:
        """Drain one node, and return the numbers."""
        self._cordon(name)
        on_it = [it for it in self._client.list("Pod", "default") if it["spec"].get("nodeName") == name]
        left = sorted(on_it, key=lambda it: it["metadata"]["name"])
        new: list[str] = []
        lost = waves = 0
        while True:
            evicted = [it for it in left if self._evict(it["metadata"]["name"])]
            if not evicted:
                break
            waves += 1
            left = [it for it in left if it not in evicted]
            controlled = [it for it in evicted if it["metadata"].get("ownerReferences")]
            lost += len(evicted) - len(controlled)
            new += [self._create_again(it) for it in controlled]
            self._settle(new)
            self.count_budgets()
        expected = planned["placed"]
        nodes = self._settle(new, expected)
        self._waiting += [it for it, node in nodes.items() if not node]
        result = {
            "placed": sum(map(bool, nodes.values())),
            "waiting": sum(not it for it in nodes.values()),
            "lost": lost,
            "blocked": len(left),
            "waves": waves,
        }
        if not self._case.keeps_cordoned and at + 1 < len(self._case.nodes):
            self._uncordon(name)
            later = sum(bool(it["placedLater"]) for it in planned["pods"])
            placed = self._settle(self._waiting, later)
            self._waiting = [it for it, node in placed.items() if not node]
            self.count_budgets()
        return result

    def _evict(self, name: str) -> bool:
        """Return whether the Eviction API evicts the pod."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
        try:
            self._client.request("POST", f"/api/v1/namespaces/default/pods/{name}/eviction", body)
        except ApiError as failure:
            if failure.status in (429, 500):
                return False
            raise
        return True

    def _create_again(self, pod: Json) -> str:
        """Create a pod like the evicted one, and make it ready if that was."""
        name = f"{pod['metadata']['name']}-again"
        metadata = {key: pod["metadata"][key] for key in ("namespace", "labels", "ownerReferences")}
        spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "priority")}
        self._client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": name}, "spec": spec})
        self._case.status[name] = self._case.status[pod["metadata"]["name"]]
        return name

    def _settle(self, pods: list[str], expected: int = 0) -> dict[str, str]:
        """Return the node of each pod, empty if it waits. Pods that wait get some time if more should be placed."""
        nodes = {it: settled(self._client, it) for it in pods}
        if sum(map(bool, nodes.values())) < expected:

            def enough() -> bool:
                nodes.update({it: self._client.node_of(it) for it in pods})
                return sum(map(bool, nodes.values())) >= expected

            with suppress(TimeoutError):
                self._client.wait_for(enough, what="pods to be tried again", timeout=SECONDS)
        for name, node in nodes.items():
            if node and self._case.status[name]:
                self._client.patch_status("Pod", name, self._case.status[name])
        return nodes


def _compare(tally: DrainTally, number: int, plan: Json, found: list[Json]) -> None:
    tally.cases += 1
    planned = [{key: item[key] for key in found[0]} for item in plan["items"]]
    pods = [it for item in plan["items"] for it in item["pods"]]
    has_ties = any(it["ties"] for it in pods)
    is_retried = any(it["outcome"] == "waiting" or it["placedLater"] for it in pods)
    if planned == found:
        tally.equal += 1
        tally.unique += not has_ties
        for name in ("placed", "waiting", "blocked", "lost", "waves"):
            setattr(tally, name, getattr(tally, name) + sum(it[name] for it in found))
    elif has_ties or is_retried:
        tally.passed_over += 1
    else:
        tally.wrong.append(f"case {number}: planned {planned}, but came to {found}")


def measure(plane: ControlPlane, count: int, seed: int = 1) -> DrainTally:
    """Plan and carry out so many drains."""
    tally = DrainTally()
    with ExitStack() as stack:
        homeport = stack.enter_context(Homeport(plane.kubeconfig, plane.folder, ["--explain=complete"]))
        stack.enter_context(plane.start_scheduler({"percentageOfNodesToScore": 100}))
        trial = DrainTrial(plane, homeport)
        number = 0
        while tally.cases < count:
            case = DrainCase(seed * 10_000 + number)
            number += 1
            if any(it["spec"]["nodeName"] in case.nodes for it in case.cluster.residents):
                trial.carry_out(tally, number, case)
    return tally
