"""The dashboard is what Grafana takes, and says what it shows."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

import pytest

from tests.observability.files import dashboard, panels
from tests.observability.promql import asked

PANELS: Final = [pytest.param(it, id=f"{it['id']} {it['title']}") for it in panels()]
KINDS: Final = {"timeseries", "stat", "heatmap", "table"}
WIDTH: Final = 24
"""Columns of Grafana's grid."""

UNITS: Final = {"short", "s", "ops", "reqps", "bytes", "percentunit"}
"""Grafana's names of units, as far as they are used."""


def test_it_has_what_a_dashboard_needs() -> None:
    found = dashboard()

    assert ("homeport", "Homeport", 1) == (found["uid"], found["title"], found["version"])
    assert found["schemaVersion"] >= 39
    assert found["tags"]
    assert found["description"]
    assert "id" not in found  # Grafana gives it, and takes another's for an update


def test_the_data_source_is_a_variable_and_the_others_ask_it() -> None:
    source, *others = dashboard()["templating"]["list"]

    assert ("datasource", "datasource", "prometheus") == (source["name"], source["type"], source["query"])
    assert ["namespace", "pod"] == [it["name"] for it in others]
    assert [{"type": "prometheus", "uid": "${datasource}"}] * 2 == [it["datasource"] for it in others]
    assert [".*"] * 2 == [it["allValue"] for it in others]  # also where there is no such label


def test_ids_are_unique() -> None:
    ids = [it["id"] for it in dashboard()["panels"]]

    assert sorted(set(ids)) == ids


def test_titles_are_unique_within_a_row() -> None:
    row, seen = "", set()
    for it in dashboard()["panels"]:
        row = it["title"] if it["type"] == "row" else row
        assert (row, it["title"], it["type"]) not in seen
        seen.add((row, it["title"], it["type"]))


def test_panels_do_not_overlap_and_leave_no_gap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for it in dashboard()["panels"]:
        place = it["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (it["title"], taken[x, y])
                taken[x, y] = it["title"]
    height = 1 + max(y for _, y in taken)
    assert WIDTH * height == len(taken)


def test_panels_come_in_reading_order_below_their_rows() -> None:
    found = dashboard()["panels"]
    places = [(it["gridPos"]["y"], it["gridPos"]["x"]) for it in found]

    assert "row" == found[0]["type"]
    assert sorted(places) == places
    assert [] == [one["title"] for one, other in pairwise(found) if (one["type"], other["type"]) == ("row", "row")]


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["type"] in KINDS
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert {"type": "prometheus", "uid": "${datasource}"} == panel["datasource"]


@pytest.mark.parametrize("panel", PANELS)
def test_queries_are_told_apart_and_keep_to_what_is_chosen(panel: dict[str, Any]) -> None:
    targets = panel["targets"]

    assert ["A", "B", "C", "D"][: len(targets)] == [it["refId"] for it in targets]
    for it in targets:
        assert 'namespace=~"$namespace", pod=~"$pod"' in it["expr"]
        assert (panel["type"] in ("stat", "table")) == it["instant"] != it["range"]
        assert panel["datasource"] == it["datasource"]


@pytest.mark.parametrize("panel", PANELS)
def test_legends_name_labels_that_the_answer_has(panel: dict[str, Any]) -> None:
    for it in panel["targets"]:
        wanted = set(re.findall(r"\{\{(\w+)\}\}", it["legendFormat"]))
        aggregated = re.search(r"\b(sum|max|min|count)\b", it["expr"])
        assert wanted <= (set(asked(it["expr"]).grouping) if aggregated else {"pod"}), it["expr"]


@pytest.mark.parametrize("panel", PANELS)
def test_a_range_follows_the_scrape_interval(panel: dict[str, Any]) -> None:
    """A fixed one is for figures of the moment only."""
    fixed = [it["expr"] for it in panel["targets"] if re.search(r"\[\d+[smhd]\]", it["expr"])]

    assert not fixed or panel["type"] == "stat"
