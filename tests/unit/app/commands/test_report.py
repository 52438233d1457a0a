"""The page with its data in one file."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from app.commands import report
from tests.api.service import SAMPLE

NOW = datetime(2026, 11, 27, tzinfo=UTC)


def data_of(page: str) -> Any:
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(data)


def test_a_report_has_what_its_pages_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.html"

    code = main(["report", "-q", "--saved", str(SAMPLE), "-o", str(file)])

    answers = data_of(file.read_text())["answers"]
    assert (0, f"wrote {file}\n") == (code, capsys.readouterr().out)
    assert {
        "overview",
        "nodes",
        "status",
        "homes?limit=500",
        "nodes/node-a1",
        "explain/shop/web-urgent",
        "workloads/shop/Deployment/web",
        "lose?key=topology.kubernetes.io%2Fzone",
        "lose?key=topology.kubernetes.io%2Fzone&value=eu-1a",
    } <= answers.keys()


def test_no_text_of_the_cluster_ends_the_data() -> None:
    answers: report.Answers = {"overview": {"name": "</script><script>alert(1)</script>"}}

    page = report.html(answers, NOW)

    assert ("2026-11-27T00:00:00+00:00", answers) == (data_of(page)["madeAt"], data_of(page)["answers"])
    assert 2 == page.count("<script")


def test_a_report_refers_to_no_other_file() -> None:
    page = report.html({}, NOW)

    assert [] == re.findall(r'^import |^export |src="|<link', page, re.MULTILINE)


def test_a_file_that_cannot_be_written_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["report", "-q", "--saved", str(SAMPLE), "-o", "/nowhere/report.html"])

    assert (3, "homeport: /nowhere/report.html: No such file or directory\n") == (code, capsys.readouterr().err)
