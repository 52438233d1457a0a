"""Pods that wait at Permit until plugins or an operator allow or reject them, or their time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from app.framework.status import SUCCESS, Status, unschedulable
from app.kube.core_v1 import Pod

MAX_WAIT_SECONDS: Final = 15 * 60.0


class WaitingPod:
    """Implements ``framework.WaitingPod``. ``waits`` is the time in seconds that each plugin grants."""

    def __init__(self, pod: Pod, node_name: str, waits: Mapping[str, float]) -> None:
        self.pod = pod
        self.node_name = node_name
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
        """Success, or the rejection."""
        return await self._settled

    def _settle(self, status: Status) -> bool:
        for timer in self._timers.values():
            timer.cancel()
        if self._settled.done():
            return False
        self._settled.set_result(status)
        return True


class WaitingPods:
    """Implements ``framework.WaitingPods``; one for all profiles."""

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}

    def get(self, uid: str) -> WaitingPod | None:
        return self._pods.get(uid)

    def all(self) -> Collection[WaitingPod]:
        return tuple(self._pods.values())

    async def wait(self, pod: Pod, node_name: str, waits: Mapping[str, float]) -> Status:
        """Keep the pod waiting, and return what came of it."""
        waiting = self._pods[pod.uid] = WaitingPod(pod, node_name, waits)
        try:
            return await waiting.settled()
        finally:
            del self._pods[pod.uid]


def _timed_out(plugin: str, seconds: float) -> str:
    return f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}"
