"""Evaluator for the CEL expressions of device selectors, in kube-scheduler's environment.

No CEL library both limits its work and returns kube-scheduler's error texts (``docs/adr/0050-cel.md``). Source of the
rules: ``k8s.io/dynamic-resource-allocation/cel`` and ``k8s.io/apiserver/pkg/cel/library`` of Kubernetes 1.36. The API
server has checked the types of stored expressions; this evaluator checks them at run time.

An evaluation returns true or false, or raises an exception. ``CelError`` has kube-scheduler's text. ``Unsupported``
means that a language feature is not implemented, or that the evaluation exceeds a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from plugins.in_tree.dynamic_resources.cel_functions import (
    CHARACTERS_PER_STEP,
    FUNCTIONS,
    METHODS,
    NAMING_TYPES,
    NO_OVERLOAD,
    SPENDING,
    CelError,
    NoOverload,
    shown,
)
from plugins.in_tree.dynamic_resources.cel_scope import Scope, StepBudget, ValuesByDomain
from plugins.in_tree.dynamic_resources.cel_syntax import (
    Call,
    Conditional,
    FieldAccess,
    IndexAccess,
    ListOf,
    Literal,
    Logic,
    Name,
    Unsupported,
    parse,
)
from plugins.in_tree.dynamic_resources.cel_values import NO_VALUE, OptionalValue, QuantityValue, Semver

_ITEMS_PER_STEP: Final = 4
"""Number of items of a list expression that count as one step."""

Evaluate: TypeAlias = Callable[[Scope], Any]
"""Function that evaluates a part of an expression."""


class DeviceSelector:
    """Compiled selector expression. Its constructor raises ``Unsupported`` if the expression cannot be compiled."""

    def __init__(self, expression: str) -> None:
        self._evaluate = _compile(parse(expression))

    def matches(self, variables: dict[str, Any], budget: StepBudget) -> bool:
        """Return true if the selector matches a device with these variables. Raises ``CelError`` or ``Unsupported``."""
        result = self._evaluate(Scope(variables, budget))
        if not isinstance(result, bool):
            raise CelError(f"CEL result of type {_type(result)} could not be converted to bool: {_conversion(result)}")
        return result


def _conversion(value: Any) -> str:
    if isinstance(value, str):
        return "unsupported native conversion from string to 'bool'"
    if isinstance(value, int | float):
        return f"unsupported type conversion from '{_type(value)}' to bool"
    return f"type conversion error from '{_type(value).rpartition('.')[2]}' to 'bool'"


def _type(value: Any) -> str:
    for kind, name in (
        (bool, "bool"),
        (int, "int"),
        (float, "double"),
        (str, "string"),
        (tuple, "list"),
        (dict, "map"),
        (QuantityValue, "kubernetes.Quantity"),
        (Semver, "kubernetes.Semver"),
        (OptionalValue, "optional_type"),
    ):
        if isinstance(value, kind):
            return name
    return "null_type"


# Compilation of the syntax tree.


def _compile(node: Any) -> Evaluate:
    match node:
        case Literal(value):
            return lambda _scope: value
        case Name(name):
            return _variable(name)
        case FieldAccess(of, field, optional):
            return _lookup(_compile(of), lambda _scope: field, optional=optional)
        case IndexAccess(of, key, optional):
            return _lookup(_compile(of), _compile(key), optional=optional)
        case ListOf(items):
            return _list_of(tuple(map(_compile, items)))
        case Logic(terms, any_of):
            return _logic(tuple(map(_compile, terms)), decides=any_of)
        case Conditional(test, yes, no):
            return _conditional(_compile(test), _compile(yes), _compile(no))
        case Call():
            return _call(node)
    raise Unsupported("an unsupported expression")


def _variable(name: str) -> Evaluate:
    def evaluate(scope: Scope) -> Any:
        scope.step()
        if name not in scope.variables:
            raise Unsupported("an unknown variable")
        return scope.variables[name]

    return evaluate


def _lookup(of: Evaluate, key: Evaluate, *, optional: bool) -> Evaluate:
    def evaluate(scope: Scope) -> Any:
        scope.step()
        target, member = of(scope), key(scope)
        if isinstance(target, OptionalValue):  # access to an optional value returns an optional value
            return _optional_lookup(target.value, member) if target.present else NO_VALUE
        return _optional_lookup(target, member) if optional else _lookup_value(target, member)

    return evaluate


def _optional_lookup(target: Any, key: Any) -> OptionalValue:
    if isinstance(target, ValuesByDomain):
        return OptionalValue(True, target[key])
    if isinstance(target, dict):
        return OptionalValue(True, target[key]) if key in target else NO_VALUE
    if isinstance(target, tuple) and isinstance(key, int):
        return OptionalValue(True, target[key]) if 0 <= key < len(target) else NO_VALUE
    return NO_VALUE


def _lookup_value(target: Any, key: Any) -> Any:
    if isinstance(target, dict):
        if not isinstance(key, str):
            raise CelError(NO_OVERLOAD if isinstance(target, ValuesByDomain) else f"no such key: {shown(key)}")
        if key not in target and not isinstance(target, ValuesByDomain):
            raise CelError(f"no such key: {key}")
        return target[key]
    if isinstance(target, tuple):
        if not isinstance(key, int) or isinstance(key, bool):
            raise NoOverload
        if not 0 <= key < len(target):
            raise CelError(f"index out of bounds: {key}")
        return target[key]
    raise CelError(f"no such key: {shown(key)}")


def _list_of(parts: tuple[Evaluate, ...]) -> Evaluate:
    def evaluate(scope: Scope) -> Any:
        scope.step(1 + len(parts) // _ITEMS_PER_STEP)
        return tuple(part(scope) for part in parts)

    return evaluate


def _logic(terms: tuple[Evaluate, ...], *, decides: bool) -> Evaluate:
    """Compile ``&&`` or ``||``. An operand equal to ``decides`` is the result, even if others raise ``CelError``."""

    def evaluate(scope: Scope) -> Any:
        fault: CelError | None = None
        for term in terms:
            scope.step()
            try:
                value = term(scope)
            except CelError as error:
                fault = fault or error
                continue
            if not isinstance(value, bool):
                fault = fault or CelError(NO_OVERLOAD)
            elif value is decides:
                return decides
        if fault is not None:
            raise fault
        return not decides

    return evaluate


def _conditional(test: Evaluate, yes: Evaluate, no: Evaluate) -> Evaluate:
    def evaluate(scope: Scope) -> Any:
        scope.step()
        condition = test(scope)
        if not isinstance(condition, bool):
            raise NoOverload
        return yes(scope) if condition else no(scope)

    return evaluate


def _call(node: Call) -> Evaluate:
    special = _special(node)
    if special is not None:
        return special
    arguments = tuple(map(_compile, node.arguments))
    if node.target is not None:
        arguments = (_compile(node.target), *arguments)
    table = FUNCTIONS if node.target is None else METHODS
    function = table.get((node.function, len(arguments)))
    if function is None:
        raise Unsupported("an unknown function")

    name, says_types, counts = node.function, node.function in NAMING_TYPES, node.function in SPENDING

    def evaluate(scope: Scope) -> Any:
        scope.step()
        given = [argument(scope) for argument in arguments]
        size = 0
        for argument in given:
            if type(argument) is str or type(argument) is tuple:
                size += len(argument)
        if size >= CHARACTERS_PER_STEP:
            scope.step(size // CHARACTERS_PER_STEP)
        try:
            return function(*given, scope.step) if counts else function(*given)
        except NoOverload:
            if says_types:
                raise CelError(f"{NO_OVERLOAD}: {name}({', '.join(map(_type, given))})") from None
            raise

    return evaluate


def _special(node: Call) -> Evaluate | None:
    """Compile a macro, a call on ``optional``, or ``in`` with a list of constants; return ``None`` for other calls."""
    count = len(node.arguments)
    if node.function == "has" and node.target is None and count == 1:
        return _has(node.arguments[0])
    if node.function in _MACROS and count == _MACRO_ARGUMENTS and isinstance(node.arguments[0], Name):
        return _macro(node)
    if node.function == "bind" and node.target == Name("cel") and count == _BIND_ARGUMENTS:
        return _bind(node)
    if node.target == Name("optional"):
        return _optional(node)
    if node.function == "in" and _is_constant(node.arguments[1]):
        return _in_constants(_compile(node.arguments[0]), frozenset(_typed(it.value) for it in node.arguments[1].items))
    return None


def _is_constant(node: Any) -> bool:
    return isinstance(node, ListOf) and bool(node.items) and all(isinstance(it, Literal) for it in node.items)


def _typed(constant: Any) -> tuple[bool, Any]:
    """Return a key for a constant. Equal constants have equal keys, but the keys of ``true`` and ``1`` differ."""
    return (isinstance(constant, bool), constant)


def _in_constants(item: Evaluate, of: frozenset[tuple[bool, Any]]) -> Evaluate:
    """Compile ``in`` with a list of constants as a look-up in a set. As in kube-scheduler, an error is raised if the
    item is a semantic version or a quantity.
    """

    def evaluate(scope: Scope) -> bool:
        scope.step()
        value = item(scope)
        if isinstance(value, Semver):
            raise CelError("internal error: runtime error: hash of unhashable type cel.Semver")
        if isinstance(value, QuantityValue):
            raise NoOverload
        return (value is None or isinstance(value, int | float | str)) and _typed(value) in of

    return evaluate


def _has(argument: Any) -> Evaluate:
    if not isinstance(argument, FieldAccess) or argument.optional:
        raise Unsupported("has() without a field")
    of, field = _compile(argument.of), argument.field

    def evaluate(scope: Scope) -> bool:
        scope.step()
        target = of(scope)
        if isinstance(target, OptionalValue):
            target = target.value if target.present else {}
        return isinstance(target, ValuesByDomain) or (isinstance(target, dict) and field in target)

    return evaluate


_MACROS: Final = ("exists", "all", "exists_one")
_MACRO_ARGUMENTS: Final = 2
_BIND_ARGUMENTS: Final = 3


def _macro(node: Call) -> Evaluate:
    """Compile ``exists``, ``all`` or ``exists_one`` over the items of a list or the keys of a map."""
    if node.target is None:
        raise Unsupported("an unknown function")
    of, name, test = _compile(node.target), node.arguments[0].name, _compile(node.arguments[1])
    macro = node.function

    def evaluate(scope: Scope) -> bool:
        target = of(scope)
        if not isinstance(target, dict | tuple):
            raise NoOverload
        within = scope.within(name)
        fault: CelError | None = None
        count = 0
        for element in sorted(target) if isinstance(target, dict) else target:
            scope.step()
            within.variables[name] = element
            try:
                value = test(within)
            except CelError as error:
                fault = fault or error
                continue
            if not isinstance(value, bool):
                fault = fault or CelError(NO_OVERLOAD)
            elif macro == "exists_one":
                count += value
            elif value is (macro == "exists"):
                return value
        if fault is not None:
            raise fault
        return count == 1 if macro == "exists_one" else macro == "all"

    return evaluate


def _bind(node: Call) -> Evaluate:
    name, value, body = node.arguments
    if not isinstance(name, Name):
        raise Unsupported("cel.bind() without a name")
    bound, inner = _compile(value), _compile(body)

    def evaluate(scope: Scope) -> Any:
        scope.step()
        return inner(scope.within(name.name, bound(scope)))

    return evaluate


def _optional(node: Call) -> Evaluate:
    if node.function == "none" and not node.arguments:
        return lambda _scope: NO_VALUE
    if node.function == "of" and len(node.arguments) == 1:
        inner = _compile(node.arguments[0])
        return lambda scope: OptionalValue(True, inner(scope))
    raise Unsupported("an unknown function")
