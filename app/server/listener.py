"""Listener on one address: accepts connections within a limit, with or without TLS, and with its access rules.

Not here: the HTTP protocol on a connection (``protocol``).
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import itemgetter
from time import monotonic
from typing import Any, Final

import structlog

from app.server.access import ListenerAccess
from app.server.heads import KnownHead
from app.server.tls import Certificates
from app.telemetry.background import Background
from app.telemetry.throttle import Throttle

_LOG: Final = structlog.get_logger(__name__)

_BACKLOG: Final = 2048
"""Maximum number of connections that the kernel queues until they are accepted."""

HEAD_SECONDS: Final = 10.0
"""Maximum seconds until the headers of a request are received completely. They count from the request's first byte. For
the first request they count from the accept of its connection, so they include the TLS handshake.
"""

_ACCEPT_AGAIN_SECONDS: Final = 0.5
"""Delay before the next accept after a failed one, for example because the limit of open files is reached."""

_HANDSHAKE_FAILED: Final = (OSError, RuntimeError)
"""Exceptions of a failed handshake. uvloop raises ``RuntimeError`` if the connection is closed during the handshake."""


class AcceptedConnection(asyncio.Protocol):
    """Interface to the protocol of a connection, which the listener can close in favor of a new one."""

    @property
    def answered(self) -> bool:
        """True if a request was answered on the connection."""
        raise NotImplementedError

    @property
    def waiting_since(self) -> float | None:
        """Time since which the connection waits for its client, on ``monotonic``; ``None`` while Homeport computes an
        answer, or sends one that the client reads.
        """
        raise NotImplementedError

    def give_way(self) -> None:
        """Abort the connection at once. No effect during the TLS handshake, which the listener itself aborts."""
        raise NotImplementedError


ConnectionFactory = Callable[[], AcceptedConnection]
"""Creates the protocol of a connection. The protocol must call ``Listener.leave`` when the connection ends."""

RejectionCallback = Callable[[str, str], None]
"""Callback for each connection or request that is rejected or ended early: name of the listener, and cause."""


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 picks a free port. Raises ``OSError`` with the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


def allow_open_files(wanted: int) -> None:
    """Raise the soft limit of RLIMIT_NOFILE to ``wanted``. If the hard limit is lower, use the hard limit and log a
    warning.

    The soft limit is often only 1,024, and each connection needs a file descriptor.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        _LOG.warning("limit of open files too low", wanted=wanted, allowed=allowed)


class Listener:
    """Listener that passes requests allowed by ``access`` to ``web``, on at most ``most`` connections.

    Further connections are rejected. But with ``gives_way``, a further connection replaces one that waits for its
    client, so that idle clients cannot block probes. The listener of verbs does not use ``gives_way``, because Go does
    not resend a POST on a lost connection. ``heads``: cached heads of requests that took the fast path, by request
    line.
    """

    def __init__(
        self,
        listening: socket.socket,
        web: Any,
        access: ListenerAccess,
        *,
        most: int,
        gives_way: bool = False,
        certificates: Certificates | None = None,
        on_rejected: RejectionCallback = lambda _listener, _cause: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.socket = listening
        self.web = web
        self.access = access
        self.certificates = certificates
        self.most = most
        self.heads: dict[bytes, KnownHead[Any]] = {}
        self._gives_way = gives_way
        self._open: dict[AcceptedConnection, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._background = Background()
        self._on_rejected = on_rejected
        self._throttle = Throttle(clock=clock)

    @property
    def name(self) -> str:
        return self.access.role

    @property
    def port(self) -> int:
        port: int = self.socket.getsockname()[1]
        return port

    def serve(self, connect: ConnectionFactory) -> None:
        """Start accepting connections. A connection counts as open from its accept, also during its TLS handshake."""
        self.socket.setblocking(False)
        self._background.begin(f"accept {self.name}", partial(self._accept_forever, connect))

    async def _accept_forever(self, connect: ConnectionFactory) -> None:
        while True:
            try:
                await self._accept(connect)
            except OSError as error:
                if (held_back := self._throttle.admit("accept")) is not None:
                    _LOG.error(
                        "connections cannot be accepted",
                        listener=self.name,
                        cause=str(error),
                        since_the_last_line=held_back,
                    )
                await asyncio.sleep(_ACCEPT_AGAIN_SECONDS)

    async def _accept(self, connect: ConnectionFactory) -> None:
        """Accept one connection and connect its protocol in a task. If too many are open and none gives way, close the
        new connection instead.
        """
        connection, client = await asyncio.get_running_loop().sock_accept(self.socket)
        try:
            if len(self._open) >= self.most and not self._make_room():
                self.reject("too_many_connections", client)
                connection.close()
            else:
                protocol = connect()
                self._open[protocol] = task = asyncio.create_task(self._take(connection, client, protocol))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except BaseException:
            connection.close()
            raise

    def _make_room(self) -> bool:
        """Close a connection that waits for its client. Return false if none was closed: because none waits, or without
        ``gives_way``.

        Connections on which a request was answered are closed first, so that new ones have time to send a request. Of
        these, or else of the new ones, the one that has waited longest is closed.
        """
        if not self._gives_way:
            return False
        waiting = [(not it.answered, since, it) for it in self._open if (since := it.waiting_since) is not None]
        if not waiting:
            return False
        *_, oldest = min(waiting, key=itemgetter(0, 1))
        self._open.pop(oldest).cancel()
        oldest.give_way()
        self.reject("gave_way", None)
        return True

    async def _take(self, connection: socket.socket, client: Any, protocol: AcceptedConnection) -> None:
        """Connect the protocol to an accepted connection, after the TLS handshake if the listener has certificates."""
        tls = None if self.certificates is None else self.certificates.server
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=None if tls is None else HEAD_SECONDS
            )
        except _HANDSHAKE_FAILED as error:
            self.leave(protocol)
            self.reject("handshake", client, _failure(error))
        except BaseException:
            self.leave(protocol)
            with suppress(OSError):
                connection.close()
            raise

    def leave(self, protocol: AcceptedConnection) -> None:
        """Remove a connection that has ended."""
        self._open.pop(protocol, None)

    def stalled(self) -> str:
        """Return a message about a listener task that fails after every restart; empty if none does."""
        return self._background.problem()

    def close(self) -> None:
        """Stop accepting, and abort handshakes in progress. Other connections stay open."""
        self._background.cancel()
        for task in self._tasks:
            task.cancel()
        self.socket.close()

    async def wait_closed(self) -> None:
        """Wait until accept and handshakes have ended; uvicorn itself waits for the connections."""
        await self._background.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def reject(self, cause: str, client: Any, detail: str = "") -> None:
        """Count a connection or request that is rejected or ended early. Log it, at most once a minute for each cause.

        ``cause`` is one of a few values, because it is a label of the metric.
        """
        self._on_rejected(self.name, cause)
        if (held_back := self._throttle.admit(cause)) is not None:
            _LOG.warning(
                "connection or request rejected",
                listener=self.name,
                cause=cause,
                client=client[0] if client else "",
                detail=detail,
                since_the_last_line=held_back,
            )


def _failure(error: Exception) -> str:
    reason = str(getattr(error, "reason", None) or str(error) or type(error).__name__)
    if "HTTP_REQUEST" in reason:
        return "the client speaks plain HTTP, this port TLS"
    return reason.replace("_", " ").lower()
