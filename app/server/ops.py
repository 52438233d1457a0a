"""Is it alive, is it ready, how is it doing: for kubelets and Prometheus."""

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

from app.server.checks import Check, verbose
from app.telemetry.metrics import Metrics
from app.telemetry.picture import rendered
from app.verbs.slices import in_slices

TOLD_SECONDS: Final = 3600.0
"""Between two lines of the log about figures that cannot be counted."""

_LOG: Final = structlog.get_logger(__name__)


def ops_router(
    problem: Callable[[], str],
    metrics: Metrics,
    role: Callable[[], str] = str,
    checks: Callable[[], Iterable[Check]] = tuple,
    counting: Callable[[], Iterable[object]] = tuple,
    clock: Callable[[], float] = monotonic,
    stalled: Callable[[], str] = str,
) -> APIRouter:
    """``problem`` says in a sentence why decisions cannot be taken; empty if they can. ``role``: of which replica.

    ``checks`` are the lines of ``/readyz?verbose``. ``counting`` are the short steps in which metrics are brought up to
    date; where one of them fails, what was counted last is exposed. ``stalled`` names a task that cannot be restarted.
    """
    router = APIRouter(tags=["operations"])
    tell_at = clock()

    def counted() -> Iterator[object]:
        """A fault in what is counted takes no other metric with it, and is told now and then."""
        nonlocal tell_at
        try:
            yield from counting()
        except Exception as fault:  # noqa: BLE001  # whatever it is: a scrape without these figures is worth more than none
            if clock() >= tell_at:
                tell_at = clock() + TOLD_SECONDS
                _LOG.error("figures not counted", traceback="".join(traceback.format_exception(fault)))

    @router.get("/livez", response_class=PlainTextResponse, summary="The process serves, and its tasks run")
    async def livez() -> Response:
        found = stalled()
        return PlainTextResponse(f"{found or 'ok'}\n", status_code=503 if found else 200)

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
        await in_slices(chain(counted(), rendered(metrics.registry, parts)))
        return Response(b"".join(parts), media_type=CONTENT_TYPE_LATEST)

    return router
