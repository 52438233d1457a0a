"""Determines the outcome of a Binding by reading the pod from the API server, until it is known.

It has two callers. ``ApiBinder`` sent a Binding and got no valid answer. ``BindConfirmation`` handles binds that were
answered but that the watch does not show in time, and binds whose transaction was interrupted.

A pod that is still pending proves nothing by itself: the Binding can arrive late. So its version is moved (a fence),
and the pod is forgotten only when the API server shows the moved pod without a node.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.framework.handle import Clock
from app.framework.status import SUCCESS, Status, error
from app.kube.api_errors import ApiError, ApiUnavailable, UnknownOutcome
from app.kube.api_requests import PODS
from app.kube.client import KubeClient
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.writes.answers import PodState, pod_state

_LOG: Final = structlog.get_logger(__name__)

FENCE: Final = f"{ANNOTATION_DOMAIN}unclear-bind"
"""Annotation that moves a pod's version after a bind of unknown outcome, so that a late POST meets a conflict."""

CONFIRM_SECONDS: Final = 5.0
"""Time that the watch has to show an accepted bind. A healthy watch takes milliseconds."""

LOOK_SECONDS: Final = 1.0
"""Interval between two checks for binds that are not confirmed yet."""

MAX_RETRY_SECONDS: Final = 60.0
"""Longest delay between two reads of one pod. It doubles from ``LOOK_SECONDS``."""

_PAUSE_SECONDS: Final = 0.05
"""Delay after each pod: a watch that stalls under load must not cost more than 20 reads a second."""

_NOT_ARRIVED: Final = error("the binding did not arrive at the API server")
NOT_FOUND: Final = "NotFound"
"""Reason in the Status of a 404. A 404 without it can come from a proxy, and does not show that a pod is gone."""

Sleep = Callable[[float], Awaitable[None]]


class BindOutcome(Struct, frozen=True):
    """Outcome of a Binding: Success, or an Error if it can no longer take effect.

    ``raw`` is the pod as the API server has it; empty if it is gone.
    """

    status: Status
    raw: bytes = b""


async def fence_off(client: KubeClient, pod: Pod) -> bytes:
    """Move the pod's version on from ``pod.resource_version``; return the pod as the API server then has it.

    UID and version are preconditions. The write goes through ``pods/status``, which stores annotations too: a right to
    patch only that cannot change the pod's containers.
    """
    annotations = {FENCE: pod.resource_version}
    metadata = {"uid": pod.uid, "resourceVersion": pod.resource_version, "annotations": annotations}
    return await client.patch(PODS, pod.namespace, pod.name, {"metadata": metadata}, subresource="status")


class ReadBack:
    """Reads pods from the API server instead of the watch cache, and fences pending pods."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def outcome(self, pod: Pod, node_name: str) -> BindOutcome | None:
        """Return the outcome of the Binding of ``pod`` to the node; ``None`` if it is still unknown: try again.

        Sends one read without ``resourceVersion``, which etcd answers, and at most one fence.
        """
        try:
            raw = await self._client.get(PODS, pod.namespace, pod.name)
            state = pod_state(raw, pod)
            return _outcome_of(state, pod, node_name, raw) or await self._fenced(pod, node_name, state)
        except ApiError as refused:
            if refused.reason == NOT_FOUND:
                return BindOutcome(gone(pod))
            _LOG.warning("pod cannot be read back", pod=str(pod), cause=str(refused))
        except (ApiUnavailable, UnknownOutcome) as cause:
            _LOG.warning("pod cannot be read back", pod=str(pod), cause=str(cause))
        return None

    async def _fenced(self, pod: Pod, node_name: str, state: PodState) -> BindOutcome | None:
        """Fence a pending pod at the version that was read. Only the answer to the fence decides the outcome.

        Raises ``ApiError`` (a conflict: the pod has changed since it was read), ``ApiUnavailable`` and
        ``UnknownOutcome``.
        """
        raw = await fence_off(self._client, replace(pod, resource_version=state.resource_version))
        fenced = pod_state(raw, pod)
        outcome = _outcome_of(fenced, pod, node_name, raw)
        if outcome is None and fenced.resource_version == state.resource_version:
            raise ApiUnavailable(f"the fence of pod {pod} has not moved its version")
        return outcome or BindOutcome(_NOT_ARRIVED, raw)


def _outcome_of(state: PodState, pod: Pod, node_name: str, raw: bytes) -> BindOutcome | None:
    """Return the Binding's outcome according to the stored pod; ``None`` if the pod is pending."""
    if state.uid != pod.uid:
        return BindOutcome(gone(pod), raw)
    if not state.node_name:
        return None
    return BindOutcome(SUCCESS if state.node_name == node_name else bound_elsewhere(pod, state.node_name), raw)


def gone(pod: Pod) -> Status:
    """Return the Error for a pod that was deleted, or replaced by another of its name."""
    return error(f'pods "{pod.name}" not found')


def bound_elsewhere(pod: Pod, node_name: str) -> Status:
    """Return the Error for a pod that is bound to another node."""
    return error(f'pod {pod.name} is already assigned to node "{node_name}"')


class _Retry(Struct):
    """Time of the next read of a pod, and the delay after it, in seconds."""

    at: float
    delay: float


class BindConfirmation:
    """Long-running task that settles each bind that the watch does not confirm in time.

    Until a bind is settled, its pod stays assumed and counts as a bind that can succeed or fail.
    """

    def __init__(self, client: KubeClient, cluster: Cluster, clock: Clock, sleep: Sleep = asyncio.sleep) -> None:
        self._read_back = ReadBack(client)
        self._cluster = cluster
        self._clock = clock
        self._sleep = sleep
        self._retries: dict[str, _Retry] = {}

    async def run(self) -> None:
        """Look for binds to settle until cancelled."""
        while True:
            for pod in self._overdue():
                await self._look_at(pod)
                await self._sleep(_PAUSE_SECONDS)
            await self._sleep(LOOK_SECONDS)

    def _overdue(self) -> list[Pod]:
        """Return the unconfirmed pods to read now. New ones start with the initial delay."""
        now, assumed, known = self._clock(), self._cluster.assumed, self._retries
        pods = assumed.unconfirmed()
        self._retries = {
            pod.uid: known.get(pod.uid)
            or _Retry(now if assumed.is_unclear(pod.uid) else now + CONFIRM_SECONDS, LOOK_SECONDS)
            for pod in pods
        }
        return [pod for pod in pods if self._retries[pod.uid].at <= now]

    async def _look_at(self, pod: Pod) -> None:
        """Read one pod back and settle its bind. Exceptions are logged, so that other pods are not affected."""
        retry = self._retries[pod.uid]
        retry.at, retry.delay = self._clock() + retry.delay, min(2 * retry.delay, MAX_RETRY_SECONDS)
        if not self._cluster.doubt(pod.uid):
            return  # the watch has confirmed the bind meanwhile
        try:
            outcome = await self._read_back.outcome(pod, pod.node_name)
            if outcome is not None:
                self._settle(pod, outcome)
        except Exception:  # noqa: BLE001  # any fault: the pod stays assumed and is read again
            _LOG.error("bind not settled", pod=str(pod), node=pod.node_name, traceback=traceback.format_exc())

    def _settle(self, pod: Pod, outcome: BindOutcome) -> None:
        """Store the pod as it was read, then confirm or forget it."""
        if outcome.raw:
            try:
                self._cluster.upsert_read_pod(self._cluster.core.decode_pod(outcome.raw))
            except ValueError as cause:
                _LOG.error("pod read back cannot be decoded", pod=str(pod), cause=str(cause))
        if outcome.status.is_success:
            self._cluster.confirm(pod.uid)
            return
        _LOG.warning("bind given up", pod=str(pod), node=pod.node_name, cause=outcome.status.message)
        self._cluster.forget(pod.uid)
