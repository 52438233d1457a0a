"""The four verbs of the extender protocol, as raw routes: a body in, a verb, bytes out."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from time import perf_counter
from typing import Final

import structlog
from fastapi import APIRouter
from prometheus_client import Counter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.server.errors import OK, failure_answer
from app.server.limits import read_body
from app.telemetry.metrics import Metrics
from app.verbs.outcome import Answer, Verb, VerbFailure
from app.wire.extender_v1 import LongBody

VerbCall = Callable[[bytes | memoryview], Awaitable[Answer]]
Verbs = Mapping[Verb, VerbCall]
LEAN: Final = "/lean"
"""Below this prefix, answers leave out what kube-scheduler does not need to read."""

_LOG: Final = structlog.get_logger(__name__)
_JSON: Final = "application/json"
_CONTENT_TYPE: Final = (b"content-type", _JSON.encode())


def verb_router(callers: Mapping[str, Verbs], metrics: Metrics, *, max_body_bytes: int) -> APIRouter:
    """``POST <prefix>/<verb>`` for each of the verbs that ``callers`` holds by prefix."""
    router = APIRouter()
    for prefix, verbs in callers.items():
        for verb, call in verbs.items():
            endpoint = _Endpoint(verb, call, metrics, max_body_bytes)
            router.routes.append(Route(f"{prefix}/{verb}", endpoint, methods=["POST"], name=f"{prefix}/{verb}"))
    return router


def direct(router: APIRouter) -> dict[str, ASGIApp]:
    """The endpoints of a ``verb_router`` by path, for a caller who would rather not be routed."""
    return {it.path: it.app for it in router.routes if isinstance(it, Route)}


def _streamed(body: LongBody) -> Response:
    """Put together part by part, and others get their turn in between."""

    async def parts() -> AsyncIterator[bytes]:
        for chunk in body.chunks():
            yield chunk
            await asyncio.sleep(0)

    return StreamingResponse(parts(), media_type=_JSON, headers={"Content-Length": str(body.length)})


class _Endpoint:
    """One verb over HTTP. With ``app.runtime.guard`` the only place of a broad ``except``: the last resort."""

    def __init__(self, verb: Verb, call: VerbCall, metrics: Metrics, max_body_bytes: int) -> None:
        self._verb = verb
        self._call = call
        self._max_body_bytes = max_body_bytes
        self._duration = metrics.request_duration.labels(verb)
        self._requests = metrics.requests
        self._outcomes: dict[str, Counter] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        try:
            status, body, outcome = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            await Response(status_code=499)(scope, receive, send)
            return
        self._duration.observe(perf_counter() - started)
        self._count(outcome)
        if isinstance(body, LongBody):
            await _streamed(body)(scope, receive, send)
            return
        headers = [(b"content-length", b"%d" % len(body)), _CONTENT_TYPE]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _count(self, outcome: str) -> None:
        counter = self._outcomes.get(outcome)
        if counter is None:
            counter = self._outcomes[outcome] = self._requests.labels(self._verb, outcome)
        counter.inc()

    async def _answer(self, request: Request) -> tuple[int, bytes | LongBody, str]:
        try:
            answer = await self._call(await read_body(request, self._max_body_bytes))
        except VerbFailure as failure:
            _LOG.info("verb failed", verb=self._verb, outcome=failure.outcome, message=failure.message)
            return *failure_answer(self._verb, failure), failure.outcome
        except ClientDisconnect:
            raise
        except Exception as fault:  # noqa: BLE001  # the last resort: see the class
            _LOG.error("internal error", verb=self._verb, traceback="".join(traceback.format_exception(fault)))
            return *failure_answer(self._verb, VerbFailure("fault", "homeport: internal error")), "fault"
        _LOG.debug("answered", verb=self._verb, outcome=answer.outcome)
        return OK, answer.body, answer.outcome
