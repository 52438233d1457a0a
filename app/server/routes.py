"""The four verbs of the extender protocol over HTTP.

Requests reach ``Endpoint.answer`` in two ways: by the fast path of ``protocol`` if they are received completely, and
otherwise by a route of FastAPI. FastAPI itself rejects other methods, and redirects paths with a trailing slash.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import cache, partial
from time import perf_counter
from typing import Final

import structlog
from fastapi import APIRouter
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from app.server.admission import OUT_OF_TIME, READ_WHEN_LATE, Admission
from app.server.errors import OK, failure_answer
from app.server.forward import Forwarder, seconds_left
from app.server.incoming import FORWARDED, Endpoint, StreamedRequest, VerbRequest
from app.server.openapi import operation
from app.server.spans import VerbAnswer, VerbSpans
from app.server.timely import OutOfTime, with_margin, within
from app.telemetry.metrics import Metrics
from app.telemetry.throttle import Throttle
from app.telemetry.tracing import Tracing
from app.verbs.outcome import Answer, Verb, VerbFailure
from app.wire.extender_answers import LongBody

VerbCall = Callable[..., Awaitable[Answer]]
"""Function of a verb, which gets the body of a request and returns the answer. The function of bind also gets the
seconds until the caller's deadline.
"""

Verbs = Mapping[Verb, VerbCall]
"""Functions of the verbs below one path prefix, by verb."""

LEAN: Final = "/lean"
"""Path prefix of the verbs with lean answers, which leave out what kube-scheduler does not need (``docs/wire.md``)."""

MOST_BIND_BYTES: Final = 64 << 10
"""Maximum bytes of a bind request, which has only a UID and three names. The limit is low, because the number of binds
in flight is not limited.
"""

_LOG: Final = structlog.get_logger(__name__)
_JSON: Final = "application/json"
_BEFORE_THE_FORWARDER: Final = 0.05
"""Fraction of the time until the forwarder's deadline that is kept for sending the answer (see ``with_margin``)."""


def verb_endpoints(
    callers: Mapping[str, Verbs],
    metrics: Metrics,
    admission: Admission,
    *,
    max_body_bytes: int,
    forwarder: Forwarder | None = None,
    tracing: Tracing | None = None,
) -> dict[str, Endpoint]:
    """Create the endpoints; return them by path, ``<prefix>/<verb>``. ``callers``: ``Verbs`` by prefix.

    ``forwarder``: forwards to the leader; ``None`` for a single process. ``tracing``: source of spans; ``None`` without
    tracing.
    """
    made = partial(_Endpoint, metrics, admission, max_body_bytes, forwarder, tracing)
    return {
        f"{prefix}/{verb}": made(verb, call, prefix)
        for prefix, verbs in callers.items()
        for verb, call in verbs.items()
    }


def verb_router(endpoints: Mapping[str, Endpoint]) -> APIRouter:
    """Create a router with a route to each endpoint, for requests that do not take the fast path."""
    router = APIRouter(tags=["extender"])
    for path, endpoint in endpoints.items():
        router.add_api_route(path, _routed(endpoint), methods=["POST"], name=path[1:], **operation(path))
    return router


def _routed(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        status, body = await endpoint.answer(StreamedRequest(request))
        return _streamed(body) if isinstance(body, LongBody) else Response(body, status, media_type=_JSON)

    return respond


def _streamed(body: LongBody) -> Response:
    """Return a response that sends a long answer in chunks, so that other requests run in between."""

    async def parts() -> AsyncIterator[bytes]:
        for chunk in body.chunks():
            yield chunk
            await asyncio.sleep(0)

    return StreamingResponse(parts(), media_type=_JSON, headers={"Content-Length": str(body.length)})


class _Endpoint:
    """Endpoint of one verb. It answers every request of a connected client, also after an unexpected exception."""

    def __init__(
        self,
        metrics: Metrics,
        admission: Admission,
        max_body_bytes: int,
        forwarder: Forwarder | None,
        tracing: Tracing | None,
        verb: Verb,
        call: VerbCall,
        prefix: str,
    ) -> None:
        self._verb = verb
        self._prefix = prefix
        self._call = call
        self._admission = admission
        self._seconds = admission.time_limit(verb)
        self._lane = admission.binding if verb == "bind" else admission.deciding
        self._max_body_bytes = min(max_body_bytes, MOST_BIND_BYTES) if verb == "bind" else max_body_bytes
        self._forwarder = forwarder
        self._spans = None if tracing is None else VerbSpans(tracing, verb)
        self._duration = metrics.request_duration.labels(verb)
        self._counter = cache(partial(metrics.requests.labels, verb))
        self._answered = metrics.batched(self._count)
        self._throttle = Throttle(clock=perf_counter)
        self._log = _LOG.bind(verb=verb)

    async def answer(self, request: VerbRequest) -> tuple[int, bytes | LongBody]:
        """Answer a request; return status and body. Raises ``ClientDisconnect``."""
        started = perf_counter()
        spans = self._spans
        status, body, outcome = await (
            self._answered_or_failed(request) if spans is None else spans.around(request, self._answered_or_failed)
        )
        self._answered((outcome, perf_counter() - started))
        return status, body

    def _count(self, answered: tuple[str, float]) -> None:
        outcome, seconds = answered
        self._duration.observe(seconds)
        self._counter(outcome).inc()

    def forbidden(self, message: str) -> tuple[int, bytes]:
        """Count a request that the listener does not allow; return status and body of its answer."""
        self._counter("forbidden").inc()
        return failure_answer(self._verb, VerbFailure("forbidden", message))

    async def _answered_or_failed(self, request: VerbRequest) -> VerbAnswer:
        try:
            status, body, outcome = await self._decided(request)
        except VerbFailure as failure:
            self._log_failure(failure)
            return *failure_answer(self._verb, failure), failure.outcome
        except ClientDisconnect:
            raise
        except Exception as fault:  # noqa: BLE001  # every request is answered
            if (held_back := self._throttle.admit("internal error")) is not None:
                trace = "".join(traceback.format_exception(fault))
                self._log.error("internal error", traceback=trace, since_the_last_line=held_back)
            return *failure_answer(self._verb, VerbFailure("fault", "homeport: internal error")), "fault"
        self._log.debug("answered", outcome=outcome)
        return status, body, outcome

    def _log_failure(self, failure: VerbFailure) -> None:
        """Log a failure at info. Within a minute, further failures with the same outcome are logged at debug."""
        if self._throttle.admit(failure.outcome) is None:
            self._log.debug("verb failed", outcome=failure.outcome, message=failure.message)
        else:
            self._log.info("verb failed", outcome=failure.outcome, message=failure.message)

    async def _decided(self, request: VerbRequest) -> VerbAnswer:
        """Return the leader's answer, or decide on this replica, before the deadline.

        Raises ``VerbFailure`` and ``ClientDisconnect``.
        """
        hop, seconds = None, self._seconds
        if self._forwarder is not None:
            hop = seconds_left(request.header(FORWARDED))
            seconds = seconds if hop is None else min(seconds, with_margin(hop, _BEFORE_THE_FORWARDER))
        deadline = self._admission.deadline(request.arrived, seconds)
        try:
            self._lane.enter()
        except VerbFailure as failure:
            raise VerbFailure(failure.outcome, failure.message, await self._hosts_unread(request, deadline)) from None
        body: bytes | memoryview = b""
        binds = self._verb == "bind"

        async def decide() -> VerbAnswer:
            nonlocal body
            body = await (self._short_body(request) if binds else request.body(self._max_body_bytes))
            if self._forwarder is not None:
                seconds = self._admission.left(deadline)
                forwarded = await self._forwarder(
                    self._verb, body, seconds, hopped=hop is not None, prefix=self._prefix
                )
                if forwarded is not None:
                    return forwarded
            await self._admission.wait_turn(self._lane, deadline)
            answer = await (self._call(body, self._admission.left(deadline)) if binds else self._call(body))
            return OK, answer.body, answer.outcome

        try:
            return await within(self._admission.left(deadline), decide())
        except OutOfTime:
            pass  # VerbFailure is raised below, after leaving the lane
        finally:
            self._lane.leave()
        raise VerbFailure("out_of_time", OUT_OF_TIME, await self._hosts(body))

    async def _short_body(self, request: VerbRequest) -> bytes | memoryview:
        """Read the body of a bind within ``Admission.seconds``, which can be shorter than the time limit of a bind.

        Raises ``VerbFailure``, ``OutOfTime`` and ``ClientDisconnect``.
        """
        reading = request.body(self._max_body_bytes)
        until = self._admission.deadline(request.arrived, self._admission.seconds)
        return await within(self._admission.left(until), reading)

    async def _hosts_unread(self, request: VerbRequest, deadline: float) -> Sequence[str]:
        """Return the hosts of a prioritize request that is rejected for overload before its body is read.

        Its answer scores each host 0. Return no hosts for other verbs, nor if the body is long, late or malformed, or
        if ``MOST_LATE_READS`` bodies are being read. Raises ``ClientDisconnect``.
        """
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
