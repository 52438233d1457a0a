"""``POST /api/v1/homes/drain``: what a drain of a node would mean."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.homes.draining import SECONDS, DrainVerb, Plan
from app.homes.homes_page import ListedHome, listed
from app.homes.lodging import MOST_HOMES, MOST_NAMES, MOST_PODS, Lodger
from app.kube.names import LONGEST
from app.server.bodies import documented, parsed

_FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    500: {"description": "A plugin could not list homes; detail names it."},
    503: {"description": "The picture is incomplete or too old, or too many pages are asked for at once."},
}
_EXAMPLE: Final = {"node": "node-b2"}


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class DrainRequest(BaseModel):
    """Which node."""

    model_config = ConfigDict(extra="forbid")

    node: str = Field(min_length=1, max_length=LONGEST, description="It need not be there: homes may be left of it.")


class Told(_Model):
    """What becomes of a pod."""

    could_run_on: list[str] | None = Field(
        description=f"The first {MOST_NAMES} nodes that take it beside all that were placed before; null: not judged."
    )
    could_run_on_count: int = Field(description="All of them.")
    goes_to: str = Field(description="The one of them that it was placed on; empty where it takes room on none.")
    waits_for: str = Field(description="The home that it waits for, for its grace or for good; else empty.")
    fits_alone: bool | None = Field(description="Whether a node would take it but for the others; null: nobody asked.")
    others_refuse: str = Field(description="What most of the other nodes say, and how many of them.")
    then: str = Field(description="What becomes of it, in words.")
    judged: bool = Field(description="False where it should have been and was not; then says why.")


class DrainedHome(ListedHome, Told):
    """A home on the node, or of a pod that runs there."""


class DrainedPod(Told):
    """A pod of the node that has no home, and that its controller would make anew."""

    namespace: str
    pod: str


class DrainPlan(_Model):
    """In the order in which pods were placed; who is not judged comes last."""

    node: str
    known: bool = Field(description="Whether there is such a node.")
    profile: str = Field(description="By whose rules; empty: each pod by those of its own profile.")
    preset: str = Field(description="complete or delegated.")
    counted: list[str] = Field(description="The filters that judged.")
    not_counted: list[str] = Field(description="Filters of kube-scheduler's default profile that did not.")
    items: list[DrainedHome] = Field(
        description=f"{MOST_HOMES} homes at most. One that pods of the node share comes once for each of them."
    )
    others: list[DrainedPod] = Field(description=f"{MOST_PODS} at most, with the further pods of shared homes.")
    more: int = Field(description="Homes of the node that are not among the items.")
    more_others: int = Field(description="Pods that would go and are not among the others.")
    lost: int = Field(description="Pods of the node that no controller would make anew.")


def draining_router(verb: DrainVerb, *, max_body_bytes: int) -> APIRouter:
    """It reads the picture in slices; nothing is changed."""
    router = APIRouter(prefix="/api/v1", tags=["operator"])

    @router.post(
        "/homes/drain",
        response_model=DrainPlan,
        responses=_FAILURES,
        summary=f"Who would go where if a node were drained: judged for {SECONDS:g} s at most",
        openapi_extra=documented(DrainRequest, by_name=_EXAMPLE),
    )
    async def drain(request: Request) -> Response:
        asked = await parsed(request, DrainRequest.model_validate_json, max_body_bytes)
        plan = await verb.plan(asked.node)
        return Response(msgspec.json.encode(_answer(plan)), media_type="application/json")

    return router


def _answer(plan: Plan) -> dict[str, Any]:
    """A ``DrainPlan``."""
    return {
        "node": plan.node,
        "known": plan.is_known,
        "profile": plan.profile,
        "preset": plan.preset,
        "counted": plan.counted,
        "notCounted": plan.not_counted,
        "items": [{**listed(it.home), **_told(it)} for it in plan.homes if it.home is not None],
        "others": [{"namespace": it.namespace, "pod": it.pod, **_told(it)} for it in plan.others],
        "more": plan.more,
        "moreOthers": plan.more_others,
        "lost": plan.lost,
    }


def _told(it: Lodger) -> dict[str, Any]:
    """A ``Told``."""
    return {
        "couldRunOn": it.nodes,
        "couldRunOnCount": it.count,
        "goesTo": it.goes_to,
        "waitsFor": it.waits_for,
        "fitsAlone": it.fits_alone,
        "othersRefuse": it.why,
        "then": it.then,
        "judged": it.is_judged,
    }
