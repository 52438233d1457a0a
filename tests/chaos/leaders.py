"""Two replicas of which one leads; the leader is killed, or stopped for a while and continued, again and again."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx

from tests.beside import beside
from tests.chaos import checker, waves
from tests.chaos.arena import Arena
from tests.chaos.binder import PlainBinder
from tests.chaos.checker import ADDRESS, Json
from tests.chaos.report import Report, percentiles, progress
from tests.chaos.waves import EVIDENCE, PLAIN, STOCK, Wave, Waves, pod_of
from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport

NODES: Final = 12
PER_APP: Final = 12
REPLICAS: Final = ("homeport-one", "homeport-two")
LEASE: Final = {
    "leaderElect": True,
    "leaseDuration": "2s",
    "renewDeadline": "1.3s",
    "retryPeriod": "0.4s",
    "resourceNamespace": "default",
    "resourceName": "homeport",
}
STOPPED_SECONDS: Final = 4.0
"""Twice the lease: who is continued then has long been succeeded."""

LOAD_SECONDS: Final = 1.0
"""How long there is peace between two failures."""

AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/binding"]}]},
        {"level": "None"},
    ],
}
CREATED: Final = 201
_TIMEOUT: Final = 504
_CALL_SECONDS: Final = 2.0
_PROBE_PAUSE: Final = 0.02
_PATIENCE: Final = 60.0
_UNLUCKY_SECONDS: Final = 300.0
"""A leader fails every four seconds and none may bind for three of them: the last pod of a wave misses many a turn."""


def leaders(count: int, seed: int) -> Report:
    """``count`` failures of the leader under load, every other one a stop instead of a kill."""
    report = Report(f"leader killed or stopped, lease {LEASE['leaseDuration']}")
    with tempfile.TemporaryDirectory(prefix="homeport-chaos-") as folder:
        plane, audit_log = audited(Path(folder), REPLICAS)
        with Arena(NODES, ("Node", "Pod", "Lease"), plane) as arena:
            replicas = {name: _replica(arena, name) for name in REPLICAS}
            arena.scheduler(STOCK[0], replicas[REPLICAS[0]], **waves.QUICK_RETRIES)
            urls = [it.url for it in replicas.values()]
            with PlainBinder(arena.observer, PLAIN, urls, arena.nodes, seed):
                tally = _fail(arena, replicas, count, seed, report)
            _judge(report, arena, replicas, tally, audit_log)
    return report


def audited(folder: Path, users: Sequence[str]) -> tuple[ControlPlane, Path]:
    """A control plane with these users, and the log of who bound what."""
    policy, log = folder / "audit-policy.json", folder / "audit.log"
    policy.write_text(json.dumps(AUDIT_POLICY))
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={log}")
    return ControlPlane(apiserver_flags=flags, users=users), log


def _replica(arena: Arena, name: str) -> Homeport:
    settings = {"leaderElection": LEASE}
    return arena.homeport((), settings, kubeconfig=arena.plane.kubeconfig_of(name))


def _fail(arena: Arena, replicas: Mapping[str, Homeport], count: int, seed: int, report: Report) -> Waves:
    gaps: dict[str, list[float]] = {"killed": [], "stopped": []}
    chance = random.Random(seed)
    with loading(arena, seed) as tally, probing(arena, [it.url for it in replicas.values()]) as decided:
        wait_for_verdict(decided, time.monotonic())
        for number in range(count):
            time.sleep(LOAD_SECONDS * chance.random())
            leader = _leader(arena, replicas)
            how = "stopped" if number % 2 else "killed"
            failed = time.monotonic()
            if how == "killed":
                leader.kill()
            else:
                os.kill(leader.pid, signal.SIGSTOP)
            gaps[how].append(wait_for_verdict(decided, failed) - failed)
            if how == "killed":
                leader.start()
            else:
                time.sleep(max(0.0, failed + STOPPED_SECONDS - time.monotonic()))
                os.kill(leader.pid, signal.SIGCONT)
            wait_for_verdict(decided, time.monotonic())
            progress(f"{number + 1} failures")
    for how, found in gaps.items():
        told = percentiles(found)
        report.add(f"leader {how}", len(found))
        report.add(f"leader {how}: median time until the next verdict", round(told["p50"], 2), unit=" s")
        report.add(f"leader {how}: longest time until the next verdict", round(told["max"], 2), unit=" s")
        report.details[f"seconds until the next verdict, leader {how}"] = {
            **told,
            "all": [round(it, 3) for it in found],
        }
    return tally


@contextmanager
def loading(arena: Arena, seed: int) -> Iterator[Waves]:
    """Wave after wave until the block ends; the last one comes to rest."""
    tally = Waves(arena, (STOCK[0], PLAIN), seed, patience=_UNLUCKY_SECONDS)

    def load(over: threading.Event) -> None:
        while not over.is_set():
            tally.run(Wave(PER_APP), waves.both)

    with beside(load):
        yield tally


@contextmanager
def probing(arena: Arena, urls: Sequence[str]) -> Iterator[list[float]]:
    """Ask each replica for verdicts all the time; yields when the answered requests were sent."""
    decided: list[float] = []

    def note(probe: Probe) -> None:
        if probe.decided:
            decided.append(probe.sent)

    with beside(*(partial(probe, url, arena.nodes, note, _PROBE_PAUSE, _CALL_SECONDS) for url in urls)):
        yield decided


@dataclass(frozen=True, slots=True)
class Probe:
    """One filter call: when it was sent, and whether it was decided."""

    sent: float
    decided: bool


def probe(
    url: str, nodes: Sequence[str], note: Callable[[Probe], None], pause: float, patience: float, over: threading.Event
) -> None:
    """Ask for a verdict again and again. ``pause``, ``patience``: seconds between calls, and for an answer."""
    pod = pod_of("probe", 0, PLAIN, (objects.ZONE_LABEL,))
    pod["metadata"] |= {"namespace": "default", "uid": "probe"}
    body = {"Pod": pod, "NodeNames": list(nodes)}
    with httpx.Client(base_url=url, timeout=patience, trust_env=False) as http:
        while not over.wait(pause):
            sent = time.monotonic()
            note(Probe(sent, _decides(http, body)))


def _decides(http: httpx.Client, body: Json) -> bool:
    with suppress(httpx.HTTPError, ValueError):
        answer: Any = http.post("/filter", json=body)
        return bool(answer.is_success and not answer.json().get("Error"))
    return False


def wait_for_verdict(decided: Sequence[float], since: float, what: str = "verdict") -> float:
    """When the first verdict was asked for that was given and asked for after ``since``."""
    deadline = time.monotonic() + _PATIENCE
    while not decided or decided[-1] <= since:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {_PATIENCE:g} s")
        time.sleep(_PROBE_PAUSE)
    return min(it for it in decided if it > since)


def _leader(arena: Arena, replicas: Mapping[str, Homeport]) -> Homeport:
    """Who holds the Lease."""
    by_address = {_address(it): it for it in replicas.values()}

    def found() -> Homeport | None:
        lease = arena.plane.client.get("Lease", str(LEASE["resourceName"]), str(LEASE["resourceNamespace"]))
        return by_address.get(lease["metadata"].get("annotations", {}).get(ADDRESS, ""))

    return arena.plane.client.wait_for(found, what="a leader")


def _address(homeport: Homeport) -> str:
    return f"127.0.0.1:{homeport.port}"


def _judge(report: Report, arena: Arena, replicas: Mapping[str, Homeport], tally: Waves, audit_log: Path) -> None:
    waves.judge(report, tally)
    holders = {_address(it): name for name, it in replicas.items()}
    lease = f"{LEASE['resourceNamespace']}/{LEASE['resourceName']}"
    late = checker.late_bindings(arena.observer.history(), lease, bound_by(audit_log), holders)
    report.add("bindings by a replica that no longer led", len(late), 0)
    report.details["late"] = late[:EVIDENCE]
    for homeport in replicas.values():
        waves.consistency(report, homeport)


def bound_by(audit_log: Path) -> dict[str, str]:
    """Who bound a pod. Where no Binding was answered with success it is the one whose outcome is not known.

    The API server cancels a request whose sender has ended, and may have stored the Binding all the same.
    """
    senders: dict[int, dict[str, str]] = {CREATED: {}, _TIMEOUT: {}}
    for line in audit_log.read_text().splitlines():
        event = json.loads(line)
        by_pod = senders.get(event.get("responseStatus", {}).get("code"), {})
        by_pod[f"{event['objectRef']['namespace']}/{event['objectRef']['name']}"] = event["user"]["username"]
    return {**senders[_TIMEOUT], **senders[CREATED]}
