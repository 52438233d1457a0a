"""Every alert means something, says so, and has a section in the runbook."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

import pytest

from app.kube.durations import parse_duration
from tests.observability.files import ALERTS, RUNBOOK, alerts
from tests.observability.promql import asked

RULES: Final = [pytest.param(it, id=it["alert"]) for it in alerts()]
SECTIONS: Final = re.split(r"^## ", RUNBOOK.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
PARTS: Final = ("Meaning", "Affected", "Check", "Fix", "Escalate")
ROLLING_UPDATE_SECONDS: Final = 60.0
"""Two replicas one after the other, and a leader that was killed on the way."""

AT_ONCE: Final = {"HomeportPluginFaults", "HomeportSnapshotWrong"}
"""What never happens in a rolling update either, and is looked at over a range already."""


def test_each_has_a_section_and_each_section_an_alert() -> None:
    assert [it["alert"] for it in alerts()] == [section.partition("\n")[0] for section in SECTIONS]


@pytest.mark.parametrize("section", [pytest.param(it, id=it.partition("\n")[0]) for it in SECTIONS])
def test_a_section_says_what_it_means_whom_it_affects_where_to_look_and_what_to_do(section: str) -> None:
    places = [section.find(f"\n**{part}.**") for part in PARTS]

    assert -1 not in places
    assert all(one < other for one, other in pairwise(places))


@pytest.mark.parametrize("rule", RULES)
def test_it_leads_to_its_section(rule: dict[str, Any]) -> None:
    assert f"docs/runbook.md#{rule['alert'].lower()}" == rule["annotations"]["runbook_url"]


@pytest.mark.parametrize("rule", RULES)
def test_it_says_how_bad_it_is_and_what_it_is(rule: dict[str, Any]) -> None:
    assert {"alert", "expr", "for", "labels", "annotations"} == rule.keys()
    assert {"severity"} == rule["labels"].keys()
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert {"summary", "description", "runbook_url"} == rule["annotations"].keys()
    assert all(rule["annotations"][part].endswith(".") for part in ("summary", "description"))


@pytest.mark.parametrize("rule", RULES)
def test_a_rolling_update_does_not_fire_it(rule: dict[str, Any]) -> None:
    seconds = parse_duration(rule["for"])

    assert seconds > ROLLING_UPDATE_SECONDS or (rule["alert"] in AT_ONCE and "increase(" in rule["expr"])


@pytest.mark.parametrize("rule", RULES)
def test_its_words_name_labels_that_it_has(rule: dict[str, Any]) -> None:
    """An aggregation leaves those it groups by; without one all labels of the series stay."""
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    left = asked(rule["expr"]).grouping
    if not re.search(r"\b(sum|max|min|count|absent)\b", rule["expr"]):
        left |= {"namespace", "pod", "certificate"}

    assert named <= left


def test_names_begin_alike_and_are_unique() -> None:
    names = [it["alert"] for it in alerts()]

    assert len(set(names)) == len(names)
    assert [] == [name for name in names if not re.fullmatch(r"Homeport([A-Z][a-z]+)+", name)]


def test_the_file_says_where_it_is_explained() -> None:
    assert "docs/runbook.md" in ALERTS.read_text(encoding="utf-8").splitlines()[0]
