"""The fault proxy keeps its promises: what goes wrong does so as named, and nothing else does."""

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.proxy import (
    ENDLESS,
    HEALTHY,
    HELD_DOWN,
    HELD_UP,
    REFUSED,
    RESET,
    SILENT,
    SILENT_DOWN,
    FaultProxy,
    delayed,
    kubeconfig_through,
)


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


def connect(proxy: FaultProxy) -> socket.socket:
    """An accepted connection: the kernel completes it before the proxy has heard of it."""
    before = proxy.accepted
    client = socket.create_connection(("127.0.0.1", proxy.port), timeout=30)
    proxy.wait_for(lambda: proxy.accepted > before)
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


def test_a_healthy_proxy_passes_everything_on(proxy: FaultProxy) -> None:
    """Megabytes and the end of a stream included."""
    words = bytes(range(256)) * 20_000
    with connect(proxy) as client:
        sender = threading.Thread(target=client.sendall, args=(words,))
        sender.start()
        assert heard(client, len(words)) == words
        sender.join()
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    proxy.wait_for(lambda: not proxy.open())


def test_a_silent_connection_stays_open_and_is_never_answered(proxy: FaultProxy, echo: Echo) -> None:
    """Half-open: bytes are lost both ways, and the connection that lost them never comes back."""
    with connect(proxy) as before, proxy.during(SILENT), connect(proxy) as within:
        for number, client in enumerate((before, within)):
            client.sendall(b"lost")
            proxy.wait_for(lambda at=number: proxy.open()[at].dropped["up"] == 4)  # type: ignore[misc]  # a default is how it keeps its number
        proxy.set(HEALTHY)

        before.sendall(b"again")
        proxy.wait_for(lambda: proxy.open()[0].dropped["up"] == 9)
        with connect(proxy) as after:
            assert said_back(after, b"well") == b"well"

        assert echo.heard == b"well"
        assert nothing_to_read(before)
        assert nothing_to_read(within)


def test_an_answer_alone_may_be_lost(proxy: FaultProxy, echo: Echo) -> None:
    """What was asked has happened, and the client does not hear of it."""
    with connect(proxy) as client, proxy.during(SILENT_DOWN):
        client.sendall(b"done")
        proxy.wait_for(lambda: proxy.open()[0].dropped["down"] == 4)

        assert echo.heard == b"done"
        assert nothing_to_read(client)


def test_what_is_held_arrives_later(proxy: FaultProxy, echo: Echo) -> None:
    """Each way by itself."""
    with connect(proxy) as client:
        assert said_back(client, b"1") == b"1"
        proxy.set(HELD_DOWN)
        client.sendall(b"2")
        proxy.wait_for(lambda: proxy.open()[0].passed["up"] == 2)
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


def test_a_reset_reaches_both_sides(proxy: FaultProxy, echo: Echo) -> None:
    """Open connections and new ones; afterwards new ones work."""
    with connect(proxy) as client:
        assert said_back(client, b"1") == b"1"
        with proxy.during(RESET):
            with pytest.raises(ConnectionResetError):
                client.recv(1)
            assert echo.ended.wait(30)
            with pytest.raises(ConnectionResetError), connect(proxy) as new:
                new.recv(1)
    with connect(proxy) as client:
        assert said_back(client, b"2") == b"2"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


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


def test_an_outage_ends_by_itself(proxy: FaultProxy) -> None:
    """`outage` returns at once and heals later."""
    proxy.outage(REFUSED, 0.01)
    proxy.wait_for(lambda: proxy.rule == HEALTHY)
    with connect(proxy) as client:
        assert said_back(client, b"1") == b"1"


def test_a_delay_is_waited_for_both_ways(echo: Echo) -> None:
    """Each piece, on its way there and on its way back."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    with FaultProxy(echo.address, sleep=sleep) as proxy, connect(proxy) as client:
        proxy.set(delayed(0.25))
        assert said_back(client, b"1") == b"1"
        assert waited == [0.25, 0.25]


def test_connections_fare_differently(proxy: FaultProxy, echo: Echo) -> None:
    """A rule for one open connection, and one for each new one by its number."""
    proxy.for_new(lambda number: SILENT if number == 1 else HEALTHY)
    with connect(proxy) as first, connect(proxy) as second, connect(proxy) as third:
        second.sendall(b"lost")
        assert said_back(first, b"1") == b"1"
        assert said_back(third, b"3") == b"3"
        proxy.wait_for(lambda: proxy.open()[1].dropped["up"] == 4)

        proxy.apply(RESET, proxy.open()[2:])
        with pytest.raises(ConnectionResetError):
            third.recv(1)
        assert said_back(first, b"1") == b"1"
        assert echo.heard == b"131"
    assert proxy.accepted == 3


def test_a_server_that_is_down_ends_the_connection(echo: Echo) -> None:
    """Nothing listens behind the proxy: the client's connection ends instead of hanging."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{taken.getsockname()[1]}"
        with FaultProxy(nowhere) as proxy, pytest.raises(ConnectionResetError), connect(proxy) as client:
            client.recv(1)


def test_a_kubeconfig_that_leads_through_the_proxy(tmp_path: Path) -> None:
    """The address is the proxy's; the certificate is checked against the name it was issued for."""
    original = tmp_path / "original"
    clusters = [
        {"name": "one", "cluster": {"server": "https://api.example:6443", "certificate-authority": "/ca.crt"}},
        {"name": "two", "cluster": {"server": "https://api.example:6443", "tls-server-name": "kubernetes"}},
    ]
    original.write_text(json.dumps({"clusters": clusters, "users": ["unchanged"]}))

    with FaultProxy("https://api.example:6443") as proxy:
        written = json.loads(kubeconfig_through(proxy, original, tmp_path / "through").read_text())
        assert proxy.url == f"https://127.0.0.1:{proxy.port}"

    one = {"server": proxy.url, "certificate-authority": "/ca.crt", "tls-server-name": "api.example"}
    two = {"server": proxy.url, "tls-server-name": "kubernetes"}
    assert written == {
        "clusters": [{"name": "one", "cluster": one}, {"name": "two", "cluster": two}],
        "users": ["unchanged"],
    }
