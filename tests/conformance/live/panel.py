"""Several real kube-schedulers that judge one and the same pod, and what each of them made of it.

All serve the same schedulerNames, so each sees the pod and takes it for its own. Their binds are held back until every
one has come to its end. What a scheduler was told and what it chose is known from the wire; the scores of its own
plugins are known from its log.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Self

import httpx

from tests.conformance.live.recorder import TIMEOUT_SECONDS, Heard, Json, Recorder
from tests.controlplane.client import ApiError
from tests.controlplane.controlplane import ControlPlane
from tests.controlplane.objects import pod as pod_object
from tests.integration.service import Homeport

CANARY: Final = "canary"
"""A schedulerName that every judge serves without filters of its own: it shows which nodes a scheduler knows."""

GATE: Final = "homeport.test/trial"
PATIENCE_SECONDS: Final = 60
POLL_SECONDS: Final = 0.005
KEPT_PLUGINS: Final = ("PrioritySort", "SchedulingGates", "DefaultPreemption", "DefaultBinder")
"""Preemption is there for what it leaves alone: without it kube-scheduler takes a refused pod's nomination away."""

FLAGS: Final = ("--vmodule=schedule_one=10",)
_PLUGIN_SCORE: Final = re.compile(
    r'"Plugin scored node for pod" pod="([^"]+)" plugin="([^"]+)" node="([^"]+)" score=(-?\d+)'
)
_FINAL_SCORE: Final = re.compile(r'"Calculated node\'s final score for pod" pod="([^"]+)" node="([^"]+)" score=(-?\d+)')
_NO_FIT: Final = re.compile(r'"Unable to schedule pod; no (?:fit|nodes)[^"]*" pod="([^"]+)"')
_ERROR: Final = re.compile(r'"Error scheduling pod; retrying".* pod="([^"]+)"')


@dataclass(frozen=True)
class Ruling:
    """How one scheduler decided on a pod.

    ``scores`` are those of its own plugins, weighted, by node; ``totals`` what it chose by, extender included. Both are
    empty where fewer than two nodes are left: nothing is scored then. ``chosen`` is empty if no node fits.
    """

    heard: Heard
    scores: Mapping[str, Mapping[str, int]]
    totals: Mapping[str, int]

    @property
    def chosen(self) -> str:
        return self.heard.target


@dataclass
class _Log:
    """What the log says about one pod."""

    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    no_fit: bool = False
    error: str = ""


class TrialError(Exception):
    """A judge came to no end, or to an error; the message says which and about what."""


class Judge:
    """A kube-scheduler with a recorder for an extender, and perhaps Homeport behind that."""

    def __init__(
        self,
        plane: ControlPlane,
        profiles: Sequence[Json],
        homeport: Homeport | None = None,
        *,
        weight: int = 1,
    ) -> None:
        self.homeport = homeport
        self._cleanup = ExitStack()
        self._recorder = self._cleanup.enter_context(Recorder(homeport.url if homeport else ""))
        extender: Json = {
            "urlPrefix": self._recorder.url,
            "filterVerb": "filter",
            "bindVerb": "bind",
            "weight": weight,
            "nodeCacheCapable": True,
            "httpTimeout": f"{TIMEOUT_SECONDS}s",
        }
        if homeport:
            extender["prioritizeVerb"] = "prioritize"
        config = {
            "percentageOfNodesToScore": 100,
            "clientConnection": {"qps": 1000, "burst": 2000},
            "profiles": [*profiles, bare_profile(CANARY)],
            "extenders": [extender],
        }
        self._scheduler = self._cleanup.enter_context(plane.start_scheduler(config, flags=FLAGS))
        self._lines = self._cleanup.enter_context(self._scheduler.process.log_file.open("rb"))
        self._partial = b""
        self._said: dict[str, _Log] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def expect(self, pod: str) -> None:
        """Put a pod on trial, as namespace/name; earlier ones are forgotten."""
        self._said.clear()
        self._recorder.expect(pod)

    def release(self) -> None:
        self._recorder.release()

    def asked(self, pod: str) -> frozenset[str]:
        """The nodes that the scheduler's own filters have left for a pod."""
        return self._recorder.heard(pod).asked

    def ruling(self, pod: str) -> Ruling | None:
        """How it decided on the pod, None while it has not."""
        heard = self._recorder.heard(pod)
        said = self._read(pod)
        if said.error or heard.problem:
            raise TrialError(f"{pod}: {heard.problem or said.error}")
        if heard.target or said.no_fit:
            return Ruling(heard, said.scores, said.totals)
        return None

    def _read(self, pod: str) -> _Log:
        """Scores are logged before bind is called, so that all of them are there once the target is known."""
        *whole, self._partial = (self._partial + self._lines.read()).split(b"\n")
        for line in whole:
            self._take(line.decode(errors="replace"))
        return self._said.get(pod, _Log())

    def _take(self, line: str) -> None:
        if found := _PLUGIN_SCORE.search(line):
            pod, plugin, node, score = found.groups()
            self._said.setdefault(pod, _Log()).scores.setdefault(node, {})[plugin] = int(score)
        elif found := _FINAL_SCORE.search(line):
            pod, node, score = found.groups()
            self._said.setdefault(pod, _Log()).totals[node] = int(score)
        elif found := _NO_FIT.search(line):
            self._said.setdefault(found[1], _Log()).no_fit = True
        elif found := _ERROR.search(line):
            self._said.setdefault(found[1], _Log()).error = line


class Panel:
    """The judges of one control plane, and the one way to bring a pod before them."""

    def __init__(self, plane: ControlPlane, judges: Sequence[Judge]) -> None:
        self._client = plane.client
        self._judges = judges
        self._homeports = list({id(it.homeport): it.homeport for it in judges if it.homeport}.values())
        self._http = httpx.Client(trust_env=False, timeout=TIMEOUT_SECONDS)
        self._canaries = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def await_nodes(self, names: Iterable[str]) -> None:
        """Wait until every judge and every Homeport knows these nodes and no others."""
        expected = frozenset(names)
        _until(lambda: all(self._nodes_of(it) == len(expected) for it in self._homeports), "the nodes in Homeport")
        if not expected:
            return
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(seen != expected for seen in self._canary()):
            if time.monotonic() > deadline:
                raise TrialError(f"a scheduler does not know {sorted(expected)}")

    def _nodes_of(self, homeport: Homeport) -> int:
        feeds = self._http.get(f"{homeport.url}/api/v1/status").raise_for_status().json()["feeds"]
        count: int = feeds["v1 Node"]["objects"]
        return count

    def _canary(self) -> list[frozenset[str]]:
        """The nodes each scheduler knows, by a pod that all of them pass on to their extender."""
        self._canaries += 1
        name = f"{CANARY}-{self._canaries}"
        self._client.create(pod_object(name, scheduler_name=CANARY))
        _until(lambda: all(it.asked(f"default/{name}") for it in self._judges), f"{name} to be seen")
        self._client.delete("Pod", name)
        return [it.asked(f"default/{name}") for it in self._judges]

    def present(self, pod: Json, *, labels: Mapping[str, str] | None = None, nominated: str = "") -> list[Ruling]:
        """Create a pod and return what each judge makes of it; binds are held until `dismiss`.

        With ``labels`` it is created as it is, and gets those before it is judged.
        """
        space, name = pod["metadata"].get("namespace", "default"), pod["metadata"]["name"]
        key = f"{space}/{name}"
        for judge in self._judges:
            judge.expect(key)
        gates = {"schedulingGates": [{"name": GATE}]}
        self._client.create({**pod, "spec": {**pod["spec"], **gates}})
        if labels is not None:
            changes = {**dict.fromkeys(pod["metadata"].get("labels", {})), **labels}
            self._client.patch("Pod", name, {"metadata": {"labels": changes}}, space)
        if nominated:
            self._client.patch_status("Pod", name, {"nominatedNodeName": nominated}, space)
        _until(lambda: all(self._knows(it, space, name) for it in self._homeports), f"{key} in Homeport")
        self._client.patch("Pod", name, {"spec": {"schedulingGates": None}}, space)
        return self._rulings(key)

    def _knows(self, homeport: Homeport, space: str, name: str) -> bool:
        """Then it knows all that happened to pods before."""
        answer = self._http.post(f"{homeport.url}/api/v1/explain", json={"namespace": space, "name": name})
        return answer.is_success

    def _rulings(self, pod: str) -> list[Ruling]:
        rulings: dict[int, Ruling] = {}

        def all_done() -> bool:
            for index, judge in enumerate(self._judges):
                if index not in rulings and (found := judge.ruling(pod)):
                    rulings[index] = found
            return len(rulings) == len(self._judges)

        _until(all_done, f"every judge to decide on {pod}")
        return [rulings[index] for index in range(len(self._judges))]

    def dismiss(self, pod: Json, bind_to: str = "") -> None:
        """Bind the pod, or remove it, and let the judges go on."""
        space, name = pod["metadata"].get("namespace", "default"), pod["metadata"]["name"]
        if bind_to:
            self._client.bind(name, bind_to, space)
        else:
            self._remove(space, name)
        for judge in self._judges:
            judge.release()

    def _remove(self, space: str, name: str) -> None:
        try:
            self._client.delete("Pod", name, space)
        except ApiError as error:
            if error.status != httpx.codes.NOT_FOUND:
                raise


def homeport_with(plane: ControlPlane, profiles: Sequence[Json], scale: int) -> Homeport:
    """Homeport with these profiles; ``scale``: its maxPriority."""
    config_file = plane.folder / "homeport.json"
    document = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration", "profiles": profiles}
    config_file.write_text(json.dumps(document))
    flags = ("--expected-bind-wait=0s", f"--http-timeout={TIMEOUT_SECONDS}s", f"--max-priority={scale}")
    return Homeport(plane.kubeconfig, plane.folder, (*flags, f"--config={config_file}"))


def bare_profile(name: str, *plugins: Json) -> Json:
    """A profile of nothing but these plugins and those that every judge has."""
    enabled: list[Json] = [*plugins, *({"name": kept} for kept in KEPT_PLUGINS)]
    return {"schedulerName": name, "plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}}}


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TrialError(f"waited {PATIENCE_SECONDS} s for {what}")
        time.sleep(POLL_SECONDS)
