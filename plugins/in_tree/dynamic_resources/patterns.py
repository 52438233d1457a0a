"""Searches texts for patterns of RE2's syntax, as far as they are read here, in steps that are counted.

An own search, since Python's goes back and tries again, for hours if a pattern is made for it. All the places in the
pattern where a text may have come to are followed at a time, so that the steps are at most places times characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported

_LONGEST_PATTERN: Final = 256
_LONGEST_SUBJECT: Final = 512
_MOST_PLACES: Final = 1000
"""Of a pattern, once its counts are written out."""

_MOST_OPEN: Final = 2
"""Parts of a pattern that may stand for any number of characters."""

_PLACES_OF_A_STEP: Final = 4

_PLAIN: Final = re.compile(r"[A-Za-z0-9 _:/,;@#%&=<>~\"'!-]")
_CLASS: Final = re.compile(r"\[\^?[A-Za-z0-9_ .:/-]+\]|\\[dwDW]|\\[.+*?()\[\]{}^$|\\/-]|\.")
_COUNT: Final = re.compile(r"\{([0-9]{1,2})\}")

Spend: TypeAlias = Callable[[int], None]
"""Told of steps that are about to be taken. Raises what ends the search."""

_IsOf: TypeAlias = Callable[[str], object]
"""Whether a character is one of a class."""


def _free(_steps: int) -> None:
    return


class Matcher(Protocol):
    """Whether a pattern is found in a text. Raises ``Unsupported`` for a text that is too long."""

    def __call__(self, subject: str, spend: Spend = _free) -> bool: ...


class _Places:
    """The places of a pattern, and how a text gets from one to the next.

    ``by_character``: with a character of a class · ``freely``: without one · ``at_start``, ``at_end``: without one,
    there alone.
    """

    def __init__(self) -> None:
        self.by_character: list[list[tuple[_IsOf, int]]] = []
        self.freely: list[list[int]] = []
        self.at_start: dict[int, int] = {}
        self.at_end: dict[int, int] = {}

    def add(self) -> int:
        if len(self.freely) >= _MOST_PLACES:
            raise Unsupported("a pattern that could take long")
        self.by_character.append([])
        self.freely.append([])
        return len(self.freely) - 1

    def after(self, place: int) -> int:
        """A new place that is reached from ``place`` without a character."""
        found = self.add()
        self.freely[place].append(found)
        return found

    def reached(self, places: list[int], *, start: bool, end: bool) -> set[int]:
        """All places that can be reached from some without a character."""
        found: set[int] = set()
        while places:
            place = places.pop()
            if place not in found:
                found.add(place)
                places += self.freely[place]
                if start and place in self.at_start:
                    places.append(self.at_start[place])
                if end and place in self.at_end:
                    places.append(self.at_end[place])
        return found


@lru_cache(maxsize=64)
def matcher(pattern: str) -> Matcher:
    """Raises ``Unsupported`` for a pattern that is not read, or could mean another thing."""
    if len(pattern) > _LONGEST_PATTERN:
        raise Unsupported("a pattern that is longer than what is read")
    places, last = _read(pattern)

    def matches(subject: str, spend: Spend = _free) -> bool:
        if len(subject) > _LONGEST_SUBJECT:
            raise Unsupported("a text that is too long to be searched")
        looked_at = len(places.freely)
        at: list[int] = []
        for position in range(len(subject) + 1):
            at.append(0)
            reached = places.reached(at, start=position == 0, end=position == len(subject))
            if last in reached:
                return True
            looked_at += len(reached)
            spend(looked_at // _PLACES_OF_A_STEP)
            looked_at %= _PLACES_OF_A_STEP
            following = subject[position : position + 1]
            at = [there for it in reached for is_of, there in places.by_character[it] if following and is_of(following)]
        return False

    return matches


def _read(pattern: str) -> tuple[_Places, int]:
    """The places of a pattern, of which 0 is the first, and the last of them. Nothing repeats a group."""
    places = _Places()
    first = places.add()
    groups = [(first, places.add())]
    now = places.after(first)
    at = open_parts = 0
    while at < len(pattern):
        it = pattern[at]
        known = _CLASS.match(pattern, at) or _PLAIN.match(pattern, at)
        if known is not None and not re.search(r"[A-Za-z0-9]-[^A-Za-z0-9]|--", known[0]):
            at += len(known[0])
            repeated = _COUNT.match(pattern, at)
            sign = repeated[0] if repeated is not None else pattern[at : at + 1]
            now, is_one = _one(places, now, known[0], sign)
            at += len(sign) if is_one else 0
            open_parts += is_one and sign in "*+"
            continue
        if it not in "^$|()" or pattern.startswith("(?", at):
            raise Unsupported("a pattern that is not read")
        now = _marked(places, groups, now, it)
        at += 1
    if open_parts > _MOST_OPEN or len(groups) > 1:
        raise Unsupported("a pattern that could take long")
    (_, last) = groups[0]
    places.freely[now].append(last)
    return places, last


def _one(places: _Places, now: int, part: str, sign: str) -> tuple[int, bool]:
    """Where a class or character leads that ``sign`` repeats, and whether that is a sign at all."""
    is_of = re.compile(part, re.ASCII).match
    if sign == "*":
        now = places.after(now)
        places.by_character[now].append((is_of, now))
        return now, True
    counted = _COUNT.fullmatch(sign)
    before = now
    for _ in range(1 if counted is None else int(counted[1])):
        there = places.add()
        places.by_character[now].append((is_of, there))
        now = there
    if sign == "+":
        places.by_character[now].append((is_of, now))
    elif sign == "?":
        places.freely[before].append(now)
    return now, counted is not None or sign in ("+", "?")


def _marked(places: _Places, groups: list[tuple[int, int]], now: int, mark: str) -> int:
    """Where an assertion, an alternative or a group leads. ``groups``: where those that are open begin and end."""
    if mark in "^$":
        there = places.add()
        (places.at_start if mark == "^" else places.at_end)[now] = there
        return there
    if mark == "(":
        groups.append((places.after(now), places.add()))
        return places.after(groups[-1][0])
    begin, end = groups[-1]
    places.freely[now].append(end)
    if mark == "|":
        return places.after(begin)
    if len(groups) == 1:
        raise Unsupported("a pattern that is not read")
    groups.pop()
    return end
