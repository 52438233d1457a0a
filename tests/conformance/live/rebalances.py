"""Do spread constraints hold after the evictions of a rebalancing?

Each case is a cluster whose pods are spread badly. Homeport plans a rebalancing. Then the printed calls of the Eviction
API are made one after the other, and after each, a new pod is created for a stock kube-scheduler. Each new pod must get
a node: the planned one, where no other has the same score. At the end, exactly the constraints that the plan names are
above ``maxSkew``. Where kube-scheduler breaks a tie in another way, and a constraint then does not hold, the case is
passed over.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random

from app.commands.rebalance import call_of
from tests.conformance.live.simulations import SCHEDULED_BY, SimulationTrial, settled
from tests.controlplane import objects
from tests.controlplane.client import Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, Homeport

Above = set[tuple[str, str]]
"""Workload and topology key of the constraints that are above ``maxSkew``."""


@dataclass
class RebalanceTally:
    """``cases``: clusters with a constraint above ``maxSkew``. ``balanced``: cases where all constraints hold at the
    end, and ``partly``: where only those that the plan names do not. ``passed_over``: cases with another result after a
    tie. ``evictions``: of the other cases, and ``unique``: evictions whose new pod had one best node.
    """

    cases: int = 0
    balanced: int = 0
    partly: int = 0
    passed_over: int = 0
    evictions: int = 0
    unique: int = 0
    wrong: list[str] = field(default_factory=list)


class SkewedCluster:
    """Nodes in uneven zones, workloads with hard constraints, and their pods, most of them in one place."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"rebalance-{seed}")
        zones = [f"zone-{letter}" for letter in "abcd"[: self._random.randint(2, 4)]]
        self.nodes = [
            objects.node(f"r{seed}-{zone[-1]}{number}", zone=zone, cpu=self._random.choice(("2", "4", "8")))
            for zone in zones
            for number in range(self._random.randint(1, 3))
        ]
        self.residents: list[Json] = []
        self.spread: dict[str, list[Json]] = {}
        for number in range(self._random.randint(1, 3)):
            self._workload(f"r{seed}-app{number}")

    def _workload(self, app: str) -> None:
        labels = {"app": app}
        keys = self._random.choice(([objects.ZONE_LABEL], [objects.ZONE_LABEL, objects.HOSTNAME_LABEL]))
        constraints = [
            objects.spread(labels, topology_key=key, when="DoNotSchedule", max_skew=self._random.choice((1, 1, 2)))
            for key in keys
        ]
        self.spread[app] = constraints
        names = [it["metadata"]["name"] for it in self.nodes]
        crowded = self._random.sample(names, min(len(names), 2))
        for number in range(self._random.randint(3, 12)):
            pod = objects.pod(
                f"{app}-{number}",
                labels=labels,
                requests={"cpu": self._random.choice(("100m", "250m", "500m"))},
                spread_constraints=constraints,
                scheduler_name=SCHEDULED_BY,
                node_name=self._random.choice((*crowded, *crowded, *names)),
            )
            owner = objects.owner_reference_to("apps/v1", "ReplicaSet", app, f"uid-{app}")
            pod["metadata"]["ownerReferences"] = [owner]
            if self._random.random() < 0.1:
                pod["metadata"]["annotations"] = {"homeport.dev/never-evict": "true"}
            self.residents.append(pod)

    def above(self, pods: list[Json]) -> Above:
        """Return the constraints above ``maxSkew``, counted without Homeport. All nodes are counted."""
        labels = {it["metadata"]["name"]: it["metadata"]["labels"] for it in self.nodes}
        above: Above = set()
        for app, constraints in self.spread.items():
            nodes = [it["spec"]["nodeName"] for it in pods if it["metadata"]["labels"]["app"] == app]
            for constraint in constraints:
                key = constraint["topologyKey"]
                counts = Counter({of[key]: 0 for of in labels.values()})
                counts.update(labels[it][key] for it in nodes)
                if max(counts.values()) - min(counts.values()) > constraint["maxSkew"]:
                    above.add((f"ReplicaSet/default/{app}", key))
        return above


class RebalanceTrial(SimulationTrial):
    """Plans rebalancings on a real control plane, and carries them out."""

    def carry_out(self, tally: RebalanceTally, number: int, cluster: SkewedCluster) -> None:
        """Plan a case, carry it out, and compare."""
        try:
            self.stage(cluster, [])
            answer = HTTP.post(f"{self._homeport.url}/api/v1/rebalance", json={}, timeout=90)
            assert answer.is_success, answer.text
            plan: Json = answer.json()
            assert not plan["notJudged"], plan["notJudged"]
            mistakes = [it for it in map(self._carried_out, plan["evictions"]) if it]
            self._compare(tally, number, cluster, plan, mistakes)
        finally:
            self._client.clear()

    def _carried_out(self, eviction: Json) -> str:
        """Make the printed call, and create a new pod. Return its node if that contradicts the plan."""
        pod = self._client.get("Pod", eviction["pod"])
        words = shlex.split(call_of(eviction))
        self._client.request("POST", words[words.index("--raw") + 1], json.loads(words[2]))
        name = f"{eviction['pod']}-again"
        metadata = {key: pod["metadata"][key] for key in ("namespace", "labels", "ownerReferences")}
        spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "priority")}
        self._client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": name}, "spec": spec})
        node = settled(self._client, name)
        return "" if node == eviction["goesTo"] else f"{name} -> {node or 'no node'}"

    def _compare(
        self, tally: RebalanceTally, number: int, cluster: SkewedCluster, plan: Json, mistakes: list[str]
    ) -> None:
        tally.cases += 1
        found = cluster.above([it for it in self._client.list("Pod", "default") if it["spec"].get("nodeName")])
        expected = {(it["workload"], it["topologyKey"]) for it in plan["left"]}
        has_ties = any(it["ties"] for it in plan["evictions"])
        if found == expected and (has_ties or not mistakes):
            tally.balanced += not found
            tally.partly += bool(found)
            tally.evictions += len(plan["evictions"])
            tally.unique += sum(not it["ties"] for it in plan["evictions"])
        elif has_ties and mistakes:
            tally.passed_over += 1
        else:
            tally.wrong.append(f"case {number}: above {sorted(found)}, {mistakes}, but planned {plan}")


def measure(plane: ControlPlane, count: int, seed: int = 1) -> RebalanceTally:
    """Plan and carry out so many rebalancings."""
    tally = RebalanceTally()
    with ExitStack() as stack:
        homeport = stack.enter_context(Homeport(plane.kubeconfig, plane.folder, ["--explain=complete"]))
        stack.enter_context(plane.start_scheduler({"percentageOfNodesToScore": 100}))
        trial = RebalanceTrial(plane, homeport)
        number = 0
        while tally.cases < count:
            cluster = SkewedCluster(seed * 10_000 + number)
            number += 1
            if cluster.above(cluster.residents):
                trial.carry_out(tally, number, cluster)
    return tally
