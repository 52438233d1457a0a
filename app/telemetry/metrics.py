"""Every metric Homeport exposes, in one place. Names follow the Prometheus conventions, durations are seconds."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.registry import Collector

_VERB_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_PLUGIN_BUCKETS: Final = (0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 1.0)


class Metrics:
    """One set of metrics per service; nothing is registered globally, so that tests can hold many."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "homeport_requests", "Requests answered, by verb and outcome.", ["verb", "outcome"], registry=self.registry
        )
        self.request_duration = Histogram(
            "homeport_request_duration_seconds",
            "Time from reading the body to the answer, by verb.",
            ["verb"],
            buckets=_VERB_BUCKETS,
            registry=self.registry,
        )
        self.plugin_duration = Histogram(
            "homeport_plugin_duration_seconds",
            "Time in one call of a plugin, sampled, by plugin and extension point.",
            ["plugin", "point"],
            buckets=_PLUGIN_BUCKETS,
            registry=self.registry,
        )
        self.plugin_faults = Counter(
            "homeport_plugin_faults", "Exceptions that left a plugin.", ["plugin", "point"], registry=self.registry
        )
        self.refusals = Counter(
            "homeport_refusals",
            "Pods refused by filter, by where the answer came from.",
            ["answer"],
            registry=self.registry,
        )
        self.unserved = Counter(
            "homeport_unserved_requests",
            "Requests about pods of no profile here, which go unchecked, by verb and schedulerName.",
            ["verb", "scheduler_name"],
            registry=self.registry,
        )
        self.due_bind_wait = Histogram(
            "homeport_due_bind_wait_seconds",
            "Time filter calls waited for binds that were on their way.",
            buckets=_PLUGIN_BUCKETS,
            registry=self.registry,
        )

        self.turned_away = Counter(
            "homeport_turned_away",
            "Connections and requests that a listener did not let through, by its name and the cause.",
            ["listener", "cause"],
            registry=self.registry,
        )
        self.sampled_out = Counter(
            "homeport_sampled_out",
            "Pods refused on every node they were shown while others would do.",
            registry=self.registry,
        )
        self.nominations = Counter(
            "homeport_nominations",
            "Pods led to a node they were not shown, by what came of it.",
            ["result"],
            registry=self.registry,
        )
        self.leader = Gauge(
            "homeport_leader", "1 while this replica leads, or there is only one.", registry=self.registry
        )
        self.leader_transitions = Counter(
            "homeport_leader_transitions", "New leaders seen by this replica.", registry=self.registry
        )
        self.permissions_missing = Gauge(
            "homeport_permissions_missing",
            "Permissions that the configuration needs and the API server does not grant.",
            registry=self.registry,
        )
        self.events = Counter(
            "homeport_events", "Events raised, by what became of them.", ["result"], registry=self.registry
        )
        self.forwarded = Counter(
            "homeport_forwarded_requests",
            "Requests sent on to the leader, by verb and outcome.",
            ["verb", "outcome"],
            registry=self.registry,
        )
        self.forward_duration = Histogram(
            "homeport_forward_duration_seconds",
            "Time from sending a request on to the leader's answer, by verb.",
            ["verb"],
            buckets=_VERB_BUCKETS,
            registry=self.registry,
        )

    def add_collector(self, collector: Collector) -> None:
        """Metrics that are read off other objects when they are scraped."""
        self.registry.register(collector)
