"""Rules of the handle: its clocks."""

from __future__ import annotations

import time

from app.framework.handle import Timing
from tests.harness import WALL_CLOCK, World


def test_the_wall_clock_is_the_machines_and_in_a_world_the_tests() -> None:
    """The other one never goes back, and says nothing of the time of day."""
    world = World()
    handle = world.handle

    assert time.time is Timing().wall_clock
    assert WALL_CLOCK == handle.timing.wall_clock()
    world.wall_clock.now += 60.0
    assert (WALL_CLOCK + 60.0, 0.0) == (handle.timing.wall_clock(), handle.timing.clock())
