"""What a filter call tells of a nomination."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.controllers.cases import Case, Effect
from app.verbs.outcome import Outcome
from tests.builders import make_pod

Call = tuple[str, str, Outcome, float]
"""The node if it is asked about alone, what the pod is nominated to, what was answered, seconds after the patch."""


@pytest.mark.parametrize(
    ("calls", "effect"),
    [
        pytest.param([("b1", "b1", "feasible", 0.01)], "hit", id="asked about that node alone, which passes"),
        pytest.param([("b1", "b1", "no_fit", 0.01)], "overtaken", id="asked about that node alone, which does not"),
        pytest.param([("", "b1", "no_fit", 0.01)], "refused", id="asked about others, with the nomination"),
        pytest.param([("", "", "feasible", 0.01)], "overtaken", id="another node passed"),
        pytest.param([("", "", "no_fit", 0.01)], None, id="one call without it was under way"),
        pytest.param([("", "", "no_fit", 0.01), ("", "", "no_fit", 0.02)], "lost", id="two calls without it"),
        pytest.param([("", "", "no_fit", 0.2)], "lost", id="one so late that it was not under way"),
        pytest.param([("b1", "b1", "feasible", 0.01), ("", "b1", "no_fit", 0.02)], "hit", id="the first word counts"),
    ],
)
async def test_the_effect(calls: Sequence[Call], effect: Effect | None) -> None:
    case = Case(make_pod("late"), 3, 0.0)
    told = case.nominate("b1")
    case.taken_at = 0.0
    for only, nominated, outcome, at in calls:
        case.process_answer(make_pod("late", nominated=nominated), only, outcome, at)

    assert effect == (told.result() if told.done() else None)


@pytest.mark.parametrize(("outcome", "over", "refused_at"), [("feasible", True, 0.0), ("no_fit", False, 7.0)])
async def test_a_pod_that_passes_needs_no_guard(outcome: Outcome, over: bool, refused_at: float) -> None:
    case = Case(make_pod("late"), 3, 0.0)
    case.process_answer(make_pod("late"), "", outcome, 7.0)

    assert (over, True, refused_at) == (case.over.is_set(), case.called.is_set(), case.refused_at)


async def test_a_call_before_the_patch_was_taken_tells_nothing() -> None:
    case = Case(make_pod("late"), 3, 0.0)
    told = case.nominate("b1")
    for at in (0.2, 0.3, 0.4):
        case.process_answer(make_pod("late"), "", "no_fit", at)

    assert not told.done()


async def test_another_nomination_is_told_of_anew() -> None:
    case = Case(make_pod("late"), 3, 0.0)
    first = case.nominate("b1")
    second = case.nominate("b2")
    case.process_answer(make_pod("late", nominated="b2"), "", "no_fit", 0.1)

    assert (False, "refused") == (first.done(), second.result())
