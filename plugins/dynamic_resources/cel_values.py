"""What selectors compare beside numbers and texts: quantities, versions, optional values, patterns."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from msgspec import Raw, Struct

from app.kube.quantity import MalformedQuantity, OverlongQuantity, quantity_of
from app.kube.resource_v1 import BILLION, Amount
from plugins.dynamic_resources.cel_syntax import Unsupported


class Amounting(Struct, frozen=True, order=True):
    """A quantity, in billionths."""

    amount: Amount


class Semver(Struct, frozen=True):
    """A semantic version: three numbers, and what comes before a release, which is less than it. Builds are equal."""

    numbers: tuple[int, int, int]
    before: tuple[tuple[bool, int, str], ...] = ()

    def order(self) -> tuple[Any, ...]:
        """By which versions are compared: a release is more than what comes before it, a text more than a number."""
        return (self.numbers, not self.before, self.before)


class Optional(Struct, frozen=True):
    """A value that may be missing."""

    present: bool
    value: Any = None


NOTHING: Final = Optional(False)

_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_SEMVER: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_LONGEST_SEMVER: Final = 256
_UINT64_MAX: Final = 2**64 - 1


@lru_cache(maxsize=1024)
def parse_semver(text: str) -> Semver | None:
    """As ``semver.Parse`` of github.com/blang/semver; ``None`` for what is none."""
    found = _SEMVER.fullmatch(text) if len(text) <= _LONGEST_SEMVER and text.isascii() else None
    if found is None:
        return None
    numbers = (int(found[1]), int(found[2]), int(found[3]))
    parts = found[4].split(".") if found[4] is not None else ()
    if max(numbers) > _UINT64_MAX or any(not it or (it.isdigit() and len(it) > 1 and it[0] == "0") for it in parts):
        return None
    return Semver(numbers, tuple((False, int(it), "") if it.isdigit() else (True, 0, it) for it in parts))


@lru_cache(maxsize=1024)
def parse_amount(text: str) -> Amounting | None:
    """As ``resource.ParseQuantity``; ``None`` for what is none. Raises ``Unsupported`` for what is too long to read."""
    data = text.encode(errors="replace")
    if not data or b'"' in data or data.strip() != data:
        return None
    try:
        found = quantity_of(Raw(b'"' + data + b'"'))
    except MalformedQuantity:
        return None
    except OverlongQuantity:
        raise Unsupported("a quantity that is longer than what is read") from None
    power: int = 10 ** (found.scale + 9)
    return Amounting(found.unscaled * power)


def whole(it: Amounting) -> int | None:
    """As an integer, if it is one of 64 bits."""
    found, rest = divmod(it.amount, BILLION)
    return None if rest or not -(2**63) <= found < 2**63 else found


_LONGEST_PATTERN: Final = 256
_LONGEST_SUBJECT: Final = 512
_MOST_OPEN: Final = 2
"""Parts of a pattern that may stand for any number of characters: with more of them it would take too long."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9 _:/,;@#%&=<>~\"'!-]")
_CLASS: Final = re.compile(r"\[\^?[A-Za-z0-9_ .:/-]+\]|\\[dwDW]|\\[.+*?()\[\]{}^$|\\/-]|\.")
_COUNT: Final = re.compile(r"\{([0-9]{1,2})\}")


@lru_cache(maxsize=256)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Searches for a pattern of RE2's syntax. Raises ``Unsupported`` for what could take long, or mean another thing.

    Python's own engine goes back and tries again, for hours if a pattern is made for it. What is taken here cannot do
    that: at most two ``*`` or ``+``, none on a group.
    """
    if len(pattern) > _LONGEST_PATTERN:
        raise Unsupported("a pattern that is longer than what is read")
    found = re.compile(_translated(pattern), re.ASCII)

    def matches(subject: str) -> bool:
        if len(subject) > _LONGEST_SUBJECT:
            raise Unsupported("a text that is too long to be searched")
        return found.search(subject) is not None

    return matches


def _translated(pattern: str) -> str:
    parts: list[str] = []
    at = open_parts = groups = 0
    repeatable = False
    while at < len(pattern):
        it = pattern[at]
        if it in "*+?" or (it == "{" and _COUNT.match(pattern, at)):
            counted = _COUNT.match(pattern, at)
            if not repeatable:
                raise Unsupported("a pattern that repeats a group")
            open_parts += it in "*+"
            parts.append(it if counted is None else counted[0])
            at += 1 if counted is None else len(counted[0])
            repeatable = False
            continue
        known = _CLASS.match(pattern, at) or _PLAIN.match(pattern, at)
        if known is not None and not re.search(r"[A-Za-z0-9]-[^A-Za-z0-9]|--", known[0]):
            parts.append(known[0])
            at += len(known[0])
            repeatable = True
            continue
        groups += (it == "(") - (it == ")")
        if it not in "^$|()" or pattern.startswith("(?", at) or groups < 0:
            raise Unsupported("a pattern that is not read")
        parts.append(r"\Z" if it == "$" else r"\A" if it == "^" else "(?:" if it == "(" else it)
        at += 1
        repeatable = False
    if open_parts > _MOST_OPEN or groups:
        raise Unsupported("a pattern that could take long")
    return "".join(parts)
