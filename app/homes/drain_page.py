"""``POST /api/v1/homes/drain``: the effects of draining a node."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from app.homes.draining import SECONDS, DrainVerb, PlannedDrain
from app.homes.evictions import MOST_HOMES, MOST_NAMES, MOST_PODS, DrainOutcome
from app.homes.homes_page import ListedHome, listed
from app.kube.names import LONGEST
from app.server.bodies import documented, parsed

_FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    500: {"description": "A plugin could not list homes; the message names it."},
    503: {"description": "The snapshot is incomplete or too old, or too many pages are requested at once."},
}
_EXAMPLE: Final = {"node": "node-b2"}


class _DrainPageModel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class DrainRequest(BaseModel):
    """Node to drain."""

    model_config = ConfigDict(extra="forbid")

    node: str = Field(
        min_length=1,
        max_length=LONGEST,
        description="Name of the node. It does not have to exist: homes can outlive nodes.",
    )


class PodOutcome(_DrainPageModel):
    """Outcome for a pod."""

    could_run_on: list[str] | None = Field(
        description=f"The first {MOST_NAMES} nodes on which it fits beside all pods placed before; null: not judged."
    )
    could_run_on_count: int = Field(description="Number of all nodes on which it fits.")
    goes_to: str = Field(description="Node on which it was placed; empty if it was not placed.")
    waits_for: str = Field(description="Home that it waits for, during its grace period or forever; else empty.")
    fits_alone: bool | None = Field(
        description="True if it would fit on a node without the other pods; null: not checked."
    )
    others_refuse: str = Field(description="Most frequent rejection by other nodes, and its count.")
    then: str = Field(description="Outcome as text.")
    judged: bool = Field(description="False if it could not be judged; the field then has the reason.")


class DrainedHome(ListedHome, PodOutcome):
    """Home on the drained node, or home of a pod that runs on that node."""


class DrainedPod(PodOutcome):
    """Pod on the drained node that has no home and that its controller would recreate."""

    namespace: str
    pod: str


class DrainPlan(_DrainPageModel):
    """Plan of a drain. Pods have the order in which the plan places them; pods that were not evaluated come last."""

    node: str
    known: bool = Field(description="True if the node exists.")
    profile: str = Field(description="Profile used for all pods; empty: each pod's own profile.")
    preset: str = Field(description="complete or delegated.")
    counted: list[str] = Field(description="Filters that were applied.")
    not_counted: list[str] = Field(description="Filters of kube-scheduler's default profile that were not applied.")
    items: list[DrainedHome] = Field(
        description=f"At most {MOST_HOMES} homes. A home shared by pods of the node is listed once for each pod."
    )
    others: list[DrainedPod] = Field(description=f"At most {MOST_PODS}, including further pods of shared homes.")
    more: int = Field(description="Number of homes of the node that are not among the items.")
    more_others: int = Field(description="Number of evicted pods that are not among the others.")
    lost: int = Field(description="Number of pods of the node that no controller would recreate.")
    suggestion: str = Field(default="", description="Similar names as text, if the node does not exist; else empty.")


def draining_router(verb: DrainVerb, *, max_body_bytes: int) -> APIRouter:
    """Create the router. It reads the snapshot in short steps and changes nothing."""
    router = APIRouter(prefix="/api/v1", tags=["operator"])

    @router.post(
        "/homes/drain",
        response_model=DrainPlan,
        responses=_FAILURES,
        summary=f"Plan of a drain: the new node of each pod, computed for at most {SECONDS:g} s",
        openapi_extra=documented(DrainRequest, by_name=_EXAMPLE),
    )
    async def drain(request: Request) -> Response:
        drain_request = await parsed(request, DrainRequest.model_validate_json, max_body_bytes)
        plan = await verb.plan(drain_request.node)
        return Response(msgspec.json.encode(_answer(plan)), media_type="application/json")

    return router


def _answer(plan: PlannedDrain) -> dict[str, Any]:
    """Build a ``DrainPlan``."""
    return {
        "node": plan.node,
        "known": plan.is_known,
        "profile": plan.profile,
        "preset": plan.preset,
        "counted": plan.counted,
        "notCounted": plan.not_counted,
        "items": [{**listed(it.home), **_outcome(it)} for it in plan.homes if it.home is not None],
        "others": [{"namespace": it.namespace, "pod": it.pod, **_outcome(it)} for it in plan.others],
        "more": plan.more,
        "moreOthers": plan.more_others,
        "lost": plan.lost,
        "suggestion": plan.suggestion,
    }


def _outcome(outcome: DrainOutcome) -> dict[str, Any]:
    """Build a ``PodOutcome``."""
    return {
        "couldRunOn": outcome.nodes,
        "couldRunOnCount": outcome.count,
        "goesTo": outcome.goes_to,
        "waitsFor": outcome.waits_for,
        "fitsAlone": outcome.fits_alone,
        "othersRefuse": outcome.why,
        "then": outcome.then,
        "judged": outcome.is_judged,
    }
