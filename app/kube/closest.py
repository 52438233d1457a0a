"""Finds the known names that a mistyped name can stand for."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_CUTOFF: Final = 0.75
_SHORTEST: Final = 2
"""Minimum length of a name with a typo: each name of one letter is one typo away from all others."""


def closest(name: str, known: Iterable[str], most: int) -> list[str]:
    """Return at most ``most`` similar names, the most similar first: with many equal letters, or one typo away.

    Upper and lower case are equal.
    """
    by_lower = {it.lower(): it for it in known}
    wanted = name.lower()
    close = get_close_matches(wanted, by_lower, n=most, cutoff=_CUTOFF)
    close += (it for it in by_lower if it not in close and is_typo(wanted, it))
    return [by_lower[it] for it in close[:most]]


def is_typo(name: str, other: str) -> bool:
    """Return true if one letter is wrong, missing or too much, or if two neighbours are swapped."""
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
    """Return the number of equal characters at the beginning."""
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length
