"""Set of schedulers whose pods this leader binds, and its format in an annotation of the Lease. No I/O.

The next leader reads the annotation and fences off the pending pods of these schedulers: it changes their resource
versions, so that late Bindings of this leader are refused (``fences``).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from msgspec import Struct

MOST_NAMES: Final = 64
"""Maximum number of recorded scheduler names. With more names, ``*`` (all schedulers) is recorded instead."""

MOST_CHARACTERS: Final = 4096
"""Maximum length of the annotation in characters. If it would be longer, ``*`` (all schedulers) is recorded instead."""

_ALL: Final = "*"
_BETWEEN: Final = ","


class Callers(Struct, frozen=True):
    """Set of scheduler names; with ``is_all``, the set of all names. An empty set is false."""

    names: frozenset[str] = frozenset()
    is_all: bool = False

    def __contains__(self, scheduler_name: str) -> bool:
        return scheduler_name in self.names or self.is_all

    def __bool__(self) -> bool:
        return self.is_all or bool(self.names)

    def with_(self, others: Callers) -> Callers:
        """Return the union of both sets, or ``ALL_CALLERS`` if it is too large (``bounded``)."""
        if self.is_all or others.is_all:
            return ALL_CALLERS
        return self if others.names <= self.names else bounded(self.names | others.names)

    def written(self) -> str:
        """Return the annotation's value: ``*`` for all schedulers, or the sorted names with commas between them.

        Names are URL-quoted, because a name can contain any character.
        """
        return _ALL if self.is_all else _BETWEEN.join(sorted(map(_quoted, self.names)))

    @classmethod
    def read(cls, text: object) -> Callers | None:
        """Parse the annotation's value; return ``None`` if it is missing, too long or not in ``written``'s format."""
        if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
            return None
        if text == _ALL:
            return ALL_CALLERS
        callers = cls(frozenset(map(_unquoted, text.split(_BETWEEN)))) if text else NO_CALLERS
        return callers if callers.written() == text else None


NO_CALLERS: Final = Callers()
ALL_CALLERS: Final = Callers(is_all=True)


def bounded(names: frozenset[str]) -> Callers:
    """Return the set of these names, or ``ALL_CALLERS`` if they exceed ``MOST_NAMES`` or ``MOST_CHARACTERS``."""
    callers = Callers(names)
    return callers if len(names) <= MOST_NAMES and len(callers.written()) <= MOST_CHARACTERS else ALL_CALLERS


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass")


def _unquoted(text: str) -> str:
    return unquote(text, errors="surrogatepass")
