"""A TCP proxy on loopback that goes wrong on command: between Homeport and an API server, or between any two.

    with FaultProxy(plane.server) as proxy:
        kubeconfig = kubeconfig_through(proxy, plane.kubeconfig, tmp_path / "kubeconfig")
        ...
        with proxy.during(SILENT):          # every connection, open and new: bytes are lost without a word
            ...

It never looks into what passes, so TLS goes through untouched. It runs in a thread with an event loop of its own; every
method may be called from any other thread, and has taken effect when it returns.
"""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

import yaml

LOOPBACK: Final = "127.0.0.1"
PATIENCE_SECONDS: Final = 30.0
"""For what comes at once on an idle machine: only a test that fails waits as long."""

_CHUNK: Final = 256 * 1024
_BACKLOG: Final = 1024
_CLOSE_WITH_RESET: Final = struct.pack("ii", 1, 0)

Way = Literal["up", "down"]
"""``up`` is towards the server, ``down`` towards the client."""

Returned = TypeVar("Returned")


@dataclass(frozen=True, slots=True)
class Rule:
    """How connections fare.

    ``held``: ways on which nothing moves until the rule changes; nothing is lost. ``lost``: bytes are taken and thrown
    away; a connection that lost some stays silent for good, whatever rule comes later. A new connection is accepted and
    reaches no server. ``endless``: the server does not hear that the client has ended. ``refused``: open connections
    are reset and new ones refused.
    """

    held: frozenset[Way] = frozenset()
    lost: bool = False
    endless: bool = False
    refused: bool = False


HEALTHY: Final = Rule()
SILENT: Final = Rule(lost=True)
"""Half-open: the peer is gone and nothing says so."""

HELD_UP: Final = Rule(held=frozenset({"up"}))
HELD_DOWN: Final = Rule(held=frozenset({"down"}))
ENDLESS: Final = Rule(endless=True)
"""What was sent takes effect, also where the server would cancel requests of a client that has ended."""

REFUSED: Final = Rule(refused=True)


class Connection:
    """One accepted connection. ``dropped``: number of bytes that were lost; it is ``dead`` once it lost some."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.dropped = 0
        self.dead = rule.lost
        self._changed = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []


class FaultProxy:
    """Passes what comes to ``url`` on to ``target``, under the rule of the hour. A context manager."""

    def __init__(self, target: str) -> None:
        """``target`` is a URL or ``host:port``."""
        split = urlsplit(target if "//" in target else f"//{target}")
        self._host = split.hostname or LOOPBACK
        self._server_port = split.port or (443 if split.scheme == "https" else 80)
        self._scheme = split.scheme
        self._rule = HEALTHY
        self._connections: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        # Bound and never listening: keeps the port ours while connections are refused.
        self._place = _bound(LOOPBACK, 0)
        self.port: int = self._place.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._place.close()

    @property
    def url(self) -> str:
        """Where clients connect to, with the scheme of the target if that was a URL."""
        return f"{self._scheme}://{LOOPBACK}:{self.port}" if self._scheme else f"{LOOPBACK}:{self.port}"

    @property
    def host(self) -> str:
        """The host of the target: whom its certificate names."""
        return self._host

    def open(self) -> list[Connection]:
        """The connections that are open, oldest first."""
        return list(self._connections)

    def set(self, rule: Rule) -> None:
        """For every connection from now on, open and new."""
        self._do(self._set(rule))

    @contextmanager
    def during(self, rule: Rule) -> Iterator[None]:
        """``rule`` for every connection inside of the block, ``HEALTHY`` after it."""
        self.set(rule)
        try:
            yield
        finally:
            self.set(HEALTHY)

    def _do(self, act: Coroutine[Any, Any, Returned]) -> Returned:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(PATIENCE_SECONDS)

    async def _set(self, rule: Rule) -> None:
        self._rule = rule
        if rule.refused:
            await self._close_server()
        elif self._server is None:
            await self._listen()
        for connection in self.open():
            connection.rule = rule
            connection._changed.set()
            connection._changed = asyncio.Event()
            if rule.refused:
                _abort(connection)

    async def _listen(self) -> None:
        listening = _bound(LOOPBACK, self.port)
        self._server = await asyncio.start_server(self._serve, sock=listening, backlog=_BACKLOG, limit=_CHUNK)

    async def _close_server(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _end(self) -> None:
        await self._close_server()
        for connection in self.open():
            _abort(connection)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = self._admit(writer)
        try:
            await self._carry(connection, reader, writer)
        except* (OSError, asyncio.CancelledError):
            pass  # reset by either side, or the end of the proxy
        finally:
            self._tasks.discard(task)
            self._dismiss(connection)

    def _admit(self, writer: asyncio.StreamWriter) -> Connection:
        connection = Connection(self._rule)
        connection._writers.append(writer)
        self._connections.append(connection)
        return connection

    def _dismiss(self, connection: Connection) -> None:
        _abort(connection)
        self._connections.remove(connection)

    async def _carry(self, connection: Connection, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        if connection.dead:
            await self._pump(connection, "up", client, None)
            return
        server, onward = await asyncio.open_connection(self._host, self._server_port, limit=_CHUNK)
        connection._writers.append(onward)
        async with asyncio.TaskGroup() as ways:
            ways.create_task(self._pump(connection, "up", client, onward))
            ways.create_task(self._pump(connection, "down", server, back))
        for writer in connection._writers:
            writer.close()

    async def _pump(
        self, connection: Connection, way: Way, source: asyncio.StreamReader, to: asyncio.StreamWriter | None
    ) -> None:
        while True:
            await _let_through(connection, way)
            piece = await source.read(_CHUNK)
            await _let_through(connection, way)
            if to is None or connection.dead or connection.rule.lost:
                connection.dead = True
                if not piece:
                    await _gone(way)
                connection.dropped += len(piece)
            elif piece:
                to.write(piece)
                await to.drain()
            else:
                if way == "down" or not connection.rule.endless:
                    with suppress(OSError):
                        to.write_eof()
                return


async def _let_through(connection: Connection, way: Way) -> None:
    while way in connection.rule.held:
        await connection._changed.wait()


async def _gone(way: Way) -> None:
    """A peer ended a connection that loses what passes: the client's end ends it, of the server's nobody hears."""
    if way == "up":
        raise ConnectionResetError("the client is gone")
    await asyncio.Event().wait()


def _abort(connection: Connection) -> None:
    for writer in connection._writers:
        found = writer.get_extra_info("socket")
        if writer.transport.is_closing():
            continue
        if found is not None:
            with suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE_WITH_RESET)
        writer.transport.abort()


def _bound(host: str, port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host, port))
    return bound


def kubeconfig_through(proxy: FaultProxy, kubeconfig: Path, to: Path) -> Path:
    """Write a kubeconfig like ``kubeconfig`` whose every cluster is reached through ``proxy``; returns ``to``.

    The API server's certificate is checked as before: against the host that was replaced, where that is another one.
    """
    config = yaml.safe_load(kubeconfig.read_text())
    for entry in config["clusters"]:
        cluster = entry["cluster"]
        if proxy.host != LOOPBACK:
            cluster.setdefault("tls-server-name", proxy.host)
        cluster["server"] = proxy.url
    to.write_text(json.dumps(config, indent=2))
    return to
