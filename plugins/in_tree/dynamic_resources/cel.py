"""Evaluates the selectors of devices: CEL, as far as ``cel_syntax`` reads it, in kube-scheduler's environment.

No library is both bounded and says what kube-scheduler says: ``docs/adr/0050-cel.md``. Source of the rules:
``k8s.io/dynamic-resource-allocation/cel`` and ``k8s.io/apiserver/pkg/cel/library`` of Kubernetes 1.36. The API server
has checked the types of what it has stored; here they are met when it runs.

Three outcomes beside true and false: ``CelError`` in the words of a scheduler, ``Unsupported`` for what is not read of
the language, and that too where a comprehension or a text grows beyond what is worked out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from plugins.in_tree.dynamic_resources.cel_functions import (
    COUNTING,
    FUNCTIONS,
    GUARDED,
    METHODS,
    NO_OVERLOAD,
    OF_A_STEP,
    CelError,
    NoOverload,
    shown,
)
from plugins.in_tree.dynamic_resources.cel_scope import Budget, Domains, Scope
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
from plugins.in_tree.dynamic_resources.cel_values import NOTHING, Amounting, Optional, Semver

_ITEMS_OF_A_STEP: Final = 4
"""Of a list that is made."""

Evaluate: TypeAlias = Callable[[Scope], Any]


class Selector:
    """A compiled expression. Raises ``Unsupported`` when it is made of what is not read."""

    def __init__(self, expression: str) -> None:
        self._evaluate = _compiled(parse(expression))

    def matches(self, variables: dict[str, Any], budget: Budget) -> bool:
        """Raises ``CelError`` and ``Unsupported``."""
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
        (Amounting, "kubernetes.Quantity"),
        (Semver, "kubernetes.Semver"),
        (Optional, "optional_type"),
    ):
        if isinstance(value, kind):
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
            raise CelError(NO_OVERLOAD if isinstance(target, Domains) else f"no such key: {shown(key)}")
        if key not in target and not isinstance(target, Domains):
            raise CelError(f"no such key: {key}")
        return target[key]
    if isinstance(target, tuple):
        if not isinstance(key, int) or isinstance(key, bool):
            raise NoOverload
        if not 0 <= key < len(target):
            raise CelError(f"index out of bounds: {key}")
        return target[key]
    raise CelError(f"no such key: {shown(key)}")


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
    arguments = tuple(map(_compiled, node.arguments))
    if node.target is not None:
        arguments = (_compiled(node.target), *arguments)
    table = FUNCTIONS if node.target is None else METHODS
    function = table.get((node.function, len(arguments)))
    if function is None:
        raise Unsupported("a function that is not known")

    name, says_types, counts = node.function, node.function in GUARDED, node.function in COUNTING

    def evaluate(scope: Scope) -> Any:
        scope.step()
        given = [argument(scope) for argument in arguments]
        size = 0
        for argument in given:
            if type(argument) is str or type(argument) is tuple:
                size += len(argument)
        if size >= OF_A_STEP:
            scope.step(size // OF_A_STEP)
        try:
            return function(*given, scope.step) if counts else function(*given)
        except NoOverload:
            if says_types:
                raise CelError(f"{NO_OVERLOAD}: {name}({', '.join(map(_type, given))})") from None
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
        value = item(scope)
        if isinstance(value, Semver):
            raise CelError("internal error: runtime error: hash of unhashable type cel.Semver")
        if isinstance(value, Amounting):
            raise NoOverload
        return (value is None or isinstance(value, int | float | str)) and _told_apart(value) in of

    return evaluate


def _has(argument: Any) -> Evaluate:
    if not isinstance(argument, Select) or argument.optional:
        raise Unsupported("has() of what is no field")
    of, field = _compiled(argument.of), argument.field

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
