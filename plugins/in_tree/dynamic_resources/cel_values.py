"""What selectors compare beside numbers and texts: quantities, versions, optional values."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from msgspec import Raw, Struct

from app.kube.quantity import MalformedQuantity, OverlongQuantity, quantity_of
from app.kube.resource_v1 import BILLION, Amount
from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported


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
    match = _SEMVER.fullmatch(text) if len(text) <= _LONGEST_SEMVER and text.isascii() else None
    if match is None:
        return None
    numbers = (int(match[1]), int(match[2]), int(match[3]))
    parts = match[4].split(".") if match[4] is not None else ()
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
        quantity = quantity_of(Raw(b'"' + data + b'"'))
    except MalformedQuantity:
        return None
    except OverlongQuantity:
        raise Unsupported("a quantity that is longer than what is read") from None
    power: int = 10 ** (quantity.scale + 9)
    return Amounting(quantity.unscaled * power)


def whole(quantity: Amounting) -> int | None:
    """As an integer, if it is one of 64 bits."""
    integer, rest = divmod(quantity.amount, BILLION)
    return None if rest or not -(2**63) <= integer < 2**63 else integer
