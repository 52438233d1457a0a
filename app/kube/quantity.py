"""Resource quantities, parsed, added and rounded like ``resource.Quantity`` of ``k8s.io/apimachinery``.

A quantity is a decimal number with an optional suffix: ``0.5``, ``500m``, ``1536Mi``, ``12e6``. Suffixes are
n u m k M G T P E (powers of ten), Ki Mi Gi Ti Pi Ei (powers of 1024), or a decimal exponent.

Go stores a quantity in one of two forms. For amounts of more than 64 bits, the forms give different results. Any user
can store such an amount in an object, so both forms are implemented here. Tests compare this module with the Go package
(``tests/conformance/resources.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.memo import MISSING, Memo

LONGEST: Final = 64
"""Maximum bytes of a quantity. Longer quantities are not read. kubectl and the kubelet write about a dozen bytes."""

_LARGEST_EXPONENT: Final = 999
"""Maximum absolute value of a decimal exponent. Beyond it, the number has too many digits, and is not read."""

_NANO: Final = -9
_MOST: Final = 2**63 - 1
_LEAST: Final = -(2**63)
_DIGITS: Final = 18
"""Maximum number of digits of a decimal quantity for which Go uses the 64-bit form."""

_EXACT_POWERS: Final = 19
"""Number of powers of ten, starting with 10**0, that fit into 64 bits."""

_SINGLE_MULTIPLICATIONS: Final = (1, 2, 3, 6, 9)
"""Numbers of decimal places for which Go scales an amount with a single multiplication."""

_TEXT: Final = re.compile(rb"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)")
_EXPONENT: Final = re.compile(rb"[eE]([+-]?[0-9]+)")
_DECIMAL: Final[Mapping[bytes, int]] = {
    b"n": -9,
    b"u": -6,
    b"m": -3,
    b"": 0,
    b"k": 3,
    b"M": 6,
    b"G": 9,
    b"T": 12,
    b"P": 15,
    b"E": 18,
}
_BINARY: Final[Mapping[bytes, int]] = {b"Ki": 10, b"Mi": 20, b"Gi": 30, b"Ti": 40, b"Pi": 50, b"Ei": 60}
_MAX_BINARY_DIGITS: Final[Mapping[int, int]] = {10: 11, 20: 8, 30: 5, 40: 2}
"""Maximum number of digits before a binary suffix for which Go uses the 64-bit form, by the suffix's power of two."""

_MEMO_BYTES: Final = 256 << 10
_MEMO_OVERHEAD: Final = 200


class MalformedQuantity(msgspec.ValidationError):
    """Raised if a text is not a quantity. The API server rejects such a value."""


class OverlongQuantity(Exception):  # not a ValidationError, because the object is valid
    """Raised if a quantity is not read: it exceeds ``LONGEST`` or ``_LARGEST_EXPONENT``."""


class Quantity(Struct, frozen=True, gc=False):
    """Exact amount ``unscaled * 10**scale``. ``wide`` is true if Go stores it in the form for more than 64 bits."""

    unscaled: int
    scale: int = 0
    wide: bool = False

    def value(self) -> int:
        """Return whole units, like Go's ``Value``. Positive amounts are rounded up; amounts above 64 bits overflow."""
        return self._scaled(0)

    def milli_value(self) -> int:
        """Return thousandths, like Go's ``MilliValue``. Rounding and overflow are those of ``value``."""
        return self._scaled(-3)

    def _scaled(self, scale: int) -> int:
        """Return the amount in units of ``10**scale``."""
        return self._of_wide(scale - self.scale) if self.wide else self._of_narrow(scale - self.scale)

    def _of_narrow(self, places: int) -> int:
        """Return ``unscaled / 10**places`` for the 64-bit form, rounded away from zero.

        On overflow, the result wraps if Go multiplies once, and is 0 if Go multiplies repeatedly.
        """
        if places > 0:
            return _away_from_zero(self.unscaled, _power(places))
        scaled = self.unscaled * _power(-places)
        return scaled if _fits(scaled) else _wrapped(scaled) if -places in _SINGLE_MULTIPLICATIONS else 0

    def _of_wide(self, places: int) -> int:
        """Return ``unscaled / 10**places`` for the form of more than 64 bits, rounded up.

        As in Go, most negative numbers with a remainder get 1 too much: -1.5 becomes 0.
        """
        unscaled = self.unscaled
        if places <= 0:
            # Go computes int64(math.Pow10(n)). On amd64, this is -2**63 if the power exceeds 64 bits.
            return _wrapped(unscaled * (_power(-places) if -places < _EXACT_POWERS else _LEAST))
        divisor = _power(places)
        if unscaled < _MOST and places < _EXACT_POWERS:
            low = _wrapped(unscaled)
            whole, rest = divmod(abs(low), divisor)
            return (whole if low >= 0 else -whole) + bool(rest)
        whole, rest = divmod(unscaled, divisor)
        return _wrapped(_wrapped(whole) + bool(rest))

    def __add__(self, other: Quantity) -> Quantity:
        if not (self.wide or other.wide):
            if not other.unscaled:
                return self
            if not self.unscaled:
                return other
        scale = min(self.scale, other.scale)
        ours, theirs = self._at(scale), other._at(scale)
        total = ours + theirs
        wide = self.wide or other.wide or not (_fits(ours) and _fits(theirs) and _fits(total))
        return Quantity(total, scale, wide)

    def exceeds(self, other: Quantity) -> bool:
        """Return whether this amount is greater than ``other``."""
        scale = min(self.scale, other.scale)
        return self._at(scale) > other._at(scale)

    def _at(self, scale: int) -> int:
        return self.unscaled * _power(self.scale - scale)


ZERO: Final = Quantity(0)


def _power(places: int) -> int:
    power: int = 10**places
    return power


def _fits(number: int) -> bool:
    return _LEAST <= number <= _MOST


def _wrapped(number: int) -> int:
    """Return the lowest 64 bits as a signed integer."""
    return (number + 2**63) % 2**64 - 2**63


def _away_from_zero(number: int, divisor: int) -> int:
    quotient = -(-abs(number) // divisor)
    return quotient if number >= 0 else -quotient


def parse_quantity(text: bytes) -> Quantity:
    """Parse one quantity. Raises ``MalformedQuantity`` or ``OverlongQuantity``."""
    if len(text) > LONGEST:
        raise OverlongQuantity
    parts = _TEXT.fullmatch(text)
    if not text or parts is None:
        raise MalformedQuantity(f"not a quantity: {text.decode(errors='replace')!r}")
    sign, digits, fraction, suffix = parts.group(1), parts.group(2), parts.group(3) or b"", parts.group(4)
    negative = sign == b"-"
    if (binary := _BINARY.get(suffix)) is not None:
        return _binary(digits, fraction, binary, negative=negative)
    exponent = _DECIMAL.get(suffix)
    return _decimal(digits, fraction, _exponent(suffix) if exponent is None else exponent, negative=negative)


def _exponent(suffix: bytes) -> int:
    match = _EXPONENT.fullmatch(suffix)
    if match is None or not _fits(int(match.group(1))):
        raise MalformedQuantity(f"not a quantity suffix: {suffix.decode()!r}")
    exponent = (int(match.group(1)) + 2**31) % 2**32 - 2**31  # Go truncates the exponent to 32 bits
    if abs(exponent) > _LARGEST_EXPONENT:
        raise OverlongQuantity
    return exponent


def _decimal(digits: bytes, fraction: bytes, exponent: int, *, negative: bool) -> Quantity:
    scale = exponent - len(fraction)
    short = len(digits.lstrip(b"0") or b"0") + len(fraction) <= _DIGITS
    number = int(digits + fraction or b"0")
    if short and scale >= _NANO:
        return Quantity(-number if negative else number, scale)
    if not digits + fraction:
        raise MalformedQuantity("a quantity without digits")
    return _wide(number, scale, negative=negative)


def _binary(digits: bytes, fraction: bytes, power: int, *, negative: bool) -> Quantity:
    number = int(digits + fraction or b"0") << power
    if not fraction and len(digits.lstrip(b"0") or b"0") <= _MAX_BINARY_DIGITS.get(power, -1) and _fits(number):
        return Quantity(-number if negative else number)
    if not digits + fraction:
        raise MalformedQuantity("a quantity without digits")
    if number > _MOST * 10 ** len(fraction):
        return Quantity(-_MOST if negative else _MOST, 0, wide=True)
    return _wide(number, -len(fraction), negative=negative)


def _wide(number: int, scale: int, *, negative: bool) -> Quantity:
    """Return a wide quantity in billionths, the smallest unit, rounded away from zero. A zero keeps its scale."""
    if number:
        places = scale - _NANO
        number = number * 10**places if places >= 0 else _away_from_zero(number, 10**-places)
        scale = _NANO
    return Quantity(-number if negative else number, scale, wide=True)


_MEMO: Final = Memo[bytes, Quantity](_MEMO_BYTES)


def quantity_of(raw: Raw) -> Quantity:
    """Parse a JSON string or number; ``null`` becomes ``ZERO``. Results are cached, because values often recur.

    Raises ``MalformedQuantity`` or ``OverlongQuantity``.
    """
    data = bytes(raw)
    quantity = _MEMO.young.get(data, MISSING)
    return _read(data) if quantity is MISSING else quantity


def _read(data: bytes) -> Quantity:
    if len(data) > LONGEST + 2:
        raise OverlongQuantity
    quantity = _MEMO.get(data)
    if quantity is MISSING:
        quantity = ZERO if data == b"null" else parse_quantity(_trimmed(data))
        _MEMO.put(data, quantity, len(data) + _MEMO_OVERHEAD)
    return quantity


def _trimmed(data: bytes) -> bytes:
    """Remove quotes and surrounding white space. Escapes stay, as in Go's ``Quantity.UnmarshalJSON``."""
    inner = data[1:-1] if data[:1] == data[-1:] == b'"' else data
    return inner.decode(errors="replace").strip().encode()


_MI: Final = 1 << 20
_UNITS: Final = ((1 << 40, "Ti"), (1 << 30, "Gi"), (_MI, "Mi"), (1 << 10, "Ki"))
_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")


def round_amount(resource: str, amount: int) -> int:
    """Round an amount of a resource down to a readable one: whole multiples of 10 millicores, or of one MiB.

    ``amount``: in the units of ``ResourceList``. Bytes below one MiB, and resources like GPUs, are not rounded.
    """
    step = 10 if resource == "cpu" else _MI if resource.startswith(_BYTES) and amount >= _MI else 1
    return amount - amount % step


def shown_amount(resource: str, amount: int) -> str:
    """Format an amount of a resource as in a manifest: ``1500m`` and ``3`` for CPU, ``512Mi`` for bytes.

    ``amount``: in the units of ``ResourceList``.
    """
    if resource == "cpu":
        return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
    if resource.startswith(_BYTES):
        unit = next((it for it in _UNITS if amount and amount % it[0] == 0), None)
        return f"{amount}" if unit is None else f"{amount // unit[0]}{unit[1]}"
    return f"{amount}"
