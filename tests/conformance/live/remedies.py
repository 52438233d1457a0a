"""Is a stuck pod bound once the best of its remedies is carried out?

Pods are generated, each on nodes of its own. kube-scheduler must have refused a pod before explain is asked; one that
it places is passed over. The remedy is carried out by its text and the names that explain gives, as a person would:
with a patch of the node, ``homeport homes release``, a deleted pod, or a changed pod that replaces the old one. The pod
must then be bound to one of the nodes that the remedy names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from copy import deepcopy
from dataclasses import dataclass, field
from io import StringIO
from typing import Any, Final

from app.__main__ import main as homeport_command
from tests.conformance.live.stuck_pods import CORDON_TAINT, StuckPod
from tests.controlplane import objects
from tests.controlplane.client import Client, Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.explains import Explains
from tests.integration.service import Homeport, scheduler_config
from tests.integration.test_home_stories import install_kubevirt

LEAST_WITH_A_REMEDY: Final = 5 / 6
MOST_NAMED: Final = 10
"""Number of nodes that a remedy names."""

NONE: Final = "none"
_IN_CONSTRAINT: Final = " in the constraint over "
_REQUEST: Final = re.compile(r"request (\S+) (\S+) instead of \S+")
_TAINT: Final = re.compile(r"tolerate the taint ([^=:]+)(?:=([^:]*))?:(\w+)")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass
class Tally:
    """``sort``: of the remedies. ``tried``: how many were carried out; for ``none``, pods without any remedy."""

    sort: str
    tried: int = 0
    bound: int = 0
    wrong: list[str] = field(default_factory=list)


def _changed_constraint(change: str, spec: Json) -> None:
    what, _, key = change.partition(_IN_CONSTRAINT)
    (constraint,) = (it for it in spec["topologySpreadConstraints"] if it["topologyKey"] == key)
    if what == "no minDomains":
        del constraint["minDomains"]
        return
    name, _, value = what.partition(": ")
    constraint[name] = int(value) if value.isdigit() else value
    if value == "ScheduleAnyway":
        constraint.pop("minDomains", None)  # the API server accepts it only with DoNotSchedule


def _smaller_request(change: str, spec: Json) -> None:
    found = _REQUEST.fullmatch(change)
    assert found, change
    spec["containers"][0]["resources"]["requests"][found[2]] = found[1]


def _toleration(change: str, spec: Json) -> None:
    found = _TAINT.fullmatch(change)
    assert found, change
    key, value, effect = found.groups()
    more = {"key": key, "operator": "Equal", "value": value or "", "effect": effect}
    spec.setdefault("tolerations", []).append(more)


def _no_affinity(change: str, spec: Json) -> None:
    assert change == "remove the pod's node selector and required node affinity"
    spec.pop("nodeSelector", None)
    spec.get("affinity", {}).get("nodeAffinity", {}).pop(_REQUIRED, None)


_OF_THE_POD: Final[dict[str, Callable[[str, Json], None]]] = {
    "TaintsPolicy": _changed_constraint,
    "MaxSkew": _changed_constraint,
    "MinDomains": _changed_constraint,
    "ScheduleAnyway": _changed_constraint,
    "RequestLess": _smaller_request,
    "Tolerate": _toleration,
    "NodeAffinity": _no_affinity,
}
"""How each sort of remedy changes the spec of the pod."""


class RemedyTrial:
    """Brings stuck pods about, carries out their remedies, and takes all of it away again."""

    def __init__(self, plane: ControlPlane, homeport: Homeport) -> None:
        self._plane = plane
        self._client: Client = plane.client
        self._homeport = homeport
        self._explains = Explains(plane.client, homeport)

    def carry_out(self, pod: Json, remedy: Json) -> None:
        """Do what the remedy says to the pod, which was created like this."""
        name, change = pod["metadata"]["name"], remedy["change"]
        match remedy["sort"]:
            case "Uncordon":
                node = change.removeprefix("uncordon ")
                taints = self._client.get("Node", node)["spec"].get("taints", [])
                left = [it for it in taints if it["key"] != CORDON_TAINT["key"]]
                self._client.patch("Node", node, {"spec": {"unschedulable": None, "taints": left}})
            case "ReleaseHome":
                self._release(name)
            case "FewerPods":
                for each in remedy["pods"]:
                    self._client.delete("Pod", each)
            case sort:
                changed = deepcopy(pod)
                _OF_THE_POD[sort](change, changed["spec"])
                self._client.delete("Pod", name)
                self._client.create(changed)

    def _release(self, pod: str) -> None:
        (owner,) = self._client.get("Pod", pod)["metadata"]["ownerReferences"]
        where = ("--server", self._homeport.pages, "--kubeconfig", str(self._plane.kubeconfig))
        with redirect_stdout(StringIO()):
            code = homeport_command(["homes", "release", f"vm/{owner['name']}", *where])
        assert code == 0, f"homes release ended with {code}"

    @contextmanager
    def staged(self, stuck: StuckPod) -> Iterator[Json]:
        """Create all objects of a stuck pod, and yield the pod as it was sent; take them away at the end."""
        client, made = self._client, list[tuple[str, str]]()

        def create(thing: Json) -> Json:
            made.append((thing["kind"], thing["metadata"]["name"]))
            return client.create(thing)

        try:
            for node in stuck.nodes:
                create(node)
            for resident in stuck.residents:
                create(resident)
            client.wait_for(lambda: self._knows(len(stuck.nodes)), what=f"the nodes of {stuck.name}")
            owner = None if stuck.machine is None else create(stuck.machine)
            if owner is not None:
                owner = create(objects.virtual_machine_instance(stuck.name, owner["metadata"]["uid"]))
            pod = stuck.make(owner)
            create(pod)
            yield pod
        finally:
            for kind, name in reversed(made):
                if client.find(kind, name) is not None:
                    client.delete(kind, name)

    def _knows(self, nodes: int) -> bool:
        count: int = self._homeport.get("/api/v1/status")["feeds"]["v1 Node"]["objects"]
        return count == nodes

    def is_stuck(self, pod: str, nodes: int) -> bool:
        """Return true once kube-scheduler has refused the pod and explain finds no node, false if the pod is placed.

        kube-scheduler can try the pod before it knows the last node, and does not try it again if that does not fit.
        """

        def decided() -> bool:
            if self._client.node_of(pod):
                return True
            written = self._explains.condition(pod).startswith("0/")
            return written and self._explains.explained(pod, nodes)["verdict"] == "NoNodeFits"

        self._client.wait_for(decided, what=f"kube-scheduler and explain to agree on {pod}")
        return not self._client.node_of(pod)

    def best_remedy(self, pod: str, nodes: int) -> Json | None:
        """Return the best remedy of a stuck pod; ``None`` if it has none."""
        return next(iter(self._explains.explained(pod, nodes)["remedies"]), None)

    def bound_to(self, pod: str) -> str:
        """Return the node to which the pod is bound, and wait for it; empty if it stays unbound."""
        try:
            return self._client.wait_bound(pod)
        except TimeoutError:
            return ""


def _problem(remedy: Json, node: str) -> str:
    if not node:
        return "the pod is not bound"
    named = node in remedy["nodes"] or remedy["opens"] > MOST_NAMED
    return "" if named else f"the pod is bound to {node}"


def measure(plane: ControlPlane, count: int, seed: int = 1) -> list[Tally]:
    """Carry out the best remedy of so many stuck pods; return one tally for each sort of remedy."""
    tallies: dict[str, Tally] = {}
    install_kubevirt(plane.client)
    with ExitStack() as stack:
        homeport = stack.enter_context(Homeport(plane.kubeconfig, plane.folder, ["--explain=complete"]))
        config: dict[str, Any] = {**scheduler_config(homeport), "podMaxBackoffSeconds": 1}
        stack.enter_context(plane.start_scheduler(config))
        trial, generated = RemedyTrial(plane, homeport), (StuckPod(seed, number) for number in range(2 * count))
        while sum(it.tried for it in tallies.values()) < count:
            stuck = next(generated)
            with trial.staged(stuck) as pod:
                if trial.is_stuck(pod["metadata"]["name"], len(stuck.nodes)):
                    _try(trial, stuck, pod, tallies)
    return sorted(tallies.values(), key=lambda it: -it.tried)


def _try(trial: RemedyTrial, stuck: StuckPod, pod: Json, tallies: dict[str, Tally]) -> None:
    """Carry out the best remedy of a staged pod, and count it."""
    name = pod["metadata"]["name"]
    remedy = trial.best_remedy(name, len(stuck.nodes))
    sort = NONE if remedy is None else remedy["sort"]
    tally = tallies.setdefault(sort, Tally(sort))
    tally.tried += 1
    if remedy is None:
        return
    trial.carry_out(pod, remedy)
    problem = _problem(remedy, trial.bound_to(name))
    tally.bound += not problem
    if problem:
        tally.wrong.append(f"{name} ({', '.join(stuck.causes)}): {remedy}: {problem}")


def enough(tallies: Sequence[Tally]) -> bool:
    """Return true if as many of the pods had a remedy as must have one."""
    tried = sum(it.tried for it in tallies)
    return sum(it.tried for it in tallies if it.sort != NONE) >= LEAST_WITH_A_REMEDY * tried
