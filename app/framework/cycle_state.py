"""State that plugins keep during one evaluation."""

from __future__ import annotations

import math
from typing import Any, Generic, Protocol, Self, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace


class StateData(Protocol):
    """Entry of a ``CycleState``."""

    def clone(self) -> Self:
        """Return a copy that a dry run can change, or the same object if dry runs never change it."""
        ...


T = TypeVar("T", bound=StateData)


class StateKey(Generic[T]):
    """Typed key of an entry. ``name`` appears in the error message if the entry is missing."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class StateNotFound(LookupError):
    """Error: the state has no entry for the key, because the extension point that writes the entry did not run."""


class CycleState(Struct, eq=False):
    """State of one evaluation: entries that plugins write under typed keys, and fields that the engine uses.

    The verbs filter and prioritize are separate evaluations, so no entry passes from one to the other. ``skip_filter``
    and ``skip_score`` name the plugins that returned Skip at PreFilter and PreScore. ``annotations`` are sent with the
    Binding, which writes them to the pod; plugins add to them in ``pre_bind``. ``views`` caches the pod as each plugin
    sees it, with the plugin's declared parts only. ``deadline`` is the time on the handle's clock by which a bind must
    end; it is infinite in other evaluations.
    """

    skip_filter: set[str] = field(default_factory=set)
    skip_score: set[str] = field(default_factory=set)
    annotations: dict[str, str] = field(default_factory=dict)
    views: dict[Any, Any] = field(default_factory=dict)
    deadline: float = math.inf
    _entries: dict[StateKey[Any], Any] = field(default_factory=dict)

    def write(self, key: StateKey[T], data: T) -> None:
        """Store the entry of the key."""
        self._entries[key] = data

    def read(self, key: StateKey[T]) -> T:
        """Return the entry of the key. Raises ``StateNotFound``."""
        try:
            data: T = self._entries[key]
        except KeyError:
            raise StateNotFound(f'reading "{key.name}" from cycleState: not found') from None
        return data

    def clone(self) -> CycleState:
        """Return a copy for a dry run, with cloned entries.

        The other fields are shared, because a dry run changes neither the skip sets nor ``annotations``.
        """
        return replace(self, _entries={key: data.clone() for key, data in self._entries.items()})
