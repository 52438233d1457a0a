"""/api/v1/waiting: pods that wait at Permit, which operators can allow or reject."""

from __future__ import annotations

from typing import Any, Final, Literal

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from app.framework.handle import WaitingPod, WaitingPods
from app.server.bodies import documented, parsed

_FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    404: {"description": "No pod with that UID is waiting."},
    409: {"description": "The pod does not wait for that plugin, or was allowed or rejected before."},
}


class WaitingPodStatus(BaseModel):
    """Pod that waits at Permit. It is counted on its node, but not bound yet."""

    uid: str
    namespace: str
    name: str
    node: str = Field(description="Node to which the pod is bound once all plugins allow it.")
    pending: list[str] = Field(description="Plugins that have not allowed the pod yet.")

    @classmethod
    def of(cls, waiting: WaitingPod) -> WaitingPodStatus:
        pod = waiting.pod
        return cls(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            node=waiting.node_name,
            pending=list(waiting.pending_plugins()),
        )


class AllowRequest(BaseModel):
    """Request to allow the pod for one plugin."""

    model_config = ConfigDict(extra="forbid")

    plugin: str = Field(min_length=1, description="Plugin for which the pod is allowed or rejected.")


class RejectRequest(AllowRequest):
    """Request to reject the pod on behalf of one plugin."""

    message: str = Field(min_length=1, description="Reason; the scheduler shows it on the pod.")


class Settled(BaseModel):
    """Result of allowing or rejecting a pod."""

    outcome: Literal["waiting", "allowed", "rejected"] = Field(
        description="allowed: the last plugin has allowed the pod, and its bind continues."
    )
    pending: list[str] = Field(description="Plugins that have not allowed the pod yet; empty after a rejection.")


def waiting_list_router(waiting: WaitingPods) -> APIRouter:
    """Create the router of the list of waiting pods."""
    router = APIRouter(prefix="/api/v1/waiting", tags=["operator"])

    @router.get("", summary="Pods that wait at Permit")
    async def listed() -> list[WaitingPodStatus]:
        return [WaitingPodStatus.of(it) for it in waiting.all()]

    return router


def waiting_router(waiting: WaitingPods, *, max_body_bytes: int) -> APIRouter:
    """Create the router for allow and reject.

    Only the listener of the verbs serves it, because such a request decides about a bind.
    """
    router = APIRouter(prefix="/api/v1/waiting", tags=["scheduling"])

    @router.post(
        "/{uid}/allow",
        summary="Allow a waiting pod for one plugin; once no plugin is pending, its bind continues",
        responses=_FAILURES,
        openapi_extra=documented(AllowRequest, example={"plugin": "Quota"}),
    )
    async def allow(uid: str, request: Request) -> Settled:
        allow_request = await parsed(request, AllowRequest.model_validate_json, max_body_bytes)
        pod = _waiting_pod(waiting, uid)
        if allow_request.plugin not in pod.pending_plugins():
            raise HTTPException(409, f"{pod.pod} does not wait for plugin {allow_request.plugin}")
        pod.allow(allow_request.plugin)
        pending = list(pod.pending_plugins())
        return Settled(outcome="waiting" if pending else "allowed", pending=pending)

    @router.post(
        "/{uid}/reject",
        summary="Reject a waiting pod; its bind fails",
        responses=_FAILURES,
        openapi_extra=documented(RejectRequest, example={"plugin": "Quota", "message": "the budget is spent"}),
    )
    async def reject(uid: str, request: Request) -> Settled:
        reject_request = await parsed(request, RejectRequest.model_validate_json, max_body_bytes)
        pod = _waiting_pod(waiting, uid)
        if not pod.reject(reject_request.plugin, reject_request.message):
            raise HTTPException(409, f"{pod.pod} was allowed or rejected before")
        return Settled(outcome="rejected", pending=[])

    return router


def _waiting_pod(waiting: WaitingPods, uid: str) -> WaitingPod:
    pod = waiting.get(uid)
    if pod is None:
        raise HTTPException(404, f"no pod with UID {uid} is waiting")
    return pod
