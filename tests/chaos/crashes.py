"""The leader is killed and restarted in its pod, with Bindings on their way that arrive during its successor's start.

Each process has a user and a proxy of its own. Before a crash the proxy holds what is sent to the API server. It lets
it go at a random moment, before, between and after the successor's fences, or when the successor has bound some pods
and others still wait: there a Binding that no fence stops breaks a constraint.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos import checker, waves
from tests.chaos.arena import Arena
from tests.chaos.binder import PlainBinder
from tests.chaos.checker import Event, Json
from tests.chaos.leaders import (
    CREATED,
    LEASE,
    LOAD_SECONDS,
    NODES,
    audited,
    bound_by,
    loading,
    probing,
    wait_for_verdict,
)
from tests.chaos.proxy import ENDLESS, HEALTHY, HELD_UP, FaultProxy, kubeconfig_through
from tests.chaos.report import Report, percentiles, progress
from tests.chaos.waves import EVIDENCE, PLAIN, STOCK, Waves
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport

RESTARTED: Final = "tests.chaos.faulty"
"""Homeport in a child, which is forked again when it was killed: no start of Python comes between two processes."""

LEASE_SECONDS: Final = 60
LONG_LEASE: Final = {**LEASE, "leaseDuration": f"{LEASE_SECONDS}s", "renewDeadline": "40s", "retryPeriod": "2s"}
"""A Lease that nobody sees expire here: a process that leads again took it back."""

HELD_SECONDS: Final = 0.4
"""Maximum time for which requests are held before the crash."""

LATE_SECONDS: Final = 5.0
"""Maximum time from the crash until what was held is let go: sometimes longer than a start and its fences take."""

MOST_BOUND: Final = 8
"""Maximum number of pods that the successor has bound when what was held is let go."""

_POLL_SECONDS: Final = 0.005


@dataclass
class Pod:
    """Homeport in one pod: processes that follow each other, each with its user, and by turns with one of two proxies.

    ``ended``: when each user's process was killed, in monotonic seconds.
    """

    plane: ControlPlane
    proxies: Sequence[FaultProxy]
    folder: Path
    lives: int = 0
    ended: dict[str, float] = field(default_factory=dict)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def settings(self) -> Json:
        return {"leaderElection": {**LONG_LEASE, "lockFile": str(self.folder / "lock")}}

    @property
    def proxy(self) -> FaultProxy:
        """The proxy of the process that runs now."""
        return self.proxies[self.lives % 2]

    def prepare(self) -> None:
        """Let the next process be the user of its number, behind its proxy."""
        self.proxy.set(HEALTHY)
        kubeconfig_through(self.proxy, self.plane.kubeconfig_of(user_of(self.lives)), self.kubeconfig)

    def crash(self, homeport: Homeport, hold: float) -> FaultProxy:
        """Kill the process, which starts the next one; returns the proxy that holds what it sent last."""
        proxy, ended = self.proxy, user_of(self.lives)
        proxy.set(HELD_UP)
        time.sleep(hold)
        self.lives += 1
        self.prepare()
        os.kill(_child_of(homeport.pid), signal.SIGKILL)
        self.ended[ended] = time.monotonic()
        return proxy


def _child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def user_of(life: int) -> str:
    """The user of a process, by its number."""
    return f"life-{life}"


def crashes(count: int, seed: int) -> Report:
    """Crash the leader ``count`` times under load. Its Lease outlasts every start."""
    report = Report(f"leader crashes and restarts in its pod, lease {LEASE_SECONDS} s")
    users = [user_of(life) for life in range(count + 1)]
    with tempfile.TemporaryDirectory(prefix="homeport-chaos-") as folder:
        plane, audit_log = audited(Path(folder), users)
        with Arena(NODES, ("Node", "Pod", "Lease"), plane) as arena, _pod(plane, Path(folder)) as pod:
            homeport = arena.homeport((), pod.settings, kubeconfig=pod.kubeconfig, module=RESTARTED)
            arena.scheduler(STOCK[0], homeport, **waves.QUICK_RETRIES)
            with PlainBinder(arena.observer, PLAIN, [homeport.url], arena.nodes, seed):
                tally = _crash(arena, pod, homeport, count, seed, report)
            _judge(report, arena, pod, homeport, tally, audit_log)
    return report


@contextmanager
def _pod(plane: ControlPlane, folder: Path) -> Iterator[Pod]:
    with ExitStack() as stack:
        proxies = [stack.enter_context(FaultProxy(plane.server)) for _ in range(2)]
        pod = Pod(plane, proxies, folder)
        pod.prepare()
        yield pod


def _crash(arena: Arena, pod: Pod, homeport: Homeport, count: int, seed: int, report: Report) -> Waves:
    chance = random.Random(seed)
    gaps = []
    bound: list[float] = []

    def note(event: Event) -> None:
        if event.kind == "Pod" and event.change == "MODIFIED" and event.found["spec"].get("nodeName"):
            bound.append(event.received)

    arena.observer.on_event(note)
    with loading(arena, seed) as tally, probing(arena, [homeport.url]) as decided:
        wait_for_verdict(decided, time.monotonic())
        for number in range(count):
            if number % 2:  # every other process gets to bind, however busy the machine is
                wait_for_verdict(bound, time.monotonic(), "binding")
            time.sleep(LOAD_SECONDS * chance.random())
            proxy = pod.crash(homeport, HELD_SECONDS * chance.random())
            crashed = pod.ended[user_of(number)]
            if number % 4 < 2:
                seconds, bindings = LATE_SECONDS * chance.random() * chance.random(), sys.maxsize
            else:
                seconds, bindings = LATE_SECONDS, chance.randint(1, MOST_BOUND)
            release = threading.Thread(target=_let_go, args=(proxy, bound, crashed, seconds, bindings))
            release.start()
            gaps.append(wait_for_verdict(decided, crashed) - crashed)
            release.join()
            progress(f"{number + 1} crashes")
    told = percentiles(gaps)
    report.add("crashes", len(gaps))
    report.add("median time until the next verdict", round(told["p50"], 2), unit=" s")
    report.add("longest time until the next verdict", round(told["max"], 2), LEASE_SECONDS / 2, unit=" s")
    return tally


def _let_go(proxy: FaultProxy, bound: Sequence[float], crashed: float, seconds: float, bindings: int) -> None:
    """Release what a proxy holds after so many seconds or bindings since the crash, whichever comes first."""
    until = crashed + seconds
    while time.monotonic() < until and not (len(bound) >= bindings and bound[-bindings] > crashed):
        time.sleep(_POLL_SECONDS)
    proxy.set(ENDLESS)


def _judge(report: Report, arena: Arena, pod: Pod, homeport: Homeport, tally: Waves, audit_log: Path) -> None:
    waves.judge(report, tally)
    late = checker.bound_after_fence(arena.observer.history(), bound_by(audit_log), pod.ended)
    report.add("bindings after the fence", len(late), 0)
    arrived, landed = _arrived_late(audit_log, pod.ended)
    report.add("bindings that arrived after their process was killed", arrived)
    report.add("of these accepted before the fence", landed - len(late))
    report.details["late"] = late[:EVIDENCE]
    senders = bound_by(audit_log)
    report.details["senders"] = {it["pod"]: senders.get(it["pod"]) for it in report.details["violations"]}
    waves.consistency(report, homeport)


def _arrived_late(audit_log: Path, ended: dict[str, float]) -> tuple[int, int]:
    """Numbers of all and of accepted Bindings whose sender had been killed when the API server received them."""
    offset = time.time() - time.monotonic()
    codes: list[int] = []
    for line in audit_log.read_text().splitlines():
        event = json.loads(line)
        at = ended.get(event["user"]["username"])
        if at is not None and checker.seconds(event["requestReceivedTimestamp"]) > at + offset:
            codes.append(event.get("responseStatus", {}).get("code", 0))
    return len(codes), codes.count(CREATED)
