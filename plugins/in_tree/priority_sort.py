"""Orders pending pods by priority, highest first, then by the time at which they were queued, earliest first."""

from __future__ import annotations

from typing import Final, final

from app.framework.handle import Handle
from app.framework.points import QueueSortPlugin
from app.framework.spec import PluginArgs, PluginSpec
from app.kube.core_v1 import Pod

NAME: Final = "PrioritySort"


class PrioritySortArgs(PluginArgs):
    """The plugin takes no arguments."""


@final
class PrioritySort(QueueSortPlugin):
    """Compares two pending pods.

    Source of the rule: ``framework/plugins/queuesort`` of Kubernetes 1.36.
    """

    def __init__(self, args: PrioritySortArgs, handle: Handle) -> None:
        pass

    def less(self, pod: Pod, queued_at: float, other: Pod, other_queued_at: float) -> bool:
        if pod.spec.priority != other.spec.priority:
            return pod.spec.priority > other.spec.priority
        return queued_at < other_queued_at


SPEC: Final = PluginSpec(NAME, PrioritySortArgs, PrioritySort)
