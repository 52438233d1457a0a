"""The strategies: what a node scores by the use of its resources."""

from typing import Final

import pytest

from app.framework.allocation import Use
from plugins.in_tree.node_resources_fit.args import ScoringStrategy
from plugins.in_tree.node_resources_fit.scoring import strategy_of

INT64: Final = 2**63


def score(kind: str, *uses: Use, shape: list[tuple[int, int]] | None = None) -> int:
    ratio = None
    if shape is not None:
        ratio = {"shape": [{"utilization": at, "score": points} for at, points in shape]}
    return strategy_of(ScoringStrategy.model_validate({"type": kind, "requestedToCapacityRatio": ratio}))(uses)


def use(there: int, taken: int, asked: int = 0, weight: int = 1) -> Use:
    return there, taken, asked, weight


@pytest.mark.parametrize(
    ("uses", "least", "most"),
    [
        pytest.param([], 0, 0, id="nothing is there"),
        pytest.param([use(1000, 0)], 100, 0, id="nothing is taken"),
        pytest.param([use(1000, 200, 133)], 66, 33, id="fractions are cut off"),
        pytest.param([use(1000, 900, 200)], 0, 100, id="more than there is"),
        pytest.param([use(1000, 500), use(1000, 0)], 75, 25, id="the mean of two"),
        pytest.param([use(1000, 500, weight=3), use(1000, 0)], 62, 37, id="by weight"),
        pytest.param([use(INT64 - 1, INT64 // 2)], 0, 0, id="a product that 64 bits cannot hold"),
    ],
)
def test_least_and_most_are_parts_of_a_hundred(uses: list[Use], least: int, most: int) -> None:
    assert (least, most) == (score("LeastAllocated", *uses), score("MostAllocated", *uses))


def test_a_product_is_cut_off_as_go_does() -> None:
    assert -1 == score("MostAllocated", use(2**62, 3 * 2**60))


DOWN: Final = [(0, 10), (100, 0)]
UP_AND_DOWN: Final = [(20, 2), (50, 9), (80, 1)]


@pytest.mark.parametrize(
    ("shape", "uses", "expected"),
    [
        pytest.param([(0, 0), (100, 10)], [use(100, 30)], 30, id="up"),
        pytest.param(DOWN, [use(100, 30)], 70, id="down"),
        pytest.param([(0, 10), (3, 0)], [use(100, 1)], 67, id="a slope downwards is cut off toward zero"),
        pytest.param(UP_AND_DOWN, [use(100, 1)], 20, id="before the first point"),
        pytest.param(UP_AND_DOWN, [use(100, 35)], 55, id="between two"),
        pytest.param(UP_AND_DOWN, [use(100, 99)], 10, id="after the last point"),
        pytest.param(UP_AND_DOWN, [use(100, 300)], 10, id="more than there is is all of it"),
        pytest.param([(50, 4)], [use(100, 80)], 40, id="a single point"),
        pytest.param(DOWN, [use(100, 100), use(100, 50)], 50, id="what scores nothing does not count"),
        pytest.param(DOWN, [use(100, 49), use(100, 50)], 51, id="half a point is one"),
        pytest.param(DOWN, [use(100, 100)], 0, id="nothing scores"),
        pytest.param(DOWN, [], 0, id="nothing is there"),
    ],
)
def test_a_shape_is_straight_lines_between_its_points(
    shape: list[tuple[int, int]], uses: list[Use], expected: int
) -> None:
    assert expected == score("RequestedToCapacityRatio", *uses, shape=shape)
