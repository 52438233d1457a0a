"""Is it alive, is it ready, how is it doing: for kubelets and Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from app.server.checks import Check, verbose
from app.telemetry.metrics import Metrics
from app.telemetry.picture import rendered
from app.verbs.slices import in_slices


def ops_router(
    problem: Callable[[], str],
    metrics: Metrics,
    role: Callable[[], str] = str,
    checks: Callable[[], Iterable[Check]] = tuple,
    counting: Callable[[], Iterable[object]] = tuple,
) -> APIRouter:
    """``problem`` says in a sentence why decisions cannot be taken; empty if they can. ``role``: of which replica.

    ``checks`` are the lines of ``/readyz?verbose``. ``counting`` are the short steps in which metrics are brought up to
    date.
    """
    router = APIRouter(tags=["operations"])

    @router.get("/livez", response_class=PlainTextResponse, summary="The process serves requests")
    async def livez() -> str:
        return "ok\n"

    @router.get("/readyz", response_class=PlainTextResponse, summary="There is a picture to decide on, and a leader")
    async def readyz(
        asked: Annotated[str | None, Query(alias="verbose", description="Any value, or none: a line a check.")] = None,
    ) -> Response:
        found = problem()
        status = 503 if found else 200
        if asked is not None:
            return PlainTextResponse(verbose(checks(), found), status_code=status)
        if found:
            return PlainTextResponse(f"{found}\n", status_code=status)
        return PlainTextResponse(f"ok: {told}\n" if (told := role()) else "ok\n")

    @router.get("/metrics", summary="Prometheus metrics")
    async def scrape() -> Response:
        parts: list[bytes] = []
        await in_slices(chain(counting(), rendered(metrics.registry, parts)))
        return Response(b"".join(parts), media_type=CONTENT_TYPE_LATEST)

    return router
