"""Is it alive, is it ready, how is it doing: for kubelets and Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app.telemetry.metrics import Metrics


def ops_router(problem: Callable[[], str], metrics: Metrics, role: Callable[[], str] = str) -> APIRouter:
    """``problem`` says in a sentence why decisions cannot be taken; empty if they can. ``role``: of which replica."""
    router = APIRouter(tags=["operations"])

    @router.get("/livez", response_class=PlainTextResponse, summary="The process serves requests")
    async def livez() -> str:
        return "ok\n"

    @router.get("/readyz", response_class=PlainTextResponse, summary="There is a picture to decide on, and a leader")
    async def readyz() -> Response:
        found = problem()
        if found:
            return PlainTextResponse(f"{found}\n", status_code=503)
        return PlainTextResponse(f"ok: {told}\n" if (told := role()) else "ok\n")

    @router.get("/metrics", summary="Prometheus metrics")
    async def scrape() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router
