"""What happens to a pod whose owner has a home: for each state of the home and each policy, one cell.

Source of all of it: this table. Filter goes by it, `docs/homes.md` shows it, and every cell has a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct


class Policy(StrEnum):
    """How strict a home is."""

    OFF = "off"
    SOFT = "soft"
    HARD = "hard"
    GRACE = "grace"


class State(StrEnum):
    """How it is about a home, for one pod. In order: the first that applies counts."""

    NONE = "none"
    """There is none yet, it was released, or the policy is ``off``."""

    TARGET = "target"
    """The pod is the target of a migration or an evacuation."""

    VOLUME_ELSEWHERE = "volume elsewhere"
    """A bound volume of the pod cannot be reached from the home."""

    OTHER_MACHINE = "other machine"
    """A node of that name is there, and is not the machine it was; only with ``identity: machine``."""

    GONE = "gone"
    """There is no such node."""

    LEAVING = "leaving"
    """Its node is being taken away for good."""

    AWAY = "away"
    """Its node is there and takes no pods now."""

    USABLE = "usable"


class Action(StrEnum):
    """What filter does."""

    ALL = "all pass"
    NOT_HOME = "all but home pass"
    HOME = "only home passes"
    TRY_HOME = "home is tried first"
    VOLUME = "the volume's nodes pass"
    WAIT = "the pod waits"


class Reason(StrEnum):
    """Why a node is refused. Constant texts: names and times are in Events and ``explain``."""

    NOT_HOME = "node(s) were not the pod's home"
    AWAY = "node(s) were not the pod's home, which takes no pods now"
    GONE = "node(s) were not the pod's home, which is gone"
    GRACE = "node(s) were not the pod's home, whose grace is not over"


class Cell(Struct, frozen=True):
    """``then``: what happens from the end of the grace on; ``None`` where nothing ends."""

    action: Action
    reason: Reason = Reason.NOT_HOME
    then: Action | None = None


_ALL: Final = Cell(Action.ALL)
_WAITS_GRACE: Final = Cell(Action.WAIT, Reason.GRACE, Action.NOT_HOME)

TABLE: Final[Mapping[State, Mapping[Policy, Cell]]] = {
    State.NONE: {Policy.HARD: _ALL, Policy.SOFT: _ALL, Policy.GRACE: _ALL},
    State.TARGET: {Policy.HARD: _ALL, Policy.SOFT: _ALL, Policy.GRACE: _ALL},
    State.VOLUME_ELSEWHERE: {
        Policy.HARD: Cell(Action.WAIT),
        Policy.SOFT: Cell(Action.VOLUME),
        Policy.GRACE: Cell(Action.VOLUME),
    },
    State.OTHER_MACHINE: {Policy.HARD: Cell(Action.WAIT, Reason.GONE), Policy.SOFT: _ALL, Policy.GRACE: _ALL},
    State.GONE: {
        Policy.HARD: Cell(Action.WAIT, Reason.GONE),
        Policy.SOFT: _ALL,
        Policy.GRACE: Cell(Action.WAIT, Reason.GRACE, Action.ALL),
    },
    State.LEAVING: {
        Policy.HARD: Cell(Action.WAIT, Reason.AWAY),
        Policy.SOFT: Cell(Action.NOT_HOME),
        Policy.GRACE: Cell(Action.NOT_HOME),
    },
    State.AWAY: {
        Policy.HARD: Cell(Action.WAIT, Reason.AWAY),
        Policy.SOFT: Cell(Action.NOT_HOME),
        Policy.GRACE: _WAITS_GRACE,
    },
    State.USABLE: {
        Policy.HARD: Cell(Action.HOME),
        Policy.SOFT: Cell(Action.TRY_HOME),
        Policy.GRACE: Cell(Action.HOME, Reason.NOT_HOME, Action.TRY_HOME),
    },
}


STATES: Final[Mapping[State, str]] = {
    State.NONE: "there is none yet, it was released, or the policy is `off`",
    State.TARGET: "the pod is the target of a migration or an evacuation",
    State.VOLUME_ELSEWHERE: "a bound volume of the pod cannot be reached from there",
    State.OTHER_MACHINE: "the node of that name is another machine (with `identity: machine`)",
    State.GONE: "there is no such node",
    State.LEAVING: "its node is being taken away for good",
    State.AWAY: "its node is there and takes no pods now",
    State.USABLE: "its node takes pods",
}
"""In words, in the table's order."""


def words_of(cell: Cell) -> str:
    """A cell for a person."""
    said = cell.action.value
    if cell.action is Action.WAIT:
        said += f": `{cell.reason.value}`"
    return said if cell.then is None else f"{said}; from the end of the grace on, {cell.then.value}"
