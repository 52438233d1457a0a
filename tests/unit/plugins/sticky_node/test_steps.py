"""Others have their turn once a step has taken its time, and not before."""

from __future__ import annotations

import pytest

from plugins.sticky_node import steps as module
from plugins.sticky_node.steps import STEP_SECONDS, Steps
from tests.fakes import ManualClock


async def test_a_step_ends_with_the_thing_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slept = ManualClock(100.0), []
    monkeypatch.setattr(module, "monotonic", clock)

    async def sleep(seconds: float) -> None:
        slept.append((round(clock.now - 100, 6), seconds))

    steps = Steps(sleep)
    for _ in range(10):
        await steps()
        clock.now += 0.4 * STEP_SECONDS

    assert [(0.0, 0), (0.0012, 0), (0.0024, 0), (0.0036, 0)] == slept
