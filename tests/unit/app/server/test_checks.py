"""``/readyz?verbose`` as kube-apiserver writes it, a line a check."""

from __future__ import annotations

import pytest

from app.server.checks import ReadinessCheck, verbose


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (ReadinessCheck("snapshot"), "[+]snapshot ok"),
        (ReadinessCheck("leader", detail="follower of a"), "[+]leader ok: follower of a"),
        (ReadinessCheck("leader", "no replica leads", "no replica leads"), "[-]leader failed: no replica leads"),
    ],
)
def test_a_line(found: ReadinessCheck, line: str) -> None:
    assert line == str(found)


@pytest.mark.parametrize(
    ("problem", "verdict"),
    [
        pytest.param("", "readyz check passed", id="a check that fails alone makes it no less ready"),
        pytest.param("no picture", "readyz check failed", id="not ready"),
    ],
)
def test_the_answer(problem: str, verdict: str) -> None:
    lines = [ReadinessCheck("snapshot"), ReadinessCheck("permissions", "not allowed to patch pods/status")]

    assert f"[+]snapshot ok\n[-]permissions failed: not allowed to patch pods/status\n{verdict}\n" == verbose(
        lines, problem
    )
