"""Searches texts for patterns with RE2, whose syntax Go's regexp shares. The time of a search is counted in steps.

RE2 is linear in the text, but neither its parser nor a large program is free: a pattern of 8,000 characters takes 0.3 s
to read, and 0.5 s to find in a text as long. The steps below bound that. Measurements: ``docs/adr/0050-cel.md``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

import re2

from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported

MAX_PATTERN_LENGTH: Final = 1024
"""Maximum number of characters. RE2 takes up to 8 ms to reject a pattern of this length for its size."""

_STEPS_PER_PATTERN: Final = 16
_STEPS_PER_UNICODE_CLASS: Final = 250
"""Steps per class such as ``\\pL``, which RE2 takes 100 microseconds to compile."""

_INSTRUCTIONS_PER_STEP: Final = 4
"""Number of instructions of a compiled program that count as one step."""

_PAIRS_PER_STEP: Final = 64
"""Number of (instruction, byte of the text) pairs that count as one step. RE2 visits each at most once, in 9 ns."""

_UNICODE_CLASS: Final = re.compile(r"\\[pP]")
_OPTIONS: Final = re2.Options()
_OPTIONS.max_mem = 1 << 16  # bytes, of a program and its states; RE2 keeps 128 patterns
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False

Spend: TypeAlias = Callable[[int], None]
"""Function that counts steps before they are taken. Raises an exception that ends the search."""


@lru_cache(maxsize=64)
def _compile(pattern: str) -> tuple[re2._Regexp, int] | None:
    """Return the compiled pattern and its number of instructions, or ``None`` if RE2 rejects it."""
    try:
        compiled = re2.compile(pattern, _OPTIONS)
    except re2.error:
        return None
    return compiled, compiled.programsize


def matches(text: str, pattern: str, spend: Spend) -> bool:
    """Return whether the pattern occurs in the text.

    The steps are the same whether the pattern is cached or not. Raises ``Unsupported`` for a pattern that RE2 refuses,
    is longer than ``MAX_PATTERN_LENGTH``, or has ``\\C``, which Go does not know.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise Unsupported("a pattern that is longer than what is read")
    classes = len(_UNICODE_CLASS.findall(pattern))
    spend(_STEPS_PER_PATTERN + len(pattern) + classes * _STEPS_PER_UNICODE_CLASS)
    compiled = None if r"\C" in pattern else _compile(pattern)
    if compiled is None:
        raise Unsupported("a pattern that is not read")
    program, instructions = compiled
    searched = text.encode()
    spend(instructions // _INSTRUCTIONS_PER_STEP + instructions * len(searched) // _PAIRS_PER_STEP)
    return program.search(searched) is not None
