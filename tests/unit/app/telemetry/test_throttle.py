"""One line of a key in a period; the next one says how many were held back."""

from __future__ import annotations

from app.telemetry.throttle import LINE_SECONDS, Throttle


def test_lines_are_held_back_and_counted_by_key() -> None:
    now = 5.0
    throttle = Throttle(clock=lambda: now)

    assert [0, None, None, 0] == [throttle.admit(key) for key in ("one", "one", "one", "other")]
    now += LINE_SECONDS
    assert [2, 0, None] == [throttle.admit(key) for key in ("one", "other", "one")]
    now += 2 * LINE_SECONDS
    assert 1 == throttle.admit("one")
