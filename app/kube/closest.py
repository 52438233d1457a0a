"""Suggestions for a mistyped name: the known names that are similar to it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_CUTOFF: Final = 0.75
"""Minimum similarity (difflib's ratio, from 0 to 1) of names that are more than one typo apart."""

_SHORTEST: Final = 2
"""Minimum length of names with a typo, because any two names of one letter would be one typo apart."""


def closest(name: str, known: Iterable[str], most: int) -> list[str]:
    """Return at most ``most`` of the ``known`` names that are similar to ``name``. Upper and lower case are equal.

    Names with a similarity of at least ``_CUTOFF`` come first, the most similar one at the front. Then come the other
    names that are one typo away.
    """
    by_lower = {it.lower(): it for it in known}
    wanted = name.lower()
    close = get_close_matches(wanted, by_lower, n=most, cutoff=_CUTOFF)
    close += (it for it in by_lower if it not in close and is_typo(wanted, it))
    return [by_lower[it] for it in close[:most]]


def is_typo(name: str, other: str) -> bool:
    """Return true if the names are equal or one typo apart: a wrong, missing or extra letter, or two swapped letters.

    Swapped letters must be neighbours. The result is always false if one of the names has fewer than two letters.
    """
    length = max(len(name), len(other))
    if abs(len(name) - len(other)) > 1 or min(len(name), len(other)) < _SHORTEST:
        return False
    start = common_start(name, other)
    equal = start + common_start(name[::-1], other[::-1])
    if equal >= length - 1:
        return True
    swapped = name[start : start + 2][::-1] == other[start : start + 2]
    return swapped and len(name) == len(other) and equal == length - 2


def common_start(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length
