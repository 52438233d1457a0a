"""The API server is out of Homeport's reach for a while, once refusing and once silent, under a steady load.

What is wanted: nothing is decided on a picture older than the limit (``maxFeedAge``), and Homeport is ready again soon.
Schedulers and observer reach the API server all the while. So do others, who place pods of one app meanwhile: until the
watch shows those, Homeport may decide without them, as the in-tree plugin may; how often it did is told apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import httpx

from tests.beside import beside
from tests.chaos import checker, waves
from tests.chaos.arena import Arena, all_bound
from tests.chaos.binder import PlainBinder
from tests.chaos.leaders import Probe, probe
from tests.chaos.proxy import REFUSED, SILENT, FaultProxy, Rule, kubeconfig_through
from tests.chaos.report import Report, percentiles
from tests.chaos.waves import EVIDENCE, PLAIN, STOCK, pod_of
from tests.controlplane import objects
from tests.integration.service import HTTP, Homeport

NODES: Final = 12
SHARED: Final = "shared"
"""The app whose pods others place as well."""

READY_SECONDS: Final = 5.0
TIMED_FROM_SECONDS: Final = 60.0
"""Shorter outages are for tests, and no test is gated on a clock."""

PATIENCE: Final = 60.0
_PROBE_PAUSE: Final = 0.1
_LOAD_PAUSE: Final = 0.2
_CALL_SECONDS: Final = 6.0


KINDS: Final[dict[str, Rule]] = {"refused": REFUSED, "silent": SILENT}


@dataclass(slots=True)
class Outage:
    """What was seen of one. Times are monotonic seconds."""

    began: float = 0.0
    ended: float = 0.0
    ready: float = 0.0
    probes: list[Probe] = field(default_factory=list)

    def wrong(self, limit: float) -> int:
        """Verdicts on a picture that was older than the limit already when they were asked for."""
        return sum(it.decided and self.began + limit < it.sent < self.ended for it in self.probes)

    def asked_beyond(self, limit: float) -> int:
        return sum(self.began + limit < it.sent < self.ended for it in self.probes)


def outages(seconds: float, limit: float, seed: int) -> Report:
    """An outage of each kind, each of ``seconds``. ``limit`` is Homeport's ``maxFeedAge``."""
    report = Report(f"API server out of reach for {seconds:g} s: {', then '.join(KINDS)}")
    with Arena(NODES) as arena, FaultProxy(arena.plane.server) as proxy:
        through = kubeconfig_through(proxy, arena.plane.kubeconfig, arena.folder / "through-proxy")
        homeport = arena.homeport((STOCK[0], PLAIN), {"maxFeedAge": f"{limit:g}s"}, kubeconfig=through)
        arena.scheduler(STOCK[0], homeport)
        with PlainBinder(arena.observer, PLAIN, [homeport.url], arena.nodes, seed):
            with _steady_load(arena):
                arena.observer.settle(lambda pods: sum("nodeName" in pod["spec"] for pod in pods) > NODES, PATIENCE)
                seen = {name: _outage(arena, homeport, proxy, rule, seconds) for name, rule in KINDS.items()}
            settled = arena.observer.settle(all_bound, PATIENCE)
        stuck = [] if settled else checker.waiting_pods(arena.observer.present())
        for name, outage in seen.items():
            _add(report, name, outage, limit, READY_SECONDS if seconds >= TIMED_FROM_SECONDS else None)
            again = [it - outage.ended for it in waves.bound_at(arena.observer.history()) if it > outage.ended]
            report.add(
                f"{name}: time from its end until a pod is bound", round(min(again, default=PATIENCE), 2), unit=" s"
            )
        _judge(report, arena, stuck)
        waves.consistency(report, homeport)
    return report


def _outage(arena: Arena, homeport: Homeport, proxy: FaultProxy, rule: Rule, seconds: float) -> Outage:
    outage = Outage()
    with beside(partial(probe, homeport.url, arena.nodes, outage.probes.append, _PROBE_PAUSE, _CALL_SECONDS)):
        proxy.set(rule)
        outage.began = time.monotonic()
        _place_by_others(arena, f"{SHARED}-{int(outage.began * 1000)}")
        time.sleep(max(0.0, outage.began + seconds - time.monotonic()))
        outage.ended = time.monotonic()
        proxy.set(Rule())
        while not _is_ready(homeport) and time.monotonic() < outage.ended + PATIENCE:
            time.sleep(0.02)
        outage.ready = time.monotonic()
    return outage


def _place_by_others(arena: Arena, name: str) -> None:
    """Two pods to each node of one zone: whoever does not see them puts a third one there."""
    for number, node in enumerate(it for it in arena.nodes if it.startswith("zone-a")):
        for twice in range(2):
            pod = objects.pod(f"{name}-{number}-{twice}", labels={"app": SHARED}, node_name=node)
            arena.plane.client.create(pod)


def _is_ready(homeport: Homeport) -> bool:
    try:
        return HTTP.get(f"{homeport.url}/readyz", timeout=_CALL_SECONDS).is_success
    except httpx.HTTPError:
        return False


@contextmanager
def _steady_load(arena: Arena) -> Iterator[None]:
    """A pod of each app, the shared one among them, several times a second."""

    def load(over: threading.Event) -> None:
        number = 0
        while not over.wait(_LOAD_PAUSE):
            for app in ("app-0", "app-1", SHARED):
                pod = pod_of(app, number, (STOCK[0], PLAIN)[number % 2], (objects.ZONE_LABEL,))
                arena.plane.client.create(pod)
            number += 1

    with beside(load):
        yield


def _add(report: Report, name: str, outage: Outage, limit: float, ready_within: float | None) -> None:
    report.add(f"{name}: filter calls after maxFeedAge", outage.asked_beyond(limit))
    report.add(f"{name}: of these with a decision", outage.wrong(limit), 0)
    report.add(f"{name}: time from its end until ready", round(outage.ready - outage.ended, 2), ready_within, unit=" s")
    decided = [round(it.sent - outage.began, 2) for it in outage.probes if it.decided and it.sent < outage.ended]
    report.details[f"{name}: seconds into the outage at which was decided"] = percentiles(decided)


def _judge(report: Report, arena: Arena, stuck: Sequence[str]) -> None:
    history = arena.observer.history()
    order = checker.judge_order(history)
    mine = [it for it in order.violations if f"/{SHARED}-" not in it.pod]
    report.add("pods bound", order.binds)
    report.add("bindings that violated a hard constraint", len(mine), 0)
    report.add("such bindings of the app that other clients also place", len(order.violations) - len(mine))
    report.add("pods bound twice", len(checker.bound_twice(history)), 0)
    report.add("pods stuck", len(stuck), 0)
    report.details["violations"] = [waves.evidence(it) for it in order.violations[:EVIDENCE]]
    report.details["stuck"] = list(stuck[:EVIDENCE])
