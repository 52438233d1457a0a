"""What a plugin answers: kube-scheduler's status codes with reasons.

A rejection is a value, a fault is an exception; ``app.runtime.guard`` alone turns the second into ``Error``.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import Final

from msgspec import Struct


class Code(IntEnum):
    """Numbers and meaning as in kube-scheduler's framework interface."""

    SUCCESS = 0
    ERROR = 1
    """Unexpected failure: ends the cycle, the pod is retried after a back-off."""
    UNSCHEDULABLE = 2
    """A rejection that preemption may cure."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    """A rejection that no preemption cures."""
    WAIT = 4
    """Permit only."""
    SKIP = 5
    """PreFilter, PreScore: leave this plugin out of the cycle. Bind: the next one shall bind."""
    PENDING = 6
    """A rejection that is retried without back-off."""

    @property
    def word(self) -> str:
        """The name kube-scheduler prints: ``UnschedulableAndUnresolvable``."""
        return WORDS[self]


WORDS: Final = {code: code.name.title().replace("_And_", "And").replace("_", "") for code in Code}
_REJECTED: Final = (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)


class Status(Struct, frozen=True):
    """``plugin`` is filled in by the runtime: a plugin need not name itself.

    ``until``: time in seconds since 1970 at which a cached verdict ends and the node is judged anew.
    """

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    until: float | None = None

    @property
    def is_success(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def is_skip(self) -> bool:
        return self.code is Code.SKIP

    @property
    def is_rejected(self) -> bool:
        return self.code in _REJECTED

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Status:
        """This status with the plugin that gave it."""
        return self if self.plugin == plugin else Status(self.code, self.reasons, plugin, self.until)


def distinct(statuses: Collection[Status]) -> dict[int, Status]:
    """The statuses that differ as objects, by ``id``: thousands of nodes share a few, each worth one look."""
    return dict(zip(map(id, statuses), statuses, strict=True))


TOO_LONG: Final = "node(s) can't be judged: the pod's {} is longer than 64 KiB"
"""Reason of whoever has to judge by a part of the pod that is not read: an unresolvable rejection."""

SUCCESS: Final = Status(Code.SUCCESS)
SKIP: Final = Status(Code.SKIP)


def success(*, until: float) -> Status:
    """Return a Success that holds until a time; ``SUCCESS`` is the one that does not end."""
    return Status(Code.SUCCESS, until=until)


def unschedulable(*reasons: str, until: float | None = None) -> Status:
    """A rejection that preemption may cure. Reasons are constant texts without names or numbers."""
    return Status(Code.UNSCHEDULABLE, reasons, until=until)


def unresolvable(*reasons: str, until: float | None = None) -> Status:
    """A rejection that no preemption cures. Reasons are constant texts without names or numbers."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons, until=until)


def error(reason: str, plugin: str = "") -> Status:
    """A failure: the cycle ends."""
    return Status(Code.ERROR, (reason,), plugin)
