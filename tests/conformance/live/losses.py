"""Are as many pods placed and waiting after the loss of a zone as ``lose`` said?

Each case is a busy cluster whose residents belong to ReplicaSets, and a zone that is lost in one of the three variants:
its nodes are deleted, tainted, or left without room. Then the pods that are lost are deleted, and pods like them are
created for a stock kube-scheduler. For each workload, the numbers of placed and of waiting pods must be equal. If a
changed constraint would help a workload, its waiting pods are created again with the change, and as few must wait.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from tests.conformance.live.clusters import BusyCluster
from tests.conformance.live.simulations import SCHEDULED_BY, SimulationTrial, settled
from tests.controlplane import objects
from tests.controlplane.client import Client, Json
from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.integration.service import HTTP, Homeport

UNREACHABLE: Final = "node.kubernetes.io/unreachable"
IMAGE_BYTES: Final = 300 << 20
VARIANTS: Final = ("gone", "tainted", "full")
_PLACE: Final = re.compile(r"spec\.topologySpreadConstraints\[([0-9]+)\]\.(\w+)")
_WATCH_SECONDS: Final = 0.3
"""Seconds after which kube-scheduler knows of deleted and changed nodes."""

_LATER_SECONDS: Final = 20
"""Seconds in which kube-scheduler tries waiting pods again, after which no number changes."""

Numbers = Mapping[str, tuple[int, int]]
"""Placed and waiting pods of each workload by name, without workloads that lose nothing."""


@dataclass
class Tally:
    """``cases``: zones that were lost. ``pods``: pods that were lost. ``placed``, ``waiting``: as kube-scheduler did.

    ``passed_over``: cases that differ, and in which a pod had several best nodes: kube-scheduler took another one, and
    later pods fitted or did not. ``changes``: workloads for which a changed constraint was carried out. ``helped``:
    those of which then as few pods waited as was said.
    """

    cases: int = 0
    pods: int = 0
    placed: int = 0
    waiting: int = 0
    equal: int = 0
    passed_over: int = 0
    changes: int = 0
    helped: int = 0
    wrong: list[str] = field(default_factory=list)


class LossTrial(SimulationTrial):
    """Asks for the loss of a zone on a real control plane, then carries it out."""

    def __init__(self, plane: ControlPlane, homeport: Homeport, scheduler: Scheduler) -> None:
        super().__init__(plane, homeport)
        self._scheduler = scheduler

    def asked(self, zone: str, variant: str) -> Mapping[str, Json]:
        """Return what ``lose`` says of each workload by name."""
        body = {"key": objects.ZONE_LABEL, "value": zone}
        answer = HTTP.post(f"{self._homeport.url}/api/v1/lose", json=body, timeout=90)
        assert answer.is_success, answer.text
        plan: Json = answer.json()
        assert not any(plan[it] for it in ("notJudged", "stale", "incomplete")), plan
        rows = plan["domains"][0]["workloads"]
        return {it["name"]: it[variant] for it in rows if it[variant]["lost"]}

    def lose(self, tally: Tally, number: int, cluster: BusyCluster, draw: Random) -> None:
        """Lose a zone and count it."""
        variant = VARIANTS[number % len(VARIANTS)]
        for image in (image for node in cluster.nodes for image in node["status"].get("images", ())):
            image["sizeBytes"] = IMAGE_BYTES  # with several sizes, the node that was known first decides
        own = [*map(_owned, cluster.residents)]
        cluster.residents[:] = own
        zone_of = {it["metadata"]["name"]: it["metadata"]["labels"][objects.ZONE_LABEL] for it in cluster.nodes}
        zone = draw.choice(sorted(set(zone_of.values())))
        lost = [it for it in own if zone_of[it["spec"]["nodeName"]] == zone]
        made: list[tuple[str, str]] = []
        try:
            self.stage(cluster, made)
            outcomes = self.asked(zone, variant)
            expected = {name: (it["placed"], it["waiting"]) for name, it in outcomes.items()}
            created = {it["metadata"]["name"]: it["metadata"]["creationTimestamp"] for it in self._client.list("Pod")}
            lost.sort(key=lambda it: (created[it["metadata"]["name"]], it["metadata"]["name"]))
            self._lose(variant, [name for name, its in zone_of.items() if its == zone], lost, made)
            new = [*map(_again, lost)]
            time.sleep(_WATCH_SECONDS)
            with self._asleep():
                self._create(new, made)
            found = self._found(new, expected)
            if found == expected:
                self._change(tally, number, new, outcomes, made)
        finally:
            self.clear(made)
        tally.cases += 1
        tally.pods += len(lost)
        tally.placed += sum(placed for placed, _ in found.values())
        tally.waiting += sum(waiting for _, waiting in found.values())
        if found == expected:
            tally.equal += 1
        elif any(it["ties"] for it in outcomes.values()):
            tally.passed_over += 1
        else:
            tally.wrong.append(f"case {number}, {zone} {variant}: expected {expected}, but there are {found}")

    def _lose(self, variant: str, nodes: Iterable[str], lost: Sequence[Json], made: list[tuple[str, str]]) -> None:
        for name in nodes:
            if variant == "gone":
                self._client.delete("Node", name)
                made.remove(("Node", name))
            elif variant == "tainted":
                taints = self._client.get("Node", name)["spec"].get("taints", [])
                more = [objects.taint(UNREACHABLE, effect=it) for it in ("NoSchedule", "NoExecute")]
                self._client.patch("Node", name, {"spec": {"taints": [*taints, *more]}})
            else:
                self._client.patch_status("Node", name, {"allocatable": {"pods": "0"}})
        self._delete(lost, made)

    @contextmanager
    def _asleep(self) -> Iterator[None]:
        """Stop kube-scheduler meanwhile, so that all pods are in its queue before it tries one, as after a real loss.

        Otherwise it tries a waiting pod again before the next pod exists.
        """
        os.kill(self._scheduler.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._scheduler.process.pid, signal.SIGCONT)

    def _create(self, pods: Iterable[Json], made: list[tuple[str, str]]) -> None:
        for pod in pods:
            made.append(("Pod", pod["metadata"]["name"]))
            self._client.create(pod)

    def _delete(self, pods: Iterable[Json], made: list[tuple[str, str]]) -> None:
        for pod in pods:
            self._client.delete("Pod", pod["metadata"]["name"])
            made.remove(("Pod", pod["metadata"]["name"]))

    def _found(self, pods: Sequence[Json], expected: Numbers) -> Numbers:
        """Return the numbers once they are as expected, else after kube-scheduler had time to try again."""
        for pod in pods:
            settled(self._client, pod["metadata"]["name"])

        def are_equal() -> bool:
            return _numbers(self._client, pods) == expected

        with suppress(TimeoutError):
            self._client.wait_for(are_equal, _LATER_SECONDS, "the numbers to be equal")
        return _numbers(self._client, pods)

    def _change(
        self,
        tally: Tally,
        number: int,
        pods: Sequence[Json],
        outcomes: Mapping[str, Json],
        made: list[tuple[str, str]],
    ) -> None:
        """Create the waiting pods of each workload again, with the changed field, if that is of a constraint."""
        for name, outcome in outcomes.items():
            change = outcome["change"]
            place = change and _PLACE.fullmatch(change["field"])
            if not place:
                continue
            of_app = [it for it in pods if it["metadata"]["ownerReferences"][0]["name"] == name]
            waiting = [it for it in of_app if not self._client.node_of(it["metadata"]["name"])]
            changed = [_changed(it, int(place[1]), place[2], change["value"]) for it in waiting]
            self._delete(waiting, made)
            self._create(changed, made)
            wanted = {name: (len(waiting) - change["waiting"], change["waiting"])}
            found = self._found(changed, wanted)
            tally.changes += 1
            tally.helped += found == wanted
            if found != wanted:
                tally.wrong.append(f"case {number}, {change} of {name}: expected {wanted}, but there are {found}")
            return  # the pods that are placed now take room from those of other workloads


def _changed(pod: Json, number: int, key: str, value: str) -> Json:
    spread = [dict(it) for it in pod["spec"]["topologySpreadConstraints"]]
    if value == "none":
        del spread[number][key]
    else:
        spread[number][key] = int(value) if value.isdecimal() else value
    metadata = {**pod["metadata"], "name": f"{pod['metadata']['name']}-changed"}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "topologySpreadConstraints": spread}}


def _numbers(client: Client, pods: Sequence[Json]) -> Numbers:
    node_of = {it["metadata"]["name"]: it["spec"].get("nodeName", "") for it in client.list("Pod", "default")}
    placed, waiting = Counter[str](), Counter[str]()
    for pod in pods:
        counted = placed if node_of[pod["metadata"]["name"]] else waiting
        counted[pod["metadata"]["ownerReferences"][0]["name"]] += 1
    return {name: (placed[name], waiting[name]) for name in {*placed, *waiting}}


def _owned(resident: Json) -> Json:
    """Return a resident of a ReplicaSet. The ReplicaSet does not exist, so that nothing adds pods."""
    app = resident["metadata"]["labels"]["app"]
    owner = objects.owner_reference_to("apps/v1", "ReplicaSet", app, f"uid-{app}")
    return {**resident, "metadata": {**resident["metadata"], "ownerReferences": [owner]}}


def _again(resident: Json) -> Json:
    """Return the pod that a controller creates in place of a lost one."""
    metadata: dict[str, Any] = {**resident["metadata"], "name": f"{resident['metadata']['name']}-again"}
    spec = {key: value for key, value in resident["spec"].items() if key != "nodeName"}
    return {**resident, "metadata": metadata, "spec": {**spec, "schedulerName": SCHEDULED_BY}}


def measure(plane: ControlPlane, count: int, seed: int = 1) -> Tally:
    """Lose so many zones."""
    tally = Tally()
    with ExitStack() as stack:
        homeport = stack.enter_context(Homeport(plane.kubeconfig, plane.folder, ["--explain=complete"]))
        scheduler = stack.enter_context(plane.start_scheduler({"percentageOfNodesToScore": 100}))
        trial = LossTrial(plane, homeport, scheduler)
        for number in range(count):
            draw = Random(f"loss-{seed}-{number}")
            trial.lose(tally, number, BusyCluster(seed * 10_000 + number, SCHEDULED_BY), draw)
    return tally
