"""The four verbs of the extender protocol, as raw routes: a body in, a verb, bytes out."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Final

import structlog
from fastapi import APIRouter
from prometheus_client import Counter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.server.admission import OUT_OF_TIME, READ_WHEN_LATE, Admission
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


def verb_router(
    callers: Mapping[str, Verbs], metrics: Metrics, admission: Admission, *, max_body_bytes: int
) -> APIRouter:
    """``POST <prefix>/<verb>`` for each of the verbs that ``callers`` holds by prefix."""
    router = APIRouter()
    for prefix, verbs in callers.items():
        for verb, call in verbs.items():
            endpoint = _Endpoint(verb, call, metrics, admission, max_body_bytes)
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

    def __init__(self, verb: Verb, call: VerbCall, metrics: Metrics, admission: Admission, max_body_bytes: int) -> None:
        self._verb = verb
        self._call = call
        self._admission = admission
        self._lane = admission.binding if verb == "bind" else admission.deciding
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

    async def _decided(self, request: Request) -> Answer:
        """By the deadline. Raises ``VerbFailure``."""
        deadline = self._admission.deadline(request.scope)
        try:
            self._lane.enter()
        except VerbFailure as failure:
            raise VerbFailure(failure.outcome, failure.message, await self._hosts_unread(request, deadline)) from None
        body: bytes | memoryview = b""
        limit = asyncio.timeout(self._admission.left(deadline))
        try:
            async with limit:
                body = await read_body(request, self._max_body_bytes)
                await self._lane.turn()
                if self._admission.left(deadline) > 0:
                    return await self._call(body)
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._lane.leave()
        raise VerbFailure("out_of_time", OUT_OF_TIME, await self._hosts(body))

    async def _hosts_unread(self, request: Request, deadline: float) -> Sequence[str]:
        """As far as the answer needs them and they cost little."""
        if self._verb != "prioritize":
            return ()
        try:
            async with asyncio.timeout(self._admission.left(deadline)):
                body = await read_body(request, min(self._max_body_bytes, READ_WHEN_LATE))
        except (VerbFailure, TimeoutError):
            return ()
        return await self._hosts(body)

    async def _hosts(self, body: bytes | memoryview) -> Sequence[str]:
        if self._verb != "prioritize" or len(body) > READ_WHEN_LATE:
            return ()
        return await self._admission.hosts_of(body)

    async def _answer(self, request: Request) -> tuple[int, bytes | LongBody, str]:
        try:
            answer = await self._decided(request)
        except VerbFailure as failure:
            log = _LOG.debug if failure.outcome == "overloaded" else _LOG.info  # a flood is not logged line by line
            log("verb failed", verb=self._verb, outcome=failure.outcome, message=failure.message)
            return *failure_answer(self._verb, failure), failure.outcome
        except ClientDisconnect:
            raise
        except Exception as fault:  # noqa: BLE001  # the last resort: see the class
            _LOG.error("internal error", verb=self._verb, traceback="".join(traceback.format_exception(fault)))
            return *failure_answer(self._verb, VerbFailure("fault", "homeport: internal error")), "fault"
        _LOG.debug("answered", verb=self._verb, outcome=answer.outcome)
        return OK, answer.body, answer.outcome
