"""Every expression asks for metrics, labels and label values that a live service exposes."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final, get_args

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from app.config.settings import Settings
from app.controllers.cases import Effect
from app.telemetry.metrics import Metrics
from app.verbs.outcome import Outcome, Verb
from plugins.sticky_node.reports import STATES_OF_PODS
from tests.api.service import SAMPLE, example, serving
from tests.certificates import Authority
from tests.observability.files import expressions
from tests.observability.promql import Asked, asked, family

EXPRESSIONS: Final = [pytest.param(expr, id=where) for where, expr in expressions()]
TARGET: Final = frozenset({"namespace", "pod", "instance", "exported_namespace"})  # the last: a metric's own namespace
"""Labels that Prometheus adds to what it scrapes."""

FOREIGN: Final = {"leader_election_master_status": frozenset({"name"})}
"""What the kube-scheduler beside Homeport exposes (k8s.io/component-base)."""

NOT_SHOWN: Final = {"homeport_feed_undecodable_total"}
"""Of which something else tells: what is left out at the moment."""

VALUES: Final[dict[str, frozenset[str]]] = {
    "outcome": frozenset(get_args(Outcome)) | {"answered", "unreachable", "misdirected", "unanswered"},
    "verb": frozenset(get_args(Verb)),
    "state": frozenset(STATES_OF_PODS),
    "certificate": frozenset({"serving", "authority", "client", "kubeconfig"}),
    "result": frozenset({"consistent", "different", *get_args(Effect)}),
}
"""Of the labels whose values are a fixed set."""


async def scraped(folder: Path) -> str:
    """What is exposed after calls of every verb."""
    certificate, key = map(str, Authority(folder).issue("server", "127.0.0.1"))
    settings = Settings(cluster=str(SAMPLE), tls_cert_file=certificate, tls_private_key_file=key)
    async with serving(settings) as api:
        await api.post("filter", example("filter-spread"))
        await api.post("filter", {**example("filter-spread"), "NodeNames": ["node-a1"]})
        await api.post("prioritize", example("prioritize-spread"))
        await api.post("preempt", example("preempt"))
        await api.post("bind", example("bind-crowded"))
        return (await api.http.get("/metrics")).text


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> list[Metric]:
    text = asyncio.run(scraped(tmp_path_factory.mktemp("certificates")))
    return list(text_string_to_metric_families(text))


@pytest.fixture(scope="module")
def labels(families: list[Metric]) -> dict[str, frozenset[str]]:
    """The labels of every metric by the name of its series. What has no series yet declares them."""
    declared = {it._name: set(it._labelnames) for it in vars(Metrics()).values() if hasattr(it, "_labelnames")}
    found = {}
    for it in families:
        seen = {label for sample in it.samples for label in sample.labels}
        seen |= {"le"} if it.type == "histogram" else set()
        found[it.name + "_total" * (it.type == "counter")] = frozenset(seen | declared.get(it.name, set()))
    return found


@pytest.fixture(scope="module")
def histograms(families: list[Metric]) -> frozenset[str]:
    return frozenset(it.name for it in families if it.type == "histogram")


def read(expression: str) -> Asked:
    return asked(expression.replace("$namespace", "shop").replace("$pod", "homeport-0"))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_metrics_are_exposed_and_have_the_labels_that_are_matched(
    expression: str, labels: dict[str, frozenset[str]], histograms: frozenset[str]
) -> None:
    found = read(expression)

    assert found.metrics
    known = {**labels, **FOREIGN}
    asked_for = {family(series, histograms): matched for series, matched in found.metrics.items()}
    assert [] == [name for name in asked_for if name not in known]
    assert {} == {
        name: wrong for name, matched in asked_for.items() if (wrong := matched.keys() - known[name] - TARGET)
    }


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_grouped_by_is_a_label(
    expression: str, labels: dict[str, frozenset[str]], histograms: frozenset[str]
) -> None:
    found = read(expression)
    known = [{**labels, **FOREIGN}[family(series, histograms)] for series in found.metrics]

    assert frozenset() == found.grouping - frozenset().union(*known) - TARGET


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_values_that_are_matched_exist(expression: str) -> None:
    for matched in read(expression).metrics.values():
        for label, value in matched.items():
            if label in VALUES:
                assert set(value.split("|")) <= VALUES[label], label


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_counters_are_asked_for_their_growth(expression: str) -> None:
    growing = re.findall(r"(?:rate|increase)\((\w+)", expression)

    assert [] == [
        series
        for series in read(expression).metrics
        if series.endswith(("_total", "_bucket", "_sum", "_count")) and series not in growing
    ]


def test_all_that_homeport_exposes_of_itself_is_shown_or_watched(
    labels: dict[str, frozenset[str]], histograms: frozenset[str]
) -> None:
    used = {family(series, histograms) for _, expr in expressions() for series in read(expr).metrics}

    assert NOT_SHOWN == {name for name in labels if name.startswith("homeport_")} - used


def test_an_expression_is_taken_apart() -> None:
    found = asked('sum by (x, le) (rate(a_bucket{b="c", d!~"e|f"}[5m])) / on (y) group_left () max(g) > 0.5')

    assert ({"a_bucket": {"b": "c", "d": "e|f"}, "g": {}}, {"x", "le", "y"}) == (found.metrics, set(found.grouping))
