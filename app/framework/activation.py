"""Callback type that retries pending pods, as ``Handle.Activate`` of kube-scheduler does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from app.kube.core_v1 import Pod


class Activate(Protocol):
    """Makes the scheduler retry pending pods. Safe to call on the event loop wherever a plugin runs."""

    def __call__(self, pods: Iterable[Pod]) -> None:
        """Return at once; never raise. The scheduler is notified some milliseconds later.

        Use it for pods that a plugin rejected and that can pass now for a reason that the scheduler cannot see. Changes
        of binds, nodes and volumes wake pods anyway. Pods that are no longer pending are ignored, and repeated calls
        for a pod wake it once. The scheduler chooses the nodes, as at any other attempt.
        """
        ...


def activate_nothing(pods: Iterable[Pod]) -> None:
    """No-op ``Activate``, used where no scheduler can be notified."""
