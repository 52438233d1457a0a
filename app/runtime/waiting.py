"""Pods that wait at Permit until plugins or an operator allow or reject them, or their time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from app.framework.status import SUCCESS, Status, unschedulable
from app.kube.core_v1 import Pod

MAX_WAIT_SECONDS: Final = 15 * 60.0


class Reservations(Protocol):
    """Who keeps the place of a pod meanwhile."""

    def reserve(self, uid: str) -> None:
        """It waits from now on."""
        ...

    def proceed(self, uid: str) -> None:
        """It no longer does, whatever came of it."""
        ...


class _NoReservations:
    """Where no pod has a place."""

    def reserve(self, _uid: str) -> None:
        return

    def proceed(self, _uid: str) -> None:
        return


_NO_RESERVATIONS: Final = _NoReservations()


class PodAtPermit:
    """Implements ``framework.PodAtPermit``. ``waits`` is the time in seconds that each plugin grants.

    ``proceed`` is called in the step in which it is settled: who is allowed together with others goes on with them.
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
        """Success, or the rejection. Who stops waiting for it has given the pod up."""
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
    """Implements ``framework.PodsAtPermit``; one for all profiles. ``reservations``: who keeps their places.

    ``barred`` says why no pod may begin to wait here now, empty if it may: who may not bind it keeps it no place.
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
        """Keep the pod waiting, and return what came of it."""
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
        """The pod goes back to its scheduler, in the name of no plugin; no effect if it does not wait."""
        waiting = self._pods.get(uid)
        if waiting is not None:
            waiting.reject("", message)

    def reject_all(self, message: str) -> None:
        for uid in tuple(self._pods):
            self.reject(uid, message)

    def close(self, message: str) -> None:
        """Give all back, and from now on every pod that would wait."""
        self._closed = message
        self.reject_all(message)


def _timed_out(plugin: str, seconds: float) -> str:
    return f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}"
