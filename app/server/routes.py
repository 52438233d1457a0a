"""The four verbs of the extender protocol, as raw routes: a body in, a verb, bytes out."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from math import inf
from time import perf_counter
from typing import Final

import structlog
from fastapi import APIRouter
from prometheus_client import Counter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.server.admission import OUT_OF_TIME, READ_WHEN_LATE, Admission
from app.server.errors import OK, failure_answer
from app.server.forward import FORWARDED, MISDIRECTED, Forwarder, seconds_left
from app.server.incoming import Incoming, Streamed
from app.server.protocol import Endpoint
from app.server.spans import VerbSpans
from app.server.timely import OutOfTime, earlier, within
from app.telemetry.metrics import Metrics
from app.telemetry.tracing import Tracing
from app.verbs.outcome import Answer, Outcome, Verb, VerbFailure
from app.wire.extender_v1 import LongBody

_Told = tuple[int, bytes | LongBody, Outcome]
"""Status, body, outcome."""

VerbCall = Callable[..., Awaitable[Answer]]
"""Takes a body; that of bind also the seconds that its caller still waits."""

Verbs = Mapping[Verb, VerbCall]
LEAN: Final = "/lean"
"""Below this prefix, answers leave out what kube-scheduler does not need to read."""

_LOG: Final = structlog.get_logger(__name__)
MOST_BIND_BYTES: Final = 64 << 10
"""Of a bind request: four names. There is no limit to how many may be under way."""

_SAY_AGAIN_SECONDS: Final = 60.0
_JSON: Final = "application/json"
_CONTENT_TYPE: Final = (b"content-type", _JSON.encode())
_BEFORE_THE_FORWARDER: Final = 0.05


def verb_router(
    callers: Mapping[str, Verbs],
    metrics: Metrics,
    admission: Admission,
    *,
    max_body_bytes: int,
    forwarder: Forwarder | None = None,
    tracing: Tracing | None = None,
) -> APIRouter:
    """``POST <prefix>/<verb>`` for each of the verbs that ``callers`` holds by prefix.

    ``forwarder``: where several replicas run, sends on what is not decided here. ``tracing``: where spans are made.
    """
    router = APIRouter()
    for prefix, verbs in callers.items():
        for verb, call in verbs.items():
            endpoint = (
                _Endpoint(verb, call, metrics, admission, max_body_bytes)
                if forwarder is None
                else _LedEndpoint(verb, call, metrics, admission, max_body_bytes, forwarder, prefix)
            )
            if tracing is not None:
                endpoint.spans = VerbSpans(tracing, verb)
            router.routes.append(Route(f"{prefix}/{verb}", endpoint, methods=["POST"], name=f"{prefix}/{verb}"))
    return router


def direct(router: APIRouter) -> dict[str, Endpoint]:
    """The endpoints of a ``verb_router`` by path, for a caller who would rather not be routed."""
    return {it.path: it.app for it in router.routes if isinstance(it, Route) and isinstance(it.app, _Endpoint)}


def _streamed(body: LongBody) -> Response:
    """Put together part by part, and others get their turn in between."""

    async def parts() -> AsyncIterator[bytes]:
        for chunk in body.chunks():
            yield chunk
            await asyncio.sleep(0)

    return StreamingResponse(parts(), media_type=_JSON, headers={"Content-Length": str(body.length)})


class _Endpoint:
    """One verb over HTTP. With ``app.runtime.guard`` the only place of a broad ``except``: the last resort."""

    spans: VerbSpans | None = None

    def __init__(self, verb: Verb, call: VerbCall, metrics: Metrics, admission: Admission, max_body_bytes: int) -> None:
        self._verb = verb
        self._call = call
        self._admission = admission
        self._lane = admission.binding if verb == "bind" else admission.deciding
        self._max_body_bytes = min(max_body_bytes, MOST_BIND_BYTES) if verb == "bind" else max_body_bytes
        self._duration = metrics.request_duration.labels(verb)
        self._requests = metrics.requests
        self._outcomes: dict[str, Counter] = {}
        self._said: dict[str, float] = {}
        self._log = _LOG.bind(verb=verb)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            status, body = await self.answer(Streamed(Request(scope, receive)))
        except ClientDisconnect:
            await Response(status_code=499)(scope, receive, send)
            return
        if isinstance(body, LongBody):
            await _streamed(body)(scope, receive, send)
            return
        headers = [(b"content-length", b"%d" % len(body)), _CONTENT_TYPE]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def answer(self, request: Incoming) -> tuple[int, bytes | LongBody]:
        """Status and body. Raises ``ClientDisconnect``."""
        started = perf_counter()
        spans = self.spans
        status, body, outcome = await (self._answer(request) if spans is None else spans.around(request, self._answer))
        self._duration.observe(perf_counter() - started)
        self._count(outcome)
        return status, body

    def forbidden(self, message: str) -> tuple[int, bytes]:
        """Status and body for a request that the listener does not let through."""
        self._count("forbidden")
        return failure_answer(self._verb, VerbFailure("forbidden", message))

    def _count(self, outcome: str) -> None:
        counter = self._outcomes.get(outcome)
        if counter is None:
            counter = self._outcomes[outcome] = self._requests.labels(self._verb, outcome)
        counter.inc()

    def _deadline(self, request: Incoming) -> float:
        return self._admission.deadline(request.arrived, verb=self._verb)

    def _say_failed(self, failure: VerbFailure) -> None:
        """What keeps coming, or is made to, is not logged line by line."""
        now = perf_counter()
        if now - self._said.get(failure.outcome, -inf) >= _SAY_AGAIN_SECONDS:
            self._said[failure.outcome] = now
            self._log.info("verb failed", outcome=failure.outcome, message=failure.message)
        else:
            self._log.debug("verb failed", outcome=failure.outcome, message=failure.message)

    async def _elsewhere(self, _request: Incoming, _body: bytes | memoryview, _deadline: float) -> _Told | None:
        """The answer of another replica; ``None``: it is decided here. Raises ``VerbFailure``."""
        return None

    async def _decided(self, request: Incoming) -> _Told:
        """By the deadline. Raises ``VerbFailure``."""
        deadline = self._deadline(request)
        try:
            self._lane.enter()
        except VerbFailure as failure:
            raise VerbFailure(failure.outcome, failure.message, await self._hosts_unread(request, deadline)) from None
        body: bytes | memoryview = b""

        async def decide() -> _Told | None:
            nonlocal body
            body = await request.body(self._max_body_bytes)
            told = await self._elsewhere(request, body, deadline)
            if told is not None:
                return told
            await self._lane.turn()
            if self._admission.left(deadline) <= 0:
                return None
            left = (self._admission.left(deadline),) if self._verb == "bind" else ()
            answer = await self._call(body, *left)
            return OK, answer.body, answer.outcome

        try:
            told = await within(self._admission.left(deadline), decide())
        except OutOfTime:
            told = None
        finally:
            self._lane.leave()
        if told is None:
            raise VerbFailure("out_of_time", OUT_OF_TIME, await self._hosts(body))
        return told

    async def _hosts_unread(self, request: Incoming, deadline: float) -> Sequence[str]:
        """As far as the answer needs them and they cost little."""
        if self._verb != "prioritize" or self._admission.late_reads.locked():
            return ()
        try:
            async with self._admission.late_reads, asyncio.timeout(self._admission.left(deadline)):
                body = await request.body(min(self._max_body_bytes, READ_WHEN_LATE))
        except (VerbFailure, TimeoutError):
            return ()
        return await self._hosts(body)

    async def _hosts(self, body: bytes | memoryview) -> Sequence[str]:
        if self._verb != "prioritize" or len(body) > READ_WHEN_LATE:
            return ()
        return await self._admission.hosts_of(body)

    async def _answer(self, request: Incoming) -> _Told:
        try:
            status, body, outcome = await self._decided(request)
        except VerbFailure as failure:
            self._say_failed(failure)
            return *failure_answer(self._verb, failure), failure.outcome
        except ClientDisconnect:
            raise
        except Exception as fault:  # noqa: BLE001  # the last resort: see the class
            self._log.error("internal error", traceback="".join(traceback.format_exception(fault)))
            return *failure_answer(self._verb, VerbFailure("fault", "homeport: internal error")), "fault"
        self._log.debug("answered", outcome=outcome)
        return status, body, outcome


class _LedEndpoint(_Endpoint):
    """A verb where one of several replicas decides."""

    def __init__(
        self,
        verb: Verb,
        call: VerbCall,
        metrics: Metrics,
        admission: Admission,
        max_body_bytes: int,
        forwarder: Forwarder,
        prefix: str,
    ) -> None:
        super().__init__(verb, call, metrics, admission, max_body_bytes)
        self._forwarder = forwarder
        self._prefix = prefix

    def _deadline(self, request: Incoming) -> float:
        """What a replica sent here is answered before that one gives up."""
        left = seconds_left(request.header(FORWARDED))
        seconds = inf if left is None else earlier(left, _BEFORE_THE_FORWARDER)
        return self._admission.deadline(request.arrived, seconds, verb=self._verb)

    async def _elsewhere(self, request: Incoming, body: bytes | memoryview, deadline: float) -> _Told | None:
        hopped = seconds_left(request.header(FORWARDED)) is not None
        seconds = self._admission.left(deadline)
        sent = await self._forwarder(self._verb, body, seconds, hopped=hopped, prefix=self._prefix)
        if sent is None:
            return None
        status, found = sent
        return status, found, "no_leader" if status == MISDIRECTED else "forwarded"
