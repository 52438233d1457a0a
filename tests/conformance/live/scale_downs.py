"""Does spread last after scale-downs by the real ReplicaSet controller, with and without ``scaleDown: Spread``?

    python -m tests.conformance.live.scale_downs              # COUNT and SEED as below
    python -m tests.conformance.live.scale_downs --count 20

A history is a Deployment with a hard constraint over three zones, ``maxSkew: 1``. It is scaled up and down between 1
and 18 replicas, its pods die, and it is rolled out. The pods are created and removed by kube-controller-manager, placed
by kube-scheduler with Homeport as its extender, and bound by Homeport. Each history is played in both settings; many
are played side by side. Prints a table and, as its last line, the same as JSON. Ends with 1 if more than 3 % of the
scale-downs with the option end above ``maxSkew``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from queue import Empty
from random import Random
from typing import Any, Final, TypeAlias

from tests.conformance.live.pods_in_time import LivePod, LivePods
from tests.controlplane import objects
from tests.controlplane.binaries import DEFAULT_KUBERNETES
from tests.controlplane.client import ApiError, Client, Json
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport, scheduler_config

SETTINGS: Final = {"spread": {"scaleDown": "Spread"}, "any": {"scaleDown": "Any"}}
"""``beyond`` of each setting. A setting is also the name of a profile, here and in the scheduler."""

ZONES: Final = ("a", "b", "c")
NODES_A_ZONE: Final = 3
MOST_REPLICAS: Final = 18
STEPS: Final = 14
SIDE_BY_SIDE: Final = 60
STEP_SECONDS: Final = 180.0
MOST_SHARE: Final = 0.03
DEATHS: Final = 0.2
ROLLOUTS: Final = 0.1
"""Share of the steps that are a rollout, and ``DEATHS`` of a pod. The others change the number of replicas."""

Settled: TypeAlias = Callable[[], bool]


@dataclass
class ScaleDownTally:
    """``above``: scale-downs that end with a skew above 1, and ``share`` of all. ``worst``: largest skew of these."""

    setting: str
    histories: int = 0
    scale_downs: int = 0
    deaths: int = 0
    rollouts: int = 0
    above: int = 0
    share: float = 0.0
    worst: int = 0
    wrong: list[str] = field(default_factory=list)


class History:
    """One Deployment in one setting. Equal seeds give equal histories, up to the pod that dies."""

    def __init__(self, client: Client, pods: LivePods, tally: ScaleDownTally, seed: int) -> None:
        self._client = client
        self._pods = pods
        self._tally = tally
        self._random = Random(f"scale-down-{seed}")
        self._replicas = self._random.randint(1, MOST_REPLICAS)
        self._revision = 0
        self.app = f"{tally.setting}-{seed}"

    def played(self) -> Iterator[Settled]:
        """Yield what must hold before the next step."""
        self._client.create(self._deployment())
        yield self._is_settled
        for _ in range(STEPS):
            drawn = self._random.random()
            if drawn < DEATHS:
                yield self._death()
            elif drawn < DEATHS + ROLLOUTS:
                yield self._rollout()
            else:
                yield from self._scaled(self._random.randint(1, MOST_REPLICAS))
        self._tally.histories += 1
        yield from self._scaled(0)

    def describe(self) -> str:
        return f"{self.app}: {self._replicas} replicas of revision {self._revision} wanted, has {self._live()}"

    def _scaled(self, replicas: int) -> Iterator[Settled]:
        before, self._replicas = self._replicas, replicas
        self._change({"replicas": replicas})
        yield self._is_settled
        if replicas < before and replicas:
            counts = Counter(dict.fromkeys(ZONES, 0))
            counts.update(it.node[0] for it in self._live())
            skew = max(counts.values()) - min(counts.values())
            self._tally.scale_downs += 1
            self._tally.above += skew > 1
            self._tally.worst = max(self._tally.worst, skew)

    def _death(self) -> Settled:
        victim = self._random.choice(sorted(self._live(), key=lambda it: it.name))
        self._client.delete("Pod", victim.name)
        self._tally.deaths += 1
        return lambda: all(it.uid != victim.uid for it in self._live()) and self._is_settled()

    def _rollout(self) -> Settled:
        self._revision += 1
        self._change({"template": {"metadata": {"labels": {"revision": str(self._revision)}}}})
        self._tally.rollouts += 1
        return self._is_settled

    def _change(self, spec: Json) -> None:
        self._client.patch("Deployment", self.app, {"spec": spec})

    def _live(self) -> list[LivePod]:
        return self._pods.of(self.app)

    def _is_settled(self) -> bool:
        live, revision = self._live(), str(self._revision)
        return len(live) == self._replicas and all(it.ready and it.labels["revision"] == revision for it in live)

    def _deployment(self) -> Json:
        labels = {"app": self.app}
        deployment = objects.deployment(self.app, replicas=self._replicas)
        spread = objects.spread(labels, matchLabelKeys=["pod-template-hash"])
        template = deployment["spec"]["template"]
        template["metadata"]["labels"]["revision"] = "0"
        template["spec"] |= {
            "schedulerName": self._tally.setting,
            "terminationGracePeriodSeconds": 0,
            "topologySpreadConstraints": [spread],
        }
        return deployment


class Playing:
    """Plays histories side by side; one that does not settle in time is written to its tally."""

    def __init__(self, pods: LivePods, waiting: list[History]) -> None:
        self._pods = pods
        self._waiting = waiting
        self._active: dict[str, tuple[History, Iterator[Settled], Settled, float]] = {}

    def play(self, wrong: Callable[[History, str], None]) -> None:
        while self._waiting or self._active:
            while self._waiting and len(self._active) < SIDE_BY_SIDE:
                history = self._waiting.pop()
                self._advance(history, history.played(), wrong)
            for app in self._changed():
                history, steps, settled, since = self._active[app]
                if settled():
                    self._advance(history, steps, wrong)
                elif time.monotonic() > since + STEP_SECONDS:
                    wrong(history, "has not settled")
                    del self._active[app]

    def _changed(self) -> Collection[str]:
        """Wait a moment for changes. Return the active apps with changes; all of them if there is none."""
        changed = set[str]()
        with suppress(Empty):
            changed.add(self._pods.changes.get(timeout=1))
            while True:
                changed.add(self._pods.changes.get_nowait())
        if self._pods.failure:
            raise RuntimeError(self._pods.failure)
        return changed & self._active.keys() if changed else [*self._active]

    def _advance(self, history: History, steps: Iterator[Settled], wrong: Callable[[History, str], None]) -> None:
        self._active.pop(history.app, None)
        try:
            self._active[history.app] = history, steps, next(steps), time.monotonic()
        except StopIteration:
            pass
        except ApiError as error:
            wrong(history, str(error))


def measure(plane: ControlPlane, count: int, seed: int = 1) -> list[ScaleDownTally]:
    """Play so many histories in each setting."""
    tallies = {setting: ScaleDownTally(setting) for setting in SETTINGS}
    with ExitStack() as stack:
        homeport = stack.enter_context(Homeport(plane.kubeconfig, plane.folder, [f"--config={_configured(plane)}"]))
        stack.enter_context(plane.start_scheduler(_scheduling(homeport)))
        stack.callback(plane.start_controllers("replicaset-controller", "deployment-controller").stop)
        for zone in ZONES:
            for number in range(NODES_A_ZONE):
                plane.client.create_node(objects.node(f"{zone}{number}", zone=zone, cpu="1000", pods="10000"))
        pods = stack.enter_context(LivePods(plane))
        waiting = [
            History(plane.client, pods, tally, seed * 10_000 + number)
            for number in reversed(range(count))
            for tally in tallies.values()
        ]

        def wrong(history: History, what: str) -> None:
            tallies[history.app.partition("-")[0]].wrong.append(f"{history.describe()}: {what}")

        Playing(pods, waiting).play(wrong)
    for tally in tallies.values():
        tally.share = round(tally.above / max(1, tally.scale_downs), 4)
    return list(tallies.values())


def failures(tallies: Sequence[ScaleDownTally]) -> list[str]:
    """Return what must not be."""
    found = [it for tally in tallies for it in tally.wrong]
    return [
        *found,
        *(f"{it.setting}: {it.share:.1%} above maxSkew" for it in tallies[:1] if it.share > MOST_SHARE),
        *(f"{it.setting}: no scale-down" for it in tallies if not it.scale_downs),
    ]


def _configured(plane: ControlPlane) -> str:
    profiles = [
        {"schedulerName": name, "pluginConfig": [{"name": "PodTopologySpread", "args": {"beyond": beyond}}]}
        for name, beyond in SETTINGS.items()
    ]
    file = plane.folder / "scale-downs.json"
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    file.write_text(json.dumps({**head, "profiles": profiles}))
    return str(file)


def _scheduling(homeport: Homeport) -> Json:
    config: Json = dict(scheduler_config(homeport))
    (profile,) = config["profiles"]
    config["profiles"] = [{**profile, "schedulerName": name} for name in SETTINGS]
    config["clientConnection"] = {"qps": 1000, "burst": 2000}
    return config


def main() -> int:
    asked: Any = os.environ.get
    parser = argparse.ArgumentParser("python -m tests.conformance.live.scale_downs", description="Count scale-downs.")
    parser.add_argument("--count", type=int, default=int(asked("COUNT") or 200), help="histories (COUNT)")
    parser.add_argument("--seed", type=int, default=int(asked("SEED") or 1), help="of the histories (SEED)")
    arguments = parser.parse_args()
    begun = time.monotonic()
    with ControlPlane() as plane:
        tallies = measure(plane, arguments.count, arguments.seed)
    for it in tallies:
        share = f"{it.above} of {it.scale_downs} scale-downs above maxSkew ({it.share:.1%}), the worst skew {it.worst}"
        sys.stdout.write(f"{it.setting:>8}: {share}; {it.histories} histories, {it.deaths} deaths\n")
    sys.stderr.writelines(f"{it}\n" for it in failures(tallies))
    seconds = round(time.monotonic() - begun)
    found = {"kubernetes": DEFAULT_KUBERNETES, "seconds": seconds, "scale_downs": [*map(asdict, tallies)]}
    sys.stdout.write(json.dumps(found) + "\n")
    return 1 if failures(tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
