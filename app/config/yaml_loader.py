"""Choice of PyYAML's loader for text that might be nested so deeply that libyaml would crash the process."""

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
