"""Patterns: what they find, what is not read of them, and that no search takes long."""

import re
from itertools import product
from typing import Final

import pytest

from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported
from plugins.in_tree.dynamic_resources.patterns import matcher


@pytest.mark.parametrize("pattern", ["(a*)*", "a**", "a.*b.*c.*", "(?i)a", "[[:alpha:]]", "a{2}{3}", "(a", "\\pL"])
def test_patterns_that_are_not_searched_for(pattern: str) -> None:
    with pytest.raises(Unsupported):
        matcher(pattern)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("^a", "ba", False),
        ("a$", "a\n", False),
        ("(a|b)c", "xbc", True),
        ("[0-9]{3}", "a100", True),
        ("a.b", "a\nb", False),
    ],
)
def test_patterns(pattern: str, subject: str, expected: bool) -> None:
    assert expected is matcher(pattern)(subject)


PARTS: Final = ("a", "b*", "[^a]", "a?", "(", "|", ")", "^", "$")
SUBJECTS: Final = tuple("".join(it) for length in range(4) for it in product("ab", repeat=length))


def test_a_pattern_finds_what_another_search_finds() -> None:
    """Of all that can be made of some parts: Python's own, which goes back and tries again."""
    read = 0
    for parts in product(PARTS, repeat=4):
        pattern = "".join(parts)
        try:
            found = matcher(pattern)
        except Unsupported:
            continue
        other = re.compile(pattern.replace("$", r"\Z"))
        read += 1
        assert [other.search(it) is not None for it in SUBJECTS] == [found(it) for it in SUBJECTS], pattern

    assert read > 1000


@pytest.mark.parametrize("pattern", ["(a|a)" * 40 + "b", "a?" * 60 + "b", "a*.*b", "(" * 120 + "a" + ")" * 120])
def test_the_steps_of_a_search_grow_with_the_lengths_and_no_faster(pattern: str) -> None:
    spent: list[int] = []

    matcher(pattern)("a" * 512, spent.append)

    assert 0 < sum(spent) <= 3 * len(pattern) * 512


def test_a_pattern_of_too_many_places_is_not_searched_for() -> None:
    with pytest.raises(Unsupported):
        matcher("a{99}" * 20)
