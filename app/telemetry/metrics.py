"""Defines all metrics of Homeport, except those that are read from other objects at scrape time.

If kube-scheduler or client-go has the same metric, its name and labels are equal except for the prefix: ``scheduler_``
there, or none for metrics of client-go (docs/adr/0025-metrics-names.md). Durations are in seconds.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.registry import Collector

from app.telemetry.observation_batch import BatchCollector, ObservationBatch
from app.telemetry.standard_error import DroppedLinesCollector

T = TypeVar("T")

_VERB_BUCKETS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0),
    *(30.0, 120.0, 600.0, 1200.0),  # for binds of pods that wait at Permit, up to the longest bindTimeout
)
_WAIT_BUCKETS: Final = (0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 1.0)
_POINT_BUCKETS: Final = tuple(0.0001 * 2**power for power in range(12))
_PLUGIN_BUCKETS: Final = (0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.1, 1.0)
_PERMIT_BUCKETS: Final = tuple(0.001 * 2**power for power in range(21))
_LAG_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)

disable_created_metrics()  # type: ignore[no-untyped-call]  # creation times of series are not needed


class Metrics:
    """Metrics of one service. Each instance has its own registry, so that a test can create several instances."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._settling = BatchCollector()
        self.registry.register(self._settling)
        self._of_requests()
        self._of_plugins()
        self._of_replicas()
        self._of_the_process()

    def _of_requests(self) -> None:
        """Define metrics of requests, refused and nominated pods, preemption plans, and waits."""
        self.requests = self._counter("homeport_requests", "Answered requests, by verb and outcome.", "verb", "outcome")
        self.request_duration = self._histogram(
            "homeport_request_duration_seconds",
            "Time from the call of a verb to its answer, including a late body and forwarding, by verb.",
            _VERB_BUCKETS,
            "verb",
        )
        self.unserved = self._counter(
            "homeport_unserved_requests",
            "Requests about pods without a profile, which are not checked, by verb and schedulerName.",
            "verb",
            "scheduler_name",
        )
        self.refusals = self._counter(
            "homeport_refusals",
            "Pods that filter refused on every requested node, once for each plugin and reason.",
            "plugin",
            "reason",
        )
        self.refusal_answers = self._counter(
            "homeport_refusal_answers",
            "Pods that filter refused on every requested node, by source of the answer: remembered or computed.",
            "answer",
        )
        self.picks = self._counter("homeport_picks", "Pods for which filter answered only the best node.")
        self.failed_picks = self._counter(
            "homeport_failed_picks", "Failed picks: filter was called for the pod once more."
        )
        self.expected_bind_wait = self._histogram(
            "homeport_expected_bind_wait_seconds",
            "Time that filter, prioritize and cycle calls waited for binds in flight.",
            _WAIT_BUCKETS,
        )
        self.bind_batch_wait = self._histogram(
            "homeport_bind_batch_wait_seconds", "Time that Bindings were held to be sent in a batch.", _WAIT_BUCKETS
        )
        self.rejections = self._counter(
            "homeport_listener_rejections",
            "Connections and requests that a listener refused, by listener and cause.",
            "listener",
            "cause",
        )
        self.sampled_out = self._counter(
            "homeport_sampled_out",
            "Pods refused on a whole sample of the nodes and then nominated to a node outside the sample.",
        )
        self.nominations = self._counter(
            "homeport_nominations", "Nominations of pods to nodes outside the sample, by effect.", "result"
        )

        self.preemption_plans = self._counter(
            "homeport_preemption_plans", "Plans to evict pods for a pod that only topology spread rejects.", "result"
        )

    def _of_plugins(self) -> None:
        """Define metrics of plugins: durations, faults, and waits at Permit."""
        self.point_duration = self._histogram(
            "homeport_framework_extension_point_duration_seconds",
            "Duration of all plugins of an extension point; only some calls are timed, except for Reserve to PostBind.",
            _POINT_BUCKETS,
            "extension_point",
            "status",
            "profile",
        )
        self.plugin_duration = self._histogram(
            "homeport_plugin_execution_duration_seconds",
            "Duration of one plugin call; only some calls are timed, except for PreBind to PostBind.",
            _PLUGIN_BUCKETS,
            "plugin",
            "extension_point",
            "status",
        )
        self.plugin_faults = self._counter(
            "homeport_plugin_faults", "Exceptions raised by plugins, and invalid answers.", "plugin", "extension_point"
        )
        self.scores_out_of_range = self._counter(
            "homeport_scores_out_of_range",
            "Evaluations in which a plugin scored a node below 0 or above 100; the node counted as 0.",
            "plugin",
        )
        self.permit_wait = self._histogram(
            "homeport_permit_wait_duration_seconds",
            "Time that pods waited at Permit, by result.",
            _PERMIT_BUCKETS,
            "result",
        )

    def _of_replicas(self) -> None:
        """Define metrics of leader election and forwarding."""
        self.leader = self._gauge(
            "homeport_leader_election_master_status",
            "1 while this replica holds the Lease, else 0, by name of the Lease.",
            "name",
        )
        self.leader_transitions = self._counter("homeport_leader_transitions", "New leaders seen by this replica.")
        self.forwarded = self._counter(
            "homeport_forwarded_requests", "Requests forwarded to the leader, by verb and outcome.", "verb", "outcome"
        )
        self.forward_duration = self._histogram(
            "homeport_forward_duration_seconds",
            "Time from forwarding a request to the leader's answer, by verb.",
            _VERB_BUCKETS,
            "verb",
        )

    def _of_the_process(self) -> None:
        """Define metrics of the process: permissions, Events, checks of cached counts, event loop, and version."""
        self.permissions_missing = self._gauge(
            "homeport_permissions_missing",
            "Permissions that the configuration needs and the API server does not grant.",
        )
        self.events = self._counter("homeport_events", "Events raised, by result.", "result")
        self.snapshot_checks = self._counter(
            "homeport_snapshot_checks",
            "Comparisons of cached counts with a recount of all objects, by result.",
            "result",
        )
        for result in ("consistent", "different"):
            self.snapshot_checks.labels(result)
        self.loop_lag = self._histogram(
            "homeport_event_loop_lag_seconds",
            "Delay of the event loop, measured four times a second.",
            _LAG_BUCKETS,
        )
        self.build_info = self._gauge(
            "homeport_build_info",
            "Always 1, with the versions of Homeport and of Python as labels.",
            "version",
            "python_version",
            "python_implementation",
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def batched(self, put_in: Callable[[T], None]) -> ObservationBatch[T]:
        """Return an ``ObservationBatch``, which code that runs in each request calls with an observation.

        ``put_in`` is called later with each observation, at the latest when the metrics are read.
        """
        return self._settling.batched(put_in)

    def describe_process(self, version: str) -> None:
        """Add the metrics of the process itself: version, resources, dropped log lines.

        Call this method on only one ``Metrics`` of a process.
        """
        self.build_info.labels(version, platform.python_version(), platform.python_implementation()).set(1)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.registry.register(DroppedLinesCollector())

    def add_collector(self, collector: Collector) -> None:
        """Add a collector of metrics that are read from other objects at scrape time."""
        self.registry.register(collector)
