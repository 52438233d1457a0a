"""Several schedulers fill a small cluster to the brim: does any node get more than it holds?

Two stock kube-schedulers with all of their own filters, each blind to what the other has in hand, and an HTTP client
that filters nothing at all, bind through one Homeport whose profile has ``bindRecheck``. A wave asks for exactly what
is there, so the last places are fought for. The same two schedulers without Homeport, for comparison, show what their
own filters are worth then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tests.chaos import checker
from tests.chaos.arena import Arena
from tests.chaos.binder import PlainBinder
from tests.chaos.checker import Json
from tests.chaos.report import Report
from tests.chaos.room import REQUIRED, Broken, RoomJudgement, judge_room
from tests.chaos.waves import EVIDENCE, PATIENCE, PLAIN, QUICK_RETRIES, STOCK, Waves, consistency
from tests.controlplane import objects
from tests.integration.service import Homeport

NODES: Final = 20
CPU: Final = 8
BIND_RECHECK: Final = ("NodeResourcesFit", "NodePorts", "InterPodAffinity", "NodeUnschedulable", "TaintToleration")
"""What is recommended where several schedulers bind."""

STOCK_PATIENCE: Final = 15.0
"""Who has overbooked a node may be left without a place for good, and is not waited for as long."""

Make = Callable[[str, str], Json]
"""A pod by its name and the name of its scheduler."""


def large(name: str, scheduler: str) -> Json:
    """Two fill a node."""
    return objects.pod(name, scheduler_name=scheduler, requests={"cpu": str(CPU // 2)})


def server(port: int) -> Make:
    """Takes a port of its host."""

    def make(name: str, scheduler: str) -> Json:
        return _with_port(objects.pod(name, scheduler_name=scheduler), port)

    return make


def apart(name: str, scheduler: str) -> Json:
    """Keeps away from its like."""
    away = _away_from("apart")
    return objects.pod(name, scheduler_name=scheduler, labels={"app": "apart"}, affinity=away)


def hermit(name: str, scheduler: str) -> Json:
    """Keeps away from its like and from guests."""
    away = _away_from("guest", "hermit")
    return objects.pod(name, scheduler_name=scheduler, labels={"app": "hermit"}, affinity=away)


def guest(name: str, scheduler: str) -> Json:
    """Keeps away from nobody; hermits keep it away."""
    return objects.pod(name, scheduler_name=scheduler, labels={"app": "guest"})


def whole(name: str, scheduler: str) -> Json:
    """Wants a node for itself: all of its CPU, a port, and none of its like."""
    away = _away_from("whole")
    labels, requests = {"app": "whole"}, {"cpu": str(CPU)}
    pod = objects.pod(name, scheduler_name=scheduler, labels=labels, requests=requests, affinity=away)
    return _with_port(pod, 8080)


WAVES: Final[Sequence[Sequence[tuple[Make, int]]]] = (
    (
        (large, 2 * NODES),
        (server(8080), NODES),
        (server(8443), NODES),
        (apart, NODES),
        (hermit, NODES // 2),
        (guest, NODES // 2),
    ),
    ((whole, NODES),),
)
"""Kinds and numbers of pods, taken in turn. Each kind fills what it asks for, whatever is bound first of the others:
there is always a right node for the next pod, so that one which gets none is stuck."""


class Crowd(Waves):
    """Waves that ask for exactly what is there."""

    def fill(self, binds: int) -> None:
        """Wave after wave until so many pods were created."""
        number = 0
        while self.made < binds:
            self.play(self._shuffled(WAVES[number % len(WAVES)]), judge_rest=False)
            number += 1

    def _shuffled(self, wave: Sequence[tuple[Make, int]]) -> list[Json]:
        pods = [make(f"pod-{self.made}", self.next_name()) for make, count in wave for _ in range(count)]
        self.random.shuffle(pods)
        return pods


def overbook(binds: int, stock_binds: int, seed: int) -> Report:
    """``stock_binds``: how many the schedulers bind without Homeport, for comparison; none if 0."""
    report = Report(f"{len(STOCK)} kube-schedulers and an HTTP client fill {NODES} nodes")
    with racing(seed) as (arena, homeport, plain):
        crowd = Crowd(arena, (*STOCK, PLAIN), seed, PATIENCE)
        crowd.fill(binds)
        judge(report, crowd)
        consistency(report, homeport)
        report.details["outcomes"] = {"bind": homeport.outcomes("bind"), "plain binder": dict(plain.outcomes)}
    if stock_binds:
        with Arena(NODES, cpu=str(CPU)) as arena:
            for name in STOCK:
                arena.scheduler(name, None, **QUICK_RETRIES)
            crowd = Crowd(arena, STOCK, seed, STOCK_PATIENCE)
            crowd.fill(stock_binds)
            judge(report, crowd, wanted=None, whose="without Homeport: ")
    return report


@contextmanager
def racing(seed: int) -> Iterator[tuple[Arena, Homeport, PlainBinder]]:
    """A Homeport that is asked to bind and nothing else, by stock kube-schedulers and by the plain binder."""
    with Arena(NODES, cpu=str(CPU)) as arena:
        profile = {"schedulerName": "*", "bindRecheck": list(BIND_RECHECK)}
        homeport = arena.homeport(settings={"profiles": [profile]})
        for name in STOCK:
            arena.scheduler(name, None, extenders=[_binds_at(homeport)], **QUICK_RETRIES)
        with PlainBinder(arena.observer, PLAIN, [homeport.url], arena.nodes, seed) as plain:
            yield arena, homeport, plain


def judge(report: Report, crowd: Crowd, wanted: float | None = 0, whose: str = "") -> RoomJudgement:
    """What the checker says about all that happened, as figures."""
    history = crowd.arena.observer.history()
    found = judge_room(history)
    report.add(f"{whose}pods bound", found.binds)
    report.add(f"{whose}nodes overbooked", len(found.nodes), wanted)
    report.add(f"{whose}bindings that overbooked a node", len(found.overbooked), wanted)
    report.add(f"{whose}host ports used twice on a node", len(found.ports), wanted)
    report.add(f"{whose}anti-affinity violated", len(found.apart), wanted)
    report.add(f"{whose}pods bound twice", len(checker.bound_twice(history)), wanted)
    report.add(f"{whose}pods stuck", len(crowd.tally.stuck), wanted)
    report.add(f"{whose}pods bound per second", round(found.binds / max(crowd.tally.seconds, 1e-9), 1), unit="/s")
    report.details[f"{whose}broken"] = [_evidence(it) for it in found.every[:EVIDENCE]]
    report.details[f"{whose}stuck"] = crowd.tally.stuck[:EVIDENCE]
    return found


def _evidence(found: Broken) -> dict[str, Any]:
    return {"revision": found.revision, "pod": found.pod, "node": found.node, "what": found.what}


def _binds_at(homeport: Homeport) -> Json:
    return {"urlPrefix": homeport.url, "bindVerb": "bind", "httpTimeout": "5s"}


def _with_port(pod: Json, port: int) -> Json:
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return pod


def _away_from(*apps: str) -> Json:
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": list(apps)}]}
    term = {"topologyKey": objects.HOSTNAME_LABEL, "labelSelector": selector}
    return {"podAntiAffinity": {REQUIRED: [term]}}
