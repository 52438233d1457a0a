"""Callback with which a plugin makes the scheduler retry pending pods, like kube-scheduler's ``Handle.Activate``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from app.kube.core_v1 import Pod


class Activate(Protocol):
    """Makes the scheduler retry pending pods. A plugin can call it anywhere, because it never blocks the event loop."""

    def __call__(self, pods: Iterable[Pod]) -> None:
        """Queue the pods for a retry. Returns at once and never raises; the scheduler is notified shortly afterwards.

        Use it for pods that a plugin rejected earlier and would pass now, if the scheduler cannot observe what has
        changed. The scheduler itself retries pods after changes of pods, nodes and volumes. Pods that are no longer
        pending are ignored, and repeated calls for a queued pod cause one retry. The retry is an ordinary scheduling
        cycle, in which the scheduler chooses the node. Only the leader activates pods. At most 4,096 pods are queued;
        further ones wait for the scheduler's own retry.
        """
        ...


def activate_nothing(pods: Iterable[Pod]) -> None:
    """No-op ``Activate``, used where no scheduler can be notified."""
