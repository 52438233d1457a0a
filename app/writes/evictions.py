"""Writes of a preemption: Evictions of the victims, and the nomination of the pod for which they are evicted (the
preemptor).

The nomination carries the annotation ``PREEMPTING``. A new leader recognizes by it the nominations that its predecessor
made and did not clear.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
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
_ATTEMPTS: Final = 5
"""Maximum number of attempts to write or clear a nomination. A failed write is repeated, a failed read is not."""

Outcome = Literal["evicted", "gone", "changed", "refused", "unclear"]
"""Outcome of an Eviction.

- ``evicted``: the pod is terminating or deleted; after a dry run, it could be evicted.
- ``gone``: the pod was deleted before.
- ``changed``: the pod was written or replaced since it was read, so nothing was evicted.
- ``refused``: the API server refused it, for example because of a budget, or it was not sent.
- ``unclear``: the request was sent, and its outcome is unknown.
"""


class Eviction(Struct, frozen=True):
    """Result of one Eviction. ``cause``: explanation for users; empty for ``evicted`` and ``gone``."""

    outcome: Outcome
    cause: str = ""


class NotAllowed(Exception):
    """Raised before a write is sent, if this process must not write now."""


class Evictor:
    """Evicts pods and nominates preemptors. ``may_write`` returns why this process must not write now, or an empty
    string. It is called immediately before each write is sent. ``seconds``: time limit of a request.
    """

    def __init__(self, client: KubeClient, cluster: Cluster, may_write: Callable[[], str], seconds: float) -> None:
        self._client = client
        self._cluster = cluster
        self._may_write = may_write
        self._seconds = seconds

    @property
    def seconds(self) -> float:
        """Seconds after which a request that was sent can no longer take effect."""
        return self._seconds

    async def evict(self, victim: Pod, *, dry_run: bool = False) -> Eviction:
        """Evict ``victim`` if its UID and resource version have not changed. Failures are returned, never raised."""
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
        """Read a pod into the snapshot and return it; ``None`` if it was deleted or replaced. Raises ``OSError``."""
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
        """Nominate the pod, unless it has another nomination or no longer waits.

        Return why the pod is not nominated, or an empty string.
        """
        problem = ""
        for _ in range(_ATTEMPTS):
            try:
                newest = await self.read(pod)
            except OSError as unreadable:
                return str(unreadable)
            if newest is None or newest.node_name or newest.terminating:
                return "the pod does not wait any more"
            if newest.nominated_node_name:
                is_ours = newest.annotations.get(PREEMPTING) == newest.nominated_node_name == node_name
                return "" if is_ours else "the pod has another nomination"
            if not (problem := await self._patch(newest, node_name, node_name)):
                return await self._confirmed(pod, node_name)
        return problem

    async def _confirmed(self, pod: Pod, node_name: str) -> str:
        """Read the nominated pod into the snapshot. Return why it is not nominated, or an empty string."""
        try:
            newest = await self.read(pod)
        except OSError as unreadable:
            return str(unreadable)
        return "" if newest is not None and newest.nominated_node_name == node_name else "the nomination was changed"

    async def clear(self, pod: Pod, node_name: str) -> None:
        """Remove the nomination and the annotation that ``nominate`` wrote. A nomination to another node stays. Raises
        ``OSError``.

        Nothing is written if the pod is gone, has a node, or lacks the annotation for ``node_name``. Otherwise the pod
        is written even if only the annotation changes, so that the scheduler tries it again.
        """
        problem = ""
        for _ in range(_ATTEMPTS):
            newest = await self.read(pod)
            if newest is None or newest.node_name or newest.annotations.get(PREEMPTING) != node_name:
                return
            nominated = newest.nominated_node_name
            if not (problem := await self._patch(newest, "" if nominated == node_name else nominated, None)):
                await self.read(pod)
                return
        raise OSError(problem)

    async def _patch(self, pod: Pod, node_name: str, mark: str | None) -> str:
        """Write the nomination (removed if ``node_name`` is empty) and the annotation (removed if ``mark`` is None).

        Return why that failed, or "". It fails if the pod has changed since it was read.
        """
        metadata = {"uid": pod.uid, "resourceVersion": pod.resource_version, "annotations": {PREEMPTING: mark}}
        body = {"metadata": metadata, "status": {"nominatedNodeName": node_name}}
        patch = partial(self._client.patch, subresource="status", timeout=self._seconds, before=self._check)
        try:
            await patch(PODS, pod.namespace, pod.name, body)
        except (ApiError, ApiUnavailable, NotAllowed) as refused:
            return str(refused)
        except UnknownOutcome as unclear:
            await asyncio.sleep(self._seconds)  # until then, the request can still take effect
            return str(unclear)
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
