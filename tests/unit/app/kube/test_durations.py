"""Durations are what Go reads."""

from __future__ import annotations

import pytest

from app.kube.durations import duration, parse_duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        pytest.param("5s", 5.0, id="seconds"),
        pytest.param("1500us", 0.0015, id="microseconds"),
        pytest.param("1500µs", 0.0015, id="microseconds with a micro sign"),
        pytest.param("1m30s", 90.0, id="two units"),
        pytest.param("1.5s", 1.5, id="a fraction"),
        pytest.param("5.s", 5.0, id="nothing after the point"),
        pytest.param("+5s", 5.0, id="a sign"),
        pytest.param("0", 0.0, id="nothing, without a unit"),
        pytest.param(5, 5, id="a number is left as it is"),
        pytest.param(None, None, id="so is anything else"),
    ],
)
def test_as_go_writes_them(value: object, seconds: float | None) -> None:
    assert seconds == pytest.approx(parse_duration(value))


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("5", ": it has no unit"),
        ("1e9", ": it has no unit"),
        ("-5s", ": it is below zero"),
        ("9223372037s", ": it exceeds the maximum of 292 years"),
        ("9" * 400 + "s", ": it exceeds the maximum of 292 years"),
        ("", ""),
        (".s", ""),
        ("5 s", ""),
        ("1_0s", ""),
        ("5s5", ""),
        ("\N{ARABIC-INDIC DIGIT FIVE}s", ""),
    ],
)
def test_anything_else_is_refused(value: str, cause: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # the whole sentence is compared
        parse_duration(value)

    assert f'"{value}" is not a duration such as 5s, 500ms or 1m30s{cause}' == str(refused.value)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0.0, "0s"), (0.5, "500ms"), (1.5, "1.5s"), (90.0, "90s"), (600.0, "10m"), (7200.0, "2h"), (0.05, "50ms")],
)
def test_written_as_short_as_can_be(seconds: float, written: str) -> None:
    assert written == duration(seconds)
    assert seconds == pytest.approx(parse_duration(written))
