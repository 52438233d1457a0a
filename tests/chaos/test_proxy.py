"""The fault proxy keeps its promises: what goes wrong does so as named, and nothing else does."""

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.chaos.proxy import ENDLESS, HEALTHY, HELD_DOWN, HELD_UP, PATIENCE_SECONDS, REFUSED, SILENT, FaultProxy


class Echo(socketserver.ThreadingTCPServer):
    """Says everything back, and remembers what it was told, over all connections."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.heard = b""
        self.ended = threading.Event()
        self.address = f"127.0.0.1:{self.server_address[1]}"


class Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Echo)
        try:
            while piece := self.request.recv(65536):
                self.server.heard += piece
                self.request.sendall(piece)
        except ConnectionError:
            pass
        self.server.ended.set()


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(echo.address) as running:
        yield running


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def connect(proxy: FaultProxy) -> socket.socket:
    """An accepted connection: the kernel completes it before the proxy has heard of it."""
    before = len(proxy.open())
    client = socket.create_connection(("127.0.0.1", proxy.port), timeout=30)
    until(lambda: len(proxy.open()) > before)
    return client


def said_back(client: socket.socket, words: bytes) -> bytes:
    client.sendall(words)
    return heard(client, len(words))


def heard(client: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (piece := client.recv(size - len(found))):
        found += piece
    return found


def nothing_to_read(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        client.recv(1)
    except BlockingIOError:
        return True
    finally:
        client.settimeout(30)
    return False


def test_a_silent_connection_stays_open_and_is_never_answered(proxy: FaultProxy, echo: Echo) -> None:
    """Half-open: bytes are lost both ways, and the connection that lost them never comes back."""
    with connect(proxy) as before, proxy.during(SILENT), connect(proxy) as within:
        for client in (before, within):
            client.sendall(b"lost")
        until(lambda: [4, 4] == [it.dropped for it in proxy.open()])
        proxy.set(HEALTHY)

        before.sendall(b"again")
        until(lambda: proxy.open()[0].dropped == 9)
        with connect(proxy) as after:
            assert said_back(after, b"well") == b"well"

        assert echo.heard == b"well"
        assert nothing_to_read(before)
        assert nothing_to_read(within)


def test_what_is_held_arrives_later(proxy: FaultProxy, echo: Echo) -> None:
    """Each way by itself."""
    with connect(proxy) as client:
        assert said_back(client, b"1") == b"1"
        proxy.set(HELD_DOWN)
        client.sendall(b"2")
        until(lambda: echo.heard == b"12")
        assert nothing_to_read(client)
        proxy.set(HELD_UP)
        assert heard(client, 1) == b"2"
        client.sendall(b"3")
        assert nothing_to_read(client)
        assert echo.heard == b"12"
        proxy.set(HEALTHY)
        assert heard(client, 1) == b"3"


def test_the_server_does_not_hear_that_an_endless_client_has_ended(proxy: FaultProxy, echo: Echo) -> None:
    with connect(proxy) as client:
        proxy.set(HELD_UP)
        client.sendall(b"1")
        client.shutdown(socket.SHUT_WR)
        proxy.set(ENDLESS)
        assert heard(client, 1) == b"1"
        assert not echo.ended.is_set()


def test_a_refused_connection_is_refused_until_the_outage_ends(proxy: FaultProxy) -> None:
    """The port stays the proxy's."""
    with connect(proxy) as open_before:
        assert said_back(open_before, b"1") == b"1"
        with proxy.during(REFUSED):
            with pytest.raises(ConnectionResetError):
                open_before.recv(1)
            with pytest.raises(ConnectionRefusedError):
                connect(proxy)
    with connect(proxy) as client:
        assert said_back(client, b"2") == b"2"
