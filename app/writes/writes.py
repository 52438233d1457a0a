"""All that can be written to where a picture came from, made once it is known who may write."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from app.framework.activation import Activate
from app.framework.objects import Binder, Writer
from app.writes.bind_guard import BindGuard, Leadership
from app.writes.nominator import Nominator


class MayWrite(Leadership, Protocol):
    """Whether this process decides, where it is one of several."""

    def may_write(self) -> str:
        """Why it may not write now; empty if it may."""
        ...


class Writes(Struct, frozen=True):
    """``bind_guard`` is the one that ``binder`` sends through."""

    binder: Binder
    writer: Writer
    nominator: Nominator
    activate: Activate
    bind_guard: BindGuard
