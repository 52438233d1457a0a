"""What docs/homes.md says happens is what the table says."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from app.homes.protocol import LISTED_ONLY, SHORTEST_GRACE, Policy, State
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.policy import STATES, TABLE, Action, Cell

PAGE: Final = (Path(__file__).parents[2] / "docs" / "homes.md").read_text()
DECIDED: Final = [it for it in State if it not in LISTED_ONLY]
COLUMNS: Final = (Policy.HARD, Policy.SOFT, Policy.GRACE)


def words_of(cell: Cell) -> str:
    said = cell.action.value
    if cell.action is Action.WAIT:
        said += f": `{cell.reason.value}`"
    return said if cell.then is None else f"{said}; from the end of the grace on, {cell.then.value}"


def test_the_page_shows_the_table() -> None:
    head, found = PAGE.split("| state of the home | `hard` | `soft` | `grace` |\n|---|---|---|---|\n")
    assert head
    rows = found.split("\n\n")[0].splitlines()

    assert rows == [
        "| " + " | ".join([STATES[state], *(words_of(TABLE[state][policy]) for policy in COLUMNS)]) + " |"
        for state in DECIDED
    ]


def test_every_state_has_a_cell_for_every_policy_but_off() -> None:
    assert DECIDED == list(TABLE) == list(STATES)
    assert {frozenset(COLUMNS)} == {frozenset(row) for row in TABLE.values()}


def test_only_a_grace_ends() -> None:
    ends = {policy for row in TABLE.values() for policy, cell in row.items() if cell.then is not None}
    assert {Policy.GRACE} == ends


def test_every_action_is_told() -> None:
    told = {cell.action for row in TABLE.values() for cell in row.values()}
    assert set(Action) == told


def test_the_page_has_the_times_of_the_arguments() -> None:
    assert f"A grace below {SHORTEST_GRACE:g} s" in PAGE
    assert f"{StickyNodeArgs().grace_period / 60:g} minutes by default" in PAGE
    assert StickyNodeArgs().policy is Policy.GRACE
