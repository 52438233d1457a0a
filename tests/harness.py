"""A small world that speaks the domain: objects in, verdicts out, put together as production puts it together."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Unpack

from app.cache.cluster import Cluster
from app.cache.counters import run_prepared
from app.cache.nodes import Nodes
from app.config.profile import Profile
from app.framework.cycle_state import CycleState
from app.framework.events import NO_EVENTS, EventRecorder
from app.framework.handle import (
    Fallbacks,
    Handle,
    KnownDomains,
    NoFallbacks,
    NoKnownDomains,
    ProfileContext,
    Timing,
)
from app.framework.node_info import Candidates
from app.framework.parts import extras_of
from app.framework.spec import PluginSpec
from app.framework.status import SUCCESS, Status
from app.kube import kinds
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Node, Pod
from app.kube.kinds import Kind
from app.runtime.building import build
from app.runtime.filters import FilterOutcome, Recheck
from app.runtime.framework import Framework
from app.runtime.guard import Guard
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from app.runtime.scoring import Scores
from app.runtime.waiting import PodsAtPermit
from app.telemetry.metrics import Metrics
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.builders import JsonObject, PodFields, encoded, pod_object
from tests.fakes import ManualClock, NoWriter, RecordingBinder

SPREAD: Final = "PodTopologySpread"

WALL_CLOCK: Final = 1_800_000_000.0
"""Seconds since 1970 at which the clock of a world begins."""

_METRICS: Final = Metrics()
"""Metrics of all worlds: no test reads them, and making the series of a profile takes longer than most decisions."""

Answer = Literal["Success"] | tuple[str, str, tuple[str, ...]]
"""``Success``, or the word of the code, the plugin and its reasons."""

_KINDS: Final[Mapping[tuple[str, str], Kind[Any]]] = {
    (kind.api_version, kind.kind): kind
    for kind in (
        kinds.PODS,
        kinds.NODES,
        kinds.NAMESPACES,
        kinds.SERVICES,
        kinds.REPLICATION_CONTROLLERS,
        kinds.REPLICA_SETS,
        kinds.STATEFUL_SETS,
        kinds.DEVICE_CLASSES,
        kinds.PERSISTENT_VOLUME_CLAIMS,
        kinds.PERSISTENT_VOLUMES,
        kinds.STORAGE_CLASSES,
        kinds.CSI_NODES,
        kinds.POD_DISRUPTION_BUDGETS,
        kinds.CSI_DRIVERS,
        kinds.VOLUME_ATTACHMENTS,
        kinds.CSI_STORAGE_CAPACITIES,
        kinds.RESOURCE_CLAIMS,
        kinds.RESOURCE_SLICES,
    )
}


def only(*names: str, **args: JsonObject) -> JsonObject:
    """A profile with these plugins alone, beside the two every profile must have; ``args`` by plugin name."""
    enabled = [{"name": name} for name in ("PrioritySort", *names, "DefaultBinder")]
    return {
        "plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}},
        "pluginConfig": [{"name": name, "args": found} for name, found in args.items()],
    }


class World:
    """A cluster and one profile that judges pods in it.

    Objects are given slim or as JSON would have them. Parts on demand are read of the latter alone.
    """

    def __init__(
        self,
        *objects: Node | Pod | JsonObject,
        profile: JsonObject | None = None,
        cluster: Cluster | None = None,
        specs: Iterable[PluginSpec[Any]] = (),
        events: EventRecorder = NO_EVENTS,
        fallbacks: Fallbacks | None = None,
        known_domains: KnownDomains | None = None,
    ) -> None:
        found = Profile.model_validate(profile or {})
        resolved = resolve([found], Registry([*SHIPPED, *specs], DEFAULT_WEIGHTS))[0]
        self.cluster = cluster or Cluster(core_v1(extras_of(resolved.parts())))
        self.binder = RecordingBinder()
        self.clock, self.wall_clock = ManualClock(), ManualClock(WALL_CLOCK)
        self.add(*objects)
        self.handle = Handle(
            self.cluster.counts,
            self.cluster,
            NoWriter(),
            self.binder,
            PodsAtPermit(),
            Nodes(self.cluster),
            self.cluster.terms,
            Timing(self.clock, self.wall_clock),
            ProfileContext(fallbacks=fallbacks or NoFallbacks(), known_domains=known_domains or NoKnownDomains()),
            events,
        )
        self.framework: Framework = build(
            resolved,
            self.handle,
            served=[found.scheduler_name],
            nominations=self.cluster,
            snapshot=self.cluster,
            waiting=PodsAtPermit(),
            guard=Guard(_METRICS),
        )

    def add(self, *objects: Node | Pod | JsonObject) -> World:
        """Take in objects as the watch would show them; kinds that nobody reads are left out."""
        for found in objects:
            if isinstance(found, Node):
                self.cluster.upsert_node(found)
            elif isinstance(found, Pod):
                self.cluster.upsert_pod(found)
            else:
                self._add_object(found)
        return self

    def _add_object(self, found: JsonObject) -> None:
        kind = _KINDS.get((found["apiVersion"], found["kind"]))
        if kind is None:
            return
        slim = self.cluster.decoder(kind)(encoded(found))
        if isinstance(slim, Node | Pod):
            self.add(slim)
        else:
            self.cluster.others.upsert(kind, slim)

    def pod(self, found: JsonObject | str = "web-1", **fields: Unpack[PodFields]) -> Pod:
        """A pod with all parts that the profile's plugins read: as JSON would have it, or of a name and some fields."""
        return self.cluster.core.decode_pod(encoded(pod_object(found, **fields) if isinstance(found, str) else found))

    def candidates(self, names: Collection[str] | None = None) -> Candidates:
        """The nodes named, else all."""
        found = Candidates.of(self.cluster.nodes)
        return found if names is None else found.without([name for name in found.names if name not in names])

    def filter(self, pod: Pod) -> dict[str, Answer]:
        """What is said of every node."""
        verdict = self.verdict(pod)
        return {name: answer_of(verdict.rejected.get(name, SUCCESS)) for name in self.cluster.nodes}

    def verdict(self, pod: Pod) -> FilterOutcome:
        with self.cluster.without(pod.uid, pod.key):
            return run_prepared(lambda: self.framework.filters.feasible(CycleState(), pod, self.candidates()))

    def recheck(self, pod: Pod, node_name: str) -> Recheck:
        """What bind asks: one node, with the pods whose binding is not certain."""
        with self.cluster.without(pod.uid, pod.key):
            in_flight = [other for other in self.cluster.assumed.in_flight() if other.uid != pod.uid]
            return run_prepared(
                lambda: self.framework.at_bind.recheck(CycleState(), pod, self.cluster.nodes[node_name], in_flight)
            )

    def score(self, pod: Pod, among: Collection[str] | None = None) -> dict[str, dict[str, int]]:
        """Normalised scores, by plugin and node; a plugin that skipped is absent."""
        return self.scores(pod, among).by_plugin

    def scores(self, pod: Pod, among: Collection[str] | None = None) -> Scores:
        with self.cluster.without(pod.uid, pod.key):
            return run_prepared(lambda: self.framework.scoring.score(CycleState(), pod, self.candidates(among)))

    def spread_scores(self, pod: Pod, among: Collection[str] | None = None) -> list[int]:
        """The scores PodTopologySpread gives, in the order of the nodes."""
        return list(self.score(pod, among)[SPREAD].values())


def answer_of(status: Status) -> Answer:
    return "Success" if status.is_success else (status.code.word, status.plugin, status.reasons)


def cases(topic: Path) -> Iterator[tuple[bytes, JsonObject]]:
    """The cases of a recorded topic, each with the verdict kube-scheduler gave."""
    with (
        gzip.open(topic.with_name(f"{topic.name}.cases.jsonl.gz")) as asked,
        gzip.open(topic.with_name(f"{topic.name}.expected.jsonl.gz")) as answered,
    ):
        for case, expected in zip(asked, answered, strict=True):
            yield case, json.loads(expected)
