"""Fences off late Bindings of the previous leader: writes an annotation to pending pods, so that they get a new
version.

Each Binding carries the pod's resource version at the time of the decision. If a delayed Binding of the previous leader
arrives after that version has changed, the API server refuses the Binding with a conflict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Final

import structlog

from app.cache.cluster import Cluster
from app.kube.api_errors import ApiError, ApiUnavailable, UnknownOutcome
from app.kube.api_requests import PODS
from app.kube.client import REQUEST_SECONDS, KubeClient
from app.kube.core_v1 import Pod
from app.writes.answers import as_requested, pod_state
from app.writes.api_writes import is_permanent_refusal
from app.writes.callers import Callers
from app.writes.read_back import NOT_FOUND, fence_off

_LOG: Final = structlog.get_logger(__name__)

AT_ONCE: Final = 8
"""Maximum number of concurrent workers. Each worker fences off one pod at a time."""

PAUSE_SECONDS: Final = 0.02
"""Seconds that a worker sleeps after each pod. The rate is at most ``AT_ONCE / PAUSE_SECONDS`` (400) pods a second."""

_RETRY_SECONDS: Final = 0.5
"""Seconds between two attempts to fence off one pod."""

_CONFLICT: Final = 409

Sleep = Callable[[float], Awaitable[None]]


class Fences:
    """Set of pods to fence off, and the workers that write to them. Namespaces in which a bind waits come first."""

    def __init__(self, client: KubeClient, cluster: Cluster, sleep: Sleep = asyncio.sleep) -> None:
        self._client = client
        self._cluster = cluster
        self._sleep = sleep
        self._noted: dict[str, list[Pod]] = {}
        self._left: dict[str, int] = {}
        self._awaited: dict[str, None] = {}
        self._moved = asyncio.Event()
        self._late_until = 0.0
        self._together = False

    @property
    def pending(self) -> int:
        """Number of pods that are not fenced off yet."""
        return sum(self._left.values())

    def pending_in(self, namespace: str) -> bool:
        """Return true if pods of the namespace must not be bound yet, because one of them is not fenced off.

        After ``note(together=True)``, return true if a pod of any namespace is not fenced off.
        """
        return bool(self._left) if self._together else namespace in self._left

    async def cleared(self, namespace: str) -> None:
        """Wait until ``pending_in`` is false for the namespace. Pods of the namespace are fenced off before others."""
        while self.pending_in(namespace):
            if namespace in self._left:
                self._awaited[namespace] = None
            await self._moved.wait()

    def note(self, callers: Callers, *, together: bool = False) -> int:
        """Collect the pending pods of these schedulers for ``raise_all``; return their number.

        With ``together``, binds in all namespaces wait until the last pod is fenced off. This is needed if requests of
        the previous leader might not have timed out: a late Binding uses capacity of its node, for which pods of
        all namespaces compete.
        """
        self._together = together
        self._noted.clear()
        self._late_until = monotonic() + REQUEST_SECONDS
        assumed = self._cluster.assumed
        uncertain = {it.uid for it in (*assumed.in_flight(), *assumed.reserved())}
        for pod in self._cluster.pods():
            # A pod that this process has assumed has a node in the cache, but it might still be pending.
            pending = not pod.node_name or pod.uid in uncertain
            if pending and _may_be_bound(pod) and pod.spec.scheduler_name in callers:
                self._noted.setdefault(pod.namespace, []).append(pod)
        self._left = {namespace: len(pods) for namespace, pods in self._noted.items()}
        return self.pending

    async def raise_all(self) -> None:
        """Fence off the collected pods, with at most ``AT_ONCE`` workers.

        On cancellation, for example when the leader's term ends, the remaining pods are dropped, so that no bind waits
        for them. After another exception they stay pending, and the binds that wait for them stay forbidden.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(AT_ONCE, self.pending)):
                    group.create_task(self._work())
        except asyncio.CancelledError:
            self._noted.clear()
            self._left.clear()
            self._awaited.clear()
            self._notify()
            raise

    def _notify(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def _work(self) -> None:
        while (pod := self._next()) is not None:
            await self._until_fenced(pod)
            self._left[pod.namespace] -= 1
            if not self._left[pod.namespace]:
                del self._left[pod.namespace]
                self._awaited.pop(pod.namespace, None)
                self._notify()
            await self._sleep(PAUSE_SECONDS)

    def _next(self) -> Pod | None:
        namespace = next((it for it in self._awaited if it in self._noted), next(iter(self._noted), None))
        if namespace is None:
            return None
        pods = self._noted[namespace]
        pod = pods.pop()
        if not pods:
            del self._noted[namespace]
        return pod

    async def _until_fenced(self, pod: Pod) -> None:
        """Fence off one pod, with retries.

        If the API server refuses the fence permanently, wait until no late Binding can arrive any more. Then read the
        pod, because it might have been bound by then.
        """
        logged = refused = False
        while True:
            try:
                await (self._read(pod) if refused else self._fence(pod))
            except (ApiError, ApiUnavailable, UnknownOutcome) as error:
                if isinstance(error, ApiError) and is_permanent_refusal(error.status):
                    if refused:
                        _LOG.error("pod that is not fenced cannot be read", pod=str(pod), cause=str(error))
                        return
                    refused = True
                    _LOG.error("pod cannot be fenced off", pod=str(pod), cause=str(error))
                    await self._sleep(max(0.0, self._late_until - monotonic()))
                    continue
                if not logged:
                    logged = True
                    _LOG.warning("pod not fenced off yet", pod=str(pod), cause=str(error))
            else:
                return
            await self._sleep(_RETRY_SECONDS)

    async def _fence(self, pod: Pod) -> None:
        """Fence off the pod. Store the pod from the answer in the cache, because it might already have been bound.

        Raises ``ApiUnavailable`` if the answer has the pod's old version: the pod is then not fenced off.
        """
        try:
            try:
                raw = await fence_off(self._client, pod)
            except ApiError as refused:
                if refused.status != _CONFLICT:
                    raise
                # The conflict shows that the pod already has a newer version, so it needs no fence.
                raw = await self._client.get(PODS, pod.namespace, pod.name)
        except ApiError as refused:
            if refused.reason != NOT_FOUND:
                raise
            return
        state = pod_state(raw, pod)
        if (state.uid, state.resource_version) == (pod.uid, pod.resource_version):
            raise ApiUnavailable(f"the fence of pod {pod} has not changed its version")
        self._take_in(pod, raw)

    async def _read(self, pod: Pod) -> None:
        try:
            raw = await self._client.get(PODS, pod.namespace, pod.name)
        except ApiError as refused:
            if refused.reason != NOT_FOUND:
                raise
            return
        self._take_in(pod, raw)

    def _take_in(self, pod: Pod, raw: bytes) -> None:
        try:
            stored = self._cluster.core.decode_pod(raw)
        except ValueError as cause:  # logged only: the pod is fenced off, no matter if it can be decoded
            _LOG.error("fenced pod cannot be decoded", pod=str(pod), cause=str(cause))
            return
        self._cluster.upsert_read_pod(as_requested(stored, pod.namespace, pod.name))


def _may_be_bound(pod: Pod) -> bool:
    """Return true if a late Binding could still bind the pod, so that it must be fenced off.

    A gated, terminating or finished pod cannot be bound. When its gates are removed, the pod gets a new version, so
    that late Bindings are refused.
    """
    return not (pod.spec.gated or pod.terminating or pod.finished)
