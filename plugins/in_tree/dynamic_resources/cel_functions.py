"""What the operators and functions of CEL do with values, and the words in which they fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final

from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported
from plugins.in_tree.dynamic_resources.cel_values import Amounting, Optional, Semver, parse_amount, parse_semver, whole
from plugins.in_tree.dynamic_resources.patterns import Spend, matches

OF_A_STEP: Final = 16
"""Characters, or items that are copied."""

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1
_LONGEST_TEXT: Final = 4096
NO_OVERLOAD: Final = "no such overload"


class CelError(Exception):
    """What a scheduler's evaluation ends with, in its words."""


class NoOverload(CelError):
    """An operator or function met a type that it is not for."""

    def __init__(self, operator: str = "") -> None:
        super().__init__(f"{NO_OVERLOAD}: {operator}" if operator else NO_OVERLOAD)


def shown(key: Any) -> str:
    return ("true" if key else "false") if isinstance(key, bool) else str(key)


def equal(a: Any, b: Any, spend: Spend) -> bool:
    """Numbers are equal across their types, all else only within one. Few lists may be many, each within others."""
    if isinstance(a, bool) or isinstance(b, bool):
        return isinstance(a, bool) and isinstance(b, bool) and a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if type(a) is not type(b) and not (isinstance(a, dict) and isinstance(b, dict)):
        if isinstance(a, Amounting | Semver):
            raise NoOverload
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(_equal_items(x, y, spend) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal_items(a[key], b[key], spend) for key in a)
    if isinstance(a, Optional):
        return a.present is b.present and _equal_items(a.value, b.value, spend)
    return bool(a == b)


def _equal_items(a: Any, b: Any, spend: Spend) -> bool:
    spend(1)
    return equal(a, b, spend)


def _compared(operator: str, a: Any, b: Any) -> int:
    """Below 0, 0 or above, of what has an order."""
    if not isinstance(a, int | float | str):
        raise _without(operator, a)
    if isinstance(a, bool) and isinstance(b, bool):
        return a - b
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    texts = isinstance(a, str) and isinstance(b, str)
    if isinstance(a, bool) or isinstance(b, bool) or not (numbers or texts):
        raise NoOverload
    return int(a > b) - int(a < b)


def _contained(item: Any, of: Any, spend: Spend) -> bool:
    if isinstance(of, dict):
        return isinstance(item, str) and item in of
    if isinstance(of, tuple):
        return any(_equal_items(item, it, spend) for it in of)
    raise NoOverload


def _without(operator: str, first: Any) -> CelError:
    """What is said where the first operand is of a type that never has the operator."""
    return NoOverload("" if isinstance(first, str) else operator)


def _of(kind: type[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for what is of that kind."""

    def of(value: Any, *more: Any) -> Any:
        if not isinstance(value, kind):
            raise NoOverload
        return function(value, *more)

    return of


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _fitting(result: int) -> int:
    if not _INT_MIN <= result <= _INT_MAX:
        raise CelError("integer overflow")
    return result


def _negative(value: Any) -> Any:
    if isinstance(value, float):
        return -value
    if not isinstance(value, int):
        raise _without("-_", value)
    if not _is_int(value):
        raise NoOverload
    return _fitting(-value)


def _plus(a: Any, b: Any) -> Any:
    if type(a) is type(b) and isinstance(a, str | tuple):
        if len(a) + len(b) > _LONGEST_TEXT:
            raise Unsupported("a text or list that is too long")
        return a + b
    if isinstance(a, str | tuple):
        raise NoOverload
    return _arithmetic("_+_", a, b, lambda x, y: x + y)


def _arithmetic(operator: str, a: Any, b: Any, operation: Callable[[Any, Any], Any]) -> Any:
    if _is_int(a) and _is_int(b):
        return _fitting(operation(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return operation(a, b)
    if not _is_int(a) and not isinstance(a, float):
        raise _without(operator, a)
    raise NoOverload


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, float) and isinstance(b, float):
        raise Unsupported("a division of fractions")
    if not _is_int(a) and not isinstance(a, float):
        raise _without("_/_", a)
    if not (_is_int(a) and _is_int(b)):
        raise NoOverload
    if b == 0:
        raise CelError("division by zero")
    quotient = abs(a) // abs(b)
    return _fitting(quotient if (a < 0) == (b < 0) else -quotient)


def _rest(a: Any, b: Any) -> Any:
    if not _is_int(a):
        raise _without("_%_", a)
    if not _is_int(b):
        raise NoOverload
    if b == 0:
        raise CelError("modulus by zero")
    remainder = abs(a) % abs(b)
    return remainder if a >= 0 else -remainder


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise NoOverload
    return value


def _ascii(characters: str, instead: str) -> Callable[[Any], str]:
    table = str.maketrans(characters, instead)
    return lambda it: _text(it).translate(table)


def _size(value: Any) -> int:
    if not isinstance(value, str | tuple | dict):
        raise NoOverload("size")
    return len(value)


def _amount(text: Any) -> Amounting:
    quantity = parse_amount(_text(text))
    if quantity is None:
        raise CelError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return quantity


def _semver(text: Any) -> Semver:
    version = parse_semver(_text(text))
    if version is None:
        raise Unsupported("a version that is none")
    return version


def _order(a: Any, b: Any) -> int:
    """Of two quantities, or two versions."""
    if isinstance(a, Amounting) and isinstance(b, Amounting):
        return int(a.amount > b.amount) - int(a.amount < b.amount)
    if isinstance(a, Semver) and isinstance(b, Semver):
        first, second = a.order(), b.order()
        return int(first > second) - int(first < second)
    raise NoOverload


def _as_integer(quantity: Amounting) -> int:
    integer = whole(quantity)
    if integer is None:
        raise CelError("cannot convert value to integer")
    return integer


def _summed(sign: int) -> Callable[[Any, Any], Amounting]:
    def of(a: Any, b: Any) -> Amounting:
        if not isinstance(a, Amounting) or not (isinstance(b, Amounting) or _is_int(b)):
            raise NoOverload
        return Amounting(a.amount + sign * (b.amount if isinstance(b, Amounting) else b * 10**9))

    return of


def _value(optional: Optional) -> Any:
    if not optional.present:
        raise CelError("optional.none() dereference")
    return optional.value


def _or(optional: Any, other: Any) -> Any:
    if not isinstance(optional, Optional) or not isinstance(other, Optional):
        raise NoOverload
    return optional if optional.present else other


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return shown(value)
    if isinstance(value, int | str):
        return str(value)
    if isinstance(value, float):
        raise Unsupported("a conversion that is not known")
    raise NoOverload


FUNCTIONS: Final[Mapping[tuple[str, int], Callable[..., Any]]] = {
    ("==", 2): equal,
    ("!=", 2): lambda a, b, spend: not equal(a, b, spend),
    ("<", 2): lambda a, b: _compared("_<_", a, b) < 0,
    ("<=", 2): lambda a, b: _compared("_<=_", a, b) <= 0,
    (">", 2): lambda a, b: _compared("_>_", a, b) > 0,
    (">=", 2): lambda a, b: _compared("_>=_", a, b) >= 0,
    ("in", 2): _contained,
    ("!", 1): _of(bool, lambda it: not it),
    ("-", 1): _negative,
    ("+", 2): _plus,
    ("-", 2): lambda a, b: _arithmetic("_-_", a, b, lambda x, y: x - y),
    ("*", 2): lambda a, b: _arithmetic("_*_", a, b, lambda x, y: x * y),
    ("/", 2): _divided,
    ("%", 2): _rest,
    ("size", 1): _size,
    ("string", 1): _as_text,
    ("quantity", 1): _amount,
    ("isQuantity", 1): lambda it: parse_amount(_text(it)) is not None,
    ("sign", 1): _of(Amounting, lambda it: (it.amount > 0) - (it.amount < 0)),
    ("semver", 1): _semver,
    ("isSemver", 1): lambda it: parse_semver(_text(it)) is not None,
}
"""By name and number of arguments."""

GUARDED: Final = frozenset({
    "add", "asInteger", "compareTo", "isGreaterThan", "isInteger", "isLessThan", "isQuantity", "isSemver", "lowerAscii",
    "major", "minor", "patch", "quantity", "semver", "sign", "string", "sub", "upperAscii",
})  # fmt: skip
"""Functions that say with which types they were called, where these are wrong."""

COUNTING: Final = frozenset({"==", "!=", "in", "matches"})
"""Functions that count their steps themselves: ``Spend`` is their last argument."""

METHODS: Final[Mapping[tuple[str, int], Callable[..., Any]]] = {
    ("size", 1): _size,
    ("startsWith", 2): lambda a, b: _text(a).startswith(_text(b)),
    ("endsWith", 2): lambda a, b: _text(a).endswith(_text(b)),
    ("contains", 2): lambda a, b: _text(b) in _text(a),
    ("matches", 2): lambda a, b, spend: matches(_text(a), _text(b), spend),
    ("lowerAscii", 1): _ascii(ascii_uppercase, ascii_lowercase),
    ("upperAscii", 1): _ascii(ascii_lowercase, ascii_uppercase),
    ("compareTo", 2): _order,
    ("isGreaterThan", 2): lambda a, b: _order(a, b) > 0,
    ("isLessThan", 2): lambda a, b: _order(a, b) < 0,
    ("isInteger", 1): _of(Amounting, lambda it: whole(it) is not None),
    ("asInteger", 1): _of(Amounting, _as_integer),
    ("add", 2): _summed(1),
    ("sub", 2): _summed(-1),
    ("major", 1): _of(Semver, lambda it: it.numbers[0]),
    ("minor", 1): _of(Semver, lambda it: it.numbers[1]),
    ("patch", 1): _of(Semver, lambda it: it.numbers[2]),
    ("hasValue", 1): _of(Optional, lambda it: it.present),
    ("value", 1): _of(Optional, _value),
    ("orValue", 2): _of(Optional, lambda it, other: it.value if it.present else other),
    ("or", 2): _or,
}
"""The same of those that are called on something, which is the first argument."""
