"""Patterns that are refused beside those that Go refuses, and the steps of a search, counted before it begins.

``tests/conformance/test_resources.py`` compares generated patterns with Go's.
"""

import pytest

from plugins.in_tree.dynamic_resources.cel_scope import StepBudget
from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported
from plugins.in_tree.dynamic_resources.patterns import MAX_PATTERN_LENGTH, matches


def steps(pattern: str, text: str) -> list[int]:
    spent: list[int] = []
    matches(text, pattern, spent.append)
    return spent


@pytest.mark.parametrize("pattern", ["(a{30}){30}" * 10, r"\PL{9}", r"\C", "a" * (MAX_PATTERN_LENGTH + 1)])
def test_patterns_that_are_refused(pattern: str) -> None:
    with pytest.raises(Unsupported):
        steps(pattern, "a")


@pytest.mark.parametrize(
    "pattern",
    [
        "[ab]*a[ab]{1000}c",
        "(a?){1000}",
        r"(\b|a|^|$)*" * 80 + "c",
        "a?" * 500 + "b",
        r"\pL" * 300,
        "a" * 1000,
        "a" * 8192,
        r"\pL" * 2700,
    ],
)
def test_a_search_that_could_take_long_is_not_begun(pattern: str) -> None:
    with pytest.raises(Unsupported):
        matches("ab" * 4096, pattern, StepBudget().spend)


def test_the_steps_grow_with_the_program_and_the_text() -> None:
    reading, short = steps("^[a-z]{100}$", "a" * 64)
    _, long = steps("^[a-z]{100}$", "a" * 6400)

    assert (reading, 100 < short < 200, 90 * short > long > 30 * short) == (28, True, True)


def test_a_known_pattern_takes_as_many_steps_as_a_new_one() -> None:
    assert steps("new[0-9]+", "new1") == steps("new[0-9]+", "new1")


def test_an_ordinary_pattern_takes_few_steps() -> None:
    assert sum(steps("^(A100|H100)(-[0-9]+GB)?$", "A100-80GB")) < 64
