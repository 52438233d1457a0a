"""How many homes there are and how their pods are, for people who watch many of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from app.framework.interface import Figure, Objects, Unreadable
from app.kube.core_v1 import Pod
from app.kube.kinds import AnnotatedObject
from plugins.sticky_node.home import HOME, home_in, recorded_home
from plugins.sticky_node.making import Making
from plugins.sticky_node.owners import Owner, Owners, Slot

AT_HOME: Final = "at_home"
AWAY: Final = "away"
WAITING: Final = "waiting"
IDLE: Final = "idle"
NODE_GONE: Final = "node_gone"
UNRECORDED: Final = "unrecorded"
STATES: Final = (AT_HOME, AWAY, WAITING, IDLE, NODE_GONE, UNRECORDED)
"""Each recorded home is in one of the first five: its pod runs there · runs elsewhere · waits · there is none · the
node is not in the cluster. ``unrecorded``: made, and not written on the owner yet.
"""

_BETTER: Final = {WAITING: 0, AWAY: 1, AT_HOME: 2}
"""Of several pods of one owner, the one that got furthest tells."""

_STEP: Final = 64
_HOMES: Final = "Homes by state: at_home, away, waiting, idle, node_gone or unrecorded."
_LONGEST: Final = "Age of the oldest pod that waits for its home; 0 if none does."


class Census:
    """Counts homes anew each time, from the owners and from the pods of controllers that lead to one."""

    def __init__(self, owners: Owners, objects: Objects, making: Making) -> None:
        self._owners = owners
        self._objects = objects
        self._making = making
        self._pods: Final = {kind: objects.by_controller(kind) for kind in owners.controllers()}

    def figures(self, now: datetime | None = None) -> Iterator[Figure | None]:
        """``homes`` by state, and ``homes_longest_wait_seconds``; ``now`` in UTC."""
        states: dict[Slot, str] = {}
        waiting: dict[Slot, str] = {}
        for number, pod in enumerate(self._living()):
            if number % _STEP == _STEP - 1:
                yield None
            self._note(pod, states, waiting)
        counts = dict.fromkeys(STATES, 0)
        for number, (slot, node) in enumerate(self._homes()):
            if number % _STEP == _STEP - 1:
                yield None
            counts[NODE_GONE if self._objects.misses_node(node) else states.get(slot, IDLE)] += 1
        counts[UNRECORDED] = len(self._making.made())
        for state, count in counts.items():
            yield Figure("homes", _HOMES, count, {"state": state})
        since = min((created for slot, created in waiting.items() if states[slot] == WAITING and created), default="")
        yield Figure("homes_longest_wait_seconds", _LONGEST, _age(since, now or datetime.now(UTC)))

    def _living(self) -> Iterator[Pod]:
        """Pods may come and go while it is read."""
        for by_controller in self._pods.values():
            for uid in tuple(by_controller):
                yield from [pod for pod in by_controller.get(uid, {}).values() if not pod.terminating]

    def _note(self, pod: Pod, states: dict[Slot, str], waiting: dict[Slot, str]) -> None:
        owner = None
        with suppress(Unreadable):
            owner = self._owners.of(pod)
        if not isinstance(owner, Owner) or not (home := recorded_home(owner)):
            return
        state = (AT_HOME if pod.node_name == home else AWAY) if pod.node_name else WAITING
        known = states.get(owner.key)
        if known is None or _BETTER[state] > _BETTER[known]:
            states[owner.key] = state
        if state == WAITING:
            waiting[owner.key] = min(pod.created, waiting.get(owner.key, pod.created))

    def _homes(self) -> Iterator[tuple[Slot, str]]:
        """Every home that is recorded, with its node."""
        for kind in self._owners.keepers():
            for owner in self._objects.every(kind):
                yield from _recorded(owner)


def _recorded(found: AnnotatedObject) -> Iterator[tuple[Slot, str]]:
    for key in found.annotations:
        if key == HOME or key.startswith(f"{HOME}."):
            slot = key[len(HOME) + 1 :]
            if node := home_in(found, slot):
                yield (found.uid, slot), node


def _age(created: str, now: datetime) -> float:
    """Seconds since a time of Kubernetes'; 0 for none, and for one that is none."""
    try:
        return max(0.0, (now - datetime.fromisoformat(created)).total_seconds())
    except (ValueError, TypeError):  # no time, or one without a zone
        return 0.0
