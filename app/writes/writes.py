"""Interfaces for the writes that each feed provides: Bindings, changes of objects, nominations, activations.

The feeds of an API server and of a saved cluster create their own implementations. With a saved cluster, an activation
has no effect.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from app.framework.activation import Activate
from app.framework.objects import Binder, Writer
from app.writes.bind_guard import BindGuard, BindLeadership
from app.writes.nominator import Nominator


class MayWrite(BindLeadership, Protocol):
    """Leadership interface of all writers: it allows or forbids Bindings and other writes."""

    def may_write(self) -> str:
        """Return why this process must not write now, or an empty string if writes are allowed."""
        ...


class ClusterWrites(Struct, frozen=True):
    """Implementations of all writes to one cluster. ``binder`` sends every Binding through ``bind_guard``."""

    binder: Binder
    writer: Writer
    nominator: Nominator
    activate: Activate
    bind_guard: BindGuard
