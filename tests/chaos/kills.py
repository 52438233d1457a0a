"""Homeport is killed at its failpoints again and again, while pods are bound and machines boot for the first time."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.beside import beside
from tests.chaos import checker, waves
from tests.chaos.arena import Arena
from tests.chaos.binder import PlainBinder
from tests.chaos.checker import HOME, Json
from tests.chaos.failpoints import READS, SIDES, Rule, matches, noted, points_of
from tests.chaos.faulty import environment, over_file
from tests.chaos.report import Report, progress
from tests.chaos.waves import EVIDENCE, FAILING_WRITES, PLAIN, STOCK, UNAVAILABLE, WRITE, Wave, Waves
from tests.controlplane import objects
from tests.controlplane.client import ApiError

NODES: Final = 12
MACHINES: Final = 6
PER_APP: Final = 12
HOME_SECONDS: Final = 45.0
"""How long a home may take to reach its machine after the pod is bound; the repair runs every second here."""

FOREIGN: Final = "no-profile"
"""Pods that Homeport has no profile for: it binds them all the same."""

SETTINGS: Final = {"repairInterval": "1s"}
DELAYS: Final = (
    Rule("app.kube.client:KubeClient.get:1", "error", "before", probability=0.05, error=UNAVAILABLE),
    Rule(WRITE, "delay", "before", expression="answer", probability=0.1, seconds=0.03),
    Rule("app.runtime.acting:Acting.pre_bind:1", "delay", "before", probability=0.1, seconds=0.03),
    Rule("app.kube.connections:Connections.taken:2", "delay", "before", probability=0.1, seconds=0.03),
    Rule("app.kube.client:KubeClient.patch:1", "delay", "before", probability=0.3, seconds=0.03),
)
"""Reads that fail, answers and connections that take a while, decisions and patches that somebody overtakes."""

ELSEWHERE: Final = (
    *READS,
    "app.kube.transport:Transport._written:1:*",  # through a proxy
    "app.kube.transport:Transport._written_by_httpx:*",
    "app.kube.transport:Transport._written:5:*",  # an answer that never comes: see the outages
    "app.kube.transport:Transport._write:[34]:*",  # credentials that are refused
    "app.writes.api_writes:ApiBinder._after_unknown:[34]:*",  # no permission to patch the status of pods
    "app.runtime.acting:Acting.permit:*",  # a Permit plugin that makes pods wait
    "app.verbs.bind:BindVerb.drain:*",  # an orderly end
)
"""Points that nothing here leads to."""


def kills(count: int, seed: int, seconds: float) -> Report:
    """SIGKILL at failpoints until there were ``count``, or for so many ``seconds`` on a machine that is slow.

    Then everything must come to rest, with nothing lost.
    """
    report = Report("killed at failpoints")
    with Arena(NODES, ("Node", "Pod", "VirtualMachine")) as arena:
        log = arena.folder / "failpoints.log"
        names = (STOCK[0], PLAIN, PLAIN)
        faults = environment((*FAILING_WRITES, *DELAYS), seed=seed, log=log, kills=count)
        homeport = arena.homeport(sorted(set(names)), SETTINGS, module="tests.chaos.faulty", environment=faults)
        arena.scheduler(STOCK[0], homeport, **waves.QUICK_RETRIES)
        with (
            PlainBinder(arena.observer, PLAIN, [homeport.url], arena.nodes, seed, impatience=0.05) as plain,
            PlainBinder(arena.observer, FOREIGN, [homeport.url], arena.nodes, seed, workers=1),
        ):
            campaign = Campaign(arena, names, seed)
            until = time.monotonic() + seconds
            while killed(log) < count and time.monotonic() < until:
                campaign.wave()
                progress(f"{killed(log)} kills, {campaign.waves.tally.seconds:.0f} s")
            over_file(log).touch()
            campaign.wave()
            waves.judge(report, campaign.waves)
            waves.consistency(report, homeport)
            report.details["outcomes"] = dict(plain.outcomes)
        _judge_homes(report, campaign)
        _add_points(report, log)
    return report


class Campaign:
    """Waves of pods and of machines. Of the machines of each wave half are new and half come home."""

    def __init__(self, arena: Arena, names: Sequence[str], seed: int) -> None:
        self.waves = Waves(arena, names, seed)
        self.homeless: list[str] = []
        self._arena = arena
        self._names = names
        self._chance = random.Random(seed)
        self._machines: list[Json] = []
        self._number = 0

    def wave(self) -> None:
        """Pods and launcher pods together, with annotations that change meanwhile; then all are shut down."""
        started = time.monotonic()
        self._number += 1
        booted = self._machines_to_boot()
        foreign = [objects.pod(f"foreign-{self._number}-{it}", scheduler_name=FOREIGN) for it in range(2)]
        pods = [*foreign, *self.waves.pods(Wave(PER_APP), waves.both), *(self._launcher(it) for it in booted)]
        self._chance.shuffle(pods)
        machines = [it["metadata"]["name"] for it in booted]
        with self._annotating([pod["metadata"]["name"] for pod in pods], machines):
            self._arena.create(pods)
            self.waves.wait_and_judge(judge_rest=True)
            self._wait_for_homes(machines)
        self._arena.clear()
        self._arena.each(self._shut_down, booted)
        self.waves.tally.seconds += time.monotonic() - started

    def _machines_to_boot(self) -> list[Json]:
        client = self._arena.plane.client
        known = self._chance.sample(self._machines, min(len(self._machines), MACHINES // 2))
        names = [f"vm-{self._number}-{number}" for number in range(MACHINES - len(known))]
        new = [client.create(objects.virtual_machine(name)) for name in names]
        self._machines += new
        return [*known, *new]

    def _launcher(self, machine: Json) -> Json:
        name, uid = machine["metadata"]["name"], machine["metadata"]["uid"]
        instance = self._arena.plane.client.create(objects.virtual_machine_instance(name, uid))
        scheduler = self._names[self._number % len(self._names)]
        return objects.launcher_pod(instance, suffix=f"w{self._number}", scheduler_name=scheduler)

    def _shut_down(self, machine: Json) -> None:
        self._arena.plane.client.delete("VirtualMachineInstance", machine["metadata"]["name"])

    def _wait_for_homes(self, names: Sequence[str]) -> None:
        """A machine that is shut down before its home was copied has lost it by rights, so wait."""
        deadline = time.monotonic() + HOME_SECONDS
        while missing := [name for name in names if not self._homes().get(name)]:
            if time.monotonic() > deadline:
                self.homeless += missing
                return
            time.sleep(0.05)

    def _homes(self) -> dict[str, str]:
        there = [it.found["metadata"] for it in self._arena.observer.present() if it.kind == "VirtualMachine"]
        return {it["name"]: it.get("annotations", {}).get(HOME, "") for it in there}

    @contextmanager
    def _annotating(self, pods: Sequence[str], machines: Sequence[str]) -> Iterator[None]:
        """Somebody annotates waiting pods and machines all the while, so that writes meet a version that moved on."""
        chance = random.Random(self._chance.random())
        with beside(partial(self._annotate, set(pods), machines, chance)):
            yield

    def _annotate(
        self, pods: Collection[str], machines: Sequence[str], chance: random.Random, over: threading.Event
    ) -> None:
        client = self._arena.plane.client
        while not over.wait(0.01):
            there = [it["metadata"]["name"] for it in self._arena.observer.pods() if not it["spec"].get("nodeName")]
            change = {"metadata": {"annotations": {"example.com/touched": str(chance.random())}}}
            with contextlib.suppress(ApiError):  # gone meanwhile
                if waiting := [name for name in there if name in pods]:
                    client.patch("Pod", chance.choice(waiting), change)
                client.patch("VirtualMachine", chance.choice(machines), change)


def killed(log: Path) -> int:
    """How often a process killed itself so far."""
    return noted(log).get("kill", Counter()).total()


def _judge_homes(report: Report, campaign: Campaign) -> None:
    homes = checker.judge_homes(campaign.waves.arena.observer.history())
    report.add("machines with a home", homes.homes)
    report.add("homes lost", len(homes.lost) + len(campaign.homeless), 0)
    report.add("homes invented", len(homes.invented), 0)
    report.add("machines that did not come home", len(homes.strayed), 0)
    report.details["homes"] = {"lost": homes.lost, "invented": homes.invented, "strayed": homes.strayed}
    report.details["homes late"] = campaign.homeless[:EVIDENCE]


def _add_points(report: Report, log: Path) -> None:
    told = noted(log)
    sides = [f"{point.name}:{side}" for point in points_of() for side in SIDES]
    every = [at for at in sides if not matches(at, ELSEWHERE)]
    made, reached = told.get("kill", Counter()), told.get("reached", Counter()).keys()
    report.add("kills", made.total())
    report.add("failpoints, before and after each await", len(every))
    report.add("of these reached", len(reached & set(every)))
    report.add("of these killed at", len(made.keys() & set(every)))
    report.details["kills"] = dict(made.most_common())
    report.details["never reached"] = [at for at in every if at not in reached]
