"""Operators and functions of CEL, with the error texts of kube-scheduler's CEL implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final

from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported
from plugins.in_tree.dynamic_resources.cel_values import (
    OptionalValue,
    QuantityValue,
    Semver,
    as_int64,
    parse_quantity,
    parse_semver,
)
from plugins.in_tree.dynamic_resources.patterns import Spend, matches

CHARACTERS_PER_STEP: Final = 16
"""Number of characters and list items, in the arguments of one call, that count as one step."""

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1
_MAX_TEXT_LENGTH: Final = 4096
"""Maximum length of a text or list that ``+`` creates."""

NO_OVERLOAD: Final = "no such overload"


class CelError(Exception):
    """Error of an evaluation. The text is kube-scheduler's."""


class NoOverload(CelError):
    """An operator or function was applied to a type that it does not support."""

    def __init__(self, operator: str = "") -> None:
        super().__init__(f"{NO_OVERLOAD}: {operator}" if operator else NO_OVERLOAD)


def shown(key: Any) -> str:
    """Return a map key or list index as CEL prints it."""
    return ("true" if key else "false") if isinstance(key, bool) else str(key)


def equal(a: Any, b: Any, spend: Spend) -> bool:
    """Return true if two values are equal. Values of different types can only be equal if both are numbers. Raises
    ``NoOverload`` if ``a`` is a quantity or a version, and ``b`` neither has its type nor is a truth value.

    ``spend`` is called for each compared item, because nested lists can contain more items than the expression has
    parts.
    """
    if isinstance(a, bool) or isinstance(b, bool):
        return isinstance(a, bool) and isinstance(b, bool) and a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if type(a) is not type(b) and not (isinstance(a, dict) and isinstance(b, dict)):
        if isinstance(a, QuantityValue | Semver):
            raise NoOverload
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(_equal_items(x, y, spend) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal_items(a[key], b[key], spend) for key in a)
    if isinstance(a, OptionalValue):
        return a.present is b.present and _equal_items(a.value, b.value, spend)
    return bool(a == b)


def _equal_items(a: Any, b: Any, spend: Spend) -> bool:
    spend(1)
    return equal(a, b, spend)


def _compared(operator: str, a: Any, b: Any) -> int:
    """Return a negative number, zero or a positive number if ``a`` is less than, equal to or greater than ``b``.

    Both must be numbers, both texts, or both truth values. Otherwise raises ``NoOverload``.
    """
    if not isinstance(a, int | float | str):
        raise _missing_overload(operator, a)
    if isinstance(a, bool) and isinstance(b, bool):
        return a - b
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    texts = isinstance(a, str) and isinstance(b, str)
    if isinstance(a, bool) or isinstance(b, bool) or not (numbers or texts):
        raise NoOverload
    return int(a > b) - int(a < b)


def _contained(item: Any, container: Any, spend: Spend) -> bool:
    if isinstance(container, dict):
        return isinstance(item, str) and item in container
    if isinstance(container, tuple):
        return any(_equal_items(item, it, spend) for it in container)
    raise NoOverload


def _missing_overload(operator: str, first: Any) -> CelError:
    """Return the error for an operator that does not support its first operand. It names no operator for a text."""
    return NoOverload("" if isinstance(first, str) else operator)


def _for_type(kind: type[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it raises ``NoOverload`` if its first argument is not a ``kind``."""

    def checked(value: Any, *more: Any) -> Any:
        if not isinstance(value, kind):
            raise NoOverload
        return function(value, *more)

    return checked


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _in_range(result: int) -> int:
    if not _INT_MIN <= result <= _INT_MAX:
        raise CelError("integer overflow")
    return result


def _negative(value: Any) -> Any:
    if isinstance(value, float):
        return -value
    if not isinstance(value, int):
        raise _missing_overload("-_", value)
    if not _is_int(value):
        raise NoOverload
    return _in_range(-value)


def _plus(a: Any, b: Any) -> Any:
    if type(a) is type(b) and isinstance(a, str | tuple):
        if len(a) + len(b) > _MAX_TEXT_LENGTH:
            raise Unsupported("a text or list that is too long")
        return a + b
    if isinstance(a, str | tuple):
        raise NoOverload
    return _arithmetic("_+_", a, b, lambda x, y: x + y)


def _arithmetic(operator: str, a: Any, b: Any, operation: Callable[[Any, Any], Any]) -> Any:
    if _is_int(a) and _is_int(b):
        return _in_range(operation(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return operation(a, b)
    if not _is_int(a) and not isinstance(a, float):
        raise _missing_overload(operator, a)
    raise NoOverload


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, float) and isinstance(b, float):
        raise Unsupported("a division of fractions")
    if not _is_int(a) and not isinstance(a, float):
        raise _missing_overload("_/_", a)
    if not (_is_int(a) and _is_int(b)):
        raise NoOverload
    if b == 0:
        raise CelError("division by zero")
    quotient = abs(a) // abs(b)
    return _in_range(quotient if (a < 0) == (b < 0) else -quotient)


def _remainder(a: Any, b: Any) -> Any:
    if not _is_int(a):
        raise _missing_overload("_%_", a)
    if not _is_int(b):
        raise NoOverload
    if b == 0:
        raise CelError("modulus by zero")
    remainder = abs(a) % abs(b)
    return remainder if a >= 0 else -remainder


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise NoOverload
    return value


def _ascii(characters: str, instead: str) -> Callable[[Any], str]:
    table = str.maketrans(characters, instead)
    return lambda it: _string(it).translate(table)


def _size(value: Any) -> int:
    if not isinstance(value, str | tuple | dict):
        raise NoOverload("size")
    return len(value)


def _amount(text: Any) -> QuantityValue:
    quantity = parse_quantity(_string(text))
    if quantity is None:
        raise CelError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return quantity


def _semver(text: Any) -> Semver:
    version = parse_semver(_string(text))
    if version is None:
        raise Unsupported("an invalid version")
    return version


def _compare_to(a: Any, b: Any) -> int:
    """Return -1, 0 or 1 if ``a`` is less than, equal to or greater than ``b``.

    Both must be quantities, or both versions. Raises ``NoOverload``.
    """
    if isinstance(a, QuantityValue) and isinstance(b, QuantityValue):
        return int(a.amount > b.amount) - int(a.amount < b.amount)
    if isinstance(a, Semver) and isinstance(b, Semver):
        first, second = a.order(), b.order()
        return int(first > second) - int(first < second)
    raise NoOverload


def _as_integer(quantity: QuantityValue) -> int:
    integer = as_int64(quantity)
    if integer is None:
        raise CelError("cannot convert value to integer")
    return integer


def _sum(sign: int) -> Callable[[Any, Any], QuantityValue]:
    def combined(a: Any, b: Any) -> QuantityValue:
        if not isinstance(a, QuantityValue) or not (isinstance(b, QuantityValue) or _is_int(b)):
            raise NoOverload
        return QuantityValue(a.amount + sign * (b.amount if isinstance(b, QuantityValue) else b * 10**9))

    return combined


def _value(optional: OptionalValue) -> Any:
    if not optional.present:
        raise CelError("optional.none() dereference")
    return optional.value


def _or_value(optional: Any, other: Any) -> Any:
    if not isinstance(optional, OptionalValue) or not isinstance(other, OptionalValue):
        raise NoOverload
    return optional if optional.present else other


def _as_string(value: Any) -> str:
    if isinstance(value, bool):
        return shown(value)
    if isinstance(value, int | str):
        return str(value)
    if isinstance(value, float):
        raise Unsupported("an unsupported conversion")
    raise NoOverload


FUNCTIONS: Final[Mapping[tuple[str, int], Callable[..., Any]]] = {
    ("==", 2): equal,
    ("!=", 2): lambda a, b, spend: not equal(a, b, spend),
    ("<", 2): lambda a, b: _compared("_<_", a, b) < 0,
    ("<=", 2): lambda a, b: _compared("_<=_", a, b) <= 0,
    (">", 2): lambda a, b: _compared("_>_", a, b) > 0,
    (">=", 2): lambda a, b: _compared("_>=_", a, b) >= 0,
    ("in", 2): _contained,
    ("!", 1): _for_type(bool, lambda it: not it),
    ("-", 1): _negative,
    ("+", 2): _plus,
    ("-", 2): lambda a, b: _arithmetic("_-_", a, b, lambda x, y: x - y),
    ("*", 2): lambda a, b: _arithmetic("_*_", a, b, lambda x, y: x * y),
    ("/", 2): _divided,
    ("%", 2): _remainder,
    ("size", 1): _size,
    ("string", 1): _as_string,
    ("quantity", 1): _amount,
    ("isQuantity", 1): lambda it: parse_quantity(_string(it)) is not None,
    ("sign", 1): _for_type(QuantityValue, lambda it: (it.amount > 0) - (it.amount < 0)),
    ("semver", 1): _semver,
    ("isSemver", 1): lambda it: parse_semver(_string(it)) is not None,
}
"""Operators and functions by name and number of arguments."""

NAMING_TYPES: Final = frozenset({
    "add", "asInteger", "compareTo", "isGreaterThan", "isInteger", "isLessThan", "isQuantity", "isSemver", "lowerAscii",
    "major", "minor", "patch", "quantity", "semver", "sign", "string", "sub", "upperAscii",
})  # fmt: skip
"""Functions and methods whose type errors name the argument types."""

SPENDING: Final = frozenset({"==", "!=", "in", "matches"})
"""Functions and methods that count their own steps. They take ``Spend`` as their last argument."""

METHODS: Final[Mapping[tuple[str, int], Callable[..., Any]]] = {
    ("size", 1): _size,
    ("startsWith", 2): lambda a, b: _string(a).startswith(_string(b)),
    ("endsWith", 2): lambda a, b: _string(a).endswith(_string(b)),
    ("contains", 2): lambda a, b: _string(b) in _string(a),
    ("matches", 2): lambda a, b, spend: matches(_string(a), _string(b), spend),
    ("lowerAscii", 1): _ascii(ascii_uppercase, ascii_lowercase),
    ("upperAscii", 1): _ascii(ascii_lowercase, ascii_uppercase),
    ("compareTo", 2): _compare_to,
    ("isGreaterThan", 2): lambda a, b: _compare_to(a, b) > 0,
    ("isLessThan", 2): lambda a, b: _compare_to(a, b) < 0,
    ("isInteger", 1): _for_type(QuantityValue, lambda it: as_int64(it) is not None),
    ("asInteger", 1): _for_type(QuantityValue, _as_integer),
    ("add", 2): _sum(1),
    ("sub", 2): _sum(-1),
    ("major", 1): _for_type(Semver, lambda it: it.numbers[0]),
    ("minor", 1): _for_type(Semver, lambda it: it.numbers[1]),
    ("patch", 1): _for_type(Semver, lambda it: it.numbers[2]),
    ("hasValue", 1): _for_type(OptionalValue, lambda it: it.present),
    ("value", 1): _for_type(OptionalValue, _value),
    ("orValue", 2): _for_type(OptionalValue, lambda it, other: it.value if it.present else other),
    ("or", 2): _or_value,
}
"""Methods by name and number of arguments, including the receiver, which is the first argument."""
