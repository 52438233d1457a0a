"""Machines are stopped and started again and again, with emptier nodes around and other pods that come and go.

Does each come home every time? A stock kube-scheduler asks Homeport; the test plays kubelet and KubeVirt's controllers.
A third of the nodes has nobody on it: it was cordoned when the machines started first, and other pods keep away from
it. Any scheduler would rather take one of those, and the homes always have room.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import httpx

from tests.beside import beside
from tests.chaos import checker, homes
from tests.chaos.arena import ZONES, Arena
from tests.chaos.checker import Event, Json
from tests.chaos.homes import Place
from tests.chaos.report import Report, percentiles, progress
from tests.chaos.waves import EVIDENCE, STOCK, consistency
from tests.controlplane import objects
from tests.integration.service import Homeport

KINDS: Final = ("Node", "Pod", "VirtualMachine", "Home")
SHOWN: Final = 90
"""Nodes, of which kube-scheduler asks about all."""

SAMPLED: Final = 120
"""Nodes, of which it asks about 100 at most: homes are left out by lot."""

CPU: Final = "64"
OF_MACHINE: Final = {"cpu": "4"}
OF_LOAD: Final = {"cpu": "1"}
LOAD: Final = 60
"""Other pods that are there at a time."""

LOAD_SECONDS: Final = 0.03
"""Between two of them that come or go."""

ANNOTATION_DOMAIN: Final = "homeport.dev/"
EMPTY: Final = ZONES[-1]
PATIENCE: Final = 60.0
"""Seconds without any machine's binding after which those that wait count as stuck."""

_POLL_SECONDS: Final = 0.05


@dataclass(slots=True)
class Machine:
    """``home``: the node it started on before."""

    found: Json
    home: str = ""
    pod: str = ""

    @property
    def name(self) -> str:
        return str(self.found["metadata"]["name"])


@dataclass(slots=True)
class Tally:
    """``missed``: starts elsewhere than at home, each with what is known of it."""

    starts: int = 0
    stuck: list[str] = field(default_factory=list)
    missed: list[Json] = field(default_factory=list)
    seconds: float = 0.0


def hard(machines: int, times: int, seed: int) -> Report:
    """So many machines are started so many times again, where the scheduler asks about a sample of the nodes."""
    report = Report(f"{machines} hard machines started {times} times again under load")
    with playing(SAMPLED) as (arena, homeport):
        play(report, arena, homeport, Campaign(arena, "hard", machines, seed), times)
    return report


def soft(machines: int, times: int, seed: int, *, is_sampled: bool) -> Report:
    """The same where it asks about all. ``is_sampled``: about a sample of the nodes, to be told.

    How long a soft machine waits for a home that is not asked about has a limit.
    """
    of_a_sample = ", asked about a sample" if is_sampled else ""
    report = Report(f"{machines} soft machines{of_a_sample} started {times} times again under load")
    with playing(SAMPLED if is_sampled else SHOWN) as (arena, homeport):
        campaign = Campaign(arena, "soft", machines, seed)
        play(report, arena, homeport, campaign, times, wanted=None if is_sampled else 0)
    return report


@contextmanager
def playing(nodes: int) -> Iterator[tuple[Arena, Homeport]]:
    """A Homeport and one kube-scheduler that asks it."""
    with Arena(nodes, KINDS, cpu=CPU) as arena:
        homeport = arena.homeport(STOCK[:1], log_level="info")
        arena.scheduler(STOCK[0], homeport)
        yield arena, homeport


def play(
    report: Report, arena: Arena, homeport: Homeport, campaign: Campaign, times: int, wanted: float | None = 0
) -> None:
    """``wanted``: how many starts elsewhere than at home are good; ``None`` if they are only told."""
    tally = campaign.tally
    campaign.begin()
    with campaign.load():
        for number in range(times):
            campaign.restart()
            progress(f"{campaign.policy}: {number + 1} times, {tally.seconds:.0f} s, {len(tally.missed)} missed")
    late = campaign.rest()
    history = arena.observer.history()
    waits = seconds_until_bound(history)
    report.add("starts", tally.starts)
    report.add("starts on another node than the home", len(tally.missed), wanted)
    report.add("VirtualMachines stuck", len(tally.stuck), 0)
    report.add("wrong homes at the end", len(late), 0)
    report.add("pods bound twice", len(checker.bound_twice(history)), 0)
    report.add("other pods created meanwhile", campaign.others)
    report.add("of these created or deleted with an unknown result", len(campaign.failures))
    report.add("starts per second", round(tally.starts / max(tally.seconds, 1e-9), 1), unit="/s")
    for name, value in percentiles(waits).items():
        report.add(f"time from creation to binding, {name}", round(value, 3), unit=" s")
    consistency(report, homeport)
    said = homeport.log().splitlines()
    missed = [{**it, "log": [line for line in said if it["pod"] in line][:EVIDENCE]} for it in tally.missed]
    report.details["missed"] = missed[:EVIDENCE]
    report.details["stuck"] = tally.stuck[:EVIDENCE]
    report.details["not as they should be"] = late[:EVIDENCE]


class Campaign:
    """Machines of one policy."""

    def __init__(self, arena: Arena, policy: str, machines: int, seed: int) -> None:
        self.policy = policy
        self.tally = Tally()
        self._arena = arena
        self._client = arena.plane.client
        self._chance = random.Random(f"{policy} {seed}")
        self._machines = [self._make(f"{policy}-{number}") for number in range(machines)]
        self.failures: list[str] = []
        self.others = 0
        self._time = 0

    def _make(self, name: str) -> Machine:
        wanted = objects.virtual_machine(name)
        wanted["metadata"]["annotations"] = {"homeport.dev/policy": self.policy}
        return Machine(self._client.create(wanted))

    def begin(self) -> None:
        """All start for the first time, while some nodes take nobody; from then on these are emptier than others."""
        empty = [it for it in self._arena.nodes if it.startswith(EMPTY)]
        self._arena.each(partial(self._cordon, cordoned=True), empty)
        self._arena.each(self._start, self._machines)
        for it, node in self._wait().items():
            self._machine(it).home = node
        if late := self.rest():
            raise TimeoutError(f"no homes: {late[:EVIDENCE]}")
        self._arena.each(partial(self._cordon, cordoned=False), empty)

    def _cordon(self, node: str, *, cordoned: bool) -> None:
        self._client.patch("Node", node, {"spec": {"unschedulable": cordoned or None}})

    def restart(self) -> None:
        """All are stopped, and started again in another order."""
        started = time.monotonic()
        self._time += 1
        self._chance.shuffle(self._machines)
        self._arena.each(self._stop, self._machines)
        self._arena.each(self._start, self._machines)
        for pod, node in self._wait().items():
            machine = self._machine(pod)
            self.tally.starts += 1
            if node != machine.home:
                self.tally.missed.append(self._evidence(machine, node))
                machine.home = node
        self.tally.seconds += time.monotonic() - started

    def _machine(self, pod: str) -> Machine:
        return next(it for it in self._machines if it.pod == pod)

    def _start(self, machine: Machine) -> None:
        metadata = machine.found["metadata"]
        instance = self._client.create(objects.virtual_machine_instance(machine.name, metadata["uid"]))
        pod = objects.launcher_pod(instance, suffix=f"{self._time}", scheduler_name=STOCK[0], requests=OF_MACHINE)
        machine.pod = pod["metadata"]["name"]
        self._client.create(pod)

    def _stop(self, machine: Machine) -> None:
        self._client.delete("Pod", machine.pod)
        self._client.delete("VirtualMachineInstance", machine.name)

    def _wait(self) -> dict[str, str]:
        """Where each pod went; KubeVirt says so of its machine."""
        bound: dict[str, str] = {}
        progressed = time.monotonic()
        waiting = {it.pod for it in self._machines}
        while waiting:
            found = {pod: node for pod, node in self._arena.observer.bound().items() if pod in waiting}
            if found:
                progressed = time.monotonic()
                bound |= found
                waiting -= found.keys()
                self._arena.each(self._runs, found.items())
            elif time.monotonic() - progressed > PATIENCE:
                self.tally.stuck += sorted(waiting)
                break
            time.sleep(_POLL_SECONDS)
        return bound

    def _runs(self, bound: tuple[str, str]) -> None:
        pod, node = bound
        self._client.patch_status("VirtualMachineInstance", self._machine(pod).name, {"nodeName": node})

    def _evidence(self, machine: Machine, node: str) -> Json:
        """Of a start elsewhere: what the API server had of its pod, in order, and what the scheduler said."""
        history = self._arena.observer.history()
        of_pod = [it for it in history if it.kind == "Pod" and it.found["metadata"]["name"] == machine.pod]
        first = of_pod[0].received if of_pod else 0.0
        return {
            "pod": machine.pod,
            "home": machine.home,
            "node": node,
            "seen": [_seen(it, first) for it in of_pod],
            "events": [f"{it['reason']}: {it.get('message', '')}" for it in self._client.events(machine.pod)],
        }

    def rest(self) -> list[str]:
        """Wait until what is written of homes is right; what is not in time."""
        truth = {Place("VirtualMachine", f"default/{it.name}"): it.home for it in self._machines}
        present = self._arena.observer.present
        deadline = time.monotonic() + PATIENCE
        while (late := homes.judge_rest(present(), truth).every) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return late

    @contextmanager
    def load(self) -> Iterator[None]:
        """Other pods come and go all the while."""
        with beside(partial(self._come_and_go, random.Random(self._chance.random()))):
            yield

    def _come_and_go(self, chance: random.Random, over: threading.Event) -> None:
        there: list[str] = []
        where = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _away_from(EMPTY)}}
        while not over.wait(LOAD_SECONDS):
            try:
                self._come_or_go(there, where, chance)
            except httpx.HTTPError as failure:  # it is on others that it weighs
                self.failures.append(f"{failure}")

    def _come_or_go(self, there: list[str], where: Json, chance: random.Random) -> None:
        """One pod more, or one less, of those that are ``there``."""
        if len(there) < LOAD or chance.random() < 1 / 2:
            self.others += 1
            name = f"{self.policy}-other-{self.others}"
            pod = objects.pod(name, scheduler_name=STOCK[0], requests=OF_LOAD, affinity=where)
            there.append(self._client.create(pod)["metadata"]["name"])
        else:
            self._client.delete("Pod", there.pop(chance.randrange(len(there))))


def _seen(event: Event, first: float) -> Json:
    """One state of a pod, and how many seconds after its creation it was seen."""
    pod = event.found
    status: Json = pod.get("status") or {}
    ours = {key: it for key, it in homes.annotations_of(pod).items() if key.startswith(ANNOTATION_DOMAIN)}
    said: Json = {
        "revision": event.revision,
        "seconds": round(event.received - first, 3),
        "node": pod["spec"].get("nodeName", ""),
        "nominated": status.get("nominatedNodeName", ""),
        "annotations": ours,
    }
    return {key: it for key, it in said.items() if it}


def _away_from(zone: str) -> Json:
    expression = {"key": objects.ZONE_LABEL, "operator": "NotIn", "values": [zone]}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def seconds_until_bound(history: Collection[Event]) -> list[float]:
    """Of the pods of machines, from when they were seen first."""
    made: dict[str, float] = {}
    found: dict[str, float] = {}
    for event in history:
        if event.kind == "Pod" and "vm.kubevirt.io/name" in (event.found["metadata"].get("labels") or {}):
            made.setdefault(event.uid, event.received)
            if event.found["spec"].get("nodeName"):
                found.setdefault(event.uid, event.received - made[event.uid])
    return list(found.values())
