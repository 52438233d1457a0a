"""Counts and logs requests about pods that have no profile here. The constraints of such pods are not checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import structlog

from app.kube.core_v1 import Pod
from app.verbs.outcome import Verb

_LOG: Final = structlog.get_logger(__name__)

OTHER_NAMES: Final = "(others)"
"""Name under which a request is counted if its schedulerName is not among the first ``MOST_NAMES``."""

MOST_NAMES: Final = 32
"""Maximum number of schedulerNames that are counted separately."""

LONGEST_NAME: Final = 63
"""Maximum length of a schedulerName in log lines, metrics and messages, in characters."""


def _ignore(_verb: Verb, _name: str) -> None:
    """Do nothing. Default for ``count``."""


class Unserved:
    """Logs each schedulerName without a profile once, and counts the requests about its pods.

    ``count`` is called with the verb and the name of each request. Any user can choose a schedulerName, so the number
    and the length of names are limited.
    """

    def __init__(self, count: Callable[[Verb, str], None] = _ignore) -> None:
        self._count = count
        self._requests: dict[str, int] = {}

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests so far, by schedulerName."""
        return self._requests

    def record(self, verb: Verb, pod: Pod) -> None:
        """Count a request about the pod. If it is the first one with this schedulerName, log the name."""
        name = self._bounded_name(pod.spec.scheduler_name)
        if name not in self._requests:
            self._requests[name] = 0
            _LOG.warning("pods of this schedulerName have no profile here and are not checked", scheduler_name=name)
        self._requests[name] += 1
        self._count(verb, name)

    def _bounded_name(self, scheduler_name: str) -> str:
        name = printable(scheduler_name)
        return name if name in self._requests or len(self._requests) < MOST_NAMES else OTHER_NAMES


def printable(scheduler_name: str) -> str:
    """Escape all characters of a schedulerName except printable ASCII, and cut it to ``LONGEST_NAME`` characters."""
    return ascii(scheduler_name[:LONGEST_NAME])[1:-1][:LONGEST_NAME]
