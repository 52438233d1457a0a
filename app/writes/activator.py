"""Activates waiting pods: writes an annotation to a refused pod, because kube-scheduler retries a pod that changes.

An annotation has the fewest side effects: selectors do not match annotations, and the scheduler retries no other pod.
A nomination would also activate the pod, but costs two scheduling cycles if the pod is refused again. kube-scheduler
also retries all pods of the same or a lower priority when that nomination is cleared.
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
"""Seconds between two writes after a burst of ``MOST_AT_ONCE``: 50 a second, as each causes a scheduling cycle."""

MOST_AT_ONCE: Final = 256
"""Number of pods that can be written without a delay after an idle time.

Example: a node becomes ready again, and all pods that wait for it are activated.
"""

MOST_QUEUED: Final = 4096
"""Maximum number of queued pods. Further pods are not activated and wait for the scheduler's own retry."""

_ATTEMPTS: Final = 3
"""Maximum number of attempts to write the annotation of one pod."""

_RETRY_SECONDS: Final = 0.5
"""Seconds until the next write after a failed one."""

_SECONDS: Final = 2.0
"""Time limit of one patch request, in seconds."""

_GONE: Final = (404, 409, 422)
"""Statuses of a patch for a pod that was deleted (404) or replaced (409, 422).

The patch carries the old pod's UID, and the UID of the new pod is immutable.
"""

_FORBIDDEN: Final = 403
_TOO_MANY: Final = 429
_SERVER_FAULT: Final = 500

Sleep = Callable[[float], Awaitable[None]]


class _Activation(Struct):
    key: ObjectKey
    attempts: int = 0


def activation(uid: str, now: datetime) -> dict[str, Any]:
    """Return the merge patch that writes the annotation. It is sent to ``pods/status``, which stores annotations too.

    The patch has no resource version, so that a concurrent write of the pod causes no conflict.
    """
    return {"metadata": {"uid": uid, "annotations": {ACTIVATED: now.isoformat(timespec="microseconds")}}}


class ApiActivator:
    """Implementation of ``Activate``: a call queues pods, and ``run`` writes their annotations.

    ``may_write`` returns why this process must not write now, or an empty string if it may. If it must not, calls have
    no effect: the leader runs the same plugins and activates the pods.
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
        self._queue: dict[str, _Activation] = {}
        self._some = asyncio.Event()
        self._clock = clock
        self._free_at = -inf
        self._full_logged = False
        self._forbidden_logged = False

    def __call__(self, pods: Iterable[Pod]) -> None:
        if self._may_write():
            return
        for pod in pods:
            if len(self._queue) < MOST_QUEUED:
                self._queue.setdefault(pod.uid, _Activation(pod.key))
            elif not self._full_logged:
                self._full_logged = True
                _LOG.warning("activation queue full", pod=str(pod))
        if self._queue:
            self._some.set()

    async def run(self) -> None:
        """Write the annotations of queued pods one by one until cancelled. On cancellation, queued pods are dropped."""
        try:
            while True:
                await self._some.wait()
                while self._queue:
                    uid = next(iter(self._queue))
                    pause = await self._activate(uid, self._queue.pop(uid))
                    if pause:
                        await self._sleep(pause)
                self._full_logged = False
                self._some.clear()
        except asyncio.CancelledError:
            self._queue.clear()
            self._some.clear()
            raise

    async def _activate(self, uid: str, entry: _Activation) -> float:
        """Write the annotation of one pod, unless the pod no longer waits or this process must not write.

        Return the seconds until the next pod may be written.
        """
        pod = self._cluster.pod(*entry.key)
        if pod is None or pod.uid != uid or not _waits(pod) or self._may_write():
            return 0.0
        body = activation(uid, datetime.now(UTC))
        try:
            await self._client.patch(PODS, *entry.key, body, subresource="status", timeout=_SECONDS)
        except ApiError as refused:
            return self._refused(pod, entry, refused)
        except (ApiUnavailable, UnknownOutcome) as cause:
            return self._failed(pod, entry, str(cause))
        self._forbidden_logged = False
        _LOG.debug("pod activated", pod=str(pod))
        return self._pause()

    def _pause(self) -> float:
        """Return the seconds until the next pod may be written; 0 for at least ``MOST_AT_ONCE`` pods of a burst."""
        now = self._clock()
        self._free_at = max(self._free_at, now - MOST_AT_ONCE * PAUSE_SECONDS) + PAUSE_SECONDS
        return max(0.0, self._free_at - now)

    def _refused(self, pod: Pod, entry: _Activation, refused: ApiError) -> float:
        if refused.status in _GONE:
            return self._pause()
        if refused.status == _TOO_MANY or refused.status >= _SERVER_FAULT:
            return self._failed(pod, entry, str(refused))
        if refused.status != _FORBIDDEN or not self._forbidden_logged:
            self._forbidden_logged = self._forbidden_logged or refused.status == _FORBIDDEN
            _LOG.warning("pod not activated", pod=str(pod), cause=str(refused))
        return self._pause()

    def _failed(self, pod: Pod, entry: _Activation, cause: str) -> float:
        """Queue the pod again behind all others and return the delay before the next write, in seconds.

        After the last attempt the pod is dropped, because the scheduler retries it later anyway.
        """
        entry.attempts += 1
        if entry.attempts < _ATTEMPTS:
            self._queue.setdefault(pod.uid, entry)
        else:
            _LOG.warning("pod not activated", pod=str(pod), cause=cause)
        return _RETRY_SECONDS


def _waits(pod: Pod) -> bool:
    """Return true if the pod waits for a node and can be activated.

    A pod that is assumed on a node has a ``node_name`` in the cache, so it is not activated. The activation would
    change the pod's resource version, and the API server would refuse the pod's Binding, which carries the old version.
    """
    return not (pod.node_name or pod.spec.gated or pod.terminating or pod.finished)
