"""Arguments of DynamicResources, with kube-scheduler's validation."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from app.framework.spec import PluginArgs

_MIN_BINDING_TIMEOUT: Final = 1.0
"""Minimum ``bindingTimeout`` in seconds, as in kube-scheduler."""

_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(value: str) -> float:
    """Convert a duration in Go's format, such as ``1m30s``, to seconds. Raises ``ValueError``."""
    unsigned = value.lstrip("+-")
    parts = _PART.findall(unsigned)
    if unsigned != "0" and (not parts or "".join(number + unit for number, unit in parts) != unsigned):
        raise ValueError(f'"{value[:64]}" is not a duration such as 10s or 1m30s')
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return -seconds if value.startswith("-") else seconds


def _zero_or_more(value: str) -> str:
    if seconds_of(value) < 0:
        raise ValueError("must be zero or positive")
    return value


def _a_second_or_more(value: str) -> str:
    if seconds_of(value) < _MIN_BINDING_TIMEOUT:
        raise ValueError("must be at least 1 second")
    return value


class DynamicResourcesArgs(PluginArgs):
    """Arguments as in ``kubescheduler.config.k8s.io/v1``.

    ``filterTimeout`` has no effect: a search is limited by its number of steps. ``bindingTimeout``: maximum time after
    the allocation of a claim until all binding conditions of its devices are true.
    """

    filter_timeout: Annotated[str, AfterValidator(_zero_or_more), Field(alias="filterTimeout")] = "10s"
    binding_timeout: Annotated[str, AfterValidator(_a_second_or_more), Field(alias="bindingTimeout")] = "600s"
