"""Counts requests about pods that have no profile here, and logs their schedulerNames.

The constraints of such pods are not checked.
"""

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
"""Maximum length, in characters, of a schedulerName or another name that ``printable`` returns."""


def _ignore(_verb: Verb, _name: str) -> None:
    """Do nothing. Default for ``count``."""


class Unserved:
    """Logs each schedulerName without a profile once, and counts the requests about its pods.

    Any user can choose a schedulerName, so the number and the length of names are limited. All further names together
    are logged once and counted as ``OTHER_NAMES``. ``count`` is called for each request, with its verb and the name
    under which it is counted.
    """

    def __init__(self, count: Callable[[Verb, str], None] = _ignore) -> None:
        self._count = count
        self._requests: dict[str, int] = {}

    @property
    def requests(self) -> Mapping[str, int]:
        """Number of requests so far, by the name under which they are counted."""
        return self._requests

    def record(self, verb: Verb, pod: Pod) -> None:
        """Count a request about the pod. If it is the first one that is counted under its name, log this name."""
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
    """Escape a schedulerName, or another untrusted name, like ``ascii``, and cut it to ``LONGEST_NAME`` characters."""
    return ascii(scheduler_name[:LONGEST_NAME])[1:-1][:LONGEST_NAME]
