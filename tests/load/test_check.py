"""The gate of the bench: what it lets through, and what it names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.load.check import exceeded
from tests.load.ratios import limited


def ratios(ratio: float) -> dict[str, Any]:
    return {"ratios": {"ratios": limited({"it": ratio}, {"it": 2.0})}}


def pause(cpu: float, wall: float = 0.0) -> dict[str, Any]:
    return {
        "service": {"service": {"events": {"segments": {"quiet": {"longest_pause": {"cpu_ms": cpu, "wall_ms": wall}}}}}}
    }


def scheduling(ratio: float | None, target: float | None) -> dict[str, Any]:
    return {"scheduling": {"scheduling": [{"workload": "zone", "ratio": ratio, "target": target}]}}


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        pytest.param(ratios(4.0), [], id="a ratio at its limit"),
        pytest.param(ratios(4.1), ["ratios: it: 4.1 times what is beside it, at most 4"], id="a ratio beyond it"),
        pytest.param(pause(19.9, wall=300.0), [], id="a pause that a busy machine stretched"),
        pytest.param(pause(20.1), ["service: quiet: a pause of 20.1 ms, at most 20"], id="a pause of ours"),
        pytest.param(scheduling(0.8, 0.8), [], id="a target that is met"),
        pytest.param(
            scheduling(0.7, 0.8),
            ["scheduling: zone: 0.7 of the in-tree plugin's pods/s, at least 0.8"],
            id="a target that is missed",
        ),
        pytest.param(scheduling(0.1, None), [], id="no target"),
        pytest.param(scheduling(None, 0.8), [], id="no ratio, of one system alone"),
    ],
)
def test_what_is_missed_is_named(found: dict[str, Any], missed: list[str]) -> None:
    assert missed == exceeded(found)
