"""Reports changes of the states of homes, whether or not they could be written to the owner."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from msgspec import Struct

from app.framework.handle import Handle
from app.homes.protocol import State
from app.kube.kinds import AnnotatedObject
from plugins.sticky_node import events
from plugins.sticky_node.annotations import HOME_SINCE, slot_key
from plugins.sticky_node.grace import read_since
from plugins.sticky_node.home_state import HomeState
from plugins.sticky_node.owners import Owner, Slot


class OwnedHome(Struct, frozen=True):
    """Home as last evaluated. ``home_state``: from its node alone; ``NONE`` if the policy is ``off``."""

    owner: Owner
    node: str
    home_state: HomeState


HomesBySlot: TypeAlias = Mapping[str, OwnedHome]
"""Homes of one owner, by slot."""


class StateReporter:
    """Reports each change of state once, also if the state cannot be written to the owner."""

    def __init__(self, handle: Handle) -> None:
        self._events = handle.event_recorder
        self._now = handle.timing.wall_clock
        self._unwritten: dict[Slot, State] = {}

    def forget(self, slot: Slot) -> None:
        """Forget a slot whose owner was deleted."""
        self._unwritten.pop(slot, None)

    def written(self, obj: AnnotatedObject, homes: HomesBySlot, given: Collection[str]) -> None:
        """Report changes after a write, compared with the previous annotations."""
        now = self._now()
        for slot, home in homes.items():
            written = read_since(obj.annotations.get(slot_key(HOME_SINCE, slot), ""), home.node, now)
            before = State.USABLE if written is None else written.state
            told = self._unwritten.pop(home.owner.key, before)
            self._report(home, told, is_given=slot in given)

    def unwritten(self, homes: HomesBySlot, given: Collection[str]) -> None:
        """Report changes that could not be written, compared with the last report."""
        for slot, home in homes.items():
            told = self._unwritten.get(home.owner.key, State.USABLE)
            self._report(home, told, is_given=slot in given)
            self._unwritten[home.owner.key] = home.home_state.state

    def settled(self, homes: HomesBySlot) -> None:
        """Report the return of homes whose earlier state was reported but could not be written."""
        for home in homes.values():
            told = self._unwritten.pop(home.owner.key, None)
            if told is not None and home.home_state.state is State.USABLE:
                self._report(home, told, is_given=False)

    def _report(self, home: OwnedHome, before: State, *, is_given: bool) -> None:
        events.state_changed(self._events, home.owner, home.node, home.home_state, before=before, is_given=is_given)
