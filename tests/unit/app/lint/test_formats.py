"""Formats of a report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from app.lint.formats import formatted
from app.lint.linting import LintReport
from app.lint.manifests import BrokenManifest
from app.lint.rules import MIN_DOMAINS, RULES, LintFinding, Severity

FINDING = LintFinding(
    id="min-domains",
    severity=Severity.WARNING,
    file="a b.yaml",
    line=7,
    kind="Deployment",
    namespace="shop",
    name="web",
    field="spec.x",
    message="100% wrong,\nreally",
    fix="mend: it",
)
LIVE = LintFinding("unknown-key", Severity.ERROR, "", 0, "Pod", "", "a", "spec.y", "no node", "label")
REPORT = LintReport((FINDING, LIVE), (BrokenManifest("c,d.yaml", 0, "cannot be read"),), (), (MIN_DOMAINS,), 3, 1)
NOTHING = LintReport((), (), (), (), 0, 0)


def plain(text: str, _severity: Severity) -> str:
    return text


def test_a_finding_about_a_whole_object_has_no_field() -> None:
    report = LintReport((replace(LIVE, field=""),), (), (), (), 1, 0)

    assert ["error unknown-key: Pod a: no node", "    fix:   label"] == formatted(
        report, "text", "1", plain
    ).splitlines()


def test_text() -> None:
    assert formatted(REPORT, "text", "1", plain).splitlines() == [
        "a b.yaml:7: warning min-domains: Deployment shop/web: 100% wrong,\\nreally",
        "    field: spec.x",
        "    fix:   mend: it",
        "error unknown-key: Pod a: no node",
        "    field: spec.y",
        "    fix:   label",
    ]
    assert "" == formatted(NOTHING, "text", "1", plain) == formatted(NOTHING, "github", "1", plain)


@pytest.mark.parametrize("output", ["text", "github"])
def test_unprintable_characters_are_escaped(output: str) -> None:
    bad = "\x1b[2J\u202e\udc80é"
    finding = replace(FINDING, file=bad, name=bad, field=bad, message=bad, fix=bad)
    report = replace(REPORT, findings=(finding,), broken=(BrokenManifest(bad, 1, bad),))

    told = formatted(report, output, "1", plain)

    assert all(it.isprintable() or it == "\n" for it in told)
    assert "\\x1b[2J\\u202e\\udc80é" in told


def test_json() -> None:
    told = json.loads(formatted(REPORT, "json", "1", plain))

    assert ["min-domains", "unknown-key"] == [it["id"] for it in told["findings"]]
    assert ("warning", "a b.yaml", 7) == tuple(told["findings"][0][it] for it in ("severity", "file", "line"))
    assert [{"file": "c,d.yaml", "line": 0, "message": "cannot be read"}] == told["broken"]
    assert [{"id": "min-domains", "without": "a cluster"}] == told["skipped"]
    assert (3, 1) == (told["objects"], told["ignored"])


def test_github() -> None:
    assert formatted(REPORT, "github", "1", plain).splitlines() == [
        "::warning file=a b.yaml,line=7,title=min-domains::Deployment shop/web: 100%25 wrong,%0Areally. Fix: mend: it.",
        "::error title=unknown-key::Pod a: no node. Fix: label.",
        "::error file=c%2Cd.yaml,title=broken manifest::cannot be read",
    ]


def require(found: dict[str, Any], *fields: str) -> None:
    assert [] == [it for it in fields if it not in found]


def test_sarif_has_what_its_schema_requires() -> None:
    """Required properties, and their kinds, of the objects of SARIF 2.1.0 that are used here."""
    log = json.loads(formatted(REPORT, "sarif", "1.2.3", plain))
    require(log, "version", "runs")
    (run,) = log["runs"]
    require(run, "tool")
    require(run["tool"], "driver")
    require(run["tool"]["driver"], "name")
    (invocation,) = run["invocations"]
    require(invocation, "executionSuccessful")

    assert "2.1.0" == log["version"]
    assert [it.id for it in RULES] == [it["id"] for it in run["tool"]["driver"]["rules"]]
    assert all(set(it["shortDescription"]) == {"text"} for it in run["tool"]["driver"]["rules"])
    assert invocation["executionSuccessful"] is False
    for result in (*run["results"], *invocation["toolExecutionNotifications"]):
        require(result, "message")
        require(result["message"], "text")
        assert result["level"] in ("none", "note", "warning", "error")
    first, second = run["results"]
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == first["ruleId"] == "min-domains"
    place = first["locations"][0]["physicalLocation"]
    assert ({"uri": "a%20b.yaml"}, {"startLine": 7}) == (place["artifactLocation"], place["region"])
    assert "Pod a spec.y" == second["locations"][0]["logicalLocations"][0]["fullyQualifiedName"]
    assert "physicalLocation" not in second["locations"][0]
