"""Pods of no profile here: they pass unchecked, and somebody should know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import structlog

from app.kube.core_v1 import Pod
from app.verbs.outcome import Verb

_LOG: Final = structlog.get_logger(__name__)

REST: Final = "(others)"
"""Stands for all names beyond the first ``MOST_NAMES``."""

MOST_NAMES: Final = 32
LONGEST_NAME: Final = 63


def _nothing(_verb: Verb, _name: str) -> None:
    """Nobody counts."""


class Unserved:
    """Warns of each schedulerName once, and counts. ``count`` is told every request: verb and name.

    Whoever makes a pod chooses that name: few are told apart, and none is told at length.
    """

    def __init__(self, count: Callable[[Verb, str], None] = _nothing) -> None:
        self._count = count
        self._requests: dict[str, int] = {}

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests so far, by schedulerName."""
        return self._requests

    def note(self, verb: Verb, pod: Pod) -> None:
        name = self._told_as(pod.spec.scheduler_name)
        if name not in self._requests:
            self._requests[name] = 0
            _LOG.warning("pods of this schedulerName have no profile here and are not checked", scheduler_name=name)
        self._requests[name] += 1
        self._count(verb, name)

    def _told_as(self, scheduler_name: str) -> str:
        name = printable(scheduler_name)
        return name if name in self._requests or len(self._requests) < MOST_NAMES else REST


def printable(scheduler_name: str) -> str:
    """The name as it may be shown: as it is, where it is one that a person would choose."""
    return ascii(scheduler_name[:LONGEST_NAME])[1:-1][:LONGEST_NAME]
