"""Forwards verb requests to the leader, with unchanged bodies, over persistent connections. A forwarded request is not
forwarded again.

Over TLS (``PeerTls``) both sides present the certificate that all replicas share. So another process at the address of
a former replica is not trusted.

    the leader's answer            consequence
    no connection                  nothing was done: the verb fails (no_leader)
    421                            that replica does not lead, nothing was done: look up the leader again
    none, or only part of one      outcome unknown: the verb fails (no_leader); a bind never reports success
    any other                      passed on to the caller

A request with an unknown outcome is not sent again. If the scheduler retries a bind that is still in flight, the leader
answers both requests with the result of the one bind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Final, Protocol

import structlog

from app.kube.connections import BrokenConnection, Connections, HttpResponse, NotConnected
from app.kube.memo import Newest
from app.kube.quoting import quoted
from app.replicas.replica import NO_LEADER, Route
from app.server.admission import HostsOf
from app.server.incoming import FORWARDED
from app.server.timely import with_margin
from app.server.tls import CertificateError, Peer
from app.telemetry.metrics import Metrics
from app.telemetry.throttle import Throttle
from app.telemetry.tracing import Tracing
from app.verbs.outcome import Outcome, Verb, VerbFailure

_LOG: Final = structlog.get_logger(__name__)

MISDIRECTED: Final = 421
"""HTTP status of the answer to a forwarded request that the receiver cannot decide: it does not lead, or it is handing
over and gets a bind. Only replicas receive this status.
"""

SOON_SECONDS: Final = 1.5
"""Maximum total seconds that a request waits for a new leader."""

_CONNECT_SECONDS: Final = 1.0
"""Maximum seconds of the wait for a free connection to the leader, and of each attempt to open one."""

_MOST_OPEN: Final = 1024
"""Maximum number of open connections to one replica."""

_MOST_PEERS: Final = 3
"""Maximum number of kept pools of connections, one for each pair of address and certificate. Pools of former leaders or
certificates are kept, because requests can still be in flight on them.
"""

_BEFORE_THE_CALLER: Final = 0.02
"""Fraction of the remaining time, but at most half a second, that is reserved to report a missing answer."""

PeerTls = Callable[[], Peer]
"""Returns the current TLS parameters for connections to replicas. Raises ``CertificateError``."""


class RoutingLeadership(Protocol):
    """Part of ``Leadership`` that forwarding uses: where to send a verb, and when that changes."""

    def route(self, *, binds: bool) -> Route:
        """Return where a verb is decided now, see ``Route``. ``binds``: true for bind."""
        ...

    async def changed(self, seconds: float) -> bool:
        """Return ``True`` as soon as the leader might have changed, or ``False`` after ``seconds`` without a change."""
        ...


class Forwarder:
    """Forwards verbs to the leader. ``peer_tls``: source of TLS parameters; ``None`` for plain HTTP.

    ``hosts`` reads the node names of a prioritize request that cannot be forwarded, because its answer gives every node
    the same score.
    """

    def __init__(
        self,
        leadership: RoutingLeadership,
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
        self._peers = Newest[tuple[str, Peer | None], Connections](_MOST_PEERS)
        self._throttle = Throttle(clock=clock)

    async def __call__(
        self, verb: Verb, body: bytes | memoryview, seconds: float, *, hopped: bool, prefix: str = ""
    ) -> tuple[int, bytes, Outcome] | None:
        """Forward a request; return status, body and outcome of the answer. Raises ``VerbFailure`` (``no_leader``).

        Return ``None`` if this replica leads, so that it must decide itself. ``seconds``: time until the caller's
        deadline. ``hopped``: another replica has forwarded the request, so a follower answers it with 421 and does not
        forward it again. ``prefix``: path before the verb.
        """
        until = self._clock() + with_margin(seconds, _BEFORE_THE_CALLER)
        leader_until = min(until, self._clock() + SOON_SECONDS)
        while (route := self._leadership.route(binds=verb == "bind")).where != "here":
            if hopped:
                return MISDIRECTED, b"", "no_leader"
            if route.where == "there":
                answered = await self._send(verb, prefix, body, route, until)
                if answered is not None:
                    return answered.status, answered.body, "forwarded"
            if route.where == "nowhere" or not await self._leadership.changed(leader_until - self._clock()):
                raise await self._failure(verb, body, NO_LEADER)
        return None

    async def _send(
        self, verb: Verb, prefix: str, body: bytes | memoryview, route: Route, until: float
    ) -> HttpResponse | None:
        """Forward to one replica; return ``None`` if it answers 421. Raises ``VerbFailure`` (``no_leader``)."""
        started = perf_counter()
        try:
            answered = await self._traced(f"{prefix}/{verb}", body, route.address, until - self._clock())
        except NotConnected as error:
            self._count(verb, "unreachable")
            raise await self._failure(verb, body, f"the leader cannot be reached: {error}", route) from error
        except (BrokenConnection, TimeoutError) as error:
            self._count(verb, "unanswered")
            raise await self._failure(verb, body, "the leader did not answer", route) from error
        if answered.status == MISDIRECTED:
            self._count(verb, "misdirected")
            return None
        self._count(verb, "answered")
        self._metrics.forward_duration.labels(verb).observe(perf_counter() - started)
        return answered

    async def _traced(self, path: str, body: bytes | memoryview, address: str, seconds: float) -> HttpResponse:
        """Like ``_answer``, within a span if the request is traced."""
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
    ) -> HttpResponse:
        """Send the request and return the answer. ``more``: further headers.

        Raises ``NotConnected``, ``BrokenConnection`` and, after ``seconds``, ``TimeoutError``.
        """
        peer = self._peer(address)
        async with asyncio.timeout(seconds), peer.acquire(min(seconds, _CONNECT_SECONDS)) as connection:
            headers = {"Content-Type": "application/json", FORWARDED: f"{seconds:.3f}", **more}
            return await connection.send(peer.request("POST", path, headers, bytes(body)))

    def _peer(self, address: str) -> Connections:
        """Return the connections to a replica. If an older pool is dropped because of ``_MOST_PEERS``, close it.

        Raises ``NotConnected`` if our certificates or the address cannot be used.
        """
        try:
            tls = None if self._peer_tls is None else self._peer_tls()
            peer = self._peers.get((address, tls)) or _connections(address, tls)
        except CertificateError as error:
            raise NotConnected(str(error)) from None
        except ValueError:
            raise NotConnected(f"its address {quoted(address)} is invalid") from None
        if (forgotten := self._peers.put((address, tls), peer)) is not None:
            forgotten[1].close()
        return peer

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers.values():
            peer.close()

    def _count(self, verb: Verb, outcome: str) -> None:
        self._metrics.forwarded.labels(verb, outcome).inc()

    async def _failure(
        self, verb: Verb, body: bytes | memoryview, message: str, route: Route | None = None
    ) -> VerbFailure:
        """Return the failure of a request that could not be forwarded. If its ``route`` is given, log it, at most once
        a minute for each verb.
        """
        if route is not None and (held_back := self._throttle.admit(verb)) is not None:
            _LOG.warning(
                "request not forwarded",
                verb=verb,
                leader=route.leader,
                address=route.address,
                cause=message,
                since_the_last_line=held_back,
            )
        hosts = await self._hosts(body) if verb == "prioritize" else ()
        return VerbFailure("no_leader", f"homeport: {message}", hosts)


def _connections(address: str, tls: Peer | None) -> Connections:
    """Create the connections to a replica. Raises ``ValueError`` for an invalid address."""
    if tls is None:
        return Connections(f"http://{address}", most=_MOST_OPEN)
    return Connections(f"https://{address}", tls.context, tls.name, most=_MOST_OPEN)


def seconds_left(header: str | None) -> float | None:
    """Parse the header ``FORWARDED``; return the seconds until the caller's deadline: 0 to 3,600, and 0 if invalid.

    Return ``None`` without the header, because the request then comes from a scheduler.
    """
    if header is None:
        return None
    try:
        return max(0.0, min(float(header), 3600.0))
    except ValueError:
        return 0.0
