"""/api/v1/waiting: the pods that a Permit plugin made wait, for operators to let go or to reject."""

from __future__ import annotations

from typing import Any, Final, Literal

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from app.framework.handle import WaitingPod, WaitingPods
from app.server.bodies import documented, parsed

_FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    404: {"description": "No pod of that UID is waiting."},
    409: {"description": "It does not wait for that plugin, or was settled before."},
}


class Waiting(BaseModel):
    """A pod between Permit and PreBind. Its node is held for it."""

    uid: str
    namespace: str
    name: str
    node: str
    pending: list[str] = Field(description="The plugins that have not allowed it yet.")

    @classmethod
    def of(cls, found: WaitingPod) -> Waiting:
        pod = found.pod
        return cls(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            node=found.node_name,
            pending=list(found.pending_plugins()),
        )


class AllowRequest(BaseModel):
    """Lift the wait of one plugin."""

    model_config = ConfigDict(extra="forbid")

    plugin: str = Field(min_length=1, description="In whose name.")


class RejectRequest(AllowRequest):
    """Give the pod back to its scheduler."""

    message: str = Field(min_length=1, description="Why; the scheduler shows it on the pod.")


class Settled(BaseModel):
    """What became of it."""

    outcome: Literal["waiting", "allowed", "rejected"] = Field(description="allowed: no plugin is left, it is bound.")
    pending: list[str]


def waiting_list_router(waiting: WaitingPods) -> APIRouter:
    """Who waits."""
    router = APIRouter(prefix="/api/v1/waiting", tags=["operator"])

    @router.get("", summary="The pods that wait at Permit")
    async def listed() -> list[Waiting]:
        return [Waiting.of(it) for it in waiting.all()]

    return router


def waiting_router(waiting: WaitingPods, *, max_body_bytes: int) -> APIRouter:
    """Settles what a plugin would settle otherwise: pods are bound or sent back, so it is served where bind is."""
    router = APIRouter(prefix="/api/v1/waiting", tags=["scheduling"])

    @router.post(
        "/{uid}/allow",
        summary="Lift one plugin's wait; when none is left, the pod is bound",
        responses=_FAILURES,
        openapi_extra=documented(AllowRequest, example={"plugin": "Quota"}),
    )
    async def allow(uid: str, request: Request) -> Settled:
        asked = await parsed(request, AllowRequest.model_validate_json, max_body_bytes)
        pod = _found(waiting, uid)
        if asked.plugin not in pod.pending_plugins():
            raise HTTPException(409, f"{pod.pod} does not wait for plugin {asked.plugin}")
        pod.allow(asked.plugin)
        pending = list(pod.pending_plugins())
        return Settled(outcome="waiting" if pending else "allowed", pending=pending)

    @router.post(
        "/{uid}/reject",
        summary="Reject a waiting pod; its bind fails",
        responses=_FAILURES,
        openapi_extra=documented(RejectRequest, example={"plugin": "Quota", "message": "the budget is spent"}),
    )
    async def reject(uid: str, request: Request) -> Settled:
        asked = await parsed(request, RejectRequest.model_validate_json, max_body_bytes)
        pod = _found(waiting, uid)
        if not pod.reject(asked.plugin, asked.message):
            raise HTTPException(409, f"{pod.pod} was settled before")
        return Settled(outcome="rejected", pending=[])

    return router


def _found(waiting: WaitingPods, uid: str) -> WaitingPod:
    found = waiting.get(uid)
    if found is None:
        raise HTTPException(404, f"no pod with UID {uid} is waiting")
    return found
