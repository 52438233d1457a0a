"""Metrics of the snapshot. They are computed at each scrape, not at each event of a watch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

KNOWN_KEYS: Final = (
    "kubernetes.io/hostname",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
"""Topology keys that are exported by name even if there are more than ``MOST_KEYS`` keys."""

MOST_KEYS: Final = 16
"""Maximum number of topology keys in ``homeport_topology_skew``, ``OTHER_KEYS`` included."""

OTHER_KEYS: Final = "(others)"
"""Label value that stands for all topology keys that are not exported by name."""


class FeedMetrics(Protocol):
    """State of the feed of one kind, with the values that metrics export.

    ``objects``: number in the snapshot. ``age``: seconds since the last contact; 0 before the first list. ``synced``:
    true once the first list is applied, or the kind is not served. ``events``: number of watch events so far.
    ``relists``: number of lists so far, without the first one. ``undecodable``: number of events and list items left
    out so far. ``left_out``: objects that cannot be read now.
    """

    @property
    def objects(self) -> int: ...
    @property
    def age(self) -> float: ...
    @property
    def synced(self) -> bool: ...
    @property
    def events(self) -> int: ...
    @property
    def relists(self) -> int: ...
    @property
    def undecodable(self) -> int: ...
    @property
    def left_out(self) -> Sized: ...


class SnapshotCollector(Collector):
    """Exports the state of each kind's feed, the number of assumed pods, and readiness."""

    def __init__(
        self, feeds: Callable[[], Mapping[str, FeedMetrics]], assumed: Callable[[], int], ready: Callable[[], bool]
    ) -> None:
        self._feeds = feeds
        self._assumed = assumed
        self._ready = ready

    def collect(self) -> Iterable[Metric]:
        feeds = self._feeds()
        gauges = {
            "homeport_objects": ("Objects in the snapshot, by kind.", lambda it: it.objects),
            "homeport_feed_age_seconds": ("Time since the watch was last heard of.", lambda it: it.age),
            "homeport_feed_unreadable_objects": ("Objects that cannot be read.", lambda it: len(it.left_out)),
            "homeport_feed_synced": ("1 once the first list of a kind is applied.", lambda it: float(it.synced)),
        }
        counters = {
            "homeport_feed_events": ("Watch events applied.", lambda it: it.events),
            "homeport_feed_relists": ("Lists taken.", lambda it: it.relists),
            "homeport_feed_undecodable": ("Events and list items left out.", lambda it: it.undecodable),
        }
        for name, (text, read) in gauges.items():
            yield _filled(GaugeMetricFamily(name, text, labels=["kind"]), feeds, read)
        for name, (text, read) in counters.items():
            yield _filled(CounterMetricFamily(name, text, labels=["kind"]), feeds, read)
        yield GaugeMetricFamily("homeport_assumed_pods", "Pods assumed and not yet shown bound.", self._assumed())
        yield GaugeMetricFamily("homeport_ready", "1 while /readyz says that it is ready.", float(self._ready()))


class CountedCollector(Collector):
    """Exports values that are counted in short steps, because counting at once would block the event loop for too long.

    The caller stores the values in the attributes before each scrape. ``skews``: largest skew by topology key.
    ``unschedulable``: number of pods by plugin and profile. ``gauges``: gauges of plugins by name, each with its help
    text and its samples by labels. ``workload_skews``: skews above ``maxSkew`` by namespace, workload and topology key.
    """

    def __init__(self) -> None:
        self.skews: Mapping[str, int] = {}
        self.unschedulable: Mapping[tuple[str, str], int] = {}
        self.gauges: Mapping[str, tuple[str, Mapping[tuple[tuple[str, str], ...], float]]] = {}
        self.workload_skews: Mapping[tuple[str, str, str], int] = {}

    def collect(self) -> Iterable[Metric]:
        text = "Largest difference between the fullest and the emptiest domain, of all that is counted now."
        skew = GaugeMetricFamily("homeport_topology_skew", text, labels=["topology_key"])
        for topology_key, value in _few(self.skews).items():
            skew.add_metric([topology_key], value)
        yield skew
        text = "Pods that filter refused when it was last asked and that still wait, by plugin and profile."
        pods = GaugeMetricFamily("homeport_unschedulable_pods", text, labels=["plugin", "profile"])
        for labels, count in self.unschedulable.items():
            pods.add_metric(list(labels), count)
        yield pods
        text = "Skew of a workload under a spread constraint, only if it is larger than maxSkew."
        above = GaugeMetricFamily("homeport_workload_skew", text, labels=["namespace", "workload", "topology_key"])
        for workload, value in self.workload_skews.items():
            above.add_metric(list(workload), value)
        yield above
        for name, (text, samples) in self.gauges.items():
            gauge = Metric(name, text, "gauge")
            for sample_labels, sample in samples.items():
                gauge.add_sample(name, dict(sample_labels), sample)
            yield gauge


class _Family(Collector):
    """Collector with only one metric, so that a call of ``generate_latest`` renders no other."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def rendered(registry: CollectorRegistry, parts: list[bytes]) -> Iterator[None]:
    """Append the text of each metric to ``parts``, one metric per step."""
    for metric in registry.collect():
        parts.append(generate_latest(_Family(metric)))
        yield


def _few(skews: Mapping[str, int]) -> Mapping[str, int]:
    """Return the skews of at most ``MOST_KEYS`` keys, because pods can use any node label as a topology key.

    All further keys are put together as ``OTHER_KEYS``, with the largest of their skews.
    """
    if len(skews) <= MOST_KEYS:
        return skews
    named = sorted(skews, key=lambda key: (key not in KNOWN_KEYS, key))
    shown = {key: skews[key] for key in named[: MOST_KEYS - 1]}
    return {**shown, OTHER_KEYS: max(skews[key] for key in named[MOST_KEYS - 1 :])}


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily,
    feeds: Mapping[str, FeedMetrics],
    read: Callable[[FeedMetrics], float],
) -> Metric:
    for kind, state in feeds.items():
        family.add_metric([kind], read(state))
    return family
