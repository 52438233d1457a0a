"""Scheduling attempts of a kube-scheduler, by its own metric."""

import re
from collections import Counter
from typing import Final

from tests.controlplane.controlplane import Scheduler

_ATTEMPTS: Final = re.compile(
    r'^scheduler_schedule_attempts_total\{profile="([^"]*)",result="\w+"\} (\S+)$', re.MULTILINE
)


def attempts_by_profile(scheduler: Scheduler) -> Counter[str]:
    """Return the number of attempts for each schedulerName."""
    found: Counter[str] = Counter()
    for profile, count in _ATTEMPTS.findall(scheduler.metrics()):
        found[profile] += int(float(count))
    return found


def attempts(scheduler: Scheduler) -> int:
    """Return the number of attempts for all pods."""
    return attempts_by_profile(scheduler).total()
