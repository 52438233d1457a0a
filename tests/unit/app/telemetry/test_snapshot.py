"""Metrics that are counted for a scrape: bounded, and rendered in steps."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest

from app.telemetry.metrics import Metrics
from app.telemetry.snapshot import KNOWN_KEYS, MOST_KEYS, OTHER_KEYS, CountedCollector, rendered


def samples(collector: CountedCollector, name: str) -> Mapping[tuple[str, ...], float]:
    (family,) = [it for it in collector.collect() if it.name == name]
    return {tuple(it.labels.values()): it.value for it in family.samples}


def test_few_topology_keys_are_told_apart_the_usual_ones_before_others() -> None:
    collector = CountedCollector()
    collector.skews = {f"a.example.com/{number}": number for number in range(100)} | dict.fromkeys(KNOWN_KEYS, 1)

    found = samples(collector, "homeport_topology_skew")

    assert MOST_KEYS == len(found)
    assert {(key,) for key in KNOWN_KEYS} <= found.keys()
    assert 99 == found[OTHER_KEYS,]


def test_refused_pods_and_gauges_of_plugins_are_exposed() -> None:
    collector = CountedCollector()
    collector.unschedulable = {("Spread", "*"): 2}
    collector.gauges = {"homeport_moons": ("Moons.", {(("planet", "mars"), ("profile", "*")): 2.0})}

    assert {("Spread", "*"): 2} == samples(collector, "homeport_unschedulable_pods")
    assert {("mars", "*"): 2} == samples(collector, "homeport_moons")


def test_step_by_step_the_same_is_rendered_as_at_once() -> None:
    metrics = Metrics()
    metrics.describe_process("1.2.3")
    metrics.requests.labels("filter", "feasible").inc()
    registry = CollectorRegistry()
    for it in (metrics.requests, metrics.build_info, metrics.request_duration):
        registry.register(it)
    parts: list[bytes] = []

    steps = sum(1 for _ in rendered(registry, parts))

    assert 3 == steps == len(parts)
    assert generate_latest(registry) == b"".join(parts)


def test_when_a_series_began_is_not_exposed() -> None:
    metrics = Metrics()
    metrics.request_duration.labels("filter").observe(1)

    assert b"_created" not in generate_latest(metrics.registry)


def test_the_build_is_told() -> None:
    metrics = Metrics()
    metrics.describe_process("1.2.3")
    (family,) = [it for it in metrics.registry.collect() if it.name == "homeport_build_info"]
    (sample,) = family.samples

    assert ("1.2.3", 1) == (sample.labels["version"], sample.value)
