"""Generated cases of preemption for topology spread: Homeport's ``preemption: Own`` beside a stock kube-scheduler.

    python -m tests.conformance.preemption_cases --cases 300 --seed 1

Each case is a small cluster in which hard constraints reject a pod on every node. It is created twice on one control
plane, with nodes and a namespace of its own. One pod belongs to a stock kube-scheduler with PodTopologySpread. The
other belongs to a kube-scheduler with ``examples/kube-scheduler/homeport.yaml``. Node and victims must be equal, except
in the kinds of cases that ``Tally`` lists. In these, both must follow the rules of ``choices``, which uses no code of
Homeport. Prints the counts as JSON. Ends with 1 if a case differs; ``wrong`` has each such case.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, Final

from tests.conformance.preemption_rules import (
    PRIORITIES,
    PRIORITY,
    Choices,
    PreemptionCase,
    Resident,
    choices,
    generate,
    violates,
)
from tests.controlplane import objects
from tests.controlplane.client import RESOURCES, Client, Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport, role, scheduler_config

STOCK: Final = "stock"
OWN: Final = "default-scheduler"
"""Name of the profile in ``examples/kube-scheduler/homeport.yaml``."""

VARIANTS: Final = (STOCK, OWN)
PREEMPTOR: Final = "preemptor"
CASE_LABEL: Final = "homeport.test/case"
BATCH: Final = 20
"""Cases on the control plane at once. Each is two namespaces with about 20 objects."""

SETTLE_SECONDS: Final = 1.0
"""Wait before the pods are created, in which schedulers and Homeport receive nodes, pods and budgets."""

QUIET_SECONDS: Final = 2.0
"""Wait after all pods have their place, in which no further eviction must follow."""

POLL_SECONDS: Final = 0.2
DECIDE_SECONDS: Final = 30.0
ELECTION: Final = {
    "leaderElect": True,
    "leaseDuration": "6s",
    "renewDeadline": "5s",
    "retryPeriod": "1s",
    "resourceNamespace": "default",
    "resourceName": "homeport",
}


@dataclass(frozen=True)
class Outcome:
    """Node to which the pod is bound or nominated, and the pods that are terminating or gone because of it."""

    node: str
    victims: frozenset[str]

    def follows(self, chosen: Choices) -> bool:
        return self.victims == chosen.get(self.node, frozenset()) if chosen else not (self.node or self.victims)


class Copy:
    """One of the two copies of a case on the control plane. ``variant``: schedulerName of its pod."""

    def __init__(self, client: Client, case: PreemptionCase, variant: str) -> None:
        self.case = case
        self.variant = variant
        self.key = f"{case.number}-{variant}"
        self.space = f"preemption-{self.key}"
        self._client = client

    def create(self) -> None:
        """Create everything but the preemptor."""
        client = self._client
        if client.find("Namespace", self.space) is None:
            client.create(objects.namespace(self.space))
        for node in self.case.nodes:
            taints = [objects.taint("closed")] if node.closed else []
            labels = {CASE_LABEL: self.key}
            client.create(objects.node(f"{self.key}-{node.name}", zone=node.zone, labels=labels, taints=taints))
        for pod in self.case.residents:
            self._run(pod)
        for budget in self.case.budgets:
            made = objects.pod_disruption_budget(budget.name, budget.labels, min_available=1, namespace=self.space)
            client.create(made)
            status = {"disruptionsAllowed": budget.allowed, "currentHealthy": 1 + budget.allowed, "desiredHealthy": 1}
            status |= {"expectedPods": 1 + budget.allowed, "observedGeneration": 0 if budget.outdated else 1}
            client.patch_status("PodDisruptionBudget", budget.name, status, self.space)

    def _run(self, pod: Resident) -> None:
        """Create a pod as a kubelet runs it: ready, and it takes 30 s to end."""
        made = _pod(self.space, pod.name, pod.priority, pod.labels, node_name=f"{self.key}-{pod.node}")
        made["spec"]["terminationGracePeriodSeconds"] = 30
        self._client.create(made)
        started = f"2026-01-01T{pod.started // 60:02}:{pod.started % 60:02}:00Z"
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": started}]
        status = {"phase": "Running", "startTime": started, "conditions": ready}
        self._client.patch_status("Pod", pod.name, status, self.space)
        if pod.terminating:
            self._client.delete("Pod", pod.name, self.space, grace_seconds=30)

    def create_preemptor(self) -> None:
        made = _pod(self.space, PREEMPTOR, PRIORITY, self.case.labels, node_selector={CASE_LABEL: self.key})
        made["spec"] |= {"schedulerName": self.variant, "topologySpreadConstraints": self.case.constraints}
        self._client.create(made)

    def is_decided(self) -> bool:
        """Return whether the preemptor has a place, or was refused if it is to get none."""
        pod = self._client.get("Pod", PREEMPTOR, self.space)
        if choices(self.case, own=self.variant == OWN):
            return bool(_place(pod) if self.variant == STOCK else pod["spec"].get("nodeName"))
        return any(it["type"] == "PodScheduled" for it in pod["status"].get("conditions", ()))

    def outcome(self) -> Outcome:
        pods = {it["metadata"]["name"]: it for it in self._client.list("Pod", self.space)}
        left = {name for name, it in pods.items() if "deletionTimestamp" not in it["metadata"]}
        victims = frozenset(it.name for it in self.case.residents if not it.terminating) - left
        return Outcome(_place(pods[PREEMPTOR]).removeprefix(f"{self.key}-"), victims)

    def clear(self) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        for kind in ("Pod", "PodDisruptionBudget", "Node"):
            labels = {"labelSelector": f"{CASE_LABEL}={self.key}"} if kind == "Node" else {}
            self._client.request("DELETE", RESOURCES[kind].path(self.space), options, params=labels)


def _pod(space: str, name: str, priority: int, labels: Mapping[str, str], **fields: Any) -> Json:
    return objects.pod(name, namespace=space, labels=labels, priority_class_name=_class(priority), **fields)


def _class(priority: int) -> str:
    return f"priority-{priority}".replace("--", "-minus-")


def _place(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName", ""))


@dataclass
class Tally:
    """Number of cases of each kind, and of victims of Homeport and of the stock kube-scheduler.

    ``equal``: same node and same victims; ``helpless`` of these: no eviction helps. In the other kinds, node or victims
    can differ, and both follow the rules. ``tie``: several nodes are the best. ``budget``: the in-tree plugin violates
    a budget. ``api``: only the Eviction API refuses a victim. ``terminating``: the in-tree plugin subtracts terminating
    pods. ``differing``: cases of these four kinds in which they do differ. ``wrong``: cases against the rules.
    """

    cases: int = 0
    equal: int = 0
    helpless: int = 0
    victims: int = 0
    stock_victims: int = 0
    tie: int = 0
    budget: int = 0
    api: int = 0
    terminating: int = 0
    differing: int = 0
    wrong: list[Json] = field(default_factory=list)

    def take(self, case: PreemptionCase, stock: Outcome, own: Outcome) -> None:
        expected, expected_own = choices(case), choices(case, own=True)
        self.cases += 1
        self.victims += len(own.victims)
        self.stock_victims += len(stock.victims)
        kind = self._kind(case, expected, expected_own)
        follows = stock.follows(expected) and own.follows(expected_own)
        if not follows or (kind == "equal" and stock != own):
            said = {"kind": kind, "stock": stock, "own": own, "expected": expected, "expected_own": expected_own}
            self.wrong.append({"case": asdict(case), **said})
            return
        setattr(self, kind, getattr(self, kind) + 1)
        self.helpless += kind == "equal" and not expected
        self.differing += stock != own

    @staticmethod
    def _kind(case: PreemptionCase, expected: Choices, expected_own: Choices) -> str:
        if violates(case, expected):
            return "budget"
        if expected != expected_own:
            lasting = [it for it in case.residents if not it.terminating]
            return "api" if choices(replace(case, residents=lasting)) == expected else "terminating"
        return "tie" if len(expected) > 1 else "equal"


@contextmanager
def schedulers(plane: ControlPlane) -> Iterator[None]:
    """Run Homeport, the kube-scheduler that calls it, and a stock kube-scheduler."""
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    profiles = [{"schedulerName": OWN, "preemption": "Own"}]
    config = plane.folder / "preemption.json"
    config.write_text(json.dumps({**head, "profiles": profiles, "leaderElection": ELECTION, "maxPlansPerSecond": 50}))
    fast = {"clientConnection": {"qps": 1000, "burst": 2000}, "percentageOfNodesToScore": 100}
    with ExitStack() as stack:
        homeport = stack.enter_context(Homeport(plane.kubeconfig, plane.folder, [f"--config={config}"]))
        plane.client.wait_for(lambda: role(homeport) == "ok: leader", what="Homeport to lead")
        stack.enter_context(plane.start_scheduler({**scheduler_config(homeport), **fast}))
        stack.enter_context(plane.start_scheduler({"profiles": [{"schedulerName": STOCK}], **fast}))
        yield


def measure(plane: ControlPlane, cases: int, seed: int = 1) -> Tally:
    """Run so many cases, some at once."""
    tally = Tally()
    for priority in PRIORITIES:
        plane.client.create(objects.priority_class(_class(priority), priority))
    generated = islice(generate(seed), cases)
    with schedulers(plane), ThreadPoolExecutor(4) as pool:
        while batch := list(islice(generated, BATCH)):
            copies = [Copy(plane.client, case, variant) for case in batch for variant in VARIANTS]
            list(pool.map(Copy.create, copies))
            time.sleep(SETTLE_SECONDS)
            list(pool.map(Copy.create_preemptor, copies))
            until = time.monotonic() + DECIDE_SECONDS
            pending = copies
            while pending and time.monotonic() < until:
                time.sleep(POLL_SECONDS)
                decided = list(pool.map(Copy.is_decided, pending))
                pending = [it for it, done in zip(pending, decided, strict=True) if not done]
            time.sleep(QUIET_SECONDS)
            outcomes = list(pool.map(Copy.outcome, copies))
            for case, stock, own in zip(batch, outcomes[::2], outcomes[1::2], strict=True):
                tally.take(case, stock, own)
            list(pool.map(Copy.clear, copies))
    return tally


def main() -> int:
    """Return 0 if every case follows the rules."""
    parser = argparse.ArgumentParser("python -m tests.conformance.preemption_cases", description="Compare preemptions.")
    parser.add_argument("--cases", type=int, default=300, help="number of cases")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cases")
    arguments = parser.parse_args()
    begun = time.monotonic()
    with ControlPlane() as plane:
        tally = measure(plane, arguments.cases, arguments.seed)
    seconds = round(time.monotonic() - begun)
    sys.stdout.write(json.dumps({"seconds": seconds, **asdict(tally)}, default=_jsonable) + "\n")
    return 1 if tally.wrong else 0


def _jsonable(value: object) -> object:
    if isinstance(value, Outcome):
        return asdict(value)
    return sorted(value) if isinstance(value, frozenset) else str(value)


if __name__ == "__main__":
    sys.exit(main())
