"""Suggests existing names to a caller whose request has an unknown one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappush, heappushpop
from itertools import islice
from typing import Final

from app.kube.closest import closest, common_start, is_typo

MOST_COMPARED: Final = 2000
"""Maximum number of names that a call of ``similar`` compares, which takes about 4 ms."""

_MOST_OFFERED: Final = 3
"""Maximum number of names in a suggestion."""

_SHORTLIST: Final = 32
"""Maximum number of names that are compared letter by letter, because that takes 50 µs for each."""

_NAMES_PER_STEP: Final = 256


class Shortlist:
    """Known names that resemble a given name most, at most ``_SHORTLIST``.

    Names rank by the length of the beginning and the end that they share with it. Names one typo away are preferred.
    """

    def __init__(self, name: str) -> None:
        self._name = name.lower()
        self._back = self._name[::-1]
        self._best: list[tuple[int, str]] = []

    def steps(self, known: Iterable[str]) -> Iterator[None]:
        """Compare the name with each of the ``known`` names, in short steps."""
        for number, other in enumerate(known, start=1):
            lower = other.lower()
            common = common_start(self._name, lower) + common_start(self._back, lower[::-1])
            entry = (common + len(self._name) * is_typo(self._name, lower), other)
            if len(self._best) < _SHORTLIST:
                heappush(self._best, entry)
            else:
                heappushpop(self._best, entry)
            if number % _NAMES_PER_STEP == 0:
                yield

    def suggestion(self, kind: str = "") -> str:
        """Return text that suggests the most similar names; empty if none is similar.

        ``kind``: word before the names, for example ``label``; it can be empty.
        """
        close = closest(self._name, (other for _, other in sorted(self._best, reverse=True)), _MOST_OFFERED)
        if not close:
            return ""
        *some, last = close
        names = f"{', '.join(some)} or {last}" if some else last
        return f"; did you mean {kind}{' ' if kind else ''}{names}?"


def similar(name: str, known: Iterable[str], kind: str = "") -> str:
    """Return text that suggests the most similar of the first ``MOST_COMPARED`` names; empty if none is similar."""
    shortlist = Shortlist(name)
    for _ in shortlist.steps(islice(known, MOST_COMPARED)):
        pass
    return shortlist.suggestion(kind)
