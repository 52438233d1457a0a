"""Evaluates the selectors of devices: CEL, as far as ``cel_syntax`` reads it, in kube-scheduler's environment.

No library is both bounded and says what kube-scheduler says: ``docs/adr/0050-cel.md``. Source of the rules:
``k8s.io/dynamic-resource-allocation/cel`` and ``k8s.io/apiserver/pkg/cel/library`` of Kubernetes 1.36. The API server
has checked the types of what it has stored; here they are met when it runs.

Three outcomes beside true and false: ``CelError`` in the words of a scheduler, ``Unsupported`` for what is not read of
the language, and that too where a comprehension or a text grows beyond what is worked out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final, TypeAlias

from app.kube.resource_v1 import AttributeValue, Device, Version
from plugins.in_tree.dynamic_resources.cel_syntax import (
    Call,
    Conditional,
    Index,
    ListOf,
    Literal,
    Logic,
    Name,
    Select,
    Unsupported,
    parse,
)
from plugins.in_tree.dynamic_resources.cel_values import (
    NOTHING,
    Amounting,
    Optional,
    Semver,
    parse_amount,
    parse_semver,
    whole,
)
from plugins.in_tree.dynamic_resources.patterns import Spend, matches

MOST_STEPS: Final = 5000
"""Parts of an expression that are looked at for one device: some 2 ms. A selector has a dozen.

A scheduler ends an evaluation too (``CELSelectorExpressionMaxCost``), after some 100 ms. What that is counted in would
have to be counted just as it does for a verdict to be the same; what takes longer than this is not judged instead.
"""

_OF_A_STEP: Final = 16
"""Characters, or items that are copied."""

_ITEMS_OF_A_STEP: Final = 4
"""Of a list that is made."""

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1
_LONGEST_TEXT: Final = 4096
_NO_OVERLOAD: Final = "no such overload"
_DEVICE: Final = "device"


class CelError(Exception):
    """What a scheduler's evaluation ends with, in its words."""


class _NoOverload(CelError):
    """An operator or function met a type that it is not for."""

    def __init__(self, operator: str = "") -> None:
        super().__init__(f"{_NO_OVERLOAD}: {operator}" if operator else _NO_OVERLOAD)


class Budget:
    """The steps of one evaluation."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    def spend(self, steps: int = 1) -> None:
        """To be called before they are taken. Raises ``Unsupported``."""
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise Unsupported("an expression that takes too long")


class Scope:
    """The variables of a part of an evaluation, and what it is part of."""

    __slots__ = ("_budget", "step", "variables")

    def __init__(self, variables: dict[str, Any], budget: Budget) -> None:
        self.variables = variables
        self.step = budget.spend
        self._budget = budget

    def within(self, name: str, value: Any = None) -> Scope:
        """The same with one variable more."""
        return Scope({**self.variables, name: value}, self._budget)


Evaluate: TypeAlias = Callable[[Scope], Any]


class Domains(dict[str, Mapping[str, Any]]):
    """Attributes or capacity by domain. One that a device has nothing of reads as empty, but is not in it."""

    def __missing__(self, key: str) -> Mapping[str, Any]:
        return {}


def device_variables(driver: str, device: Device) -> dict[str, Any]:
    """What a selector sees. Raises ``CelError`` for a device of which a scheduler cannot make anything."""
    attributes, capacity = Domains(), Domains()
    for name, value in device.attributes.items():
        domain, local = _qualified(name, driver)
        attributes.setdefault(domain, {})[local] = _native(name, value)  # type: ignore[index]  # what was put there is a dict
    for name, found in device.capacity.items():
        domain, local = _qualified(name, driver)
        capacity.setdefault(domain, {})[local] = Amounting(found.value)  # type: ignore[index]  # the same
    return {
        _DEVICE: {
            "driver": driver,
            "allowMultipleAllocations": device.shareable,
            "attributes": attributes,
            "capacity": capacity,
        }
    }


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, local = name.partition("/")
    return (domain, local) if slash else (driver, name)


def _native(name: str, value: AttributeValue) -> Any:
    if value is None:
        raise CelError(f"attribute {name}: unsupported attribute value")
    if isinstance(value, Version):
        found = parse_semver(value.text)
        if found is None:
            raise Unsupported("a version that is none")
        return found
    return value


class Selector:
    """A compiled expression. Raises ``Unsupported`` when it is made of what is not read."""

    def __init__(self, expression: str) -> None:
        self._evaluate = _compiled(parse(expression))

    def matches(self, variables: dict[str, Any], budget: Budget) -> bool:
        """Raises ``CelError`` and ``Unsupported``."""
        found = self._evaluate(Scope(variables, budget))
        if not isinstance(found, bool):
            raise CelError(f"CEL result of type {_type(found)} could not be converted to bool: {_conversion(found)}")
        return found


def _conversion(found: Any) -> str:
    if isinstance(found, str):
        return "unsupported native conversion from string to 'bool'"
    if isinstance(found, int | float):
        return f"unsupported type conversion from '{_type(found)}' to bool"
    return f"type conversion error from '{_type(found).rpartition('.')[2]}' to 'bool'"


def _type(found: Any) -> str:
    for kind, name in (
        (bool, "bool"),
        (int, "int"),
        (float, "double"),
        (str, "string"),
        (tuple, "list"),
        (dict, "map"),
        (Amounting, "kubernetes.Quantity"),
        (Semver, "kubernetes.Semver"),
        (Optional, "optional_type"),
    ):
        if isinstance(found, kind):
            return name
    return "null_type"


# The tree, made into functions.


def _compiled(node: Any) -> Evaluate:
    match node:
        case Literal(value):
            return lambda _scope: value
        case Name(name):
            return _variable(name)
        case Select(of, field, optional):
            return _lookup(_compiled(of), lambda _scope: field, optional=optional)
        case Index(of, key, optional):
            return _lookup(_compiled(of), _compiled(key), optional=optional)
        case ListOf(items):
            return _listed(tuple(map(_compiled, items)))
        case Logic(terms, any_of):
            return _logic(tuple(map(_compiled, terms)), decides=any_of)
        case Conditional(test, yes, no):
            return _conditional(_compiled(test), _compiled(yes), _compiled(no))
        case Call():
            return _call(node)
    raise Unsupported("an expression that is not read")


def _variable(name: str) -> Evaluate:
    def evaluate(scope: Scope) -> Any:
        scope.step()
        if name not in scope.variables:
            raise Unsupported("a variable that is not known")
        return scope.variables[name]

    return evaluate


def _lookup(of: Evaluate, key: Evaluate, *, optional: bool) -> Evaluate:
    def evaluate(scope: Scope) -> Any:
        scope.step()
        target, wanted = of(scope), key(scope)
        if isinstance(target, Optional):  # a chain of optional ones stays optional
            return _maybe(target.value, wanted) if target.present else NOTHING
        return _maybe(target, wanted) if optional else _found(target, wanted)

    return evaluate


def _maybe(target: Any, key: Any) -> Optional:
    if isinstance(target, Domains):
        return Optional(True, target[key])
    if isinstance(target, dict):
        return Optional(True, target[key]) if key in target else NOTHING
    if isinstance(target, tuple) and isinstance(key, int):
        return Optional(True, target[key]) if 0 <= key < len(target) else NOTHING
    return NOTHING


def _found(target: Any, key: Any) -> Any:
    if isinstance(target, dict):
        if not isinstance(key, str):
            raise CelError(_NO_OVERLOAD if isinstance(target, Domains) else f"no such key: {_shown(key)}")
        if key not in target and not isinstance(target, Domains):
            raise CelError(f"no such key: {key}")
        return target[key]
    if isinstance(target, tuple):
        if not isinstance(key, int) or isinstance(key, bool):
            raise _NoOverload
        if not 0 <= key < len(target):
            raise CelError(f"index out of bounds: {key}")
        return target[key]
    raise CelError(f"no such key: {_shown(key)}")


def _shown(key: Any) -> str:
    return ("true" if key else "false") if isinstance(key, bool) else str(key)


def _listed(parts: tuple[Evaluate, ...]) -> Evaluate:
    def evaluate(scope: Scope) -> Any:
        scope.step(1 + len(parts) // _ITEMS_OF_A_STEP)
        return tuple(part(scope) for part in parts)

    return evaluate


def _logic(terms: tuple[Evaluate, ...], *, decides: bool) -> Evaluate:
    """``decides``: the value that settles it wherever it stands, whatever became of the others."""

    def evaluate(scope: Scope) -> Any:
        fault: CelError | None = None
        for term in terms:
            scope.step()
            try:
                found = term(scope)
            except CelError as error:
                fault = fault or error
                continue
            if not isinstance(found, bool):
                fault = fault or CelError(_NO_OVERLOAD)
            elif found is decides:
                return decides
        if fault is not None:
            raise fault
        return not decides

    return evaluate


def _conditional(test: Evaluate, yes: Evaluate, no: Evaluate) -> Evaluate:
    def evaluate(scope: Scope) -> Any:
        scope.step()
        found = test(scope)
        if not isinstance(found, bool):
            raise _NoOverload
        return yes(scope) if found else no(scope)

    return evaluate


def _call(node: Call) -> Evaluate:
    special = _special(node)
    if special is not None:
        return special
    arguments = tuple(map(_compiled, node.arguments))
    if node.target is not None:
        arguments = (_compiled(node.target), *arguments)
    table = _FUNCTIONS if node.target is None else _METHODS
    function = table.get((node.function, len(arguments)))
    if function is None:
        raise Unsupported("a function that is not known")

    name, says_types, counts = node.function, node.function in _GUARDED, node.function in _COUNTING

    def evaluate(scope: Scope) -> Any:
        scope.step()
        given = [it(scope) for it in arguments]
        size = 0
        for it in given:
            if type(it) is str or type(it) is tuple:
                size += len(it)
        if size >= _OF_A_STEP:
            scope.step(size // _OF_A_STEP)
        try:
            return function(*given, scope.step) if counts else function(*given)
        except _NoOverload:
            if says_types:
                raise CelError(f"{_NO_OVERLOAD}: {name}({', '.join(map(_type, given))})") from None
            raise

    return evaluate


def _special(node: Call) -> Evaluate | None:
    """What is no call of a function with values: macros, ``optional``, and membership in a list of constants."""
    count = len(node.arguments)
    if node.function == "has" and node.target is None and count == 1:
        return _has(node.arguments[0])
    if node.function in _MACROS and count == _OF_A_MACRO and isinstance(node.arguments[0], Name):
        return _over(node)
    if node.function == "bind" and node.target == Name("cel") and count == _OF_A_BINDING:
        return _bound(node)
    if node.target == Name("optional"):
        return _optional(node)
    if node.function == "in" and _is_constant(node.arguments[1]):
        return _among(_compiled(node.arguments[0]), frozenset(_told_apart(it.value) for it in node.arguments[1].items))
    return None


def _is_constant(node: Any) -> bool:
    return isinstance(node, ListOf) and bool(node.items) and all(isinstance(it, Literal) for it in node.items)


def _told_apart(constant: Any) -> tuple[bool, Any]:
    """Equal for equal constants: true is not 1."""
    return (isinstance(constant, bool), constant)


def _among(item: Evaluate, of: frozenset[tuple[bool, Any]]) -> Evaluate:
    """Upstream makes a set of constants too, in which it cannot look for a version."""

    def evaluate(scope: Scope) -> bool:
        scope.step()
        found = item(scope)
        if isinstance(found, Semver):
            raise CelError("internal error: runtime error: hash of unhashable type cel.Semver")
        if isinstance(found, Amounting):
            raise _NoOverload
        return (found is None or isinstance(found, int | float | str)) and _told_apart(found) in of

    return evaluate


def _has(asked: Any) -> Evaluate:
    if not isinstance(asked, Select) or asked.optional:
        raise Unsupported("has() of what is no field")
    of, field = _compiled(asked.of), asked.field

    def evaluate(scope: Scope) -> bool:
        scope.step()
        target = of(scope)
        if isinstance(target, Optional):
            target = target.value if target.present else {}
        return isinstance(target, Domains) or (isinstance(target, dict) and field in target)

    return evaluate


_MACROS: Final = ("exists", "all", "exists_one")
_OF_A_MACRO: Final = 2
_OF_A_BINDING: Final = 3


def _over(node: Call) -> Evaluate:
    """A macro over the items of a list or the keys of a map."""
    if node.target is None:
        raise Unsupported("a function that is not known")
    of, name, test = _compiled(node.target), node.arguments[0].name, _compiled(node.arguments[1])
    macro = node.function

    def evaluate(scope: Scope) -> bool:
        target = of(scope)
        if not isinstance(target, dict | tuple):
            raise _NoOverload
        within = scope.within(name)
        fault: CelError | None = None
        count = 0
        for it in sorted(target) if isinstance(target, dict) else target:
            scope.step()
            within.variables[name] = it
            try:
                found = test(within)
            except CelError as error:
                fault = fault or error
                continue
            if not isinstance(found, bool):
                fault = fault or CelError(_NO_OVERLOAD)
            elif macro == "exists_one":
                count += found
            elif found is (macro == "exists"):
                return found
        if fault is not None:
            raise fault
        return count == 1 if macro == "exists_one" else macro == "all"

    return evaluate


def _bound(node: Call) -> Evaluate:
    name, value, body = node.arguments
    if not isinstance(name, Name):
        raise Unsupported("cel.bind() without a name")
    bound, inner = _compiled(value), _compiled(body)

    def evaluate(scope: Scope) -> Any:
        scope.step()
        return inner(scope.within(name.name, bound(scope)))

    return evaluate


def _optional(node: Call) -> Evaluate:
    if node.function == "none" and not node.arguments:
        return lambda _scope: NOTHING
    if node.function == "of" and len(node.arguments) == 1:
        inner = _compiled(node.arguments[0])
        return lambda scope: Optional(True, inner(scope))
    raise Unsupported("a function that is not known")


# What operators and functions do.


def equal(a: Any, b: Any, spend: Spend) -> bool:
    """Numbers are equal across their types, all else only within one. Few lists may be many, each within others."""
    if isinstance(a, bool) or isinstance(b, bool):
        return isinstance(a, bool) and isinstance(b, bool) and a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if type(a) is not type(b) and not (isinstance(a, dict) and isinstance(b, dict)):
        if isinstance(a, Amounting | Semver):
            raise _NoOverload
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
        raise _NoOverload
    return int(a > b) - int(a < b)


def _contained(item: Any, of: Any, spend: Spend) -> bool:
    if isinstance(of, dict):
        return isinstance(item, str) and item in of
    if isinstance(of, tuple):
        return any(_equal_items(item, it, spend) for it in of)
    raise _NoOverload


def _without(operator: str, first: Any) -> CelError:
    """What is said where the first operand is of a type that never has the operator."""
    return _NoOverload("" if isinstance(first, str) else operator)


def _not(it: Any) -> bool:
    if not isinstance(it, bool):
        raise _NoOverload
    return not it


def _is_int(it: Any) -> bool:
    return isinstance(it, int) and not isinstance(it, bool)


def _fitting(found: int) -> int:
    if not _INT_MIN <= found <= _INT_MAX:
        raise CelError("integer overflow")
    return found


def _negative(it: Any) -> Any:
    if isinstance(it, float):
        return -it
    if not isinstance(it, int):
        raise _without("-_", it)
    if not _is_int(it):
        raise _NoOverload
    return _fitting(-it)


def _plus(a: Any, b: Any) -> Any:
    if type(a) is type(b) and isinstance(a, str | tuple):
        if len(a) + len(b) > _LONGEST_TEXT:
            raise Unsupported("a text or list that is too long")
        return a + b
    if isinstance(a, str | tuple):
        raise _NoOverload
    return _arithmetic("_+_", a, b, lambda x, y: x + y)


def _arithmetic(operator: str, a: Any, b: Any, operation: Callable[[Any, Any], Any]) -> Any:
    if _is_int(a) and _is_int(b):
        return _fitting(operation(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return operation(a, b)
    if not _is_int(a) and not isinstance(a, float):
        raise _without(operator, a)
    raise _NoOverload


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, float) and isinstance(b, float):
        raise Unsupported("a division of fractions")
    if not _is_int(a) and not isinstance(a, float):
        raise _without("_/_", a)
    if not (_is_int(a) and _is_int(b)):
        raise _NoOverload
    if b == 0:
        raise CelError("division by zero")
    found = abs(a) // abs(b)
    return _fitting(found if (a < 0) == (b < 0) else -found)


def _rest(a: Any, b: Any) -> Any:
    if not _is_int(a):
        raise _without("_%_", a)
    if not _is_int(b):
        raise _NoOverload
    if b == 0:
        raise CelError("modulus by zero")
    found = abs(a) % abs(b)
    return found if a >= 0 else -found


def _text(it: Any) -> str:
    if not isinstance(it, str):
        raise _NoOverload
    return it


def _ascii(characters: str, instead: str) -> Callable[[Any], str]:
    table = str.maketrans(characters, instead)
    return lambda it: _text(it).translate(table)


def _size(it: Any) -> int:
    if not isinstance(it, str | tuple | dict):
        raise _NoOverload("size")
    return len(it)


def _amount(text: Any) -> Amounting:
    found = parse_amount(_text(text))
    if found is None:
        raise CelError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    return found


def _semver(text: Any) -> Semver:
    found = parse_semver(_text(text))
    if found is None:
        raise Unsupported("a version that is none")
    return found


def _order(a: Any, b: Any) -> int:
    """Of two quantities, or two versions."""
    if isinstance(a, Amounting) and isinstance(b, Amounting):
        return int(a.amount > b.amount) - int(a.amount < b.amount)
    if isinstance(a, Semver) and isinstance(b, Semver):
        first, second = a.order(), b.order()
        return int(first > second) - int(first < second)
    raise _NoOverload


def _of_amount(function: Callable[[Amounting], Any]) -> Callable[[Any], Any]:
    def of(it: Any) -> Any:
        if not isinstance(it, Amounting):
            raise _NoOverload
        return function(it)

    return of


def _as_integer(it: Amounting) -> int:
    found = whole(it)
    if found is None:
        raise CelError("cannot convert value to integer")
    return found


def _summed(sign: int) -> Callable[[Any, Any], Amounting]:
    def of(a: Any, b: Any) -> Amounting:
        if not isinstance(a, Amounting) or not (isinstance(b, Amounting) or _is_int(b)):
            raise _NoOverload
        return Amounting(a.amount + sign * (b.amount if isinstance(b, Amounting) else b * 10**9))

    return of


def _number(place: int) -> Callable[[Any], int]:
    def of(it: Any) -> int:
        if not isinstance(it, Semver):
            raise _NoOverload
        return it.numbers[place]

    return of


def _value(it: Any) -> Any:
    if not isinstance(it, Optional):
        raise _NoOverload
    if not it.present:
        raise CelError("optional.none() dereference")
    return it.value


def _or_value(it: Any, other: Any) -> Any:
    if not isinstance(it, Optional):
        raise _NoOverload
    return it.value if it.present else other


def _or(it: Any, other: Any) -> Any:
    if not isinstance(it, Optional) or not isinstance(other, Optional):
        raise _NoOverload
    return it if it.present else other


def _has_value(it: Any) -> bool:
    if not isinstance(it, Optional):
        raise _NoOverload
    return it.present


def _as_text(it: Any) -> str:
    if isinstance(it, bool):
        return _shown(it)
    if isinstance(it, int | str):
        return str(it)
    if isinstance(it, float):
        raise Unsupported("a conversion that is not known")
    raise _NoOverload


_FUNCTIONS: Final[Mapping[tuple[str, int], Callable[..., Any]]] = {
    ("==", 2): equal,
    ("!=", 2): lambda a, b, spend: not equal(a, b, spend),
    ("<", 2): lambda a, b: _compared("_<_", a, b) < 0,
    ("<=", 2): lambda a, b: _compared("_<=_", a, b) <= 0,
    (">", 2): lambda a, b: _compared("_>_", a, b) > 0,
    (">=", 2): lambda a, b: _compared("_>=_", a, b) >= 0,
    ("in", 2): _contained,
    ("!", 1): _not,
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
    ("sign", 1): _of_amount(lambda it: (it.amount > 0) - (it.amount < 0)),
    ("semver", 1): _semver,
    ("isSemver", 1): lambda it: parse_semver(_text(it)) is not None,
}
"""By name and number of arguments."""

_GUARDED: Final = frozenset({
    "add", "asInteger", "compareTo", "isGreaterThan", "isInteger", "isLessThan", "isQuantity", "isSemver", "lowerAscii",
    "major", "minor", "patch", "quantity", "semver", "sign", "string", "sub", "upperAscii",
})  # fmt: skip
"""Functions that say with which types they were called, where these are wrong."""

_COUNTING: Final = frozenset({"==", "!=", "in", "matches"})
"""Functions that count their steps themselves: ``Spend`` is their last argument."""

_METHODS: Final[Mapping[tuple[str, int], Callable[..., Any]]] = {
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
    ("isInteger", 1): _of_amount(lambda it: whole(it) is not None),
    ("asInteger", 1): _of_amount(_as_integer),
    ("add", 2): _summed(1),
    ("sub", 2): _summed(-1),
    ("major", 1): _number(0),
    ("minor", 1): _number(1),
    ("patch", 1): _number(2),
    ("hasValue", 1): _has_value,
    ("value", 1): _value,
    ("orValue", 2): _or_value,
    ("or", 2): _or,
}
"""The same of those that are called on something, which is the first argument."""
