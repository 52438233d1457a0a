"""Writes ``status.nominatedNodeName`` of pods.

kube-scheduler tries the nominated node first, even if its sample of the nodes does not contain this node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

import structlog

from app.kube.api_errors import ApiError, ApiUnavailable, UnknownOutcome
from app.kube.api_requests import PODS
from app.kube.client import KubeClient
from app.kube.core_v1 import Pod

_LOG: Final = structlog.get_logger(__name__)
_FORBIDDEN: Final = 403
_GONE: Final = (404, 409)
_INVALID: Final = 422
_UID: Final = "metadata.uid"
_SECONDS: Final = 2.0

Nominated = Literal["taken", "gone", "forbidden", "failed"]
"""Outcome of a nomination.

- ``taken``: it is written.
- ``gone``: the pod does not exist, or another pod has its name.
- ``forbidden``: the permission is missing.
- ``failed``: it was not sent, the API server refused it for another cause, or the outcome is unknown.
"""


class Nominator(Protocol):
    """Nominates pods to nodes."""

    async def nominate(self, pod: Pod, node_name: str) -> Nominated:
        """Nominate the pod to the node, instead of an earlier nomination. Failures are returned, never raised.

        The pod's UID is a precondition.
        """
        ...


def nomination(pod: Pod, node_name: str) -> dict[str, Any]:
    """Return the merge patch to send to ``pods/status``.

    It has no resource version, because the scheduler often writes the pod's conditions and would cause conflicts.
    """
    return {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node_name}}


class ApiNominator:
    """Implementation of ``Nominator`` that patches ``pods/status``.

    A failed patch is not retried: the pod is nominated again when it is refused the next time. ``may_write`` returns
    why this process must not write now, or an empty string if it may. If it must not, nothing is sent.
    """

    def __init__(self, client: KubeClient, may_write: Callable[[], str] = str) -> None:
        self._may_write = may_write
        self._client = client

    async def nominate(self, pod: Pod, node_name: str) -> Nominated:
        if self._may_write():
            return "failed"
        body = nomination(pod, node_name)
        try:
            await self._client.patch(PODS, pod.namespace, pod.name, body, subresource="status", timeout=_SECONDS)
        except ApiError as refused:
            return _refusal(pod, node_name, refused)
        except (ApiUnavailable, UnknownOutcome) as cause:
            _LOG.warning("nomination not written", pod=str(pod), node=node_name, cause=str(cause))
            return "failed"
        return "taken"


def _refusal(pod: Pod, node_name: str, refused: ApiError) -> Nominated:
    if refused.status in _GONE or _is_another(refused):
        return "gone"
    if refused.status == _FORBIDDEN:
        return "forbidden"
    _LOG.warning("nomination refused by the API server", pod=str(pod), node=node_name, cause=str(refused))
    return "failed"


def _is_another(refused: ApiError) -> bool:
    """Return true if the name now belongs to another pod, whose immutable UID the refused patch would change."""
    return refused.status == _INVALID and _UID in refused.message
