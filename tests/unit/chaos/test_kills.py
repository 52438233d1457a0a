"""What the scenarios say about points is about points that there are: code that moves on must not leave them behind."""

from collections.abc import Sequence
from importlib import import_module

import pytest

from tests.chaos.failpoints import HOMES, MODULES, READS, SIDES, Point, Rule, matches, points_of
from tests.chaos.faulty import BEGINS
from tests.chaos.kills import DELAYS, ELSEWHERE, FIRST, PERIODS, aimed_at
from tests.chaos.waves import FAILING_WRITES


@pytest.fixture(scope="module")
def points() -> Sequence[Point]:
    return points_of()


@pytest.mark.parametrize("rule", [*FAILING_WRITES, *DELAYS], ids=lambda rule: f"{rule.action} {rule.side} {rule.point}")
def test_every_rule_applies_to_one_point(points: Sequence[Point], rule: Rule) -> None:
    applying = [point.name for point in points if rule.applies_to(point, rule.side)]

    assert len(applying) == 1


@pytest.mark.parametrize("pattern", [*READS, *ELSEWHERE])
def test_every_pattern_matches_a_point(points: Sequence[Point], pattern: str) -> None:
    assert any(matches(f"{point.name}:{side}", [pattern]) for point in points for side in SIDES)


@pytest.mark.parametrize("name", PERIODS)
def test_every_period_is_one_that_is_shortened(name: str) -> None:
    module, _, constant = name.partition(":")

    assert getattr(import_module(module), constant) > PERIODS[name]


def test_every_module_with_failpoints_is_killed_in() -> None:
    aimed = {at.partition(":")[0] for at in aimed_at() if not matches(at, READS)}

    assert aimed == {*MODULES} >= {*HOMES}
    assert {*FIRST, BEGINS} <= {*aimed_at()}
