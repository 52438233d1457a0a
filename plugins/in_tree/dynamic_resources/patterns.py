"""Searches texts for patterns with RE2, which has the same syntax as Go's regexp. The work of a search is counted in
steps.

The time of RE2 is linear in the text, but also grows with the pattern. RE2 takes 0.3 s to compile a pattern of 8,000
characters, and 0.5 s to search for it in a text of this length. So compiling and searching are both counted in steps,
and the number of steps is limited. Measurements: ``docs/adr/0050-cel.md``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

import re2

from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported

MAX_PATTERN_LENGTH: Final = 1024
"""Maximum number of characters of a pattern. For a pattern of this length, RE2 takes up to 8 ms to detect that the
compiled program would be too large.
"""

_STEPS_PER_PATTERN: Final = 16
"""Number of steps for each search, in addition to one step per character of the pattern."""

_STEPS_PER_UNICODE_CLASS: Final = 250
"""Number of steps for each Unicode class, such as ``\\pL``, because RE2 takes 100 microseconds to compile it."""

_INSTRUCTIONS_PER_STEP: Final = 4
"""Number of instructions of a compiled program that count as one step."""

_PAIRS_PER_STEP: Final = 64
"""Number of (instruction, byte of the text) pairs that count as one step.

RE2 visits each pair at most once, in 9 ns.
"""

_UNICODE_CLASS: Final = re.compile(r"\\[pP]")
_OPTIONS: Final = re2.Options()
_OPTIONS.max_mem = 1 << 16  # bytes for one compiled program and its states; RE2 caches 128 programs
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False

Spend: TypeAlias = Callable[[int], None]
"""Function that counts steps before they are taken. It raises ``Unsupported`` if the limit is exceeded, which ends the
evaluation.
"""


@lru_cache(maxsize=64)
def _compile(pattern: str) -> tuple[re2._Regexp, int] | None:
    """Return the compiled pattern and its number of instructions, or ``None`` if RE2 rejects it."""
    try:
        compiled = re2.compile(pattern, _OPTIONS)
    except re2.error:
        return None
    return compiled, compiled.programsize


def matches(text: str, pattern: str, spend: Spend) -> bool:
    """Return true if the pattern occurs in the text.

    The number of steps does not depend on whether the compiled pattern is cached. Raises ``Unsupported`` for a pattern
    that RE2 rejects, that is longer than ``MAX_PATTERN_LENGTH``, or that contains ``\\C``, which Go does not support.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise Unsupported("a pattern that is too long")
    classes = len(_UNICODE_CLASS.findall(pattern))
    spend(_STEPS_PER_PATTERN + len(pattern) + classes * _STEPS_PER_UNICODE_CLASS)
    compiled = None if r"\C" in pattern else _compile(pattern)
    if compiled is None:
        raise Unsupported("an unsupported pattern")
    program, instructions = compiled
    searched = text.encode()
    spend(instructions // _INSTRUCTIONS_PER_STEP + instructions * len(searched) // _PAIRS_PER_STEP)
    return program.search(searched) is not None
