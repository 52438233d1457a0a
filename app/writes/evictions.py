"""Writes of a preemption: Evictions of the victims, and the nomination of the preemptor.

The nomination carries the annotation ``PREEMPTING``. A new leader recognizes by it the nominations that its predecessor
made and did not clear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import Struct

from app.cache.cluster import Cluster
from app.kube.api_errors import ApiError, ApiUnavailable, UnknownOutcome
from app.kube.api_requests import PODS
from app.kube.client import KubeClient
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import PREEMPTING
from app.writes.answers import as_requested

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_ATTEMPTS: Final = 3
"""Number of attempts to clear a nomination, if the pod is written meanwhile."""

Outcome = Literal["evicted", "gone", "changed", "refused", "unclear"]
"""Outcome of an Eviction.

- ``evicted``: the pod is terminating or deleted; after a dry run, it could be evicted.
- ``gone``: the pod was deleted before.
- ``changed``: the pod was written since it was read, so nothing was evicted.
- ``refused``: a budget, a webhook or a missing permission forbids it, or it could not be sent.
- ``unclear``: the request was sent, and its outcome is unknown.
"""


class Eviction(Struct, frozen=True):
    """Result of one Eviction. ``cause``: text of the refusal, for users."""

    outcome: Outcome
    cause: str = ""


class NotAllowed(Exception):
    """Raised before a write is sent, if this process must not write now."""


class Evictor:
    """Evicts pods and nominates preemptors. ``may_write`` returns why this process must not write now, or an empty
    string. It is checked immediately before each request is sent. ``seconds``: time limit of a request.
    """

    def __init__(self, client: KubeClient, cluster: Cluster, may_write: Callable[[], str], seconds: float) -> None:
        self._client = client
        self._cluster = cluster
        self._may_write = may_write
        self._seconds = seconds

    @property
    def seconds(self) -> float:
        """Seconds after which a request that was sent has no effect any more."""
        return self._seconds

    async def evict(self, victim: Pod, *, dry_run: bool = False) -> Eviction:
        """Evict a pod if it still has this UID and resource version. Failures are returned, never raised."""
        path = PODS.path(victim.namespace, victim.name, "eviction")
        try:
            await self._client.post(path, eviction(victim), timeout=self._seconds, before=self._check, dry_run=dry_run)
        except ApiError as refused:
            if refused.status == _NOT_FOUND:
                return Eviction("gone")
            return Eviction("changed" if refused.status == _CONFLICT else "refused", refused.message)
        except UnknownOutcome as unclear:
            return Eviction("unclear", str(unclear))
        except (ApiUnavailable, NotAllowed) as unsent:
            return Eviction("refused", str(unsent))
        return Eviction("evicted")

    async def read(self, pod: Pod) -> Pod | None:
        """Read a pod into the snapshot and return it; ``None`` if it does not exist. Raises ``OSError``."""
        try:
            raw = await self._client.get(PODS, pod.namespace, pod.name, timeout=self._seconds)
            newest = as_requested(self._cluster.core.decode_pod(raw), pod.namespace, pod.name)
        except ApiError as refused:
            if refused.status != _NOT_FOUND:
                raise OSError(refused.message) from refused
            self._cluster.delete_pod(pod.key, pod.uid)
            return None
        except (ApiUnavailable, ValueError) as cause:
            raise OSError(str(cause)) from cause
        self._cluster.upsert_read_pod(newest)
        if newest.uid != pod.uid:
            self._cluster.delete_pod(pod.key, pod.uid)
            return None
        return newest

    async def nominate(self, pod: Pod, node_name: str) -> str:
        """Nominate the pod to the node. Return why that failed, or an empty string."""
        return await self._patch(pod, {"metadata": {"uid": pod.uid}}, node_name, node_name)

    async def clear(self, pod: Pod, node_name: str) -> None:
        """Remove what ``nominate`` wrote. A nomination to another node stays. Raises ``OSError``.

        The pod is written in any case, unless it has a node, so that the scheduler tries it again.
        """
        problem = ""
        for _ in range(_ATTEMPTS):
            newest = await self.read(pod)
            if newest is None or newest.node_name or newest.annotations.get(PREEMPTING) != node_name:
                return
            nominated = newest.nominated_node_name
            version = {"uid": pod.uid, "resourceVersion": newest.resource_version}
            if not (
                problem := await self._patch(
                    newest, {"metadata": version}, "" if nominated == node_name else nominated, None
                )
            ):
                await self.read(pod)
                return
        raise OSError(problem)

    async def _patch(self, pod: Pod, body: dict[str, Any], node_name: str, mark: str | None) -> str:
        body["metadata"]["annotations"] = {PREEMPTING: mark}
        body["status"] = {"nominatedNodeName": node_name}
        if problem := self._may_write():
            return problem
        try:
            await self._client.patch(PODS, pod.namespace, pod.name, body, subresource="status", timeout=self._seconds)
        except (ApiError, ApiUnavailable, UnknownOutcome) as cause:
            return str(cause)
        return ""

    def _check(self) -> None:
        if problem := self._may_write():
            raise NotAllowed(problem)


def eviction(victim: Pod) -> dict[str, Any]:
    """Return the Eviction object to post. UID and resource version of the victim are preconditions."""
    preconditions = {"uid": victim.uid, "resourceVersion": victim.resource_version}
    metadata = {"namespace": victim.namespace, "name": victim.name}
    options = {"preconditions": preconditions}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
