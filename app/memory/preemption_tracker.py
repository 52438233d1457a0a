"""Interface through which filter and preempt report their answers to the preemption controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from app.kube.core_v1 import Pod


class PreemptionTracker(Protocol):
    """Receives the answers to filter and preempt for the pods of profiles with ``preemption: Own``."""

    def planned(self, uid: str) -> str:
        """Return the node on which the plan for the pod with this UID evicts or evicted pods; empty without a plan."""
        ...

    def is_evicting(self, uid: str) -> bool:
        """Return true while Homeport sends the evictions of the plan for the pod with this UID. After them, or without
        a plan, return false.
        """
        ...

    def refused(self, pod: Pod, names: Callable[[], Iterable[str]]) -> None:
        """Process an answer to filter in which every node is rejected, at least one by topology spread. ``names``
        returns the requested nodes.
        """
        ...

    def passed(self, pod: Pod) -> None:
        """Process an answer to filter in which a node passes."""
        ...

    def preempt_begins(self, pod: Pod) -> None:
        """Process the beginning of a call of preempt."""
        ...

    def preempt_ends(self, pod: Pod, helped: bool) -> None:
        """Process the end of a call of preempt. ``helped``: true if the answer has nodes, so the scheduler evicts."""
        ...
