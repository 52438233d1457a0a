"""Pods of several apps come in waves, all at once, and more than one scheduler binds them."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tests.beside import beside
from tests.chaos import checker
from tests.chaos.arena import Arena, all_bound
from tests.chaos.binder import PlainBinder
from tests.chaos.checker import Event, Json, Violation
from tests.chaos.failpoints import Rule, noted
from tests.chaos.faulty import environment
from tests.chaos.report import Report, percentiles, progress
from tests.controlplane import objects
from tests.controlplane.controlplane import Scheduler
from tests.integration.service import HTTP, Homeport

NODES: Final = 60
APPS: Final = 5
STOCK: Final = ("s0", "s1")
PLAIN: Final = "s2"
"""Names that nobody has told Homeport: it serves every name where it has no profiles."""

PATIENCE: Final = 45.0
"""Seconds without a binding after which pods count as stuck; kube-scheduler tries again every 10 at the latest."""

QUICK_RETRIES: Final = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
"""Of kube-schedulers whose binds fail by design: with the default of 10 s a scenario would be mostly waiting."""

EVIDENCE: Final = 20
UNAVAILABLE: Final = "app.kube.api_errors:ApiUnavailable"
BROKEN: Final = "app.kube.connections:BrokenConnection"
WRITE: Final = "app.kube.transport:Transport._written:*"

FAILING_WRITES: Final = (
    Rule(WRITE, "error", "before", expression="answer", probability=0.02, error=BROKEN),
    Rule(WRITE, "error", "after", expression="answer", probability=0.02, error=BROKEN),
    Rule("app.writes.bind_guard:BindGuard.through:1", "error", "before", probability=0.01, error=UNAVAILABLE),
)
"""5 % of binds: 2 % broken off with the request on its way, 2 % done and the answer lost, 1 % never sent."""


@dataclass(frozen=True, slots=True)
class Wave:
    """``deletions``: how many pods are deleted, at random, while the wave comes in."""

    per_app: int
    deletions: int = 0


@dataclass(slots=True)
class Tally:
    """What waves added up to."""

    at_rest: list[Violation] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    seconds: float = 0.0


def pod_of(app: str, number: int, scheduler_name: str, keys: Sequence[str]) -> Json:
    """A pod with a hard constraint of maxSkew 1 over each of the topology keys."""
    labels = {"app": app}
    constraints = [objects.spread(labels, topology_key=key) for key in keys]
    return objects.pod(f"{app}-{number}", labels=labels, scheduler_name=scheduler_name, spread_constraints=constraints)


class Waves:
    """Waves on one arena, over these schedulers in turn. Names are never used twice."""

    def __init__(self, arena: Arena, names: Sequence[str], seed: int, patience: float = PATIENCE) -> None:
        self.arena = arena
        self.tally = Tally()
        self.random = random.Random(seed)
        self.made = 0
        self._names = names
        self._patience = patience

    def run(self, wave: Wave, keys_of: Callable[[int], Sequence[str]], *, clear: bool = True) -> None:
        """One wave: create, delete some meanwhile, wait for the rest, judge, and clear."""
        self.play(self.pods(wave, keys_of), deletions=wave.deletions, judge_rest=not wave.deletions, clear=clear)

    def play(self, pods: Sequence[Json], *, deletions: int = 0, judge_rest: bool = True, clear: bool = True) -> None:
        """One wave of these pods."""
        started = time.monotonic()
        names = {pod["metadata"]["name"] for pod in pods}
        with beside(partial(self._delete_some, deletions, names)):
            self.arena.create(pods)
        self.wait_and_judge(judge_rest=judge_rest)
        self.tally.seconds += time.monotonic() - started
        progress(f"{self.made} pods, {self.tally.seconds:.0f} s")
        if clear:
            self.arena.clear()

    def wait_and_judge(self, *, judge_rest: bool) -> None:
        """Wait until every pod has a node or none gets one any more; then nothing is in flight."""
        if not self.arena.observer.settle(all_bound, self._patience):
            self.tally.stuck += checker.waiting_pods(self.arena.observer.present())
        if judge_rest:
            self.tally.at_rest += checker.judge_rest(self.arena.observer.present())

    def pods(self, wave: Wave, keys_of: Callable[[int], Sequence[str]]) -> list[Json]:
        apps = [app for _ in range(wave.per_app) for app in range(APPS)]
        pods = [pod_of(f"app-{app}", self.made, self.next_name(), keys_of(app)) for app in apps]
        self.random.shuffle(pods)
        return pods

    def next_name(self) -> str:
        """Return the scheduler of the next pod, and count that pod."""
        self.made += 1
        return self._names[self.made % len(self._names)]

    def _delete_some(self, count: int, names: set[str], over: threading.Event) -> None:
        """Delete as many of these pods while others are created and bound."""
        chance = random.Random(self.random.random())
        while count > 0:
            there = [it["metadata"]["name"] for it in self.arena.observer.pods()]
            if chosen := [name for name in there if name in names]:
                name = chance.choice(chosen)
                names.discard(name)
                self.arena.delete([name])
                count -= 1
            elif over.is_set():
                return
            over.wait(0.005)


def both(_app: int) -> Sequence[str]:
    """Zone and host for every app. With zones of one size there is always a node for the next pod."""
    return (objects.ZONE_LABEL, objects.HOSTNAME_LABEL)


def one(app: int) -> Sequence[str]:
    """Zone or host: with both, deletions may leave the emptiest host in the fullest zone, and no node for any pod."""
    return (objects.ZONE_LABEL,) if app % 2 else (objects.HOSTNAME_LABEL,)


def race(binds: int, per_app: int, seed: int) -> Report:
    """Two kube-schedulers and a plain HTTP client bind through one Homeport."""
    report = Report(f"{len(STOCK)} kube-schedulers and an HTTP client through Homeport")
    with racing(seed) as (arena, homeport, plain):
        waves = Waves(arena, (*STOCK, PLAIN), seed)
        for _ in range(-(-binds // (per_app * APPS))):
            waves.run(Wave(per_app), both)
        judge(report, waves)
        consistency(report, homeport)
        report.details["outcomes"] = {"bind": homeport.outcomes("bind"), "plain binder": dict(plain.outcomes)}
    return report


def failing(binds: int, per_app: int, seed: int) -> Report:
    """The same while 5 % of binds fail and pods are deleted at random."""
    report = Report("the same with 5 % of binds failing and random deletions")
    with tempfile.TemporaryDirectory(prefix="homeport-chaos-") as folder:
        log = Path(folder) / "failpoints.log"
        faults = environment(FAILING_WRITES, seed=seed, log=log)
        with racing(seed, "tests.chaos.faulty", faults) as (arena, homeport, plain):
            waves = Waves(arena, (*STOCK, PLAIN), seed)
            for _ in range(-(-binds // (per_app * APPS))):
                waves.run(Wave(per_app, deletions=per_app * APPS // 6), one)
            judge(report, waves)
            consistency(report, homeport)
            report.add("faults injected", noted(log).get("error", Counter()).total())
            report.details["outcomes"] = {"bind": homeport.outcomes("bind"), "plain binder": dict(plain.outcomes)}
            report.details["faults"] = dict(noted(log).get("error", Counter()))
    return report


OPTIONS: Final[Mapping[str, Json]] = {
    "untoleratedDomains": {"untoleratedDomains": "Ignore"},
    "onViolation": {"onViolation": "AllowNotWorse"},
    "defaults": {"defaults": {"nodeTaintsPolicy": "Honor", "matchLabelKeys": ["rev"]}},
    "fallback": {"fallback": {"after": "10m"}},
}
"""The options of a profile that change the rule of a hard constraint."""

TAINT: Final[Json] = {"key": "beyond", "value": "x", "effect": "NoSchedule"}


def beyond(binds: int, per_app: int, seed: int, *, together: bool) -> Report:
    """The race while pods are deleted at random: with each option, or with all ``together``.

    The checker knows the rule as it then reads. A zone is closed where the option lets it leave the comparison. No pod
    waits long enough for ``fallback``.
    """
    report = Report("the race with options of spread beyond kube-scheduler's rules")
    every = {field: value for option in OPTIONS.values() for field, value in option.items()}
    for name, option in {"all options": every}.items() if together else OPTIONS.items():
        closed: Json = {"taints": [TAINT]} if "defaults" in option else {}
        if "untoleratedDomains" in option:
            closed["unschedulable"] = True
        args = [{"name": "PodTopologySpread", "args": {"beyond": option}}]
        settings = {"profiles": [{"schedulerName": "*", "pluginConfig": args}], "explain": "complete"}
        with racing(seed, settings=settings, spec={"zone-c": closed}) as (arena, homeport, _):
            waves = Waves(arena, (*STOCK, PLAIN), seed)
            for _ in range(-(-binds // (per_app * APPS))):
                pods = waves.pods(Wave(per_app), one)
                for number, pod in enumerate(pods):
                    pod["metadata"]["labels"]["rev"] = str(number % 2)
                waves.play(pods, deletions=per_app, judge_rest=False)
            order = checker.judge_order(waves.arena.observer.history(), option)
            report.add(f"{name}: pods bound", order.binds)
            report.add(f"{name}: bindings that violated a hard constraint", len(order.violations), 0)
            report.add(f"{name}: violations excused by a deletion", len(order.excused))
            report.details[name] = [evidence(it) for it in order.violations[:EVIDENCE]]
            report.details[f"{name}: waiting"] = waves.tally.stuck[:EVIDENCE]
            consistency(report, homeport)
    return report


@contextmanager
def racing(
    seed: int,
    module: str = "homeport",
    environment: Mapping[str, str] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    spec: Mapping[str, Json] = {},
) -> Iterator[tuple[Arena, Homeport, PlainBinder]]:
    """An arena with a Homeport, two kube-schedulers and the plain binder at work."""
    with Arena(NODES, spec=spec) as arena:
        homeport = arena.homeport(module=module, environment=environment, settings=settings)
        for name in STOCK:
            arena.scheduler(name, homeport, **QUICK_RETRIES)
        with PlainBinder(arena.observer, PLAIN, [homeport.url], arena.nodes, seed) as plain:
            yield arena, homeport, plain


def in_tree(binds: int, per_app: int, seed: int) -> Report:
    """For comparison: two kube-schedulers with the in-tree plugin.

    Pods stay, so that excess adds up, until some are stuck.
    """
    report = Report(f"{len(STOCK)} kube-schedulers with the in-tree plugin, for comparison")
    with Arena(NODES) as arena:
        for name in STOCK:
            arena.scheduler(name, None, **QUICK_RETRIES)
        waves = Waves(arena, STOCK, seed, patience=PATIENCE / 2)
        for _ in range(-(-binds // (per_app * APPS))):
            waves.run(Wave(per_app), both, clear=False)
            if waves.tally.stuck:
                break
        judge(report, waves, wanted=None)
    return report


def judge(report: Report, waves: Waves, wanted: float | None = 0) -> None:
    """What the checker says about all that happened, as figures."""
    history = waves.arena.observer.history()
    order = checker.judge_order(history)
    report.add("pods bound", order.binds)
    report.add("violations with no bind in flight", len(waves.tally.at_rest), wanted)
    report.add("bindings that violated a hard constraint", len(order.violations), wanted)
    report.add("violations excused by a deletion", len(order.excused))
    report.add("pods bound twice", len(checker.bound_twice(history)), wanted)
    report.add("pods stuck", len(waves.tally.stuck), wanted)
    report.add("pods bound per second", round(order.binds / max(waves.tally.seconds, 1e-9), 1), unit="/s")
    report.details["violations"] = [evidence(it) for it in (waves.tally.at_rest + order.violations)[:EVIDENCE]]
    report.details["stuck"] = waves.tally.stuck[:EVIDENCE]


def consistency(report: Report, homeport: Homeport) -> None:
    """Homeport's own recount of its picture."""
    differences = homeport.get("/api/v1/check")["differences"]
    report.add("differences between snapshot and recount", len(differences), 0)
    report.details["differences"] = differences[:EVIDENCE]


def evidence(found: Violation) -> dict[str, Any]:
    """A violation for the report; of its counts those above the minimum."""
    return {
        "revision": found.revision,
        "pod": found.pod,
        "node": found.node,
        "constraint": found.constraint,
        "counts": {domain: number for domain, number in found.counts.items() if number != min(found.counts.values())},
    }


def conflicts(binds: int, per_app: int, seed: int) -> Report:
    """One kube-scheduler drains a backlog at full speed: how many binds come back as a conflict?"""
    report = Report("one kube-scheduler at full speed")
    with Arena(NODES) as arena:
        homeport = arena.homeport(STOCK[:1])
        scheduler = arena.scheduler(STOCK[0], homeport)
        waves = Waves(arena, STOCK[:1], seed)
        draining = 0.0
        for _ in range(-(-binds // (per_app * APPS))):
            with _held(scheduler):
                arena.create(waves.pods(Wave(per_app), both))
            started = time.monotonic()
            waves.wait_and_judge(judge_rest=True)
            draining += time.monotonic() - started
            arena.clear()
        waves.tally.seconds = draining
        judge(report, waves)
        consistency(report, homeport)
        outcomes = homeport.outcomes("bind")
        refused = outcomes.get("bind_conflict", 0)
        share = 100.0 * refused / max(sum(outcomes.values()), 1)
        report.add("binds that ended in a conflict", refused)
        report.add("share of all binds", round(share, 3), 0.1, unit=" %")
        report.details["outcomes"] = outcomes
        report.details["due bind waits"] = histogram(homeport, "homeport_expected_bind_wait_seconds")
        gaps = [after - before for before, after in pairwise(bound_at(arena.observer.history()))]
        report.details["seconds between bindings"] = percentiles(gaps)
    return report


@contextmanager
def _held(scheduler: Scheduler) -> Iterator[None]:
    """The scheduler stands still, so that a backlog builds up."""
    os.kill(scheduler.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(scheduler.process.pid, signal.SIGCONT)


def bound_at(history: Sequence[Event]) -> list[float]:
    """When each binding was seen, in monotonic seconds."""
    seen: dict[str, float] = {}
    for event in history:
        if event.kind == "Pod" and event.change == "MODIFIED" and event.found["spec"].get("nodeName"):
            seen.setdefault(event.uid, event.received)
    return list(seen.values())


def histogram(homeport: Homeport, name: str) -> dict[str, float]:
    """The cumulated buckets, count and sum of one of Homeport's histograms."""
    text = HTTP.get(f"{homeport.url}/metrics").text
    lines = (line for line in text.splitlines() if line.startswith(name))
    return {line.removeprefix(name).rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
