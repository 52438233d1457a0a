"""Closes holes in the ranks of ReplicaSets' pods, for profiles with the option ``rerank``.

The deletion cost of a pod is its negative rank within its domain: 0, -1, -2, … (``docs/spread.md``). A deleted pod
leaves a hole: its rank is free. If no new pod gets this rank, a scale-down can end above ``maxSkew``. So the free rank
goes to the pod of the domain with the highest rank that is too high or taken twice, or else to a pod without a rank.
The deletion cost is an annotation. It is written through ``pods/status``, which stores annotations too. Homeport
patches the status of pods anyway, so this needs no further permission.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final, Protocol, runtime_checkable

import structlog

from app.kube.api_errors import ApiError, ApiUnavailable, UnknownOutcome
from app.kube.api_requests import PODS
from app.kube.client import KubeClient
from app.kube.core_v1 import Pod
from app.kube.deletion_cost import DELETION_COST
from app.telemetry.throttle import Throttle

_LOG: Final = structlog.get_logger(__name__)

BETWEEN_SECONDS: Final = 10.0
"""Seconds between two searches for holes. A hole is closed only if two searches in a row find it, because usually a new
pod gets the free rank.
"""

PAUSE_SECONDS: Final = 1.0
"""Minimum seconds between two patches."""

_REQUEST_SECONDS: Final = 5.0
"""Time limit of one patch request, in seconds."""

_GONE: Final = (404, 409, 422)
"""Statuses of a patch for a pod that was deleted or replaced. The patch carries the old pod's UID."""

Suggestion = tuple[Pod, int]
"""Pod and the deletion cost that it should have."""


@runtime_checkable
class Reranks(Protocol):
    """Interface of a plugin with deletion costs. It is not part of the plugin contract.

    ``reranks``: true if holes must be closed. In PodTopologySpread, this is the option ``rerank``.
    """

    reranks: bool

    def misranked(self) -> Iterator[Suggestion | None]:
        """Yield each pod that should have another deletion cost, with this cost, and ``None`` between two short steps.

        The cluster can change between two steps.
        """
        ...


def reranking_plugins(plugins: Iterable[Any]) -> list[Reranks]:
    """Return the plugins for which holes must be closed."""
    return [it for it in plugins if isinstance(it, Reranks) and it.reranks]


class Reranking:
    """Background task that closes holes. ``problem``: returns why this process must not write now, or ""."""

    def __init__(
        self,
        client: KubeClient,
        plugins: Iterable[Reranks],
        problem: Callable[[], str],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._plugins = tuple(plugins)
        self._problem = problem
        self._sleep = sleep
        self._failures = Throttle()

    async def run(self) -> None:
        """Search for holes, and close those that the previous search found too, until cancelled."""
        known: set[tuple[str, int]] = set()
        while True:
            await self._sleep(BETWEEN_SECONDS)
            known = set() if self._problem() else await self._search(known)

    async def _search(self, known: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """Return (UID, wanted cost) of each pod that should have another cost. Patch the pods that are also in
        ``known``.
        """
        current: set[tuple[str, int]] = set()
        for plugin in self._plugins:
            for suggestion in plugin.misranked():
                if suggestion is None:
                    await self._sleep(0)
                    continue
                pod, cost = suggestion
                current.add((pod.uid, cost))
                if (pod.uid, cost) in known and not self._problem():
                    await self._patch(pod, cost)
                    await self._sleep(PAUSE_SECONDS)
        return current

    async def _patch(self, pod: Pod, cost: int) -> None:
        body = {"metadata": {"uid": pod.uid, "annotations": {DELETION_COST: str(cost)}}}
        try:
            await self._client.patch(PODS, *pod.key, body, subresource="status", timeout=_REQUEST_SECONDS)
        except (ApiError, ApiUnavailable, UnknownOutcome) as cause:
            if isinstance(cause, ApiError) and cause.status in _GONE:
                return
            if self._failures.admit("patch") is not None:
                _LOG.warning("deletion cost not written", pod=str(pod), cause=str(cause))
            return
        _LOG.info("deletion cost written", pod=str(pod), cost=cost)
