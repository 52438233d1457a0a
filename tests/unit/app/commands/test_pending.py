"""The list of waiting pods: pages, formats, ages and reasons."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.commands.pending import age, listing, pods
from tests.builders import JsonObject

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)


def waiting(name: str, **more: Any) -> JsonObject:
    pod = {
        "namespace": "shop",
        "name": name,
        "schedulerName": "default-scheduler",
        "profile": "*",
        "since": "",
        "gated": False,
        "judged": True,
        "feasible": 0,
        "total": 12,
        "reasons": ["Insufficient cpu"],
        "plugin": "NodeResourcesFit",
        "opens": 3,
        "notJudged": [],
    }
    return {**pod, **more}


class Pages:
    """Pages of two pods each."""

    def __init__(self, *items: JsonObject) -> None:
        self.queries: list[dict[str, str]] = []
        self._items = items

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        assert "/api/v1/pending" == path
        self.queries.append(dict(query))
        start = int(query.get("start", "0"))
        following = start + 2 if start + 2 < len(self._items) else None
        return {"total": len(self._items), "items": [*self._items[start : start + 2]], "next": following}

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError(path, body)


def test_all_pages_are_one_list() -> None:
    pages = Pages(*(waiting(f"p{number}") for number in range(5)))

    answer = pods(pages, "shop")

    assert [f"p{number}" for number in range(5)] == [it["name"] for it in answer["items"]]
    assert (5, False) == (answer["total"], "next" in answer)
    assert [{"namespace": "shop"}, *({"namespace": "shop", "start": it} for it in ("2", "4"))] == pages.queries


def test_of_all_namespaces() -> None:
    pages = Pages()
    pods(pages, "")

    assert [{}] == pages.queries


ANSWER = {"items": [waiting("web-1"), waiting("db-1", namespace="data", gated=True, judged=False, plugin="")]}

TABLE = """\
NAMESPACE  NAME   WAITS  NODES  REASON
shop       web-1  -      0/12   NodeResourcesFit: Insufficient cpu
data       db-1   -      -      held by its scheduling gates"""

WIDE = """\
NAME   WAITS  NODES  REASON                              OPENS  PROFILE  SCHEDULERNAME
web-1  -      0/12   NodeResourcesFit: Insufficient cpu  3      *        default-scheduler
db-1   -      -      held by its scheduling gates        -      *        default-scheduler"""


@pytest.mark.parametrize(
    ("namespace", "output", "headers", "expected"),
    [
        ("", "table", True, TABLE),
        ("", "table", False, "\n".join(TABLE.splitlines()[1:])),
        ("shop", "wide", True, WIDE),
        ("", "name", True, "pod/web-1\npod/db-1"),
    ],
)
def test_formats(namespace: str, output: str, headers: bool, expected: str) -> None:
    shown = listing(ANSWER, namespace, output, headers=headers)

    assert [it.split() for it in expected.splitlines()] == [it.split() for it in shown.splitlines()]


def test_a_table_without_rows_is_empty_and_json_is_not() -> None:
    assert ("", '{\n  "items": []\n}') == tuple(
        listing({"items": []}, "", output, headers=True) for output in ("table", "json")
    )


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        ({"profile": ""}, "no profile has its schedulerName"),
        ({"judged": False}, "not judged yet"),
        ({"plugin": "", "reasons": ["a", "b"]}, "a, b"),
        ({"plugin": "", "reasons": []}, "fits now"),
        ({"plugin": "", "reasons": [], "notJudged": ["NodeResourcesFit"]}, "fits, as far as judged here"),
    ],
)
def test_reasons(pod: JsonObject, reason: str) -> None:
    assert listing({"items": [waiting("x", **pod)]}, "shop", "table", headers=False).endswith(reason)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (9 * 86400, "9d"),
    ],
)
def test_ages_are_those_of_kubectl(seconds: int, expected: str) -> None:
    since = (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")

    assert expected == age(since, NOW)


@pytest.mark.parametrize("since", ["", "yesterday", "2026-11-24T11:00:00"])
def test_an_age_that_is_not_known(since: str) -> None:
    """The last one has no time zone."""
    assert "-" == age(since, NOW)
