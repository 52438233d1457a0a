"""Preemption for topology spread (``preemption: Own``) under churn, while budgets guard pods and Homeport is killed.

Zone ``zone-c`` is closed by a taint. It counts for spread, with no pods, so each other domain holds at most ``maxSkew``
pods of a group. Pods of low priority fill these places. Each pod of a higher priority then needs a preemption. Some
pods of low priority are bound without a scheduler, so that a domain has more than ``maxSkew`` pods: one more pod then
needs several evictions.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.beside import beside
from tests.chaos import checker
from tests.chaos.arena import Arena
from tests.chaos.churn import GROUPS, NODES, PRIORITIES, Cluster
from tests.chaos.report import Report, percentiles, progress
from tests.chaos.victims import Sent, judge_victims, let_in, not_of_owners
from tests.chaos.waves import EVIDENCE, QUICK_RETRIES, STOCK, TAINT, consistency, evidence
from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport

KINDS: Final = ("Node", "Pod", "PodDisruptionBudget")
USER: Final = "homeport"
SETTINGS: Final = {
    "profiles": [{"schedulerName": "*", "preemption": "Own"}],
    "maxPlansPerSecond": 20,
    "explain": "complete",
    "leaderElection": {
        "leaderElect": True,
        "leaseDuration": "2s",
        "renewDeadline": "1500ms",
        "retryPeriod": "500ms",
        "resourceNamespace": "default",
        "resourceName": "homeport",
    },
}
REST_SECONDS: Final = 60.0
"""Maximum time after the churn in which each pod that can be let in is bound."""

_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Request", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/eviction"]}]},
        {"level": "None"},
    ],
}
_KILL_SECONDS: Final = (15.0, 60.0)
_LONGEST_DELAY_AFTER_NOMINATION: Final = 0.1
_LONGEST_AWAY: Final = 1.0
_STALLED_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.5
_MOST_LINES: Final = 400


def preemptions(wanted: int, seed: int) -> Report:
    """So many pods are bound after preemptions by Homeport."""
    report = Report(f"{len(STOCK)} kube-schedulers and Homeport's preemption under churn")
    with tempfile.TemporaryDirectory(prefix="homeport-chaos-") as folder:
        plane, audit_log = _audited(Path(folder))
        with Arena(NODES, KINDS, plane, spec={"zone-c": {"taints": [TAINT]}}) as arena:
            for name, value in PRIORITIES.items():
                plane.client.create(objects.priority_class(name, value))
            for group in GROUPS:
                if group.is_guarded:
                    plane.client.create(group.budget())
            homeport = arena.homeport(settings=SETTINGS, kubeconfig=plane.kubeconfig_of(USER), log_level="info")
            for name in STOCK:
                arena.scheduler(name, homeport, **QUICK_RETRIES)
            cluster = Cluster(arena, seed)
            arena.observer.on_event(cluster.see)
            with beside(cluster.work, cluster.update_budgets):
                kills = _play(cluster, homeport, wanted, seed)
                _wait_for_rest(report, arena)
                _judge_rest(report, arena, homeport)
            report.details["done"] = dict(cluster.done)
            _judge(report, arena, homeport, sent(audit_log), kills)
    return report


def _audited(folder: Path) -> tuple[ControlPlane, Path]:
    """Return a control plane with a user for Homeport, and the log of all Evictions."""
    policy, log = folder / "audit-policy.json", folder / "audit.log"
    policy.write_text(json.dumps(_AUDIT_POLICY))
    return ControlPlane(apiserver_flags=(f"--audit-policy-file={policy}", f"--audit-log-path={log}"), users=[USER]), log


def sent(audit_log: Path) -> list[Sent]:
    """Return the Evictions that Homeport sent, without dry runs."""
    ahead = time.time() - time.monotonic()
    found = []
    for line in audit_log.read_text().splitlines():
        event = json.loads(line)
        options = (event.get("requestObject") or {}).get("deleteOptions") or {}
        is_dry_run = "dryRun=" in event["requestURI"] or bool(options.get("dryRun"))
        if event["user"]["username"] == USER and not is_dry_run:
            at = checker.seconds(event["stageTimestamp"]) - ahead
            found.append(Sent(event["objectRef"]["name"], event.get("responseStatus", {}).get("code", 0), at))
    return found


def _play(cluster: Cluster, homeport: Homeport, wanted: int, seed: int) -> list[float]:
    """Churn until so many pods were bound after preemptions. Return the times of the kills, in monotonic seconds."""
    chance = random.Random(seed)
    kills: list[float] = []

    def kill(over: threading.Event) -> None:
        while not over.wait(chance.uniform(*_KILL_SECONDS)):
            cluster.nominated.clear()
            if not cluster.nominated.wait(_KILL_SECONDS[1]):
                continue
            time.sleep(chance.uniform(0, _LONGEST_DELAY_AFTER_NOMINATION))
            homeport.kill()
            kills.append(time.monotonic())
            time.sleep(chance.uniform(0, _LONGEST_AWAY))
            homeport.start()

    with beside(cluster.churn, kill):
        count, since = 0, time.monotonic()
        while count < wanted:
            time.sleep(_POLL_SECONDS)
            if len(cluster.preempted) > count:
                if len(cluster.preempted) // 50 > count // 50:
                    progress(f"{len(cluster.preempted)} preemptions, {len(kills)} kills")
                count, since = len(cluster.preempted), time.monotonic()
            elif time.monotonic() > since + _STALLED_SECONDS:
                raise TimeoutError(f"no preemption within {_STALLED_SECONDS:g} s after {count}")
    return kills


def _wait_for_rest(report: Report, arena: Arena) -> None:
    """Wait until each pod that can be let in is bound, or until the time is over."""
    began = time.monotonic()
    while time.monotonic() < began + REST_SECONDS and let_in(arena.observer.present()):
        time.sleep(_POLL_SECONDS)
    report.add("seconds until no waiting pod could be let in", round(time.monotonic() - began, 1), unit=" s")


def _judge_rest(report: Report, arena: Arena, homeport: Homeport) -> None:
    present = arena.observer.present()
    stuck = let_in(present)
    waiting = checker.waiting_pods(present)
    explained = [text for it in waiting if (text := _can_be_let_in(homeport, it))]
    report.add("pods that wait at the end", len(waiting))
    report.add("pods stuck", len(stuck), 0)
    report.add("pods stuck by explain", len(explained), 0)
    consistency(report, homeport)
    report.details["stuck"] = stuck[:EVIDENCE]
    report.details["stuck by explain"] = explained[:EVIDENCE]


def _can_be_let_in(homeport: Homeport, pod: str) -> str:
    """Return what explain says about a pod that could be let in, or an empty string."""
    answer = homeport.get(f"/api/v1/explain/{pod}")
    sentences = [it for it in answer["impossible"] if it.startswith("evicting ")]
    if answer["verdict"] == "Fits":
        sentences.append(answer["summary"])
    return f"{pod}: {'; '.join(sentences)}" if sentences else ""


def _judge(report: Report, arena: Arena, homeport: Homeport, evictions: Sequence[Sent], kills: Sequence[float]) -> None:
    history = arena.observer.history()
    order = checker.judge_order(history)
    found = judge_victims(history, evictions, kills)
    violations, of_owners = not_of_owners(history, order.violations)
    report.add("pods bound", order.binds)
    report.add("pods for which others were evicted", found.preemptors)
    report.add("pods evicted", found.evicted)
    report.add("victims of the largest plan", found.largest_plan)
    report.add("Homeport killed", len(kills))
    targets: dict[str, Sequence[Any]] = {
        "violations in the order of acceptance": violations,
        "budgets overrun": found.overrun,
        "victims of equal or higher priority, or never to be evicted": found.protected,
        "victims of unknown preemptors": found.without_preemptor,
        "second plans": found.second,
        "victims without a bound preemptor": found.alone,
        "pods bound twice": checker.bound_twice(history),
    }
    for name, missed in targets.items():
        report.add(name, len(missed), 0)
        report.details[name] = [evidence(it) if isinstance(it, checker.Violation) else it for it in missed[:EVIDENCE]]
    report.add("violations by a pod that was created on its node less than a second before", len(of_owners))
    report.add("excused by a deletion since the pod was created", len(order.excused))
    for what, apart in (("second plans", found.second_by), ("victims lost", found.alone_by)):
        for reason, each in sorted(apart.items()):
            report.add(f"{what}: {reason}", len(each))
            report.details[f"{what}: {reason}"] = each[:EVIDENCE]
    report.details["seconds from the last eviction to the bind"] = percentiles(found.seconds)
    if not report.good:
        report.details["log"] = homeport.log().splitlines()[-_MOST_LINES:]
