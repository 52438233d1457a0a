"""``GET /api/v1/skew``: the topology skew of all workloads, the largest excess first."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from msgspec.structs import asdict

from app.analysis.skew import Skews, WorkloadSkew
from app.framework.handle import Clock
from app.server.cycle import FAILURES, json_response
from app.wire.explain_v1 import API_VERSION
from app.wire.skew_v1 import WORKLOAD_SKEW_LIST, WorkloadSkewList

MOST_LISTED: Final = 500
"""Maximum number of items of one page."""

_LONGEST_NAME: Final = 253
_MOST: Final = 1_000_000


def skew_router(skews: Skews, clock: Clock) -> APIRouter:
    """Create the router. The list is computed once for all readers. ``clock``: that of ``skews``."""
    router = APIRouter(prefix="/api/v1/skew", tags=["operator"])

    @router.get("", response_model=WorkloadSkewList, responses=FAILURES, summary="Topology skew of all workloads")
    async def listed(
        namespace: Annotated[str, Query(max_length=_LONGEST_NAME)] = "",
        kind: Annotated[str, Query(max_length=_LONGEST_NAME)] = "",
        name: Annotated[str, Query(max_length=_LONGEST_NAME)] = "",
        above: bool = False,  # a query parameter
        start: Annotated[int, Query(ge=0, le=_MOST)] = 0,
    ) -> Response:
        current = await skews.current()
        wanted = {"namespace": namespace, "kind": kind, "name": name}
        items = [it for it in current.items if _matches(it, wanted) and (it.is_above or not above)]
        end = start + MOST_LISTED
        return json_response(
            {
                "apiVersion": API_VERSION,
                "kind": WORKLOAD_SKEW_LIST,
                "items": [_item(it) for it in items[start:end]],
                "total": len(items),
                "leftOut": current.left_out,
                "computedSecondsAgo": round(max(0.0, clock() - current.computed_at), 1),
                "next": end if end < len(items) else None,
            }
        )

    return router


def _matches(skew: WorkloadSkew, wanted: dict[str, str]) -> bool:
    return all(not value or getattr(skew, name) == value for name, value in wanted.items())


def _item(skew: WorkloadSkew) -> dict[str, Any]:
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
