"""A TCP proxy on loopback that goes wrong on command: between Homeport and an API server, or between any two.

    with FaultProxy(plane.server) as proxy:
        kubeconfig = kubeconfig_through(proxy, plane.kubeconfig, tmp_path / "kubeconfig")
        ...
        with proxy.during(SILENT):          # every connection, open and new: bytes are lost without a word
            ...
        proxy.apply(HELD_DOWN, proxy.open()[:1])     # one connection: answers are kept back until HEALTHY
        proxy.for_new(lambda number: RESET if number % 2 else HEALTHY)

It never looks into what passes, so TLS goes through untouched. It runs in a thread with an event loop of its own; every
method may be called from any other thread, and has taken effect when it returns.
"""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
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
    """How a connection fares.

    ``delay``: seconds that each piece (up to 256 KiB) waits on its way. ``held``: ways on which nothing moves until the
    rule changes; nothing is lost. ``lost``: ways on which bytes are taken and thrown away; a way that lost some stays
    silent for good, whatever rule comes later. A new connection that would lose what it asks is accepted and reaches no
    server. ``endless``: the server does not hear that the client has ended. ``reset``: open connections are reset, new
    ones accepted and reset. ``refused``: open connections are reset and new ones refused; for the whole proxy alone.
    """

    delay: float = 0.0
    held: frozenset[Way] = frozenset()
    lost: frozenset[Way] = frozenset()
    endless: bool = False
    reset: bool = False
    refused: bool = False


_BOTH: Final[frozenset[Way]] = frozenset({"up", "down"})
_UP: Final[frozenset[Way]] = frozenset({"up"})
_DOWN: Final[frozenset[Way]] = frozenset({"down"})

HEALTHY: Final = Rule()
SILENT: Final = Rule(lost=_BOTH)
"""Half-open: the peer is gone and nothing says so."""

SILENT_DOWN: Final = Rule(lost=_DOWN)
"""Requests arrive and take effect, their answers are lost."""

HELD: Final = Rule(held=_BOTH)
HELD_UP: Final = Rule(held=_UP)
HELD_DOWN: Final = Rule(held=_DOWN)
ENDLESS: Final = Rule(endless=True)
"""What was sent takes effect, also where the server would cancel requests of a client that has ended."""

RESET: Final = Rule(reset=True)
REFUSED: Final = Rule(refused=True)


def delayed(seconds: float) -> Rule:
    """Every piece takes this much longer."""
    return Rule(delay=seconds)


class Connection:
    """One accepted connection. ``passed`` and ``dropped`` count bytes by way; the ways in ``dead`` lost some."""

    def __init__(self, number: int, rule: Rule) -> None:
        self.number = number
        self.rule = rule
        self.passed: dict[Way, int] = {"up": 0, "down": 0}
        self.dropped: dict[Way, int] = {"up": 0, "down": 0}
        self.dead: set[Way] = set()
        self.closed = False
        self._changed = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    def __repr__(self) -> str:
        return f"<connection {self.number} passed={self.passed} dropped={self.dropped} dead={self.dead}>"


class FaultProxy:
    """Passes what comes to ``url`` on to ``target``, under the rule of the hour. A context manager."""

    def __init__(self, target: str, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """``target`` is a URL or ``host:port``. ``sleep`` is how a delay is waited for."""
        split = urlsplit(target if "//" in target else f"//{target}")
        self._host = split.hostname or LOOPBACK
        self._server_port = split.port or (443 if split.scheme == "https" else 80)
        self._scheme = split.scheme
        self._sleep = sleep
        self._choose: Callable[[int], Rule] | None = None
        self._rule = HEALTHY
        self._numbers = 0
        self._connections: dict[int, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._news = threading.Condition()
        # Bound and never listening: keeps the port ours while connections are refused.
        self._place = _bound(LOOPBACK, 0)
        self.port: int = self._place.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    @property
    def rule(self) -> Rule:
        """What holds for new connections, unless ``for_new`` chooses."""
        return self._rule

    @property
    def accepted(self) -> int:
        """How many connections were ever accepted."""
        return self._numbers

    def open(self) -> list[Connection]:
        """The connections that are open, oldest first."""
        with self._news:
            return list(self._connections.values())

    def set(self, rule: Rule) -> None:
        """For every connection from now on, open and new; ends what ``for_new`` chose."""
        self._choose = None
        self._do(self._set(rule))

    def apply(self, rule: Rule, to: Iterable[Connection]) -> None:
        """For these connections only."""
        self._do(self._apply(rule, list(to)))

    def for_new(self, choose: Callable[[int], Rule]) -> None:
        """The rule of each new connection by its number (0, 1, …); open ones go on as they are."""
        self._choose = choose

    def reset(self) -> None:
        """Reset every open connection now; new ones fare as before."""
        self._do(self._apply(RESET, self.open()))

    @contextmanager
    def during(self, rule: Rule) -> Iterator[None]:
        """``rule`` for every connection inside of the block, ``HEALTHY`` after it."""
        self.set(rule)
        try:
            yield
        finally:
            self.set(HEALTHY)

    def outage(self, rule: Rule, seconds: float) -> None:
        """``rule`` from now on for ``seconds``, then ``HEALTHY``; returns at once."""
        self.set(rule)
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._heal)

    def wait_for(self, predicate: Callable[[], bool], timeout: float = PATIENCE_SECONDS) -> None:
        """Return once ``predicate()`` holds; it is asked after all that happens here. ``TimeoutError`` otherwise."""
        with self._news:
            if not self._news.wait_for(predicate, timeout):
                raise TimeoutError(f"not so within {timeout:g} s; rule {self._rule}, open {self.open()}")

    def _do(self, act: Coroutine[Any, Any, Returned]) -> Returned:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(PATIENCE_SECONDS)

    def _heal(self) -> None:
        task = self._loop.create_task(self._set(HEALTHY))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _set(self, rule: Rule) -> None:
        self._rule = rule
        if rule.refused:
            await self._close_server()
        elif self._server is None:
            await self._listen()
        await self._apply(rule, self.open())
        self._tell()

    async def _apply(self, rule: Rule, to: list[Connection]) -> None:
        for connection in to:
            connection.rule = rule
            connection._changed.set()
            connection._changed = asyncio.Event()
            if rule.reset or rule.refused:
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
        with self._news:
            rule = self._choose(self._numbers) if self._choose is not None else self._rule
            connection = Connection(self._numbers, rule)
            connection._writers.append(writer)
            self._connections[self._numbers] = connection
            self._numbers += 1
            self._news.notify_all()
        return connection

    def _dismiss(self, connection: Connection) -> None:
        _abort(connection)
        connection.closed = True
        with self._news:
            self._connections.pop(connection.number, None)
            self._news.notify_all()

    async def _carry(self, connection: Connection, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        if connection.rule.reset or connection.rule.refused:
            return
        if "up" in connection.rule.lost:
            connection.dead = {"up", "down"}
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
            if connection.rule.delay:
                await self._sleep(connection.rule.delay)
            await _let_through(connection, way)
            if to is None or way in connection.dead or way in connection.rule.lost:
                connection.dead.add(way)
                if not piece:
                    await _gone(way)
                connection.dropped[way] += len(piece)
            elif piece:
                to.write(piece)
                await to.drain()
                connection.passed[way] += len(piece)
            else:
                if way == "down" or not connection.rule.endless:
                    with suppress(OSError):
                        to.write_eof()
                return
            self._tell()

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()


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
