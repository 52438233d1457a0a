"""Endpoints of the what-ifs. Each computes its answer on a copy of the snapshot and writes nothing."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from app.kube.names import LONGEST
from app.server.bodies import documented, parsed
from app.server.queries import KnownQuery
from app.whatif.budget import Budget
from app.whatif.drain_models import DRAIN_PLAN, DrainBody, DrainPlan
from app.whatif.drain_plan import MOST_NODES, DrainRequest, drained
from app.whatif.losing import LossRequest, lost
from app.whatif.models import (
    LONGEST_LABEL_KEY,
    LONGEST_LABEL_VALUE,
    LOSS_PLAN,
    SIMULATION,
    LoseRequest,
    LossPlan,
    SimulateRequest,
    Simulation,
)
from app.whatif.rebalance_models import REBALANCE_PLAN, RebalanceBody, RebalancePlan
from app.whatif.rebalance_plan import RebalanceRequest, rebalanced
from app.whatif.running import Compute, Steps, WhatIf
from app.whatif.scratch import ScratchCluster
from app.whatif.simulate import Scale, SimulationRequest, simulated
from app.wire.explain_v1 import API_VERSION

FAILURES: Final[dict[int | str, dict[str, Any]]] = {
    500: {"description": "A plugin failed."},
    503: {"description": "The snapshot is incomplete, or another what-if is running: try again after Retry-After."},
}
_SCALE_EXAMPLE: Final = {"scale": [{"namespace": "shop", "kind": "Deployment", "name": "web", "replicas": 12}]}
_LOSE_EXAMPLE: Final = {"key": "topology.kubernetes.io/zone", "value": "eu-1c"}
_DRAIN_EXAMPLE: Final = {"nodes": ["node-b2"]}
_REBALANCE_EXAMPLE: Final = {"namespace": "shop", "most": 5}


class DrainQuery(KnownQuery):
    """Query for a drain."""

    node: list[Annotated[str, Field(min_length=1, max_length=LONGEST)]] = Field(
        min_length=1, max_length=MOST_NODES, description="Nodes to drain, in this order."
    )


class LoseQuery(KnownQuery):
    """Query for the loss of a zone or another domain."""

    key: str = Field(min_length=1, max_length=LONGEST_LABEL_KEY, description="Label key, such as a topology key.")
    value: str | None = Field(
        default=None,
        max_length=LONGEST_LABEL_VALUE,
        description="Lost value; without it, all values are compared.",
    )


def what_if_router(what_if: WhatIf, *, max_body_bytes: int) -> APIRouter:
    """Create the router of all what-ifs."""
    router = APIRouter(prefix="/api/v1", tags=["operator"])

    @router.post(
        "/simulate",
        response_model=Simulation,
        responses=FAILURES,
        summary="Where would these pods go? Places pods of manifests or of a scaled workload, one after the other",
        openapi_extra=documented(SimulateRequest, scale=_SCALE_EXAMPLE),
    )
    async def simulate(request: Request) -> Response:
        body = await parsed(request, SimulateRequest.model_validate_json, max_body_bytes)
        wanted = SimulationRequest(
            body.objects,
            [Scale(it.namespace, it.kind, it.name, it.replicas) for it in body.scale],
            body.namespace,
            body.preempt,
        )
        return await answered(what_if, SIMULATION, lambda scratch, budget: simulated(scratch, wanted, budget))

    @router.post(
        "/drain",
        response_model=DrainPlan,
        responses=FAILURES,
        summary="Where would the pods of these nodes go, which would wait, and which budgets block?",
        openapi_extra=documented(DrainBody, nodes=_DRAIN_EXAMPLE),
    )
    async def drain(request: Request) -> Response:
        body = await parsed(request, DrainBody.model_validate_json, max_body_bytes)
        wanted = DrainRequest(body.nodes, body.keep_cordoned)
        return await answered(what_if, DRAIN_PLAN, lambda scratch, budget: drained(scratch, wanted, budget))

    @router.get("/drain", response_model=DrainPlan, responses=FAILURES, summary="Like POST, for a page in a browser")
    async def drain_by_query(query: Annotated[DrainQuery, Query()]) -> Response:
        wanted = DrainRequest(query.node)
        return await answered(what_if, DRAIN_PLAN, lambda scratch, budget: drained(scratch, wanted, budget))

    @router.get("/lose", response_model=LossPlan, responses=FAILURES, summary="Like POST, for a page in a browser")
    async def lose_by_query(query: Annotated[LoseQuery, Query()]) -> Response:
        loss = LossRequest(query.key, query.value)
        return await answered(what_if, LOSS_PLAN, lambda scratch, budget: lost(scratch, loss, budget))

    @router.post(
        "/lose",
        response_model=LossPlan,
        responses={**FAILURES, 404: {"description": "No node has the label."}},
        summary="Which pods are lost with a zone, placed again or left waiting? In three variants of the loss",
        openapi_extra=documented(LoseRequest, zone=_LOSE_EXAMPLE),
    )
    async def lose(request: Request) -> Response:
        body = await parsed(request, LoseRequest.model_validate_json, max_body_bytes)
        loss = LossRequest(body.key, body.value)
        return await answered(what_if, LOSS_PLAN, lambda scratch, budget: lost(scratch, loss, budget))

    @router.post(
        "/rebalance",
        response_model=RebalancePlan,
        responses=FAILURES,
        summary="Which few evictions make topology spread constraints hold again?",
        openapi_extra=documented(RebalanceBody, shop=_REBALANCE_EXAMPLE),
    )
    async def rebalance(request: Request) -> Response:
        body = await parsed(request, RebalanceBody.model_validate_json, max_body_bytes)
        wanted = RebalanceRequest(body.namespace, body.kind, body.name, body.most, body.soft)
        return await answered(what_if, REBALANCE_PLAN, lambda scratch, budget: rebalanced(scratch, wanted, budget))

    return router


async def answered(what_if: WhatIf, kind: str, compute: Compute) -> Response:
    """Return the answer of a what-if as JSON with the fields ``apiVersion`` and ``kind``.

    Raises ``VerbFailure`` or ``RequestValidationError``.
    """

    def named(scratch: ScratchCluster, budget: Budget) -> Steps:
        answer = yield from compute(scratch, budget)
        return {"apiVersion": API_VERSION, "kind": kind, **answer}

    return Response(await what_if.answer(named), media_type="application/json")
