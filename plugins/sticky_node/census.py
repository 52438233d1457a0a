"""How many homes there are and how their pods are, for people who watch many of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from app.framework.interface import Figure, Objects
from plugins.sticky_node.making import Making
from plugins.sticky_node.walk import AT_HOME, ELSEWHERE, IDLE, WAITING, Walk

AWAY: Final = "away"
NODE_GONE: Final = "node_gone"
UNRECORDED: Final = "unrecorded"
STATES: Final = (AT_HOME, AWAY, WAITING, IDLE, NODE_GONE, UNRECORDED)
"""Each recorded home is in one of the first five: its pod runs there · runs elsewhere · waits · there is none · the
node is not in the cluster. ``unrecorded``: made, and not written on the owner yet.
"""

_HOMES: Final = "Homes by state: at_home, away, waiting, idle, node_gone or unrecorded."
_LONGEST: Final = "Age of the oldest pod that waits for its home; 0 if none does."


class Census:
    """Counts homes anew each time."""

    def __init__(self, walk: Walk, objects: Objects, making: Making) -> None:
        self._walk = walk
        self._objects = objects
        self._making = making

    def figures(self, now: datetime | None = None) -> Iterator[Figure | None]:
        """``homes`` by state, and ``homes_longest_wait_seconds``; ``now`` in UTC."""
        counts = dict.fromkeys(STATES, 0)
        oldest = ""
        for kept in self._walk():
            if kept is None:
                yield None
            elif kept.home:
                counts[self._state(kept.home, kept.machine)] += 1
                if kept.machine == WAITING and kept.waits_since:
                    oldest = min(kept.waits_since, oldest or kept.waits_since)
        counts[UNRECORDED] = len(self._making.made())
        for state, count in counts.items():
            yield Figure("homes", _HOMES, count, {"state": state})
        yield Figure("homes_longest_wait_seconds", _LONGEST, _age(oldest, now or datetime.now(UTC)))

    def _state(self, home: str, machine: str) -> str:
        if self._objects.misses_node(home):
            return NODE_GONE
        return AWAY if machine == ELSEWHERE else machine


def _age(created: str, now: datetime) -> float:
    """Seconds since a time of Kubernetes'; 0 for none, and for one that is none."""
    try:
        return max(0.0, (now - datetime.fromisoformat(created)).total_seconds())
    except (ValueError, TypeError):  # no time, or one without a zone
        return 0.0
