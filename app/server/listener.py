"""One address on which connections are taken: whose, how many, over TLS or not, and what they may ask.

Not here: what is said on a connection (``protocol``).
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import Any, Final

import structlog

from app.server.access import Access
from app.server.heads import KnownHead
from app.server.tls import Certificates

_LOG: Final = structlog.get_logger(__name__)

TOLD_SECONDS: Final = 60.0
"""Between two lines in the log about who is turned away for one cause: strangers come as often as they like."""

_BACKLOG: Final = 2048

HEAD_SECONDS: Final = 10.0
"""From the connection, or a later request's first byte, to the end of its headers; a handshake counts in."""

_AGAIN_SECONDS: Final = 0.5
"""After no connection could be taken, as where no file is left to be opened."""

_HANDSHAKE_FAILED: Final = (OSError, RuntimeError)
"""The second is uvloop's word for a connection that was closed meanwhile."""

Connect = Callable[[], asyncio.Protocol]
"""Makes what speaks on a connection; it is given back by ``Listener.leave``."""

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

    ``heads``: of requests that went the short way here, by their first lines.
    """

    def __init__(
        self,
        listening: socket.socket,
        web: Any,
        access: Access,
        *,
        most: int,
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
        self._open: set[asyncio.Protocol] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turned_away = turned_away
        self._clock = clock
        self._told: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    @property
    def name(self) -> str:
        return self.access.role

    @property
    def port(self) -> int:
        found: int = self.socket.getsockname()[1]
        return found

    def serve(self, connect: Connect) -> None:
        """Begin to take connections. Each is counted from its first moment, before it has said who it is."""
        self.socket.setblocking(False)
        self._begin(self._accept(connect))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, connect: Connect) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, client = await loop.sock_accept(self.socket)
            except OSError as error:
                _LOG.error("no connection can be taken", listener=self.name, cause=str(error))
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if len(self._open) >= self.most:
                self.turn_away("too_many_connections", client)
                connection.close()
            else:
                protocol = connect()
                self._open.add(protocol)
                self._begin(self._take(connection, client, protocol))

    async def _take(self, connection: socket.socket, client: Any, protocol: asyncio.Protocol) -> None:
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

    def leave(self, protocol: asyncio.Protocol) -> None:
        """A connection is over."""
        self._open.discard(protocol)

    def close(self) -> None:
        """Take no more; give up those whose handshake is not over. The others live on."""
        for task in self._tasks:
            task.cancel()
        self.socket.close()

    async def wait_closed(self) -> None:
        """For uvicorn, which waits for the connections itself."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def turn_away(self, cause: str, client: Any, detail: str = "") -> None:
        """Count it, and say so now and then. ``cause`` is one of a few words: a label of the metric."""
        self._turned_away(self.name, cause)
        now = self._clock()
        if now < self._told.get(cause, 0.0):
            self._untold[cause] = self._untold.get(cause, 0) + 1
            return
        self._told[cause] = now + TOLD_SECONDS
        _LOG.warning(
            "turned away",
            listener=self.name,
            cause=cause,
            client=client[0] if client else "",
            detail=detail,
            since_the_last_line=self._untold.pop(cause, 0),
        )


def _failure(error: Exception) -> str:
    reason = str(getattr(error, "reason", None) or str(error) or type(error).__name__)
    if "HTTP_REQUEST" in reason:
        return "the client speaks plain HTTP, this port TLS"
    return reason.replace("_", " ").lower()
