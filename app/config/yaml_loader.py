"""Guards for YAML from untrusted files: nesting that would crash libyaml, and aliases that multiply."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

_FAST_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_MOST_NESTED: Final = 10_000
"""Maximum nesting for libyaml, because more than 20,000 levels overflow the usual stack of 8 MiB."""

_BRACKET: Final = re.compile(r"[\[\]{}]")
_INDENTATION: Final = re.compile(r"(?<![ \t?:-])[ \t?:-]{50,}")
"""Spaces and indicators at the beginning of a line. A shorter run cannot be nested deeply."""

_LEVELS_PER_COLUMN: Final = 2
"""Maximum number of block collections that begin in one column: a mapping and a list that is its value."""


def loader_for(text: str) -> Any:
    """Return the safe loader in C; the one in Python, which raises ``RecursionError``, if the nesting can be deep."""
    depth = deepest = 0
    for bracket in _BRACKET.finditer(text):
        depth = depth + 1 if bracket[0] in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    column = max((it.end() - it.start() for it in _INDENTATION.finditer(text)), default=0)
    return yaml.SafeLoader if deepest + _LEVELS_PER_COLUMN * column > _MOST_NESTED else _FAST_LOADER


def check_aliases(document: Any, most: int) -> None:
    """Check how much larger a document is with its aliases resolved than in memory, where they share their values.

    Raises ``ValueError`` if they add more than ``most`` keys and list items, or if one refers to its own parent.
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
