"""``GET /api/v1/pending``: pods that wait for a node, the longest wait first, each with its most important reason."""

from __future__ import annotations

from time import time
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from pydantic import Field

from app.analysis.pending import MOST_LISTED, MainReason, PendingPods, WaitingForNode
from app.server.bodies import selector_in
from app.server.cycle import FAILURES, json_response
from app.server.queries import KnownQuery
from app.wire.explain_v1 import API_VERSION
from app.wire.pending_v1 import PENDING_POD_LIST, PendingPodList

_LONGEST_NAMESPACE: Final = 63
_MOST_START: Final = 1_000_000
"""Maximum value of the parameter ``start``."""

_NOT_JUDGED: Final = MainReason(0, 0, "", (), 0, 0.0)


class PendingQuery(KnownQuery):
    """Query for a page of the pods that wait."""

    namespace: str = Field(default="", max_length=_LONGEST_NAMESPACE, description="Only the pods of this namespace.")
    label_selector: str = Field(default="", description="Only the pods that it matches; in kubectl's notation.")
    start: int = Field(default=0, ge=0, le=_MOST_START, description="Index of the first pod on the page, from 0.")


def pending_router(pending: PendingPods) -> APIRouter:
    """Create the router. It judges the pods of the verbs' snapshot like explain does, without effect on decisions."""
    router = APIRouter(prefix="/api/v1/pending", tags=["operator"])

    @router.get("", response_model=PendingPodList, responses=FAILURES, summary="Pods that wait for a node, and why")
    async def listed(query: Annotated[PendingQuery, Query()]) -> Response:
        page = await pending.page(query.namespace, query.start, selector_in(query.label_selector))
        end = query.start + MOST_LISTED
        return json_response(
            {
                "apiVersion": API_VERSION,
                "kind": PENDING_POD_LIST,
                "items": [pending_item(it) for it in page.items],
                "total": page.total,
                "next": end if end < page.total else None,
            }
        )

    return router


def pending_item(waiting: WaitingForNode) -> dict[str, Any]:
    """Return a waiting pod as JSON in the form of ``PendingPodItem``."""
    pod, reason = waiting.pod, waiting.reason or _NOT_JUDGED
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "since": waiting.since,
        "schedulerName": pod.spec.scheduler_name,
        "profile": waiting.profile,
        "gated": pod.spec.gated,
        "judged": waiting.reason is not None,
        "feasible": reason.feasible,
        "total": reason.total,
        "plugin": reason.plugin,
        "reasons": reason.reasons,
        "opens": reason.opens,
        "notJudged": reason.not_judged,
        "judgedSecondsAgo": round(max(0.0, time() - reason.judged_at), 1) if waiting.reason else 0.0,
    }
