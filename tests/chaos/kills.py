"""Homeport is killed at its failpoints again and again, while pods are bound and homes are made, moved and given up."""

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
from tests.chaos import homes, waves
from tests.chaos.arena import Arena
from tests.chaos.binder import PlainBinder
from tests.chaos.checker import Json
from tests.chaos.failpoints import HOMES, READS, Passed, Rule, matches, noted, passed_file, points_of, sides_of
from tests.chaos.faulty import environment, over_file
from tests.chaos.lives import Lives
from tests.chaos.report import Report, progress
from tests.chaos.waves import EVIDENCE, FAILING_WRITES, PLAIN, STOCK, UNAVAILABLE, WRITE, Wave, Waves
from tests.controlplane import objects
from tests.controlplane.client import ApiError

NODES: Final = 12
PER_APP: Final = 8
PATIENCE: Final = 1.5
"""Seconds a process works, and waits to come to the point at which it is to be killed, before it is killed anywhere."""

TOLD_SECONDS: Final = (1.0, 30.0)
"""How long to wait for an Event while there are kills, and when there are none any more."""

KINDS: Final = ("Node", "Pod", "VirtualMachine", "VirtualMachineInstance", "StatefulSet", "Home")
FOREIGN: Final = "no-profile"
"""Pods that Homeport has no profile for: it binds them all the same."""

OWNERS: Final = (
    {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "through": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}],
    },
    {"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True},
)
SETTINGS: Final = {
    "repairInterval": "1s",
    "profiles": [
        {"schedulerName": name, "pluginConfig": [{"name": "StickyNode", "args": {"owners": list(OWNERS)}}]}
        for name in (STOCK[0], PLAIN)
    ],
}
DELAYS: Final = (
    Rule("app.kube.client:KubeClient.get:1", "error", "before", probability=0.05, error=UNAVAILABLE),
    Rule(WRITE, "delay", "before", expression="answer", probability=0.1, seconds=0.03),
    Rule("app.runtime.binding:BindingCycle.pre_bind:1", "delay", "before", probability=0.1, seconds=0.03),
    Rule("app.kube.connections:Connections.acquire:2", "delay", "before", probability=0.1, seconds=0.03),
    Rule("app.kube.client:KubeClient.patch:1", "delay", "before", probability=0.3, seconds=0.03),
    Rule("app.writes.api_writes:ApiWriter._send:1", "error", "before", probability=0.05, error=UNAVAILABLE),
    Rule("app.writes.events:ApiRecorder._write:1", "error", "before", probability=0.1, error=UNAVAILABLE),
    Rule("plugins.sticky_node.recorder:Recorder.record:1", "error", "before", probability=0.3),
)
"""Reads that fail, answers and connections that take a while, decisions and patches that somebody overtakes, homes,
marks and Events that cannot be written at once.
"""

PERIODS: Final = {"plugins.sticky_node.waiting_pods:SEARCH_SECONDS": 1.0, "app.writes.events:LOOK_SECONDS": 1.0}

FIRST: Final = (
    "plugins.sticky_node.plugin:StickyNode.post_bind:1:before",
    "plugins.sticky_node.recorder:Recorder.record:1:before",
    "plugins.sticky_node.recorder:Recorder.write_claim:1:before",
    "app.writes.api_writes:ApiWriter.annotate:1:before",
)
"""Where a kill leaves a home on a pod that has not reached its owner: whatever is short is to have that, too."""

ELSEWHERE: Final = (
    *READS,
    "app.kube.transport:Transport._written:1:*",  # through a proxy
    "app.kube.transport:Transport._written_by_httpx:*",
    "app.kube.transport:Transport._written:5:*",  # an answer that never comes: see the outages
    "app.kube.transport:Transport._write:[34]:*",  # credentials that are refused
    "app.writes.read_back:BindConfirmation.run:[12]:*",  # a watch that does not show a bind for seconds
    "app.writes.read_back:BindConfirmation._look_at:*",
    "app.runtime.binding:BindingCycle.permit:*",  # a Permit plugin that makes pods wait
    "app.verbs.bind:BindVerb.drain:*",  # an orderly end
    "app.writes.events:ApiRecorder.stop:*",
    "app.framework.background:run_together.one:1:after",  # nor does what goes on in the background return
    "app.framework.background:run_together:1:after",
    "app.framework.background:run_together:2:*",
    "app.controllers.plugin_runs:PluginRun.run:2:after",
    "app.controllers.plugin_runs:PluginRun.run:[34]:*",
    "plugins.sticky_node.plugin:StickyNode.run:1:after",
    "plugins.sticky_node.plugin:StickyNode._watch:2:after",
    "app.writes.events:ApiRecorder._attempt:2:*",  # an Event that has had its hour
    "plugins.sticky_node.plugin:StickyNode._refused:*",  # a home that is full: it is asked why, and nothing is written
    "plugins.sticky_node.waiting_pods:HomeRefusalReporter._query:*",
    "plugins.sticky_node.waiting_pods:HomeRefusalReporter.run:[23]:*",
    "plugins.sticky_node.unusable_homes:UnusableHomes.look:3:*",  # claims that no rule selects
)
"""Points that nothing here leads to, or too seldom to be counted on."""


ENOUGH: Final = 200
"""Kills from which on each point of the upkeep has to be reached; in few waves some are passed once, or by luck."""


MOST_SECONDS: Final = 3_600.0
"""Maximum duration of the kills, on a machine that is slow."""


def kills(count: int, seed: int) -> Report:
    """SIGKILL at failpoints until there were ``count``.

    Then everything must come to rest, with nothing lost.
    """
    report = Report("killed at failpoints")
    with Arena(NODES, KINDS) as arena:
        log = arena.folder / "failpoints.log"
        over = over_file(log)
        over.touch()
        faults = environment(
            (*FAILING_WRITES, *DELAYS),
            seed=seed,
            log=log,
            kills=count,
            aims=_aims(seed),
            patience=PATIENCE,
            periods=PERIODS,
        )
        homeport = arena.homeport((), SETTINGS, module="tests.chaos.faulty", environment=faults)
        arena.scheduler(STOCK[0], homeport, **waves.QUICK_RETRIES)
        with (
            PlainBinder(arena.observer, PLAIN, [homeport.url], arena.nodes, seed, impatience=0.05) as plain,
            PlainBinder(arena.observer, FOREIGN, [homeport.url], arena.nodes, seed, workers=1),
        ):
            campaign = Campaign(arena, (STOCK[0], PLAIN, PLAIN), seed)
            over.unlink()
            until = time.monotonic() + MOST_SECONDS
            while killed(log) < count and time.monotonic() < until:
                campaign.wave()
                progress(f"{killed(log)} kills, {campaign.waves.tally.seconds:.0f} s")
            over.touch()
            campaign.wave(is_last=True)
            waves.judge(report, campaign.waves)
            waves.consistency(report, homeport)
            report.details["outcomes"] = dict(plain.outcomes)
        _judge_homes(report, campaign)
        _add_points(report, log, most_unreached=0 if count >= ENOUGH else None)
    return report


def aimed_at() -> list[str]:
    """Every point before and after, but for those that nothing here leads to."""
    return [at for at in sides_of(points_of()) if not matches(at, ELSEWHERE)]


def _aims(seed: int) -> list[str]:
    """In the order in which processes are to be killed there."""
    rest = [at for at in aimed_at() if not matches(at, (*READS, *FIRST))]
    random.Random(seed).shuffle(rest)
    return [*FIRST, *rest]


class Campaign:
    """Waves of pods beside the lives of those that have homes."""

    def __init__(self, arena: Arena, names: Sequence[str], seed: int) -> None:
        self.waves = Waves(arena, names, seed)
        self.lives = Lives(arena, names, seed)
        self._arena = arena
        self._chance = random.Random(seed)
        self._number = 0

    def wave(self, *, is_last: bool = False) -> None:
        """Pods together with those that have homes, and annotations that change meanwhile; then all are shut down.

        In the last one nobody is killed any more, so that what takes some time is seen to its end.
        """
        started = time.monotonic()
        self._number += 1
        self.lives.prepare()
        foreign = [objects.pod(f"foreign-{self._number}-{it}", scheduler_name=FOREIGN) for it in range(2)]
        pods = [*foreign, *map(_undaunted, self.waves.pods(Wave(PER_APP), waves.both)), *self.lives.pods()]
        self._chance.shuffle(pods)
        with self._annotating([pod["metadata"]["name"] for pod in pods]):
            self._arena.create(pods)
            self.lives.uncordon()
            self.waves.wait_and_judge(judge_rest=True)
            self.lives.started()
            self.lives.meanwhile(patience=TOLD_SECONDS[is_last])
        self._arena.clear()
        self.lives.shut_down()
        self.waves.tally.seconds += time.monotonic() - started

    @contextmanager
    def _annotating(self, pods: Sequence[str]) -> Iterator[None]:
        """Somebody annotates waiting pods and machines all the while, so that writes meet a version that moved on."""
        chance = random.Random(self._chance.random())
        with beside(partial(self._annotate, set(pods), chance)):
            yield

    def _annotate(self, pods: Collection[str], chance: random.Random, over: threading.Event) -> None:
        client = self._arena.plane.client
        while not over.wait(0.01):
            there = [it["metadata"]["name"] for it in self._arena.observer.pods() if not it["spec"].get("nodeName")]
            change = {"metadata": {"annotations": {"example.com/touched": str(chance.random())}}}
            with contextlib.suppress(ApiError):  # gone meanwhile
                if waiting := [name for name in there if name in pods]:
                    client.patch("Pod", chance.choice(waiting), change)
                client.patch("VirtualMachine", chance.choice(self.lives.names), change)


def _undaunted(pod: Json) -> Json:
    """A cordon keeps it from no node: its constraint counts those that are cordoned, too."""
    pod["spec"]["tolerations"] = [objects.toleration("node.kubernetes.io/unschedulable")]
    return pod


def killed(log: Path) -> int:
    """How often a process killed itself so far."""
    return noted(log).get("kill", Counter()).total()


def _judge_homes(report: Report, campaign: Campaign) -> None:
    lives = campaign.lives
    found = homes.judge(campaign.waves.arena.observer.history(), lives.people)
    lost = [*found.lost, *(it for rest in lives.unrest for it in rest.lost)]
    invented = [*found.invented, *(it for rest in lives.unrest for it in rest.invented)]
    marks = [*found.marks, *(it for rest in lives.unrest for it in rest.marks)]
    report.add("homes of VirtualMachines and StatefulSet pods", sum(map(bool, lives.truth.values())))
    for reason, times in sorted(found.by.items()):
        report.add(f"homes written, reason: {reason or 'none'}", times)
    report.add("homes lost", len(lost), 0)
    report.add("homes written without a reason", len(invented), 0)
    report.add("wrong annotations beside a home", len(marks), 0)
    report.add("wrong home-since annotations", len(found.clocks), 0)
    report.add("pods that are not on their home", len(lives.strayed), 0)
    wrong = {"lost": lost, "invented": invented, "marks": marks, "clocks": found.clocks, "strayed": lives.strayed}
    report.details["homes"] = {what: it[:EVIDENCE] for what, it in wrong.items()}
    report.details["stories"] = lives.stories


def _add_points(report: Report, log: Path, most_unreached: int | None) -> None:
    told, every = noted(log), aimed_at()
    passed = Passed(passed_file(log), sides_of(points_of())).counts()
    of_homes = [at for at in every if matches(at, (f"{it}:*" for it in HOMES))]
    made = told.get("kill", Counter())
    report.add("kills", made.total())
    report.add("failpoints, before and after each await", len(every))
    report.add("of these reached", sum(passed[at] > 0 for at in every))
    report.add("of these killed at", len(made.keys() & set(every)))
    report.add("failpoints of the reconciliation of homes", len(of_homes))
    report.add("of these never reached", sum(not passed[at] for at in of_homes), most_unreached)
    report.add("of these killed at", len(made.keys() & set(of_homes)))
    report.add("fewest passes of one of these", min(map(passed.__getitem__, of_homes)))
    report.details["kills"] = dict(made.most_common())
    report.details["passed"] = passed
    report.details["never reached"] = [at for at in every if not passed[at]]
