"""``DynamicResourcesArgs``, validated as kube-scheduler does."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from app.framework.interface import PluginArgs

DEFAULT_FILTER_TIMEOUT: Final = 10.0
DEFAULT_BINDING_TIMEOUT: Final = 600.0

_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("must be a duration such as 10s or 1m30s")  # pydantic asks for ValueError
    unsigned = value.lstrip("+-")
    parts = _PART.findall(unsigned)
    if unsigned != "0" and (not parts or "".join(number + unit for number, unit in parts) != unsigned):
        raise ValueError(f'"{value[:64]}" is not a duration such as 10s or 1m30s')
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return -seconds if value.startswith("-") else seconds


class DynamicResourcesArgs(PluginArgs):
    """``filterTimeout`` is taken and has no effect: a search ends after a number of steps.

    ``bindingTimeout``: how long after its allocation a claim may wait for its devices' binding conditions. In seconds.
    """

    filter_timeout: Annotated[
        float, BeforeValidator(_seconds), Field(ge=0, alias="filterTimeout", description="a duration")
    ] = DEFAULT_FILTER_TIMEOUT
    binding_timeout: Annotated[
        float, BeforeValidator(_seconds), Field(ge=1, alias="bindingTimeout", description="a duration")
    ] = DEFAULT_BINDING_TIMEOUT
