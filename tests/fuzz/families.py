"""Which families are sent. Those that wait are known to fail, and for whom."""

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

WAITING: Final[Mapping[tuple[str, str], str]] = {}
"""By part and family, the cause. Empty: ``make fuzz`` sends everything."""

EVENTS_AT_ONCE: Final = 1000
"""In one packet; then a pause of a millisecond."""


def chosen(part: str, names: Collection[str] = (), *, every: bool = False) -> dict[str, tuple[float, Any]]:
    """The families of a part by name: those asked for, else all, less those that wait unless ``every``."""
    return {
        name: family
        for name, family in EVERY[part].items()
        if (name in names if names else every or (part, name) not in WAITING)
    }
