"""Waking pods that wait, as ``Handle.Activate`` of kube-scheduler does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from app.kube.core_v1 import Pod


class Activate(Protocol):
    """Has waiting pods tried again. Safe to call on the event loop wherever a plugin runs."""

    def __call__(self, pods: Iterable[Pod]) -> None:
        """Returns at once; never raises. The scheduler hears of it some milliseconds later.

        For pods that a plugin refused and that may pass now, for a reason which the scheduler does not see: a bind, a
        node or a volume that changes wakes them anyway. A pod that does not wait when its turn comes is left alone; one
        that is asked for again before is woken once. The scheduler chooses the nodes, as at any other attempt.
        """
        ...


def activate_nobody(pods: Iterable[Pod]) -> None:
    """Implements ``Activate``: there is no scheduler to be told."""
