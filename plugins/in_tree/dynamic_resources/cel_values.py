"""Types of CEL values that Python lacks: quantities, semantic versions and optional values."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from msgspec import Raw, Struct

from app.kube.quantity import MalformedQuantity, OverlongQuantity, quantity_of
from app.kube.resource_v1 import BILLION, Amount
from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported


class QuantityValue(Struct, frozen=True, order=True):
    """Kubernetes quantity. ``amount``: in billionths of a unit."""

    amount: Amount


class Semver(Struct, frozen=True):
    """Semantic version without build metadata.

    ``before``: pre-release identifiers, each as (true for a text and false for a number, the number, the text).
    """

    numbers: tuple[int, int, int]
    before: tuple[tuple[bool, int, str], ...] = ()

    def order(self) -> tuple[Any, ...]:
        """Return the sort key: a pre-release precedes its release, and numeric identifiers precede texts."""
        return (self.numbers, not self.before, self.before)


class OptionalValue(Struct, frozen=True):
    """Optional value. ``value`` is ``None`` if it is not ``present``."""

    present: bool
    value: Any = None


NO_VALUE: Final = OptionalValue(False)

_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_SEMVER: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_MAX_SEMVER_LENGTH: Final = 256
_UINT64_MAX: Final = 2**64 - 1


@lru_cache(maxsize=1024)
def parse_semver(text: str) -> Semver | None:
    """Parse a version as ``semver.Parse`` of github.com/blang/semver does; ``None`` if it is invalid or too long."""
    match = _SEMVER.fullmatch(text) if len(text) <= _MAX_SEMVER_LENGTH and text.isascii() else None
    if match is None:
        return None
    numbers = (int(match[1]), int(match[2]), int(match[3]))
    parts = match[4].split(".") if match[4] is not None else ()
    if max(numbers) > _UINT64_MAX or any(not it or (it.isdigit() and len(it) > 1 and it[0] == "0") for it in parts):
        return None
    return Semver(numbers, tuple((False, int(it), "") if it.isdigit() else (True, 0, it) for it in parts))


@lru_cache(maxsize=1024)
def parse_quantity(text: str) -> QuantityValue | None:
    """Parse a quantity as ``resource.ParseQuantity`` does; ``None`` if it is invalid.

    Raises ``Unsupported`` if it is too long.
    """
    data = text.encode(errors="replace")
    if not data or b'"' in data or data.strip() != data:
        return None
    try:
        quantity = quantity_of(Raw(b'"' + data + b'"'))
    except MalformedQuantity:
        return None
    except OverlongQuantity:
        raise Unsupported("a quantity that is too long") from None
    power: int = 10 ** (quantity.scale + 9)
    return QuantityValue(quantity.unscaled * power)


def as_int64(quantity: QuantityValue) -> int | None:
    """Return the quantity as an integer; ``None`` if it has a fraction or exceeds a signed 64-bit integer."""
    integer, rest = divmod(quantity.amount, BILLION)
    return None if rest or not -(2**63) <= integer < 2**63 else integer
