"""What was picked stays picked until something happens; then it has come to nothing if the pod is asked about."""

from __future__ import annotations

from collections import Counter

import pytest

from app.memory.picks import Picks
from tests.fakes import ManualClock
from tests.filtering import Tally

BEST = ("n1", "n2", "n3", "n4")
MOST = 4096


class Kept:
    """Picks and what they counted."""

    def __init__(self) -> None:
        self.made, self.failed = Tally(), Tally()
        self.clock = ManualClock()
        self.picks = Picks(made=self.made, failed=self.failed, clock=self.clock)

    @property
    def counted(self) -> tuple[int, int]:
        return self.made.count, self.failed.count


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_each_of_the_best_is_picked_about_as_often(kept: Kept) -> None:
    """In 400 fair draws among four, one of them has fewer than 50 once in a hundred million times."""
    found = Counter(kept.picks.pick(BEST, f"uid-{number}", 1) for number in range(400))

    assert set(BEST) == found.keys()
    assert min(found.values()) >= 50


def test_on_the_same_picture_the_pick_is_the_same(kept: Kept) -> None:
    first = kept.picks.pick(BEST, "uid", 1)

    assert {first} == {kept.picks.pick(BEST[::-1], "uid", 1) for _ in range(50)}
    assert (1, 0) == kept.counted


def test_later_it_has_failed_whatever_the_picture(kept: Kept) -> None:
    """A Reserve that fails moves nothing: the scheduler backs off for a second and asks again."""
    found = set()
    for _ in range(100):
        found.add(kept.picks.pick(BEST, "uid", 1))
        kept.clock.now += 1

    assert set(BEST) == found
    assert (100, 99) == kept.counted


def test_unless_the_node_is_none_of_the_best_any_more(kept: Kept) -> None:
    """As where other names are asked about."""
    first = kept.picks.pick(BEST, "uid", 1)
    others = [name for name in BEST if name != first]

    assert kept.picks.pick(others, "uid", 1) in others
    assert (2, 0) == kept.counted


def test_on_another_picture_it_has_failed_and_the_lot_is_drawn_anew(kept: Kept) -> None:
    found = {kept.picks.pick(BEST, "uid", generation) for generation in range(100)}

    assert set(BEST) == found
    assert (100, 99) == kept.counted


def test_it_has_failed_once_whatever_is_asked_next(kept: Kept) -> None:
    kept.picks.pick(BEST, "uid", 1)
    for generation in (1, 2, 3):
        kept.picks.requested("uid", generation)
        kept.picks.requested("other", generation)

    assert (1, 1) == kept.counted


def test_of_a_pod_without_uid_nothing_is_remembered(kept: Kept) -> None:
    assert len({kept.picks.pick(BEST, "", 1) for _ in range(100)}) > 1
    kept.picks.requested("", 2)

    assert (100, 0) == kept.counted


def test_the_oldest_of_too_many_are_forgotten(kept: Kept) -> None:
    for number in range(MOST + 10):
        kept.picks.pick(BEST, f"uid-{number}", 1)
    for number in range(MOST + 10):
        kept.picks.requested(f"uid-{number}", 2)

    assert (MOST + 10, MOST) == kept.counted
