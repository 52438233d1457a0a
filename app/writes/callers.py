"""Who has been let to bind: the scheduler names that the Lease remembers, for whoever takes over. No I/O."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from msgspec import Struct

MOST_NAMES: Final = 64
MOST_CHARACTERS: Final = 4096
"""Of the annotation. What would be more of either is written as everybody."""

_EVERYBODY: Final = "*"
_BETWEEN: Final = ","


class Callers(Struct, frozen=True):
    """A set of scheduler names; with ``everybody`` all there are. Empty it is false."""

    names: frozenset[str] = frozenset()
    everybody: bool = False

    def __contains__(self, scheduler_name: str) -> bool:
        return scheduler_name in self.names or self.everybody

    def __bool__(self) -> bool:
        return self.everybody or bool(self.names)

    def with_(self, others: Callers) -> Callers:
        """Those of both."""
        if self.everybody or others.everybody:
            return EVERYBODY
        return self if others.names <= self.names else bounded(self.names | others.names)

    def written(self) -> str:
        """As the annotation: sorted, with commas, each as in a URL, since a name may be any text."""
        return _EVERYBODY if self.everybody else _BETWEEN.join(sorted(map(_quoted, self.names)))

    @classmethod
    def read(cls, text: object) -> Callers | None:
        """``None`` for what ``written`` does not write, and where nothing is written."""
        if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
            return None
        if text == _EVERYBODY:
            return EVERYBODY
        found = cls(frozenset(map(_unquoted, text.split(_BETWEEN)))) if text else NOBODY
        return found if found.written() == text else None


NOBODY: Final = Callers()
EVERYBODY: Final = Callers(everybody=True)


def bounded(names: frozenset[str]) -> Callers:
    """These names, or everybody where they are too many, or too long, to be remembered."""
    found = Callers(names)
    return found if len(names) <= MOST_NAMES and len(found.written()) <= MOST_CHARACTERS else EVERYBODY


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass")


def _unquoted(text: str) -> str:
    return unquote(text, errors="surrogatepass")
