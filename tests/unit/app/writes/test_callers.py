"""The names that a Lease remembers, as they are written and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.writes.callers import ALL_CALLERS, MOST_CHARACTERS, MOST_NAMES, NO_CALLERS, Callers, bounded


def callers(*names: str) -> Callers:
    return Callers(frozenset(names))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        pytest.param(NO_CALLERS, "", id="nobody"),
        pytest.param(ALL_CALLERS, "*", id="all"),
        pytest.param(callers("s1", "default-scheduler"), "default-scheduler,s1", id="sorted"),
        pytest.param(callers("a,b", "*"), "%2A,a%2Cb", id="names that are none"),
    ],
)
def test_they_are_written_and_read(found: Callers, text: str) -> None:
    assert (text, found) == (found.written(), Callers.read(text))


@pytest.mark.parametrize("text", [None, 5, "b,a", "a,a", "a, b", ",", "a,*", "%2a", "a%", "a" * (MOST_CHARACTERS + 1)])
def test_what_was_not_written_so_is_not_read(text: object) -> None:
    assert Callers.read(text) is None


@given(st.frozensets(st.text(min_size=1), max_size=MOST_NAMES))
def test_any_names_are_read_as_they_were_written(names: frozenset[str]) -> None:
    found = bounded(names)

    assert found == Callers.read(found.written())


def test_everybody_and_nobody() -> None:
    assert (True, False, True, False) == ("x" in ALL_CALLERS, "x" in NO_CALLERS, bool(ALL_CALLERS), bool(NO_CALLERS))


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        pytest.param(callers("a"), callers("b"), callers("a", "b"), id="both"),
        pytest.param(callers("a"), ALL_CALLERS, ALL_CALLERS, id="all and one are all"),
        pytest.param(callers(*map(str, range(MOST_NAMES))), callers("x"), ALL_CALLERS, id="too many to be told apart"),
        pytest.param(callers("a"), callers("b" * MOST_CHARACTERS), ALL_CALLERS, id="too long to be told apart"),
        pytest.param(callers("a", "b"), callers("b"), callers("a", "b"), id="known already"),
    ],
)
def test_they_only_grow(one: Callers, other: Callers, both: Callers) -> None:
    assert (both, both) == (one.with_(other), other.with_(one))
