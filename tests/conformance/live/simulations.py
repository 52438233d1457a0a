"""Do pods go where a simulation said they would?

Each case is a busy cluster and some pods. Homeport simulates the pods, then they are created in the same order for a
stock kube-scheduler. A pod must wait where the simulation says so. It must go to the simulated node where no other has
the same score. Where several have, kube-scheduler takes any: if it takes another one, the clusters differ from then on,
and the rest of the case is passed over. The same holds in a case where a pod waited first and was tried again, because
kube-scheduler chooses the moment.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tests.conformance.live.clusters import BusyCluster
from tests.controlplane.client import Client, Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, Homeport

SCHEDULED_BY: Final = "default-scheduler"
PODS: Final = 6


@dataclass
class Tally:
    """``cases``: clusters. ``pods``: pods that were compared. ``unique``: those with one best node; ``waiting``: those
    that found no node. ``passed_over``: pods after a tie that kube-scheduler broke in another way, or after a retry.
    """

    cases: int = 0
    pods: int = 0
    equal: int = 0
    unique: int = 0
    waiting: int = 0
    passed_over: int = 0
    wrong: list[str] = field(default_factory=list)


def settled(client: Client, pod: str) -> str:
    """Return the node of a pod, or an empty string once kube-scheduler has refused it."""

    def decided() -> str | None:
        found = client.get("Pod", pod)
        node: str = found["spec"].get("nodeName", "")
        conditions = found.get("status", {}).get("conditions", [])
        refused = any(it["type"] == "PodScheduled" and it["status"] == "False" for it in conditions)
        return node or ("-" if refused else None)

    return client.wait_for(decided, what=f"a decision on {pod}").removeprefix("-")


class StagedCluster(Protocol):
    """Nodes, and pods on them."""

    nodes: list[Json]
    residents: list[Json]


class SimulationTrial:
    """Simulates pods on a real control plane, then creates them."""

    def __init__(self, plane: ControlPlane, homeport: Homeport) -> None:
        self._client = plane.client
        self._homeport = homeport

    def simulated(self, pods: list[Json]) -> dict[str, Json]:
        """Return the simulated placement of each pod by name, in the order in which they were tried."""
        answer = HTTP.post(f"{self._homeport.url}/api/v1/simulate", json={"objects": pods}, timeout=90)
        assert answer.is_success, answer.text
        found: Json = answer.json()
        assert not found["notJudged"], found["notJudged"]
        assert not found["stale"], found["stale"]
        return {it["pod"]: it for it in found["pods"]}

    def stage(self, cluster: StagedCluster, made: list[tuple[str, str]]) -> None:
        """Create nodes and residents, and wait until Homeport knows them."""
        for thing in (*cluster.nodes, *cluster.residents):
            made.append((thing["kind"], thing["metadata"]["name"]))
            self._client.create(thing)
        expected = {"v1 Node": len(cluster.nodes), "v1 Pod": len(cluster.residents)}

        def knows() -> bool:
            feeds: dict[str, Any] = self._homeport.get("/api/v1/status")["feeds"]
            return all(feeds[kind]["objects"] == count for kind, count in expected.items())

        self._client.wait_for(knows, what="the cluster to be known")

    def clear(self, made: list[tuple[str, str]]) -> None:
        """Delete what was created, pods first."""
        for kind, name in reversed(made):
            self._client.delete(kind, name)

    def compare(self, tally: Tally, number: int, cluster: BusyCluster, pods: list[Json]) -> None:
        """Simulate a case, carry it out and count it."""
        made: list[tuple[str, str]] = []
        try:
            self.stage(cluster, made)
            expected = self.simulated(pods)
            for pod in pods:
                made.append(("Pod", pod["metadata"]["name"]))
                self._client.create(pod)
            tally.cases += 1
            is_retried = [*expected] != [it["metadata"]["name"] for it in pods]
            self._count(tally, number, expected, is_retried=is_retried)
        finally:
            self.clear(made)

    def _count(self, tally: Tally, number: int, expected: dict[str, Json], *, is_retried: bool) -> None:
        differs = False
        placed_first = sorted(expected.items(), key=lambda it: not it[1]["nodeName"])
        for name, placement in placed_first:
            if differs:
                tally.passed_over += 1
                continue
            node = settled(self._client, name)
            if is_retried and node != placement["nodeName"]:
                tally.passed_over += 1
                differs = True
                continue
            tally.pods += 1
            tally.waiting += not placement["nodeName"]
            tally.unique += bool(placement["nodeName"]) and not placement["ties"]
            if node == placement["nodeName"]:
                tally.equal += 1
            elif node and placement["ties"]:
                tally.equal += 1
                differs = True
            else:
                tally.wrong.append(f"case {number}, {name}: simulated {placement}, but went to {node or 'no node'}")
                differs = True


def measure(plane: ControlPlane, count: int, seed: int = 1) -> Tally:
    """Simulate and carry out so many cases."""
    tally = Tally()
    with ExitStack() as stack:
        homeport = stack.enter_context(Homeport(plane.kubeconfig, plane.folder, ["--explain=complete"]))
        stack.enter_context(plane.start_scheduler({"percentageOfNodesToScore": 100}))
        trial = SimulationTrial(plane, homeport)
        for number in range(count):
            cluster = BusyCluster(seed * 10_000 + number, SCHEDULED_BY)
            trial.compare(tally, number, cluster, list(cluster.pods(PODS)))
    return tally
