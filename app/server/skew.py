"""``GET /api/v1/skew``: the topology skew of all workloads; with ``above=true`` only skews larger than maxSkew."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from msgspec.structs import asdict
from pydantic import Field

from app.analysis.skew import Skews, WorkloadSkew
from app.server.bodies import selector_in
from app.server.cycle import FAILURES, json_response
from app.server.queries import KnownQuery, RequireNamespace
from app.wire.explain_v1 import API_VERSION
from app.wire.skew_v1 import WORKLOAD_SKEW_LIST, WorkloadSkewList

_LONGEST_NAME: Final = 253
_MOST_START: Final = 1_000_000
"""Maximum value of the parameter ``start``."""


class SkewQuery(KnownQuery):
    """Query for a page of workloads."""

    namespace: str = Field(default="", max_length=_LONGEST_NAME)
    kind: str = Field(default="", max_length=_LONGEST_NAME, description="Kind of the workload.")
    name: str = Field(default="", max_length=_LONGEST_NAME, description="Name of the workload.")
    label_selector: str = Field(
        default="", description="Only workloads whose latest pod it matches; in kubectl's notation."
    )
    above: bool = Field(default=False, description="True: only skews larger than maxSkew, the largest excess first.")
    start: int = Field(default=0, ge=0, le=_MOST_START, description="Index of the first item on the page, from 0.")


def skew_router(skews: Skews, require_namespace: RequireNamespace) -> APIRouter:
    """Create the router. All readers share one computed list of the skews above maxSkew.

    ``require_namespace`` raises ``VerbFailure`` if a namespace does not exist.
    """
    router = APIRouter(prefix="/api/v1/skew", tags=["operator"])

    @router.get("", response_model=WorkloadSkewList, responses=FAILURES, summary="Topology skew of all workloads")
    async def listed(query: Annotated[SkewQuery, Query()]) -> Response:
        selector = selector_in(query.label_selector)
        if query.namespace:
            require_namespace(query.namespace)
        page = await skews.page(
            query.namespace, query.kind, query.name, query.start, above=query.above, selector=selector
        )
        return json_response(
            {
                "apiVersion": API_VERSION,
                "kind": WORKLOAD_SKEW_LIST,
                "items": [skew_item(it) for it in page.items],
                "total": page.total,
                "countedSecondsAgo": round(page.age, 1),
                "next": page.following,
            }
        )

    return router


def skew_item(skew: WorkloadSkew) -> dict[str, Any]:
    """Return a skew as JSON in the form of ``WorkloadSkewItem``."""
    return {
        "namespace": skew.namespace,
        "kind": skew.kind,
        "name": skew.name,
        "pods": skew.pods,
        "topologyKey": skew.key,
        "whenUnsatisfiable": "DoNotSchedule" if skew.is_hard else "ScheduleAnyway",
        "maxSkew": skew.max_skew,
        "minimum": skew.minimum,
        "skew": skew.skew,
        "above": skew.is_above,
        "domains": [asdict(it) for it in skew.domains],
        "domainCount": skew.domain_count,
        "removedFirst": skew.removed_first,
    }
