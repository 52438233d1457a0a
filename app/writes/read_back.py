"""Determines the outcome of a Binding by reading the pod from the API server.

``ReadBack`` has two callers. ``ApiBinder`` uses it if it sent a Binding and got no valid answer. ``BindConfirmation``
uses it for accepted binds that the watch does not show in time, and for binds whose transaction was interrupted.

If the pod is still pending, the Binding can nevertheless arrive later. So an annotation, the fence, is written to the
pod and changes its resource version; a later Binding is then refused with a conflict. The bind has certainly failed if
the fenced pod has no node.
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
"""Annotation of the fence. Writing it changes the pod's version, so that a late Binding is refused with a conflict."""

CONFIRM_SECONDS: Final = 5.0
"""Seconds after which an accepted bind is read back if the watch has not shown it.

The watch usually shows a bind within milliseconds.
"""

LOOK_SECONDS: Final = 1.0
"""Seconds between two checks for unconfirmed binds. Also the first delay between two reads of one pod."""

MAX_RETRY_SECONDS: Final = 60.0
"""Maximum delay in seconds between two reads of one pod. The delay begins with ``LOOK_SECONDS`` and doubles."""

_PAUSE_SECONDS: Final = 0.05
"""Delay in seconds after ``BindConfirmation`` has read back a pod.

It limits reads to 20 pods a second. Many binds are unconfirmed when the watch stalls because the API server is
overloaded, and more reads would add to that load.
"""

_NOT_ARRIVED: Final = error("the binding did not arrive at the API server")
NOT_FOUND: Final = "NotFound"
"""Reason in the API server's ``Status`` if a pod does not exist. A 404 without this reason can come from a proxy."""

Sleep = Callable[[float], Awaitable[None]]


class BindOutcome(Struct, frozen=True):
    """Known outcome of a Binding. ``status`` is Success, or an Error if the Binding cannot take effect any more.

    ``raw`` is the JSON of the stored pod, which can be another pod of that name; empty if no pod has the name.
    """

    status: Status
    raw: bytes = b""


async def fence_off(client: KubeClient, pod: Pod) -> bytes:
    """Write the fence to the pod; return the JSON of the pod with its new version.

    The pod's UID and resource version are preconditions. The patch goes to ``pods/status``, which stores annotations
    too. So Homeport needs permission only for that subresource, which cannot change the pod's containers.
    """
    annotations = {FENCE: pod.resource_version}
    metadata = {"uid": pod.uid, "resourceVersion": pod.resource_version, "annotations": annotations}
    return await client.patch(PODS, pod.namespace, pod.name, {"metadata": metadata}, subresource="status")


class ReadBack:
    """Determines outcomes of Bindings: reads a pod with a quorum read, and fences it off if it is pending."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def outcome(self, pod: Pod, node_name: str) -> BindOutcome | None:
        """Return the outcome of the Binding of ``pod`` to the node; ``None`` if it is still unknown.

        Sends one read and at most one fence. Failed requests are logged instead of raised. The read has no
        ``resourceVersion`` parameter, so that it returns the newest version in etcd.
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
        """Fence off a pending pod at the version that was read, and derive the outcome from the answer.

        Raises ``ApiError`` if the fence is refused, for example by a conflict because the pod has changed since the
        read. Raises ``ApiUnavailable`` or ``UnknownOutcome`` without a valid answer.
        """
        raw = await fence_off(self._client, replace(pod, resource_version=state.resource_version))
        fenced = pod_state(raw, pod)
        outcome = _outcome_of(fenced, pod, node_name, raw)
        if outcome is None and fenced.resource_version == state.resource_version:
            raise ApiUnavailable(f"the fence of pod {pod} has not changed its version")
        return outcome or BindOutcome(_NOT_ARRIVED, raw)


def _outcome_of(state: PodState, pod: Pod, node_name: str, raw: bytes) -> BindOutcome | None:
    """Return the Binding's outcome according to the state of the stored pod; ``None`` if the pod is pending."""
    if state.uid != pod.uid:
        return BindOutcome(gone(pod), raw)
    if not state.node_name:
        return None
    return BindOutcome(SUCCESS if state.node_name == node_name else bound_elsewhere(pod, state.node_name), raw)


def gone(pod: Pod) -> Status:
    """Return the Error for a pod that was deleted or replaced by another pod with its name."""
    return error(f'pods "{pod.name}" not found')


def bound_elsewhere(pod: Pod, node_name: str) -> Status:
    """Return the Error for a pod that is bound to ``node_name``, which is not the decided node."""
    return error(f'pod {pod.name} is already assigned to node "{node_name}"')


class _Retry(Struct):
    """Time of the next read of a pod (``at``), and ``delay`` between that read and the one after it, in seconds."""

    at: float
    delay: float


class BindConfirmation:
    """Long-running task that reads back each bind that the watch does not confirm in time.

    Until its outcome is known, the pod stays assumed: it keeps its share of the node's capacity.
    """

    def __init__(self, client: KubeClient, cluster: Cluster, clock: Clock, sleep: Sleep = asyncio.sleep) -> None:
        self._read_back = ReadBack(client)
        self._cluster = cluster
        self._clock = clock
        self._sleep = sleep
        self._retries: dict[str, _Retry] = {}

    async def run(self) -> None:
        """Check for unconfirmed binds every ``LOOK_SECONDS`` and read them back, until cancelled."""
        while True:
            for pod in self._overdue():
                await self._look_at(pod)
                await self._sleep(_PAUSE_SECONDS)
            await self._sleep(LOOK_SECONDS)

    def _overdue(self) -> list[Pod]:
        """Return the unconfirmed pods to read now.

        A pod is first read ``CONFIRM_SECONDS`` after this check has found it, or at once if the outcome is unclear.
        """
        now, assumed, known = self._clock(), self._cluster.assumed, self._retries
        pods = assumed.unconfirmed()
        self._retries = {
            pod.uid: known.get(pod.uid)
            or _Retry(now if assumed.is_unclear(pod.uid) else now + CONFIRM_SECONDS, LOOK_SECONDS)
            for pod in pods
        }
        return [pod for pod in pods if self._retries[pod.uid].at <= now]

    async def _look_at(self, pod: Pod) -> None:
        """Read one pod back; confirm or forget it if the outcome of its bind is known. Exceptions are logged."""
        retry = self._retries[pod.uid]
        retry.at, retry.delay = self._clock() + retry.delay, min(2 * retry.delay, MAX_RETRY_SECONDS)
        if not self._cluster.doubt(pod.uid):
            return  # the watch has confirmed the bind meanwhile
        try:
            outcome = await self._read_back.outcome(pod, pod.node_name)
            if outcome is not None:
                self._settle(pod, outcome)
        except Exception:  # noqa: BLE001  # after any fault the pod stays assumed and is read again later
            _LOG.error("bind not settled", pod=str(pod), node=pod.node_name, traceback=traceback.format_exc())

    def _settle(self, pod: Pod, outcome: BindOutcome) -> None:
        """Store the pod that was read. After Success, confirm the assumed pod; after an Error, forget it."""
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
