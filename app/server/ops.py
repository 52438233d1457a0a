"""Liveness, readiness and metrics, for kubelets and Prometheus."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from time import monotonic
from typing import Annotated, Final

import structlog
from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from app.server.checks import ReadinessCheck, verbose
from app.telemetry.metrics import Metrics
from app.telemetry.snapshot import rendered
from app.verbs.stepwise import run_stepwise

LOG_SECONDS: Final = 3600.0
"""Minimum interval between two log lines about metrics that could not be updated."""

_LOG: Final = structlog.get_logger(__name__)


def ops_router(
    problem: Callable[[], str],
    metrics: Metrics,
    role: Callable[[], str] = str,
    checks: Callable[[], Iterable[ReadinessCheck]] = tuple,
    counting: Callable[[], Iterable[object]] = tuple,
    clock: Callable[[], float] = monotonic,
    stalled: Callable[[], str] = str,
) -> APIRouter:
    """Create the router of ``/livez``, ``/readyz`` and ``/metrics``.

    ``problem`` returns why decisions are impossible; empty if they are possible. ``role`` returns the role of the
    replica; empty for a single process. ``checks`` returns the results for ``/readyz?verbose``. ``counting`` returns
    short steps that update metrics; if a step fails, the last values are exposed. ``stalled`` returns a message
    about a task that fails after every restart; empty if none does.
    """
    router = APIRouter(tags=["operations"])
    log_at = clock()

    def counted() -> Iterator[object]:
        """Run the steps of ``counting``. If one raises an exception, the rest is skipped and the exception is logged,
        at most once per ``LOG_SECONDS``.
        """
        nonlocal log_at
        try:
            yield from counting()
        except Exception as fault:  # noqa: BLE001  # other metrics must still be exposed
            if clock() >= log_at:
                log_at = clock() + LOG_SECONDS
                _LOG.error("metrics not updated", traceback="".join(traceback.format_exception(fault)))

    @router.get("/livez", response_class=PlainTextResponse, summary="Liveness: the process serves and its tasks run")
    async def livez() -> Response:
        task = stalled()
        return PlainTextResponse(f"{task or 'ok'}\n", status_code=503 if task else 200)

    @router.get(
        "/readyz",
        response_class=PlainTextResponse,
        summary="Readiness: the snapshot is complete, and there is a leader",
    )
    async def readyz(
        verbose_parameter: Annotated[
            str | None,
            Query(
                alias="verbose", description="If present, with any value or none, the answer has one line per check."
            ),
        ] = None,
    ) -> Response:
        reason = problem()
        status = 503 if reason else 200
        if verbose_parameter is not None:
            return PlainTextResponse(verbose(checks(), reason), status_code=status)
        if reason:
            return PlainTextResponse(f"{reason}\n", status_code=status)
        return PlainTextResponse(f"ok: {description}\n" if (description := role()) else "ok\n")

    @router.get("/metrics", summary="Prometheus metrics")
    async def scrape() -> Response:
        parts: list[bytes] = []
        await run_stepwise(chain(counted(), rendered(metrics.registry, parts)))
        return Response(b"".join(parts), media_type=CONTENT_TYPE_LATEST)

    return router
