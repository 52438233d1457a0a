"""Sends a verb on to the replica that leads: the body as it came, one hop, over connections that stay open.

Over TLS (``PeerTls``) both sides show the certificate that all replicas share: an address that belongs to somebody else
by now is nobody to speak to.

    no connection could be had     nothing was done: no_leader
    421                            it does not lead (any more), nothing was done: look again who does
    no answer, or half of one      not known what was done: no_leader, and bind never says success
    anything else                  passed on

Nothing is sent twice to the same leader: the scheduler asks again, and a bind that goes on there is joined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Final, Protocol

import structlog

from app.kube.connections import Answered, BrokenConnection, Connections, NotConnected
from app.kube.memo import Newest
from app.kube.quoting import quoted
from app.replicas.replica import NO_LEADER, Route
from app.server.admission import HostsOf
from app.server.incoming import FORWARDED
from app.server.timely import earlier
from app.server.tls import CertificateError, Peer
from app.telemetry.metrics import Metrics
from app.telemetry.throttle import Throttle
from app.telemetry.tracing import Tracing
from app.verbs.outcome import Outcome, Verb, VerbFailure

_LOG: Final = structlog.get_logger(__name__)

MISDIRECTED: Final = 421
"""What a replica answers to a forwarded request while it does not lead. No caller but a replica ever sees it."""

SOON_SECONDS: Final = 1.5
"""How long a request is kept waiting while one leader has gone and the next one has not come."""

_CONNECT_SECONDS: Final = 1.0
_MOST_OPEN: Final = 1024
_KEPT: Final = 3
"""Leaders whose connections are kept: the one there is, and those whose requests may still be under way."""

_BEFORE_THE_CALLER: Final = 0.02
"""Part of the time that is left by which an answer that has not come is told, and counted, to be missing."""

PeerTls = Callable[[], Peer]
"""How to speak to a replica now. Raises ``CertificateError``."""


class Leadership(Protocol):
    """Who decides."""

    def route(self, *, binds: bool) -> Route: ...

    async def changed(self, seconds: float) -> bool:
        """Wait until who leads may have changed; ``False``: not in so many seconds."""
        ...


class Forwarder:
    """``hosts`` reads the names that a prioritize request asks about: without a leader all get the same score.

    ``peer_tls``: how replicas speak TLS to each other; ``None``: they do not.
    """

    def __init__(
        self,
        leadership: Leadership,
        metrics: Metrics,
        hosts: HostsOf,
        *,
        clock: Callable[[], float],
        peer_tls: PeerTls | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._leadership = leadership
        self._metrics = metrics
        self._hosts = hosts
        self._clock = clock
        self._peer_tls = peer_tls
        self._tracing = tracing
        self._peers = Newest[tuple[str, Peer | None], Connections](_KEPT)
        self._throttle = Throttle(clock=clock)

    async def __call__(
        self, verb: Verb, body: bytes | memoryview, seconds: float, *, hopped: bool, prefix: str = ""
    ) -> tuple[int, bytes, Outcome] | None:
        """The leader's status and body, and the outcome here; ``None``: decide. ``seconds`` are left to the caller.

        ``hopped``: a replica sent it here. ``prefix``: what precedes the verb in its path. Raises ``VerbFailure``
        (``no_leader``).
        """
        until = self._clock() + earlier(seconds, _BEFORE_THE_CALLER)
        patient_until = min(until, self._clock() + SOON_SECONDS)
        while (route := self._leadership.route(binds=verb == "bind")).where != "here":
            if hopped:
                return MISDIRECTED, b"", "no_leader"
            if route.where == "there":
                answered = await self._send(verb, prefix, body, route, until)
                if answered is not None:
                    return answered.status, answered.body, "forwarded"
            if route.where == "nowhere" or not await self._leadership.changed(patient_until - self._clock()):
                raise await self._failure(verb, body, NO_LEADER)
        return None

    async def _send(
        self, verb: Verb, prefix: str, body: bytes | memoryview, route: Route, until: float
    ) -> Answered | None:
        """``None``: it does not lead. Raises ``VerbFailure``."""
        started = perf_counter()
        try:
            answered = await self._traced(f"{prefix}/{verb}", body, route.address, until - self._clock())
        except NotConnected as error:
            self._note(verb, "unreachable")
            raise await self._failure(verb, body, f"the leader cannot be reached: {error}", route) from error
        except (BrokenConnection, TimeoutError) as error:
            self._note(verb, "unanswered")
            raise await self._failure(verb, body, "the leader did not answer", route) from error
        if answered.status == MISDIRECTED:
            self._note(verb, "misdirected")
            return None
        self._note(verb, "answered")
        self._metrics.forward_duration.labels(verb).observe(perf_counter() - started)
        return answered

    async def _traced(self, path: str, body: bytes | memoryview, address: str, seconds: float) -> Answered:
        span = None if self._tracing is None else self._tracing.outgoing(f"forward {path}")
        if span is None:
            return await self._answer(path, body, address, seconds, {})
        with span:
            span.tell({"server.address": address})
            answered = await self._answer(path, body, address, seconds, span.headers)
            span.tell({"http.response.status_code": answered.status})
            return answered

    async def _answer(
        self, path: str, body: bytes | memoryview, address: str, seconds: float, more: Mapping[str, str]
    ) -> Answered:
        peer = self._peer(address)
        async with asyncio.timeout(seconds), peer.taken(min(seconds, _CONNECT_SECONDS)) as connection:
            headers = {"Content-Type": "application/json", FORWARDED: f"{seconds:.3f}", **more}
            return await connection.send(peer.request("POST", path, headers, bytes(body)))

    def _peer(self, address: str) -> Connections:
        try:
            tls = None if self._peer_tls is None else self._peer_tls()
            peer = self._peers.get((address, tls)) or _connections(address, tls)
        except CertificateError as error:
            raise NotConnected(str(error)) from None
        except ValueError:
            raise NotConnected(f"its address is {quoted(address)}") from None
        if (forgotten := self._peers.put((address, tls), peer)) is not None:
            forgotten[1].close()
        return peer

    def close(self) -> None:
        """Close every connection."""
        for peer in self._peers.values():
            peer.close()

    def _note(self, verb: Verb, outcome: str) -> None:
        self._metrics.forwarded.labels(verb, outcome).inc()

    async def _failure(
        self, verb: Verb, body: bytes | memoryview, message: str, route: Route | None = None
    ) -> VerbFailure:
        if route is not None and (held_back := self._throttle.admit(verb)) is not None:
            _LOG.warning(
                "not forwarded",
                verb=verb,
                leader=route.leader,
                address=route.address,
                cause=message,
                since_the_last_line=held_back,
            )
        hosts = await self._hosts(body) if verb == "prioritize" else ()
        return VerbFailure("no_leader", f"homeport: {message}", hosts)


def _connections(address: str, tls: Peer | None) -> Connections:
    """Raises ``ValueError`` for an address that is none."""
    if tls is None:
        return Connections(f"http://{address}", most=_MOST_OPEN)
    return Connections(f"https://{address}", tls.context, tls.name, most=_MOST_OPEN)


def seconds_left(told: str | None) -> float | None:
    """How long the caller still waits, by the header ``FORWARDED``; ``None``: it came from the scheduler itself."""
    if told is None:
        return None
    try:
        return max(0.0, min(float(told), 3600.0))
    except ValueError:
        return 0.0
