"""Parser for CEL expressions. Size and depth are limited, because tenants write the expressions.

It supports the part of the language (github.com/google/cel-spec) that device selectors use: comparisons, logic,
arithmetic, fields, keys, optional values, calls, lists and the conditional operator. Other expressions raise
``Unsupported``.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import astuple

MAX_LENGTH: Final = 10 << 10
"""Maximum number of characters of an expression, equal to the API server's limit."""

MAX_NODES: Final = 1000
"""Maximum number of nodes of the syntax tree, not counting names."""

MAX_DEPTH: Final = 30
"""Maximum depth of nested expressions, because each level takes several nested Python calls to parse."""

MAX_HEIGHT: Final = 64
"""Maximum height of the syntax tree, because each level takes several nested Python calls to evaluate."""

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**63 - 1


class Unsupported(Exception):  # a limit of this parser rather than an error of the expression
    """The expression uses an unsupported feature or exceeds a limit, so Homeport cannot evaluate it."""


class Literal(Struct, frozen=True):
    """Constant: a number, a text, a truth value or null."""

    value: Any


class Name(Struct, frozen=True):
    """Reference to the variable ``name``."""

    name: str


class FieldAccess(Struct, frozen=True):
    """Access to a field: ``of.field``, or ``of.?field`` if ``optional``."""

    of: Any
    field: str
    optional: bool = False


class IndexAccess(Struct, frozen=True):
    """Access by key or index: ``of[key]``, or ``of[?key]`` if ``optional``."""

    of: Any
    key: Any
    optional: bool = False


class Call(Struct, frozen=True):
    """Call of a function, a method (``target.function(arguments)``) or an operator.

    ``target`` is ``None`` for functions and operators.
    """

    function: str
    target: Any
    arguments: tuple[Any, ...]


class ListOf(Struct, frozen=True):
    """List ``[items]``."""

    items: tuple[Any, ...]


class Logic(Struct, frozen=True):
    """Conjunction (``&&``) of the terms, or disjunction (``||``) if ``any``."""

    terms: tuple[Any, ...]
    any: bool


class Conditional(Struct, frozen=True):
    """Conditional operator ``test ? yes : no``."""

    test: Any
    yes: Any
    no: Any


_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)(?P<unsigned>[uU])?
    |(?P<text>[rR]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>&&|\|\||==|!=|<=|>=|\[\?|\.\?|[-+*/%!<>?:.,()\[\]{}])""",
    re.VERBOSE,
)

_RESERVED: Final = frozenset({
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package",
    "namespace", "return", "var", "void", "while",
})  # fmt: skip
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`",
}  # fmt: skip
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|([0-3][0-7]{2})|(.))")
_COMPARISONS: Final = ("==", "!=", "<", "<=", ">", ">=", "in")


def parse(text: str) -> Any:
    """Return the syntax tree of an expression. Raises ``Unsupported``."""
    if len(text) > MAX_LENGTH:
        raise Unsupported("an expression of more than 10 KiB")
    return _Parser(_tokens(text)).parse()


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match["unsigned"]:
            raise Unsupported("an unsupported character or number")
        at = match.end()
        if match.lastgroup is not None:
            tokens.append((match.lastgroup, match[match.lastgroup]))
    return tokens


class _Parser:
    """Recursive-descent parser, with the precedences of CEL's grammar."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = [*tokens, ("end", "")]
        self._at = 0
        self._nodes = 0
        self._depth = 0
        self._heights: dict[int, int] = {}

    def parse(self) -> Any:
        node = self._expression()
        self._expect("")
        return node

    def _expression(self) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unsupported("an expression that is nested too deeply")
        node = self._logic(any_of=True)
        if self._take("?"):
            yes = self._logic(any_of=True)
            self._expect(":")
            node = self._add(Conditional(node, yes, self._expression()))
        self._depth -= 1
        return node

    def _logic(self, *, any_of: bool) -> Any:
        operator = "||" if any_of else "&&"
        terms = [self._logic(any_of=False) if any_of else self._comparison()]
        while self._take(operator):
            terms.append(self._logic(any_of=False) if any_of else self._comparison())
        return terms[0] if len(terms) == 1 else self._add(Logic(tuple(terms), any_of))

    def _comparison(self) -> Any:
        node = self._sum()
        while (operator := self._tokens[self._at][1]) in _COMPARISONS and self._tokens[self._at][0] != "text":
            self._at += 1
            node = self._add(Call(operator, None, (node, self._sum())))
        return node

    def _sum(self) -> Any:
        return self._chain(("+", "-"), self._product)

    def _product(self) -> Any:
        return self._chain(("*", "/", "%"), self._unary)

    def _chain(self, operators: tuple[str, ...], part: Any) -> Any:
        node = part()
        while self._tokens[self._at] in [("mark", it) for it in operators]:
            operator = self._tokens[self._at][1]
            self._at += 1
            node = self._add(Call(operator, None, (node, part())))
        return node

    def _unary(self) -> Any:
        for mark, function in (("!", "!"), ("-", "-")):
            times = 0
            while self._take(mark):
                times += 1
            if times:
                return self._negated(function, times)
        return self._member()

    def _negated(self, function: str, times: int) -> Any:
        kind, text = self._tokens[self._at]
        if function == "-" and kind == "int":  # parsed with the sign, because -2**63 is in range but 2**63 is not
            self._at += 1
            value = -int(text, 0 if text.startswith("0x") else 10)
            return self._members(self._literal_int(value if times % 2 else -value))
        node = self._member()
        for _ in range(times % 2 or 2):
            node = self._add(Call(function, None, (node,)))
        return node

    def _member(self) -> Any:
        return self._members(self._primary())

    def _members(self, node: Any) -> Any:
        while True:
            if self._take("."):
                name = self._name()
                if self._take("("):
                    node = self._add(Call(name, node, self._list(")")))
                else:
                    node = self._add(FieldAccess(node, name))
            elif self._take(".?"):
                node = self._add(FieldAccess(node, self._name(), optional=True))
            elif self._take("[?"):
                node = self._add(IndexAccess(node, self._expression(), optional=True))
                self._expect("]")
            elif self._take("["):
                node = self._add(IndexAccess(node, self._expression()))
                self._expect("]")
            else:
                return node

    def _primary(self) -> Any:
        kind, text = self._tokens[self._at]
        self._at += 1
        match kind:
            case "int":
                return self._literal_int(int(text, 16) if text.startswith("0x") else int(text))
            case "float":
                return self._add(Literal(float(text)))
            case "text":
                return self._add(Literal(_unquoted(text)))
            case "name" if text in _CONSTANTS:
                return self._add(Literal(_CONSTANTS[text]))
            case "name" if text not in _RESERVED and text != "in":
                return self._add(Call(text, None, self._list(")")) if self._take("(") else Name(text))
        if text == "(":
            node = self._expression()
            self._expect(")")
            return node
        if text == "[":
            return self._add(ListOf(self._list("]")))
        raise Unsupported("an unsupported expression")

    def _literal_int(self, value: int) -> Any:
        if not _INT_MIN <= value <= _INT_MAX:
            raise Unsupported("a number of more than 64 bits")
        return self._add(Literal(value))

    def _list(self, end: str) -> tuple[Any, ...]:
        items: list[Any] = []
        while not self._take(end):
            if items:
                self._expect(",")
                if end == "]" and self._take(end):
                    break
            items.append(self._expression())
        return tuple(items)

    def _name(self) -> str:
        kind, text = self._tokens[self._at]
        if kind != "name" or text in _RESERVED or text in ("in", *_CONSTANTS):
            raise Unsupported("an invalid field name")
        self._at += 1
        return text

    def _take(self, mark: str) -> bool:
        if self._tokens[self._at] != ("mark", mark):
            return False
        self._at += 1
        return True

    def _expect(self, mark: str) -> None:
        if self._tokens[self._at] not in (("mark", mark), ("end", mark)):
            raise Unsupported("an unsupported expression")
        self._at += 1

    def _add(self, node: Any) -> Any:
        """Count a new node, record its height, and return it. Raises ``Unsupported`` if the tree exceeds a limit."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise Unsupported("an expression with too many parts")
        height = 1 + max(map(self._height, astuple(node)))
        if height > MAX_HEIGHT:
            raise Unsupported("an expression whose syntax tree is too high")
        self._heights[id(node)] = height
        return node

    def _height(self, part: Any) -> int:
        """Return the height of a part of the tree; 0 for a name, and for anything that is not a node."""
        if isinstance(part, tuple):
            return max(map(self._height, part), default=0)
        return self._heights.get(id(part), 0) if isinstance(part, Struct) else 0


def _unquoted(text: str) -> str:
    if text[0] in "rR":
        return text[2:-1]
    inner = text[1:-1]
    return inner if "\\" not in inner else _ESCAPE.sub(_escaped, inner)


def _escaped(escape: re.Match[str]) -> str:
    short, long, byte, octal, other = escape.groups()
    digits = short or long or byte
    if digits or octal:
        code = int(digits, 16) if digits else int(octal, 8)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise Unsupported("an escape sequence for an invalid character")
        return chr(code)
    if other not in _ESCAPES:
        raise Unsupported("an unsupported escape sequence")
    return _ESCAPES[other]
