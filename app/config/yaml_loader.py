"""Guards against YAML files that nest so deeply that libyaml would crash, or in which aliases or merges multiply."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, SequenceNode

MOST_MERGED: Final = 2_000_000
"""Maximum number of keys that all merges (``<<``) of one stream add."""

_FASTEST: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE: Final = "tag:yaml.org,2002:merge"

_MOST_NESTED: Final = 10_000
"""Maximum nesting for libyaml, because more than 20,000 levels overflow the usual stack of 8 MiB."""

_BRACKET: Final = re.compile(r"[\[\]{}]")
_INDENTATION: Final = re.compile(r"(?<![ \t?:-])[ \t?:-]{50,}")
"""Run of at least 50 blanks and indicators, as at the beginning of a deeply nested line; shorter runs are ignored."""

_LEVELS_PER_COLUMN: Final = 2
"""Maximum number of block collections that begin in one column: a mapping and a list that is its value."""


class MergingConstructor(SafeConstructor):
    """Safe constructor that raises ``ConstructorError`` if merges add more than ``MOST_MERGED`` keys in all."""

    def __init__(self) -> None:
        SafeConstructor.__init__(self)  # not super(): in a loader, that is another loader's __init__, with a stream
        self._merged = 0
        self._flat: set[int] = set()

    def construct_document(self, node: Node) -> Any:
        self._flat.clear()  # a node of another document can have the id of a node that was freed
        return super().construct_document(node)

    def flatten_mapping(self, node: MappingNode) -> None:
        """Replace each merge in a mapping by the keys that it adds; first count them, because PyYAML does not."""
        if id(node) in self._flat:
            return
        self._flat.add(id(node))
        for key, value in node.value:
            if key.tag != _MERGE:
                continue
            for source in value.value if isinstance(value, SequenceNode) else (value,):
                if isinstance(source, MappingNode):
                    self.flatten_mapping(source)
                    self._merged += len(source.value)
                if self._merged > MOST_MERGED:
                    text = f"merges (<<) add more than {MOST_MERGED:,} keys"
                    raise yaml.constructor.ConstructorError(None, None, text, key.start_mark)
        super().flatten_mapping(node)


class _PythonLoader(MergingConstructor, yaml.SafeLoader):
    def __init__(self, stream: Any) -> None:
        yaml.SafeLoader.__init__(self, stream)
        MergingConstructor.__init__(self)


class _FastLoader(MergingConstructor, _FASTEST):  # type: ignore[misc]  # the base is chosen at run time
    def __init__(self, stream: Any) -> None:
        _FASTEST.__init__(self, stream)
        MergingConstructor.__init__(self)


def loader_for(text: str) -> Any:
    """Return the safe loader in Python if the text can have more than ``_MOST_NESTED`` levels; else the one in C, if
    PyYAML has it.

    The one in Python raises ``RecursionError``. Both raise ``ConstructorError`` if merges multiply, see
    ``MergingConstructor``.
    """
    depth = deepest = 0
    for bracket in _BRACKET.finditer(text):
        depth = depth + 1 if bracket[0] in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    column = max((it.end() - it.start() for it in _INDENTATION.finditer(text)), default=0)
    return _PythonLoader if deepest + _LEVELS_PER_COLUMN * column > _MOST_NESTED else _FastLoader


def check_aliases(document: Any, most: int) -> None:
    """Check how much larger a mapping or list is with its aliases resolved than in memory, where they share values.

    Raises ``ValueError`` if aliases add more than ``most`` keys and list items, or if an alias is inside the mapping or
    list to which it refers.
    """
    sizes: dict[int, int] = {}
    parents: set[int] = set()
    own = 0
    pending = [document]
    while pending:
        value = pending[-1]
        parts = [it for it in (value.values() if isinstance(value, dict) else value) if isinstance(it, dict | list)]
        missing = [it for it in parts if id(it) not in sizes]
        if id(value) in sizes or not missing:
            pending.pop()
            parents.discard(id(value))
            if id(value) not in sizes:
                own += len(value)
                sizes[id(value)] = len(value) + sum(sizes[id(it)] for it in parts)
        elif any(id(it) in parents or it is value for it in missing):
            raise ValueError("an alias refers to its own parent")
        else:
            parents.add(id(value))
            pending += missing
    if sizes[id(document)] - own > most:
        raise ValueError(f"aliases add more than {most:,} keys and list items")
