"""Scheduling gates. A pod with gates is not scheduled until all of them are removed."""

from __future__ import annotations

import sys
from typing import Final

from msgspec import Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import shared

SCHEDULING_GATES: Final = "spec.schedulingGates"


class _GateObject(Struct):
    name: str | None = None


_GATES: Final[Decoder[list[_GateObject] | None]] = Decoder(list[_GateObject] | None)


def _parse_names(data: bytes) -> tuple[str, ...]:
    return tuple(sys.intern(it.name or "") for it in _GATES.decode(data) or ())


gate_names_of: Final = shared(SCHEDULING_GATES, _parse_names)
"""Return the names of a pod's gates in list order. Raises ``Oversized`` or ``msgspec.ValidationError``."""
