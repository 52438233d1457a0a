"""Reads fields of a Kubernetes object that a user wrote, and names the field that has a wrong value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from app.config.mistakes import NOTHING, Place, value_at

_ERROR: Final = re.compile(r"(?:(?P<field>[a-z][\w.]*): )?(?P<text>.+?)(?: - at `\$(?P<path>.*)`)?")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
"""Python types by the names of JSON types in msgspec's messages."""

_LARGEST: Final = 2**31 - 1
_MAPPING: Final = "must be a mapping"


class BadField(ValueError):
    """Raised if the field at ``place`` of an object has a value that Kubernetes does not accept."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


def explained(error: str, pod: Mapping[str, Any]) -> tuple[Place, str]:
    """Return the path of the wrong field in ``pod``, and the text about it, both from a decoder's message ``error``.

    The path is empty if the message has none or has another form. It is shorter than the message's path if ``pod`` has
    no value of the wrong type there.
    """
    parts = _ERROR.fullmatch(error)
    if parts is None:
        return (), error
    field = tuple((parts["field"] or "").split(".")) if parts["field"] else ()
    steps = [int(number) if number.isdigit() else key or number for key, number in _STEP.findall(parts["path"] or "")]
    got = re.search(r"got `(\w+)`", parts["text"])
    wanted = _TYPES.get(got[1]) if got else None
    text = parts["text"].replace("`", "").replace(" | null", "")
    place = _search(value_at(pod, field), steps, wanted, deeper=True) if field else _search(pod, steps, wanted)
    return (*field, *(place or ())), text[:1].lower() + text[1:]


def _search(value: Any, steps: list[str | int], wanted: Any, *, deeper: bool = False) -> Place | None:
    """Return the first path along ``steps`` to a value of the ``wanted`` type; ``None`` if there is none.

    The step ``...`` means any key or index. With ``deeper``, ``steps`` can begin at any level of ``value``. A
    ``wanted`` type of ``None`` means any type.
    """
    if not steps:
        return () if wanted is None or type(value) is wanted else None
    children = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, child in children:
        if steps[0] in (key, "..."):
            rest = _search(child, steps[1:], wanted)
            if rest is not None:
                return (key, *rest)
    for key, child in children if deeper else ():
        rest = _search(child, steps, wanted, deeper=True)
        if rest is not None:
            return (key, *rest)
    return None


def mapping_at(document: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Return the mapping at a path; empty if it or one of its parents is absent or null.

    Raises ``BadField`` if one of these has a value of another type.
    """
    for depth in range(1, len(place) + 1):
        value = value_at(document, place[:depth])
        if value in (NOTHING, None):
            return {}
        if not isinstance(value, list if depth < len(place) and isinstance(place[depth], int) else dict):
            raise BadField(place[:depth], _MAPPING)
    return dict(value_at(document, place))


def text_at(document: Mapping[str, Any], place: Place) -> str:
    value = value_at(document, place)
    if value in (NOTHING, None):
        return ""
    if not isinstance(value, str):
        raise BadField(place, "must be a string")
    return value


def number_at(document: Mapping[str, Any], place: Place, default: int) -> int:
    """Return the number at a path, an int32 of 0 or more; ``default`` if it is absent or null.

    Raises ``BadField`` if there is another value.
    """
    value = value_at(document, place)
    if value in (NOTHING, None):
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadField(place, "must be a whole number, 0 or more")
    if value > _LARGEST:
        raise BadField(place, f"must be {_LARGEST} at most")
    return value
