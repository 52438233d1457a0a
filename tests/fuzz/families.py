"""Which families are sent. Those that wait are known to fail, and for whom."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from tests.fuzz import objects, requests

EVERY: Final[Mapping[str, Mapping[str, tuple[float, Any]]]] = {
    "requests": requests.FAMILIES,
    "objects": objects.FAMILIES,
}

WAITING: Final[Mapping[tuple[str, str], str]] = {
    ("requests", "held"): "half a request holds a connection for ever",
    ("requests", "vast-heads"): "tens of megabytes of headers or of a path are taken, and stand still",
    ("requests", "long-heads"): "thousands of headers are taken in one step",
    ("requests", "huge"): "a bind of a name longer than a URL is an internal error: names are not checked",
    ("requests", "constraints"): "thousands of spread constraints in one pod stand still",
    ("requests", "keyed"): "thousands of spread constraints in one pod stand still",
    ("objects", "nested"): "a deeply nested object kills the watch of its kind",
    ("objects", "no-utf8"): "bytes that are no UTF-8 kill the watch: msgspec raises UnicodeDecodeError for them",
    ("objects", "huge"): "75,000 labels are read in one step of 50 ms",
    ("objects", "wide"): "4,500 spread constraints are read in one step of 50 ms",
}
"""By part and family, the cause. To be empty: then ``make fuzz`` sends everything."""

EVENTS_AT_ONCE: Final = 50
"""Then a pause of a millisecond. To be 1,000: as many in one packet are taken in one step of the loop, 55 ms of it."""


def chosen(part: str, names: Collection[str] = (), *, every: bool = False) -> dict[str, tuple[float, Any]]:
    """The families of a part by name: those asked for, else all, less those that wait unless ``every``."""
    return {
        name: family
        for name, family in EVERY[part].items()
        if (name in names if names else every or (part, name) not in WAITING)
    }
