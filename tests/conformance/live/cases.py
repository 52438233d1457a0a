"""Two real kube-schedulers judge generated cases: one with its own PodTopologySpread, one with Homeport in its place.

Both must leave the same nodes for the pod and give them the same scores, and that must be what the Go plugins said
outside of any scheduler. A case that differs is judged again, because two watches may bring the same news at different
times; what differs then differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.conformance.draft import PLUGIN
from tests.conformance.generate import SPREADING
from tests.conformance.live.loading import Trial, Unloadable, clear, load, prepare, trial_of
from tests.conformance.live.panel import KEPT_PLUGINS, Judge, Panel, Ruling, TrialError, bare_profile, homeport_with
from tests.conformance.live.recorder import Json
from tests.controlplane.controlplane import ControlPlane
from tests.harness import cases

VECTORS: Final = Path(__file__).parents[1] / "vectors" / "generated"
SCALE: Final = 100
"""Homeport's maxPriority: every score of the in-tree plugin has a point of its own."""

LOOKS: Final = 3
"""How often a case is judged at most."""


@dataclass
class Tally:
    """What came of a topic. ``refused``: cases in which some nodes are left out; ``scored``: those with scores.

    ``passed_over`` cases have no node, a plugin that fails, or a pod that no API server would come to hold.
    """

    topic: str
    cases: int = 0
    equal: int = 0
    differing: int = 0
    refused: int = 0
    scored: int = 0
    judged_again: int = 0
    passed_over: int = 0
    wrong: list[Json] = field(default_factory=list)


@dataclass(frozen=True)
class Said:
    """What is compared: the nodes left for the pod and, where two or more are, the score of each."""

    feasible: frozenset[str]
    scores: Mapping[str, int]

    def shown(self) -> Json:
        return {"feasible": sorted(self.feasible), "scores": dict(sorted(self.scores.items()))}


def recorded(topic: str, count: int) -> list[tuple[Json, Json]]:
    """The first cases of a topic, each with the verdict of the Go plugins."""
    found = [(json.loads(case), verdict) for case, verdict in cases(VECTORS / topic)]
    return found[:count]


class Courtroom:
    """Profiles of all cases, one of each, served by two schedulers and a Homeport."""

    def __init__(self, plane: ControlPlane, configs: Sequence[Json]) -> None:
        self._client = plane.client
        self._names: dict[str, str] = {}
        for config in configs:
            self._names.setdefault(_profile_key(config), f"profile-{len(self._names)}")
        named = [{**json.loads(key), "schedulerName": name} for key, name in self._names.items()]
        self._stack = ExitStack()
        homeport = self._stack.enter_context(homeport_with(plane, named, SCALE))
        stock = self._stack.enter_context(Judge(plane, [_with_kept(config) for config in named]))
        delegating = Judge(plane, [bare_profile(config["schedulerName"]) for config in named], homeport)
        self._panel = self._stack.enter_context(Panel(plane, [stock, self._stack.enter_context(delegating)]))
        self._presented = 0

    def __enter__(self) -> Courtroom:
        prepare(self._client)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def judge(self, case: Json, expected: Json, tally: Tally) -> None:
        """Load one case, compare, clear."""
        self._presented += 1
        if not any(it["kind"] == "Node" for it in case["objects"]) or _fails(expected):
            tally.passed_over += 1
            return
        try:
            trial = trial_of(case, expected, self._presented, self._names[_profile_key(case["config"])])
        except Unloadable:
            tally.passed_over += 1
            return
        load(self._client, trial)
        self._panel.await_nodes(trial.nodes)
        self._compare(case, trial, tally)
        clear(self._client)
        self._panel.await_nodes(())

    def _compare(self, case: Json, trial: Trial, tally: Tally) -> None:
        expected = _expected(trial)
        agreed = (expected, expected)
        said = self._said(trial, look=0)
        tally.judged_again += said != agreed
        for look in range(1, LOOKS):
            if said != agreed:
                said = self._said(trial, look)
        tally.cases += 1
        tally.equal += said == agreed
        tally.differing += said != agreed
        tally.refused += expected.feasible != trial.nodes
        tally.scored += len(set(expected.scores.values())) > 1
        if said != agreed:
            stock, ours = (each.shown() for each in said)
            tally.wrong.append({"case": case, "expected": expected.shown(), "stock": stock, "homeport": ours})

    def _said(self, trial: Trial, look: int) -> tuple[Said, Said]:
        """By the stock scheduler, and by the one with Homeport; each look is at a pod of another name."""
        metadata = {**trial.pod["metadata"], "name": f"pending-{self._presented}-{look}"}
        pod = {**trial.pod, "metadata": metadata}
        stock, ours = self._panel.present(pod, labels=trial.labels, nominated=trial.nominated)
        self._check_stored(pod["metadata"], trial)
        self._panel.dismiss(pod)
        return _said(stock), _said(ours)

    def _check_stored(self, metadata: Json, trial: Trial) -> None:
        stored = self._client.get("Pod", metadata["name"], metadata["namespace"])["spec"]
        if stored.get("topologySpreadConstraints", []) != trial.constraints:
            raise TrialError(f"stored {stored['topologySpreadConstraints']}, drawn {trial.constraints}")


def _fails(verdict: Json) -> bool:
    """Whether the profile makes the plugin fail: in tree that ends the cycle, and no feasible set comes of it."""
    return "error" in verdict or any(status["code"] == "Error" for status in verdict["filter"].values())


def _profile_key(config: Json) -> str:
    return json.dumps({**config, "schedulerName": ""}, sort_keys=True)


def _with_kept(config: Json) -> Json:
    """The profile of a case and what every judge has; without the weight, so that the log tells the score itself."""
    plugins = config["plugins"]
    enabled = [{"name": name} for name in (PLUGIN, *KEPT_PLUGINS)]
    return {**config, "plugins": {**plugins, "multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}}}


def _said(ruling: Ruling) -> Said:
    feasible = ruling.heard.passed
    if ruling.heard.scored is not None:
        return Said(feasible, ruling.heard.scored)
    return Said(feasible, {node: ruling.scores.get(node, {}).get(PLUGIN, 0) for node in ruling.totals})


def _expected(trial: Trial) -> Said:
    """Of a pod with a nomination only that node is looked at, if it fits."""
    verdict = trial.expected
    feasible = {node for node, status in verdict["filter"].items() if status["code"] == "Success"}
    if trial.nominated in feasible:
        feasible = {trial.nominated}
    scores = {node: verdict["score"][node].get(PLUGIN, 0) for node in feasible} if len(feasible) > 1 else {}
    return Said(frozenset(feasible), scores)


def judge_all(plane: ControlPlane, count: int) -> Iterator[Tally]:
    """Judge so many cases of each topic."""
    found = {topic: recorded(topic, count) for topic in SPREADING}
    configs = [case["config"] for of_topic in found.values() for case, _ in of_topic]
    with Courtroom(plane, configs) as court:
        for topic, of_topic in found.items():
            tally = Tally(topic)
            for case, expected in of_topic:
                court.judge(case, expected, tally)
            yield tally
