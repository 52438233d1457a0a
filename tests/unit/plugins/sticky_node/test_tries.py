"""A soft home that was not among the nodes asked about is waited for once, for a second by a clock that nobody sets."""

from __future__ import annotations

import pytest

from plugins.sticky_node import tries as module
from plugins.sticky_node.tries import LONGEST_SECONDS, Tries
from tests.fakes import ManualClock
from tests.unit.plugins.sticky_node.watched import NOON


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(50.0)


@pytest.fixture
def wall_clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def tries(clock: ManualClock, wall_clock: ManualClock) -> Tries:
    return Tries(clock, wall_clock)


@pytest.mark.parametrize("jump", [-3600.0, 0.0, 3600.0])
def test_a_clock_that_is_set_makes_no_try_longer_or_shorter(
    tries: Tries, clock: ManualClock, wall_clock: ManualClock, jump: float
) -> None:
    assert tries.begin("pod", "n1")
    wall_clock.now += jump
    clock.now += LONGEST_SECONDS - 0.25

    assert (True, False) == (tries.begin("pod", "n1"), tries.is_over("pod", "n1"))
    assert NOON + jump + 0.25 == tries.ends_at("pod", "n1")
    clock.now += 0.25
    assert (False, True) == (tries.begin("pod", "n1"), tries.is_over("pod", "n1"))
    assert tries.ends_at("pod", "n1") is None


def test_of_another_home_there_is_another_try(tries: Tries) -> None:
    tries.end("pod", "n1")

    assert not tries.begin("pod", "n1")
    assert tries.begin("pod", "n2")
    assert not tries.is_over("pod", "n1")
    assert tries.ends_at("pod", "n1") is None


def test_the_oldest_are_forgotten(tries: Tries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 3)
    for number in range(4):
        tries.end(f"pod-{number}", "n1")

    assert [False, True, True, True] == [tries.is_over(f"pod-{number}", "n1") for number in range(4)]
