"""Rules of the cycle state: what plugins keep for one evaluation, and what a dry run may change of it."""

import math

import pytest

from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from tests.fakes import Counted

KEY: StateKey[Counted] = StateKey("PreFilterCounted")


def test_what_was_never_written_has_a_name() -> None:
    """The text is kube-scheduler's."""
    with pytest.raises(StateNotFound) as raised:
        CycleState().read(KEY)

    assert 'reading "PreFilterCounted" from cycleState: not found' == str(raised.value)


def test_keys_of_one_name_are_different_keys() -> None:
    other: StateKey[Counted] = StateKey(KEY.name)
    state = CycleState()
    state.write(KEY, Counted(1))

    with pytest.raises(StateNotFound):
        state.read(other)


def test_a_clone_changes_without_its_original() -> None:
    state = CycleState()
    state.write(KEY, Counted(1))

    clone = state.clone()
    clone.read(KEY).count += 1
    clone.write(StateKey("other"), Counted(9))

    assert (1, 2) == (state.read(KEY).count, clone.read(KEY).count)


def test_a_clone_shares_who_takes_part() -> None:
    """A dry run does not change which plugins answered Skip, nor what goes onto the pod."""
    state = CycleState()
    state.skip_filter.add("Filter")
    state.skip_score.add("Score")
    state.annotations["homeport.dev/home"] = "n1"
    state.deadline = 7.0

    clone = state.clone()

    assert state.skip_filter is clone.skip_filter
    assert state.skip_score is clone.skip_score
    assert state.annotations is clone.annotations
    assert (7.0, math.inf) == (clone.deadline, CycleState().deadline)
