"""The service put together as in production, around a picture that is filled in this process."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Final

from app.cache.counters import run_prepared
from app.config.profile import ANY
from app.config.settings import Settings
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.kube.core_decoding import decode_node, decode_pod
from app.kube.core_v1 import Node, Pod
from app.main import HomeportService
from app.runtime.framework import Framework
from app.server.routes import LEAN
from app.telemetry.logging import configure
from app.verbs.outcome import Answer, Verb
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.load import cluster

SAMPLE: Final = 500

Json = dict[str, Any]


class Shop:
    """A large cluster of ``cluster.node``s and ``cluster.pod``s, and who decides on it. Nobody waits for binds."""

    def __init__(self, nodes: int, pods: int) -> None:
        self.nodes = nodes
        self.pods = pods
        configure("error", "json")
        with tempfile.NamedTemporaryFile(suffix=".json") as saved:
            Path(saved.name).write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [cluster.node(0)]}))
            self._service = HomeportService(
                Settings(cluster=saved.name, expected_bind_wait=0, explain="profile"),
                SHIPPED,
                DEFAULT_WEIGHTS,
                version="bench",
            )
        self.picture = self._service.snapshot
        for number in range(nodes):
            self.picture.upsert_node(node(cluster.node(number)))
        for number in range(pods):
            self.picture.upsert_pod(pod(cluster.pod(number, nodes)))

    @property
    def framework(self) -> Framework:
        return self._service._frameworks[ANY]

    def call(self, verb: Verb, body: bytes) -> Answer:
        """A whole call but for HTTP, in the form that examples/kube-scheduler asks for.

        Driven by hand: with nothing to wait for but a turn, no event loop is needed.
        """
        calling = self._service._callers[LEAN][verb](body).__await__()
        try:
            while next(calling) is None:
                pass
        except StopIteration as answered:
            found: Answer = answered.value
            return found
        raise RuntimeError(f"{verb} waits for something")

    def filter(self, asked: Pod, names: list[str]) -> int:
        """How many nodes pass."""
        verdict = run_prepared(lambda: self.framework.filters.feasible(CycleState(), asked, self._candidates(names)))
        return len(names) - len(verdict.rejected)

    def score(self, asked: Pod, names: list[str]) -> object:
        return run_prepared(lambda: self.framework.scoring.score(CycleState(), asked, self._candidates(names)))

    def _candidates(self, names: list[str]) -> Candidates:
        return Candidates(names, self.picture.nodes.__getitem__)

    def sample(self) -> list[str]:
        """As many names as kube-scheduler asks about, spread over the cluster."""
        return self.names()[:: max(1, self.nodes // SAMPLE)][:SAMPLE]

    def names(self) -> list[str]:
        return list(self.picture.nodes)


def node(made: Json) -> Node:
    return decode_node(json.dumps(made).encode())


def pod(made: Json) -> Pod:
    return decode_pod(json.dumps(made).encode())


def pending_json(workload: int, *constraints: Json, labels: Json | None = None) -> Json:
    """A waiting pod of a workload with these constraints in place of its own."""
    made = cluster.pending_pod(workload)
    made["metadata"]["labels"].update(labels or {})
    made["spec"]["topologySpreadConstraints"] = list(constraints)
    return made


def pending(workload: int, *constraints: Json, labels: Json | None = None) -> Pod:
    return pod(pending_json(workload, *constraints, labels=labels))


def constraint(key: str, selector: Json, *, hard: bool = True, skew: int = 5, **more: Any) -> Json:
    when = "DoNotSchedule" if hard else "ScheduleAnyway"
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector, **more}


def app(workload: int) -> Json:
    """Selects the pods of a workload."""
    return {"matchLabels": {"app": f"app-{workload}"}}


def asked(made: Json, names: list[str]) -> bytes:
    """The body of filter or prioritize in names form."""
    return json.dumps({"Pod": made, "Nodes": None, "NodeNames": names}, separators=(",", ":")).encode()
