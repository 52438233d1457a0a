"""Is it alive, is it ready, how is it doing: for kubelets and Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app.telemetry.metrics import Metrics


def ops_router(problem: Callable[[], str], metrics: Metrics) -> APIRouter:
    """``problem`` says in a sentence why decisions cannot be taken; empty if they can."""
    router = APIRouter(tags=["operations"])

    @router.get("/livez", response_class=PlainTextResponse, summary="The process serves requests")
    async def livez() -> str:
        return "ok\n"

    @router.get("/readyz", response_class=PlainTextResponse, summary="There is a picture to decide on")
    async def readyz() -> Response:
        found = problem()
        return PlainTextResponse(f"{found}\n" if found else "ok\n", status_code=503 if found else 200)

    @router.get("/metrics", summary="Prometheus metrics")
    async def scrape() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router
