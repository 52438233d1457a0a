"""What is said of a stream: who was lost, who was bound twice, and how long nothing moved."""

import pytest

from tests.cluster.figures import Figures
from tests.cluster.stream import Outcome

ZONES = {"a": "zone-a", "b": "zone-b", "c": "zone-c"}


def test_who_is_lost_and_who_was_seen_on_two_nodes() -> None:
    outcome = Outcome({"one": 0.0, "two": 0.1}, {"one": 0.2}, {"one": {"a", "b"}})

    assert (["two"], ["one"]) == (outcome.lost, outcome.twice)


def test_a_zone_without_a_pod_counts() -> None:
    outcome = Outcome({}, {}, {"one": {"a"}, "two": {"a"}, "three": {"b"}})

    assert 2 == outcome.skew(ZONES)


@pytest.mark.parametrize(
    ("created", "bound", "expected"),
    [
        pytest.param([0.0, 1.0, 2.0], [0.1, 1.1, 2.1], 0.1, id="nobody waited between"),
        pytest.param([0.0, 1.0, 2.0], [0.1, 7.0, 7.1], 6.0, id="the second one waited, and the third with it"),
        pytest.param([0.0, 0.0, 0.0], [1.0, 3.0, 4.0], 2.0, id="all wait, and one after the other is bound"),
    ],
)
def test_a_standstill_is_time_in_which_somebody_waits_and_nobody_is_bound(
    created: list[float], bound: list[float], expected: float
) -> None:
    names = ("one", "two", "three")
    outcome = Outcome(dict(zip(names, created, strict=True)), dict(zip(names, bound, strict=True)))

    assert expected == pytest.approx(outcome.standstill)


def test_figures_stand_in_columns() -> None:
    figures = Figures()
    figures.seconds("a drain", 0.254, most=2)
    figures.add("pods", "7")

    assert "what     found   aim\na drain  0.25 s  at most 2 s\npods     7" == figures.table()
