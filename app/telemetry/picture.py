"""Metrics of the picture, read when they are scraped instead of kept by the event path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class FeedFigures(Protocol):
    """What is known of the feed of one kind."""

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


class PictureCollector(Collector):
    """``feeds`` by kind, and the number of assumed pods."""

    def __init__(self, feeds: Callable[[], Mapping[str, FeedFigures]], assumed: Callable[[], int]) -> None:
        self._feeds = feeds
        self._assumed = assumed

    def collect(self) -> Iterable[Metric]:
        feeds = self._feeds()
        gauges = {
            "homeport_objects": ("Objects in the picture, by kind.", lambda it: it.objects),
            "homeport_feed_age_seconds": ("Time since the watch was last heard of.", lambda it: it.age),
            "homeport_feed_left_out": ("Objects that cannot be read.", lambda it: len(it.left_out)),
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


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily,
    feeds: Mapping[str, FeedFigures],
    read: Callable[[FeedFigures], float],
) -> Metric:
    for kind, figures in feeds.items():
        family.add_metric([kind], read(figures))
    return family
