"""Wakes pods that wait: kube-scheduler tries a refused pod again once anything of the pod has changed.

Of all that wakes one, an annotation is the gentlest: no selector matches it, it points nowhere, it wakes no other pod,
and nobody clears it. A nomination makes two cycles when it is refused, and its clearing wakes all pods of that or lower
priority.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from math import inf
from time import monotonic
from typing import Any, Final

import structlog
from msgspec import Struct

from app.cache.cluster import Cluster
from app.framework.handle import Clock
from app.kube.api_errors import ApiError, ApiUnavailable, UnknownOutcome
from app.kube.api_requests import PODS
from app.kube.client import KubeClient
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ACTIVATED, ObjectKey

_LOG: Final = structlog.get_logger(__name__)

PAUSE_SECONDS: Final = 0.02
"""For each pod, of which one is written at a time: 50 a second in the long run, each of them a scheduling cycle."""

MOST_AT_ONCE: Final = 256
"""Pods without a pause between them, after a time in which fewer were woken: the machines of a node that is back."""

MOST_ASKED: Final = 4096
"""Pods that wait for their turn."""

_ATTEMPTS: Final = 3
_RETRY_SECONDS: Final = 0.5
_SECONDS: Final = 2.0
_GONE: Final = (404, 409, 422)
_FORBIDDEN: Final = 403
_TOO_MANY: Final = 429
_SERVER_FAULT: Final = 500

Sleep = Callable[[float], Awaitable[None]]


class _Asked(Struct):
    key: ObjectKey
    attempts: int = 0


def activation(uid: str, now: datetime) -> dict[str, Any]:
    """The merge patch of ``pods/status``, which stores annotations too. No version: any form of the pod will do."""
    return {"metadata": {"uid": uid, "annotations": {ACTIVATED: now.isoformat(timespec="microseconds")}}}


class ApiActivator:
    """Implements ``framework.Activate``; ``run`` does the writing.

    ``may_write`` says why this process may not write now: then what is asked for is dropped, for it asks here too.
    """

    def __init__(
        self,
        client: KubeClient,
        cluster: Cluster,
        may_write: Callable[[], str] = str,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = monotonic,
    ) -> None:
        self._may_write = may_write
        self._client = client
        self._cluster = cluster
        self._sleep = sleep
        self._asked: dict[str, _Asked] = {}
        self._some = asyncio.Event()
        self._clock = clock
        self._free_at = -inf
        self._told_full = False
        self._told_forbidden = False

    def __call__(self, pods: Iterable[Pod]) -> None:
        if self._may_write():
            return
        for pod in pods:
            if len(self._asked) < MOST_ASKED:
                self._asked.setdefault(pod.uid, _Asked(pod.key))
            elif not self._told_full:
                self._told_full = True
                _LOG.warning("too many pods to be activated at once", pod=str(pod))
        if self._asked:
            self._some.set()

    async def run(self) -> None:
        """Write until cancelled: one pod at a time, in the order asked. What is left then is dropped."""
        try:
            while True:
                await self._some.wait()
                while self._asked:
                    uid = next(iter(self._asked))
                    pause = await self._activate(uid, self._asked.pop(uid))
                    if pause:
                        await self._sleep(pause)
                self._told_full = False
                self._some.clear()
        except asyncio.CancelledError:
            self._asked.clear()
            self._some.clear()
            raise

    async def _activate(self, uid: str, asked: _Asked) -> float:
        """Returns for how many seconds nothing is to be written."""
        pod = self._cluster.pod(*asked.key)
        if pod is None or pod.uid != uid or not _waits(pod) or self._may_write():
            return 0.0
        body = activation(uid, datetime.now(UTC))
        try:
            await self._client.patch(PODS, *asked.key, body, subresource="status", timeout=_SECONDS)
        except ApiError as refused:
            return self._refused(pod, asked, refused)
        except (ApiUnavailable, UnknownOutcome) as cause:
            return self._failed(pod, asked, str(cause))
        self._told_forbidden = False
        _LOG.debug("pod activated", pod=str(pod))
        return self._pause()

    def _pause(self) -> float:
        """Seconds until the next pod may be written: none, as long as fewer were than could have been."""
        now = self._clock()
        self._free_at = max(self._free_at, now - MOST_AT_ONCE * PAUSE_SECONDS) + PAUSE_SECONDS
        return max(0.0, self._free_at - now)

    def _refused(self, pod: Pod, asked: _Asked, refused: ApiError) -> float:
        if refused.status in _GONE:
            return self._pause()
        if refused.status == _TOO_MANY or refused.status >= _SERVER_FAULT:
            return self._failed(pod, asked, str(refused))
        if refused.status != _FORBIDDEN or not self._told_forbidden:
            self._told_forbidden = self._told_forbidden or refused.status == _FORBIDDEN
            _LOG.warning("pod not activated", pod=str(pod), cause=str(refused))
        return self._pause()

    def _failed(self, pod: Pod, asked: _Asked, cause: str) -> float:
        """It is tried again after all others, and given up in the end: the scheduler looks at every pod again."""
        asked.attempts += 1
        if asked.attempts < _ATTEMPTS:
            self._asked.setdefault(pod.uid, asked)
        else:
            _LOG.warning("pod not activated", pod=str(pod), cause=cause)
        return _RETRY_SECONDS


def _waits(pod: Pod) -> bool:
    """Not assumed either: its Binding carries the version that would be moved."""
    return not (pod.node_name or pod.spec.gated or pod.terminating or pod.finished)
