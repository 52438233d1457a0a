"""What the scenarios say about points is about points that there are: code that moves on must not leave them behind."""

import pytest

from tests.chaos.failpoints import READS, SIDES, Rule, matches, points_of
from tests.chaos.kills import DELAYS, ELSEWHERE
from tests.chaos.waves import FAILING_WRITES


@pytest.mark.parametrize("rule", [*FAILING_WRITES, *DELAYS], ids=lambda rule: f"{rule.action} {rule.side} {rule.point}")
def test_every_rule_applies_to_one_point(rule: Rule) -> None:
    applying = [point.name for point in points_of() if rule.applies_to(point, rule.side)]

    assert len(applying) == 1


@pytest.mark.parametrize("pattern", [*READS, *ELSEWHERE])
def test_every_pattern_matches_a_point(pattern: str) -> None:
    assert any(matches(f"{point.name}:{side}", [pattern]) for point in points_of() for side in SIDES)
