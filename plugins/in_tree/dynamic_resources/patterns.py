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

LONGEST_PATTERN: Final = 1024
"""Characters. A pattern that RE2 refuses for its size takes up to 8 ms of this length."""

_STEPS_OF_A_PATTERN: Final = 16
_STEPS_OF_A_UNICODE_CLASS: Final = 250
"""RE2 reads ``\\pL`` in 100 microseconds."""

_INSTRUCTIONS_OF_A_STEP: Final = 4
"""Of a program that is made."""

_PAIRS_OF_A_STEP: Final = 64
"""Of an instruction and a byte of the text: RE2 looks at each pair once at most, for 9 nanoseconds."""

_UNICODE_CLASS: Final = re.compile(r"\\[pP]")
_OPTIONS: Final = re2.Options()
_OPTIONS.max_mem = 1 << 16  # bytes, of a program and its states; RE2 keeps 128 patterns
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False

Spend: TypeAlias = Callable[[int], None]
"""Called with a number of steps before they are taken. Raises what ends the search."""


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> tuple[re2._Regexp, int] | None:
    """Return the pattern and the instructions of its program, or ``None`` if RE2 refuses it."""
    try:
        compiled = re2.compile(pattern, _OPTIONS)
    except re2.error:
        return None
    return compiled, compiled.programsize


def matches(text: str, pattern: str, spend: Spend) -> bool:
    """Return whether the pattern occurs in the text.

    The steps are the same whether the pattern is cached or not. Raises ``Unsupported`` for a pattern that RE2 refuses,
    is longer than ``LONGEST_PATTERN``, or has ``\\C``, which Go does not know.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise Unsupported("a pattern that is longer than what is read")
    classes = len(_UNICODE_CLASS.findall(pattern))
    spend(_STEPS_OF_A_PATTERN + len(pattern) + classes * _STEPS_OF_A_UNICODE_CLASS)
    compiled = None if r"\C" in pattern else _compiled(pattern)
    if compiled is None:
        raise Unsupported("a pattern that is not read")
    program, instructions = compiled
    searched = text.encode()
    spend(instructions // _INSTRUCTIONS_OF_A_STEP + instructions * len(searched) // _PAIRS_OF_A_STEP)
    return program.search(searched) is not None
