"""Durations in Go's notation: ``5s``, ``500ms``, ``1m30s``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
NO_UNIT: Final = "it has no unit"
_LONGEST: Final = (2**63 - 1) / 1e9
"""Maximum duration in seconds: Go counts nanoseconds in 64 bits."""


class BadDuration(ValueError):
    """Raised if a value is not a valid duration. ``cause`` is the reason; empty if unknown."""

    def __init__(self, value: str, cause: str) -> None:
        super().__init__(f'"{value}" is not a duration such as 5s, 500ms or 1m30s' + (f": {cause}" if cause else ""))
        self.cause = cause


def parse_duration(value: Any) -> Any:
    """Parse a duration like Go's ``time.ParseDuration`` and return seconds. Return a value that is not text unchanged.

    Raises ``BadDuration``, also for negative durations: Go accepts these, but no setting of Homeport does.
    """
    if not isinstance(value, str):
        return value
    unsigned = value.removeprefix("+")
    if unsigned == "0":
        return 0.0
    parts = _PART.findall(unsigned)
    if not parts or "".join(number + unit for number, unit in parts) != unsigned:
        raise BadDuration(value, _cause(value))
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > _LONGEST:
        raise BadDuration(value, "it exceeds the maximum of 292 years")
    return seconds


Seconds = Annotated[float, BeforeValidator(parse_duration)]
"""Type of a pydantic field: a duration such as ``5s`` in the configuration, seconds in the code."""


def _cause(value: str) -> str:
    if value.startswith("-"):
        return "it is below zero"
    try:
        float(value)
    except ValueError:
        return ""
    return NO_UNIT


def duration(seconds: float) -> str:
    """Format seconds as a duration with a single unit, for example ``1.5s``, ``500ms`` or ``10m``."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
