"""Pods that wait at Permit until plugins or an operator allow them, they are rejected, or the wait times out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from app.framework.status import SUCCESS, Status, unschedulable
from app.kube.core_v1 import Pod

MAX_WAIT_SECONDS: Final = 15 * 60.0
"""Longest wait at Permit, like in kube-scheduler. A longer timeout of a plugin is reduced to this value."""


class Reservations(Protocol):
    """Keeps the resources of a waiting pod reserved."""

    def reserve(self, uid: str) -> None:
        """Reserve the resources for the pod; called when the pod starts to wait."""
        ...

    def proceed(self, uid: str) -> None:
        """Count the pod as in flight again; its resources stay reserved. Called when the pod no longer waits, because
        it was allowed or rejected, or because the wait was cancelled.

        Can be called more than once for a pod.
        """
        ...


class _NoReservations:
    """No-op ``Reservations``."""

    def reserve(self, _uid: str) -> None:
        return

    def proceed(self, _uid: str) -> None:
        return


_NO_RESERVATIONS: Final = _NoReservations()


class PodAtPermit:
    """Implements ``framework.WaitingPod``. ``waits``: for each plugin, the seconds after which the pod is rejected
    unless that plugin has allowed it.

    ``proceed`` is called within the last ``allow``, or within ``reject``, so before the waiting task continues. If
    several pods are allowed together, the bind of the first already sees the binds of all others as in flight.
    """

    def __init__(self, pod: Pod, node_name: str, waits: Mapping[str, float], proceed: Callable[[str], None]) -> None:
        self.pod = pod
        self.node_name = node_name
        self._proceed = proceed
        loop = asyncio.get_running_loop()
        self._settled: asyncio.Future[Status] = loop.create_future()
        self._timers = {
            plugin: loop.call_later(seconds, self.reject, plugin, _timed_out(plugin, seconds))
            for plugin, seconds in waits.items()
        }

    def pending_plugins(self) -> Collection[str]:
        return tuple(self._timers)

    def allow(self, plugin: str) -> None:
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers:
            self._settle(SUCCESS)

    def reject(self, plugin: str, message: str) -> bool:
        return self._settle(unschedulable(message).by(plugin))

    async def settled(self) -> Status:
        """Wait until the pod is allowed or rejected, and return Success or the rejection. If this call is cancelled,
        the pod no longer waits.
        """
        try:
            return await self._settled
        finally:
            self._end()

    def _settle(self, status: Status) -> bool:
        if self._settled.done():
            return False
        self._settled.set_result(status)
        self._end()
        return True

    def _end(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._proceed(self.pod.uid)


class PodsAtPermit:
    """Implements ``framework.WaitingPods``, shared by all profiles.

    ``barred`` returns why a pod cannot start to wait in this process now, for example because another replica is the
    leader. It returns an empty string if the pod can wait.
    """

    def __init__(self, reservations: Reservations = _NO_RESERVATIONS, barred: Callable[[], str] = lambda: "") -> None:
        self._pods: dict[str, PodAtPermit] = {}
        self._reservations = reservations
        self._barred = barred
        self._closed = ""

    def get(self, uid: str) -> PodAtPermit | None:
        return self._pods.get(uid)

    def all(self) -> Collection[PodAtPermit]:
        return tuple(self._pods.values())

    async def wait(self, pod: Pod, node_name: str, waits: Mapping[str, float]) -> Status:
        """Wait until the pod is allowed or rejected, and return Success or the rejection.

        Return a rejection at once if no pod can wait in this process now.
        """
        barred = self._closed or self._barred()
        if barred:
            return unschedulable(barred)
        waiting = self._pods[pod.uid] = PodAtPermit(pod, node_name, waits, self._reservations.proceed)
        self._reservations.reserve(pod.uid)
        try:
            return await waiting.settled()
        finally:
            del self._pods[pod.uid]

    def reject(self, uid: str, message: str) -> None:
        """Reject a waiting pod without naming a plugin, so that its scheduler retries it. No effect if the pod does not
        wait.
        """
        waiting = self._pods.get(uid)
        if waiting is not None:
            waiting.reject("", message)

    def reject_all(self, message: str) -> None:
        """Reject every waiting pod."""
        for uid in tuple(self._pods):
            self.reject(uid, message)

    def close(self, message: str) -> None:
        """Reject every waiting pod, and from now on every pod that would wait."""
        self._closed = message
        self.reject_all(message)


def _timed_out(plugin: str, seconds: float) -> str:
    return f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}"
