"""The families of each part, by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from tests.fuzz import amounts, large, lies, objects, requests

EVERY: Final[Mapping[str, Mapping[str, tuple[float, Any]]]] = {
    "requests": requests.FAMILIES,
    "objects": objects.FAMILIES,
    "amounts": amounts.FAMILIES,
    "large": large.FAMILIES,
    "lies": lies.FAMILIES,
}

EVENTS_AT_ONCE: Final = 1000
"""In one packet; then a pause of a millisecond."""


def chosen(part: str, names: Collection[str] = ()) -> dict[str, tuple[float, Any]]:
    """Return the families of a part by name: those asked for, else all."""
    return {name: family for name, family in EVERY[part].items() if not names or name in names}
