"""Write interfaces that belong to one source of a snapshot, created once leadership is set up."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from app.framework.activation import Activate
from app.framework.objects import Binder, Writer
from app.writes.bind_guard import BindGuard, BindLeadership
from app.writes.nominator import Nominator


class MayWrite(BindLeadership, Protocol):
    """Leadership that also allows or forbids writes."""

    def may_write(self) -> str:
        """Return why this process must not write now; empty if it may."""
        ...


class ClusterWrites(Struct, frozen=True):
    """Write interfaces. ``binder`` sends through ``bind_guard``."""

    binder: Binder
    writer: Writer
    nominator: Nominator
    activate: Activate
    bind_guard: BindGuard
