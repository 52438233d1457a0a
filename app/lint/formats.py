"""Formats of a report: text, JSON, SARIF 2.1.0, and commands of GitHub's workflows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote

import msgspec

from app.lint.linting import LintReport
from app.lint.rules import RULES, LintFinding, Severity

FORMATS: Final = ("text", "json", "sarif", "github")
"""Names of the formats. The first is the default."""

_LINE_ENDS: Final = "\r\n"
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"

Paint = Callable[[str, Severity], str]
"""Function that returns a text in the colour of a severity."""


def formatted(report: LintReport, output: str, version: str, paint: Paint) -> str:
    """Return the report in one of ``FORMATS``.

    The formats json, sarif and github also report the broken manifests. Without findings, text is an empty string.
    """
    if output == "json":
        return json.dumps(_as_json(report), indent=2)
    if output == "sarif":
        return json.dumps(_as_sarif(report, version), indent=2)
    lines = _github(report) if output == "github" else _text(report, paint)
    return "\n".join(lines)


def printable(text: str, also: str = "") -> str:
    """Return the text with unprintable characters escaped, because they could control a terminal.

    ``also``: unprintable characters that are kept.
    """
    return "".join(it if it.isprintable() or it in also else ascii(it)[1:-1] for it in text)


def _text(report: LintReport, paint: Paint) -> Iterator[str]:
    for finding in report.findings:
        where = f"{printable(finding.file)}{f':{finding.line}' if finding.line else ''}: " if finding.file else ""
        level = paint(finding.severity.value, finding.severity)
        yield f"{where}{level} {finding.id}: {printable(f'{finding.object_name}: {finding.message}')}"
        if finding.field:
            yield f"    field: {printable(finding.field)}"
        yield f"    fix:   {printable(finding.fix)}"


def _as_json(report: LintReport) -> dict[str, Any]:
    return {
        "findings": msgspec.to_builtins(report.findings),
        "broken": msgspec.to_builtins(report.broken),
        "skipped": [{"id": it.id, "without": it.need.value} for it in report.skipped],
        "objects": report.objects,
        "ignored": report.ignored,
    }


def _as_sarif(report: LintReport, version: str) -> dict[str, Any]:
    numbers = {it.id: number for number, it in enumerate(RULES)}
    rules = [{"id": it.id, "shortDescription": {"text": it.summary}} for it in RULES]
    notifications = [
        {"level": "error", "message": {"text": it.message}, "locations": [_place(it.file, it.line)]}
        for it in report.broken
    ]
    invocation = {"executionSuccessful": not report.broken, "toolExecutionNotifications": notifications}
    run = {
        "tool": {"driver": {"name": "homeport lint", "version": version, "rules": rules}},
        "invocations": [invocation],
        "results": [_result(it, numbers[it.id]) for it in report.findings],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(finding: LintFinding, number: int) -> dict[str, Any]:
    location: dict[str, Any] = _place(finding.file, finding.line) if finding.file else {}
    name = f"{finding.object_name} {finding.field}"
    location["logicalLocations"] = [{"fullyQualifiedName": name, "kind": "resource"}]
    return {
        "ruleId": finding.id,
        "ruleIndex": number,
        "level": finding.severity.value,
        "message": {"text": f"{finding.object_name}: {finding.message}. Fix: {finding.fix}."},
        "locations": [location],
    }


def _place(file: str, line: int) -> dict[str, Any]:
    artifact: dict[str, Any] = {"artifactLocation": {"uri": quote(file)}}
    return {"physicalLocation": artifact | ({"region": {"startLine": line}} if line else {})}


def _github(report: LintReport) -> Iterator[str]:
    for finding in report.findings:
        line = {"line": str(finding.line)} if finding.line else {}
        place = {"file": finding.file, **line} if finding.file else {}
        text = f"{finding.object_name}: {finding.message}. Fix: {finding.fix}."
        yield _command(finding.severity.value, {**place, "title": finding.id}, text)
    for broken in report.broken:
        line = {"line": str(broken.line)} if broken.line else {}
        yield _command("error", {"file": broken.file, **line, "title": "broken manifest"}, broken.message)


def _command(level: str, properties: dict[str, str], text: str) -> str:
    """Return a workflow command of GitHub, which shows it as an annotation."""
    fields = ",".join(f"{key}={_escaped(value, ',:')}" for key, value in properties.items())
    return f"::{level} {fields}::{_escaped(text)}"


def _escaped(text: str, also: str = "") -> str:
    """Escape unprintable characters.

    As GitHub's toolkit does, also escape percent signs, line ends and the characters in ``also``.
    """
    text = printable(text, _LINE_ENDS)
    for character in f"%{_LINE_ENDS}{also}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
