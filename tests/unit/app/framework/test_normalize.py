"""Rules of normalising by the largest score."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.framework.normalize import default_normalize
from tests.strategies import examples


@pytest.mark.parametrize(
    ("scores", "reverse", "expected"),
    [
        pytest.param({"a": 1, "b": 2, "c": 4}, False, {"a": 25, "b": 50, "c": 100}, id="the largest becomes 100"),
        pytest.param({"a": 1, "b": 2, "c": 4}, True, {"a": 75, "b": 50, "c": 0}, id="in reverse it becomes 0"),
        pytest.param({"a": 1, "b": 3}, False, {"a": 33, "b": 100}, id="a fraction is cut off"),
        pytest.param({"a": 1, "b": 3}, True, {"a": 67, "b": 0}, id="before it is taken from 100, not after"),
        pytest.param({"a": 0, "b": 0}, False, {"a": 0, "b": 0}, id="all 0 stays 0"),
        pytest.param({"a": 0, "b": 0}, True, {"a": 100, "b": 100}, id="all 0 in reverse is 100"),
        pytest.param({"a": 5, "b": -1}, False, {"a": 100, "b": -20}, id="below 0 it stays below 0"),
        pytest.param({"a": 3, "b": -1}, False, {"a": 100, "b": -33}, id="and is cut off towards 0"),
        pytest.param({"a": 0, "b": -7}, False, {"a": 0, "b": -7}, id="none above 0: they stay as they are"),
        pytest.param({"a": 0, "b": -7}, True, {"a": 100, "b": 100}, id="none above 0, in reverse"),
        pytest.param({"a": 2**53 + 1, "b": 2**54 + 2}, False, {"a": 50, "b": 100}, id="whole numbers, not floats"),
    ],
)
def test_scores_are_scaled_by_the_largest(scores: dict[str, int], reverse: bool, expected: dict[str, int]) -> None:
    assert expected == default_normalize(scores, reverse=reverse)


@settings(derandomize=True, max_examples=examples(200))
@given(
    scores=st.dictionaries(st.integers(), st.integers(min_value=0, max_value=10**6), min_size=1), reverse=st.booleans()
)
def test_results_lie_in_0_to_100_and_keep_the_order(scores: dict[int, int], reverse: bool) -> None:
    found = default_normalize(scores, reverse=reverse)
    ranked = sorted(scores, key=scores.__getitem__, reverse=reverse)

    assert set(scores) == set(found)
    assert all(0 <= score <= 100 for score in found.values())
    assert sorted(found.values()) == [found[key] for key in ranked]
