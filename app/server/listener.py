"""One address on which connections are taken: whose, how many, over TLS or not, and what they may ask.

Not here: what is said on a connection (``protocol``).
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

from app.server.access import Access
from app.server.heads import KnownHead
from app.server.tls import Certificates
from app.telemetry.background import Background
from app.telemetry.throttle import Throttle

_LOG: Final = structlog.get_logger(__name__)

_BACKLOG: Final = 2048

HEAD_SECONDS: Final = 10.0
"""From the connection, or a later request's first byte, to the end of its headers; a handshake counts in."""

_ACCEPT_AGAIN_SECONDS: Final = 0.5
"""Delay before the next accept after one failed, for example because the process may open no more files."""

_HANDSHAKE_FAILED: Final = (OSError, RuntimeError)
"""The second is uvloop's word for a connection that was closed meanwhile."""


class Connection(asyncio.Protocol):
    """What a listener asks of the protocol of a connection that may have to give way to a new one."""

    @property
    def answered(self) -> bool:
        """Whether a request was answered on it."""
        raise NotImplementedError

    @property
    def waiting_since(self) -> float | None:
        """The time since which it waits for its client, on ``monotonic``; ``None`` while a request is worked on."""
        raise NotImplementedError

    def give_way(self) -> None:
        """Close it at once, unless its handshake is not over: the listener ends that."""
        raise NotImplementedError


Connect = Callable[[], Connection]
"""Makes the protocol of a connection; it is given back by ``Listener.leave``."""

TurnedAway = Callable[[str, str], None]
"""Told of each connection or request that is turned away: at which listener, and for which cause."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ``OSError`` with a sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


def allow_open_files(wanted: int) -> None:
    """Let this process open so many files, as far as it may: a process starts with 1,024, and a connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        _LOG.warning("few files may be opened", wanted=wanted, allowed=allowed)


class Listener:
    """``web`` answers what ``access`` lets through, on at most ``most`` connections at a time.

    Beyond that a new connection is turned away. With ``gives_way`` it is accepted instead, and the connection that has
    waited longest for its client is closed: clients that do nothing must not keep probes out. Callers of verbs lose no
    connection so, since Go does not send a POST again. ``heads``: of requests that went the short way here, by their
    first lines.
    """

    def __init__(
        self,
        listening: socket.socket,
        web: Any,
        access: Access,
        *,
        most: int,
        gives_way: bool = False,
        certificates: Certificates | None = None,
        turned_away: TurnedAway = lambda _listener, _cause: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.socket = listening
        self.web = web
        self.access = access
        self.certificates = certificates
        self.most = most
        self.heads: dict[bytes, KnownHead[Any]] = {}
        self._gives_way = gives_way
        self._open: dict[Connection, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._background = Background()
        self._turned_away = turned_away
        self._throttle = Throttle(clock=clock)

    @property
    def name(self) -> str:
        return self.access.role

    @property
    def port(self) -> int:
        found: int = self.socket.getsockname()[1]
        return found

    def serve(self, connect: Connect) -> None:
        """Begin to accept connections. Each counts from its first moment, before it has said who it is."""
        self.socket.setblocking(False)
        self._background.begin(f"accept {self.name}", partial(self._accept_forever, connect))

    async def _accept_forever(self, connect: Connect) -> None:
        while True:
            try:
                await self._accept(connect)
            except OSError as error:
                if (held_back := self._throttle.admit("accept")) is not None:
                    _LOG.error(
                        "no connection can be taken",
                        listener=self.name,
                        cause=str(error),
                        since_the_last_line=held_back,
                    )
                await asyncio.sleep(_ACCEPT_AGAIN_SECONDS)

    async def _accept(self, connect: Connect) -> None:
        """Accept one connection. A connection that cannot be handed over is closed."""
        connection, client = await asyncio.get_running_loop().sock_accept(self.socket)
        try:
            if len(self._open) >= self.most and not self._make_room():
                self.turn_away("too_many_connections", client)
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
        """Close the connection that has waited longest for its client; return whether there was one.

        Connections on which something was answered give way first: a new one gets the time to send its request.
        """
        if not self._gives_way:
            return False
        waiting = [(not it.answered, since, it) for it in self._open if (since := it.waiting_since) is not None]
        if not waiting:
            return False
        *_, oldest = min(waiting, key=itemgetter(0, 1))
        self._open.pop(oldest).cancel()
        oldest.give_way()
        self.turn_away("gave_way", None)
        return True

    async def _take(self, connection: socket.socket, client: Any, protocol: Connection) -> None:
        tls = None if self.certificates is None else self.certificates.server
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=None if tls is None else HEAD_SECONDS
            )
        except _HANDSHAKE_FAILED as error:
            self.leave(protocol)
            self.turn_away("handshake", client, _failure(error))
        except BaseException:
            self.leave(protocol)
            with suppress(OSError):
                connection.close()
            raise

    def leave(self, protocol: Connection) -> None:
        """A connection is over."""
        self._open.pop(protocol, None)

    def stalled(self) -> str:
        """Return which of its tasks cannot be restarted; empty if all run."""
        return self._background.problem()

    def close(self) -> None:
        """Accept no more; give up connections whose handshake is not over. The others live on."""
        self._background.cancel()
        for task in self._tasks:
            task.cancel()
        self.socket.close()

    async def wait_closed(self) -> None:
        """For uvicorn, which waits for the connections itself."""
        await self._background.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def turn_away(self, cause: str, client: Any, detail: str = "") -> None:
        """Count a connection or request that is not served; log it once a minute for each cause.

        ``cause`` is one of a few words: a label of the metric.
        """
        self._turned_away(self.name, cause)
        if (held_back := self._throttle.admit(cause)) is not None:
            _LOG.warning(
                "turned away",
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
