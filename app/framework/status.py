"""Results of plugins: kube-scheduler's status codes with reasons.

A plugin returns a rejection as a status, and raises an exception for a fault. ``app.runtime.guard`` converts the
exception into an ``Error``.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import Final

from msgspec import Struct


class Code(IntEnum):
    """Status codes with the numbers and meanings of kube-scheduler's framework interface."""

    SUCCESS = 0
    ERROR = 1
    """Unexpected failure: the evaluation or bind ends, and the scheduler retries the pod after a back-off."""
    UNSCHEDULABLE = 2
    """Rejection that preemption might resolve."""
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    """Rejection that preemption cannot resolve."""
    WAIT = 4
    """The pod waits at Permit. No other extension point returns this code."""
    SKIP = 5
    """At PreFilter and PreScore: omit the plugin's filter or score. At Bind: try the next plugin."""
    PENDING = 6
    """Rejection that is retried without a back-off."""

    @property
    def word(self) -> str:
        """Name that kube-scheduler prints, for example ``UnschedulableAndUnresolvable``."""
        return WORDS[self]


WORDS: Final = {code: code.name.title().replace("_And_", "And").replace("_", "") for code in Code}
"""Name that kube-scheduler prints for each code."""

_REJECTED: Final = (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)
"""Codes of rejections."""


class Status(Struct, frozen=True):
    """Result of a plugin at an extension point. ``plugin``: its name, set by the engine.

    ``reasons``: texts for kube-scheduler's message. A filter's reasons are constant, without names or numbers.
    ``until``: time in seconds since 1970 at which a cached verdict expires and the node is evaluated again; ``None`` if
    the verdict does not expire.
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
        """True for a rejection. An Error is not a rejection."""
        return self.code in _REJECTED

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Status:
        """Return this status with the name of the plugin."""
        return self if self.plugin == plugin else Status(self.code, self.reasons, plugin, self.until)


def distinct(statuses: Collection[Status]) -> dict[int, Status]:
    """Return the distinct status objects by ``id``, so that the caller processes each once. Thousands of nodes share a
    few objects.
    """
    return dict(zip(map(id, statuses), statuses, strict=True))


TOO_LONG: Final = "node(s) can't be judged: the pod's {} is longer than 64 KiB"
"""Format of the reason with which a plugin rejects a pod if it needs a part (``{}``) that was too long to decode.

Such a rejection is unresolvable.
"""

SUCCESS: Final = Status(Code.SUCCESS)
SKIP: Final = Status(Code.SKIP)


def success(*, until: float) -> Status:
    """Return a Success that expires at ``until``. ``SUCCESS`` never expires."""
    return Status(Code.SUCCESS, until=until)


def unschedulable(*reasons: str, until: float | None = None) -> Status:
    """Return a rejection that preemption might resolve. A filter's reasons must be constant, see ``Status``."""
    return Status(Code.UNSCHEDULABLE, reasons, until=until)


def unresolvable(*reasons: str, until: float | None = None) -> Status:
    """Return a rejection that preemption cannot resolve. A filter's reasons must be constant, see ``Status``."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons, until=until)


def error(reason: str, plugin: str = "") -> Status:
    """Return an Error, see ``Code.ERROR``."""
    return Status(Code.ERROR, (reason,), plugin)
