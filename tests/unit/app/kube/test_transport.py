"""How requests are sent, over which connections, and what is said of one that went wrong."""

from __future__ import annotations

import asyncio
import gzip
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from app.kube.api_errors import ApiError, ApiSilent, ApiUnavailable, KubeError, UnknownOutcome
from app.kube.client import KubeClient
from app.kube.credentials import Credentials
from tests.certificates import Authority
from tests.unit.app.kube.scripted import PODS, Answer, Script, Serve, client_of, credentials, status


async def test_a_request_carries_who_we_are_and_what_we_want(tmp_path: Path) -> None:
    """Packed answers are not asked for: unpacking a large list holds up the event loop."""
    script = Script(httpx.Response(200, content=b"{}"))
    async with client_of(tmp_path, script) as client:
        assert b"{}" == await client.patch(PODS, "ns", "web", {"a": 1})

    headers = {"accept", "accept-encoding", "authorization", "content-type", "user-agent"}
    assert {
        "accept": "application/json",
        "accept-encoding": "identity",
        "authorization": "Bearer first",
        "content-type": "application/merge-patch+json",
        "user-agent": "homeport",
    } == {name: value for name, value in script.asked[0].headers.items() if name in headers}


async def test_an_answer_that_is_compressed_is_refused_and_not_unpacked(tmp_path: Path) -> None:
    """A packet can unpack to a thousand times its size."""
    packed = httpx.Response(200, headers={"Content-Encoding": "gzip"}, content=gzip.compress(b" " * (64 << 20)))
    async with client_of(tmp_path, Script(packed)) as client:
        with pytest.raises(ApiUnavailable, match="compressed"):
            await client.list_page(PODS)


async def test_cookies_are_not_sent_back(tmp_path: Path) -> None:
    script = Script(*[httpx.Response(200, content=b"{}", headers={"Set-Cookie": f"c{it}=x"}) for it in range(2)])
    async with client_of(tmp_path, script) as client:
        await client.list_page(PODS)
        await client.list_page(PODS)

    assert [None, None] == [it.headers.get("cookie") for it in script.asked]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(
            status(409, "Conflict", "changed meanwhile"), (409, "Conflict", "changed meanwhile", None), id="a Status"
        ),
        pytest.param(
            httpx.Response(429, text="no", headers={"Retry-After": "7"}),
            (429, "", "no", 7.0),
            id="a time in the header",
        ),
        pytest.param(
            httpx.Response(429, text="no", headers={"Retry-After": "Fri, 21 Nov 2026 10:00:00 GMT"}),
            (429, "", "no", None),
            id="a date is no time",
        ),
    ],
)
async def test_refusals(answer: httpx.Response, expected: tuple[int, str, str, float | None], tmp_path: Path) -> None:
    async with client_of(tmp_path, Script(answer)) as client:
        with pytest.raises(ApiError) as raised:
            await client.post("/api/v1/x", {})

    error = raised.value
    assert expected == (error.status, error.reason, error.message, error.retry_after)


FAILURES = [
    pytest.param(httpx.ConnectError("refused"), ApiUnavailable, ApiUnavailable, id="refused: never sent"),
    pytest.param(AttributeError("setsockopt"), ApiUnavailable, ApiUnavailable, id="closed when connected: never sent"),
    pytest.param(httpx.ConnectTimeout(""), ApiUnavailable, ApiUnavailable, id="not connected in time: never sent"),
    pytest.param(httpx.PoolTimeout(""), ApiUnavailable, ApiUnavailable, id="no connection free: never sent"),
    pytest.param(httpx.ReadTimeout(""), ApiSilent, UnknownOutcome, id="no answer in time"),
    pytest.param(httpx.WriteError(""), ApiUnavailable, UnknownOutcome, id="broken while sending"),
    pytest.param(httpx.RemoteProtocolError("closed"), ApiUnavailable, UnknownOutcome, id="closed without an answer"),
    pytest.param(status(504, "Timeout", "etcd"), ApiError, UnknownOutcome, id="the API server timed out on etcd"),
    pytest.param(httpx.Response(502, text="bad gateway"), ApiError, UnknownOutcome, id="a proxy lost its peer"),
]


@pytest.mark.parametrize(("failure", "of_read", "of_write"), FAILURES)
async def test_a_write_is_only_called_failed_when_it_is(
    failure: Answer, of_read: type[KubeError], of_write: type[KubeError], tmp_path: Path
) -> None:
    async with client_of(tmp_path, Script(failure)) as client:
        with pytest.raises(KubeError) as read:
            await client.get(PODS, "ns", "web")
        with pytest.raises(KubeError) as reviewed:
            await client.review("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {})
        with pytest.raises(KubeError) as posted:
            await client.post(PODS.path("ns", "web", "binding"), {})
        with pytest.raises(KubeError) as patched:
            await client.patch(PODS, "ns", "web", {})

    assert (of_read, of_read, of_write, of_write) == (read.type, reviewed.type, posted.type, patched.type)


async def test_a_deadline_covers_the_whole_request(tmp_path: Path) -> None:
    async def never(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with KubeClient(credentials(tmp_path), transport=httpx.MockTransport(never)) as client:
        await client._credentials.access()
        with pytest.raises(UnknownOutcome, match=r"POST /x: no answer within 0.01 s"):
            await client.post("/x", {}, timeout=0.01)


class Rotating(Script):
    """An API server that refuses the first token, which is then replaced."""

    def __init__(self, folder: Path, replacement: str) -> None:
        super().__init__(httpx.Response(200, content=b"{}"))
        self.token = folder / "token"
        self.replacement = replacement

    def __call__(self, request: httpx.Request) -> httpx.Response:
        answer = super().__call__(request)
        if request.headers["Authorization"] == "Bearer second":
            return answer
        self.token.write_text(self.replacement)
        return status(401, "Unauthorized", "Unauthorized")


async def test_refused_credentials_are_renewed_once(tmp_path: Path) -> None:
    script = Rotating(tmp_path, "second")
    async with KubeClient(_aged(credentials(tmp_path)), transport=httpx.MockTransport(script)) as client:
        assert b"{}" == await client.post("/x", {})

    assert ["Bearer first", "Bearer second"] == [request.headers["Authorization"] for request in script.asked]


async def test_credentials_refused_twice_are_an_error(tmp_path: Path) -> None:
    script = Rotating(tmp_path, "third")
    async with KubeClient(_aged(credentials(tmp_path)), transport=httpx.MockTransport(script)) as client:
        with pytest.raises(ApiError, match="401 Unauthorized"):
            await client.post("/x", {})

    assert ["Bearer first", "Bearer third"] == [request.headers["Authorization"] for request in script.asked]


async def test_a_write_without_credentials_was_never_sent(tmp_path: Path) -> None:
    script = Script(httpx.Response(200))
    who = credentials(tmp_path, token_file="nowhere")
    async with KubeClient(who, transport=httpx.MockTransport(script)) as client:
        with pytest.raises(ApiUnavailable, match="nowhere"):
            await client.post("/x", {})

    assert [] == script.asked


def _aged(found: Credentials) -> Credentials:
    """Credentials whose clock is 20 seconds on whenever it is asked: old enough to be renewed."""
    ticks = iter(range(1, 10_000))
    found._now = lambda: next(ticks) * 20.0
    return found


@asynccontextmanager
async def server(serve: Serve, folder: Path) -> AsyncIterator[KubeClient]:
    """A client of a server on loopback that answers as ``serve`` writes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening, KubeClient(credentials(folder, f"http://127.0.0.1:{port}")) as client:
        yield client


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def lines_of(client: KubeClient, silence: float = 5.0) -> tuple[list[bytes], str]:
    """What a watch tells, and how it ends."""
    told: list[bytes] = []
    try:
        async with client.watch(PODS, resource_version="1", silence=silence) as lines:
            async for line in lines:
                told.append(line)  # noqa: PERF401  # what came before the end counts
    except ApiUnavailable as error:
        return told, str(error).partition(": ")[2]
    return told, "end"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param([chunk(b'{"a":1}\n{"b":2}\n') + b"0\r\n\r\n"], ([b'{"a":1}', b'{"b":2}'], "end"), id="two in one"),
        pytest.param([chunk(b'{"a"'), chunk(b":1}\n"), b"0\r\n\r\n"], ([b'{"a":1}'], "end"), id="one in two"),
        pytest.param([chunk(b'{"a":1}\n{"b"')], ([b'{"a":1}'], "closed by the other side"), id="cut within a line"),
        pytest.param([chunk(b'{"a":1}\n{"b"') + b"0\r\n\r\n"], ([b'{"a":1}'], "end"), id="ended within a line"),
    ],
)
async def test_a_watch_tells_complete_lines(
    parts: list[bytes], expected: tuple[list[bytes], str], tmp_path: Path
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)

    async with server(serve, tmp_path) as client:
        assert expected == await lines_of(client)


async def test_a_watch_that_falls_silent_ends(tmp_path: Path) -> None:
    """A half-open connection brings neither data nor an error."""
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(b'{"a":1}\n'))
        await asked.wait()

    async with server(serve, tmp_path) as client:
        assert ([b'{"a":1}'], "silent for 0.03 s") == await lines_of(client, silence=0.03)
        asked.set()


async def test_a_watch_that_is_refused_says_why(tmp_path: Path) -> None:
    async with client_of(tmp_path, Script(status(410, "Expired", "too old resource version"))) as client:
        with pytest.raises(ApiError) as raised:
            async with client.watch(PODS, resource_version="1"):
                pass

    assert (410, "too old resource version") == (raised.value.status, raised.value.message)


async def test_a_connection_that_is_closed_on_a_write_leaves_its_outcome_unknown(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        return

    async with server(serve, tmp_path) as client:
        with pytest.raises(UnknownOutcome, match="closed by the other side"):
            await client.post(PODS.path("ns", "web", "binding"), {})
        with pytest.raises(ApiUnavailable, match="RemoteProtocolError"):
            await client.get(PODS, "ns", "web")


async def test_a_server_that_is_down_was_never_reached(tmp_path: Path) -> None:
    async with KubeClient(credentials(tmp_path, "http://127.0.0.1:1")) as client:
        with pytest.raises(ApiUnavailable, match="Connect"):
            await client.post("/x", {})
        with pytest.raises(ApiUnavailable, match="ConnectError"):
            await client.get(PODS, "ns", "web")


class Deserting:
    """Answers whatever it is asked, until it deserts: then connections of before stay open and are never answered."""

    def __init__(self) -> None:
        self.opened = 0
        self.deserted = 0
        self.together = asyncio.Barrier(1)
        self.say = asyncio.Event()

    def desert(self) -> None:
        self.deserted = self.opened

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        number = self.opened
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                if b"watch=true" in head:
                    await self._watched(writer)
                    return
                await self.together.wait()
                if number > self.deserted:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    @asynccontextmanager
    async def client(self, folder: Path) -> AsyncIterator[KubeClient]:
        listening = await asyncio.start_server(self, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with listening, KubeClient(credentials(folder, url)) as client:
            yield client

    async def _watched(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await self.say.wait()
        writer.write(chunk(b"one\n") + chunk(b""))
        await writer.drain()


@pytest.mark.parametrize("way", ["read", "write"])
async def test_one_silence_is_enough_to_leave_every_kept_connection(way: str, tmp_path: Path) -> None:
    """After an outage all are dead: each by itself would cost a request its time. What still runs is left alone."""
    peer = Deserting()

    async def send(seconds: float = 30.0) -> bytes:
        if way == "read":
            return await client.get(PODS, "ns", "web", timeout=seconds)
        return await client.post(PODS.path("ns", "web", "binding"), {}, timeout=seconds)

    async with peer.client(tmp_path) as client:
        peer.together = asyncio.Barrier(3)
        await asyncio.gather(send(), send(), send())
        peer.together = asyncio.Barrier(1)
        assert 3 == peer.opened
        async with client.watch(PODS, resource_version="1") as lines:
            before = peer.opened
            peer.desert()
            with pytest.raises(ApiSilent if way == "read" else UnknownOutcome):
                await send(0.1)
            assert b"{}" == await send()
            assert peer.opened == before + 1
            peer.say.set()
            assert [b"one"] == [line async for line in lines]


async def test_a_retired_connection_is_closed_with_the_last_answer(tmp_path: Path) -> None:
    peer = Deserting()
    async with peer.client(tmp_path) as client:
        peer.together = asyncio.Barrier(2)
        reading = asyncio.create_task(client.get(PODS, "ns", "web"))
        while not peer.together.n_waiting:  # noqa: ASYNC110  # a barrier tells nobody who waits at it
            await asyncio.sleep(0)
        (reads,) = client._transport._reads
        await client._transport._drop_idle_connections()
        closed = [reads.closed]
        await peer.together.wait()
        assert b"{}" == await reading
        closed.append(reads.closed)

    assert [False, True] == closed


def refusal(code: int, reason: str) -> bytes:
    body = msgspec.json.encode({"kind": "Status", "code": code, "reason": reason, "message": f"{reason} it is"})
    return f"HTTP/1.1 {code} {reason}\r\nContent-Length: {len(body)}\r\nRetry-After: 3\r\n\r\n".encode() + body


async def test_a_refused_watch_says_why_on_its_own_connection(tmp_path: Path) -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(refusal(410, "Expired"))

    async with server(serve, tmp_path) as client:
        with pytest.raises(ApiError) as raised:
            async with client.watch(PODS, resource_version="1"):
                pass

    assert (410, "Expired it is", 3.0) == (raised.value.status, raised.value.message, raised.value.retry_after)


async def test_a_watch_renews_refused_credentials_once(tmp_path: Path) -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).partition(b"Authorization: ")[2].partition(b"\r\n")[0])
        (tmp_path / "token").write_text("second")
        good = asked[-1] == b"Bearer second"
        writer.write(HEAD + chunk(b"one\n") + chunk(b"") if good else refusal(401, "Unauthorized"))

    listening = await asyncio.start_server(closing(serve), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening, KubeClient(_aged(credentials(tmp_path, url))) as client:
        assert ([b"one"], "end") == await lines_of(client)

    assert [b"Bearer first", b"Bearer second"] == asked


def closing(serve: Serve) -> Serve:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)
        writer.close()

    return answer


async def test_a_watch_that_is_not_opened_in_time(tmp_path: Path) -> None:
    """Neither a server that takes the connection and says nothing, nor one that falls silent before its headers."""
    held = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await held.wait()

    async with server(serve, tmp_path) as client:
        with pytest.raises(ApiSilent, match=r"not opened within 0.05 s"):
            async with client.watch(PODS, resource_version="1", opening=0.05):
                pass
        with pytest.raises(ApiSilent, match=r"silent for 0.05 s"):
            async with client.watch(PODS, resource_version="1", silence=0.05):
                pass
        held.set()


async def test_a_watch_of_a_server_that_is_down(tmp_path: Path) -> None:
    async with KubeClient(credentials(tmp_path, "http://127.0.0.1:1")) as client:
        with pytest.raises(ApiUnavailable, match=re.escape("127.0.0.1:1")):
            async with client.watch(PODS, resource_version="1"):
                pass


async def test_closing_the_client_ends_its_watches(tmp_path: Path) -> None:
    peer = Deserting()
    async with peer.client(tmp_path) as client, client.watch(PODS, resource_version="1") as lines:
        await client.aclose()
        with pytest.raises(ApiUnavailable, match="closed by us"):
            await anext(lines)
        peer.say.set()
    assert not client._transport._streams


async def test_a_watch_that_is_left_closes_its_connection(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + chunk(b"one\ntwo\n"))
        await reader.read()
        gone.set()

    async with server(serve, tmp_path) as client:
        async with client.watch(PODS, resource_version="1") as lines:
            assert b"one" == await anext(lines)
        await asyncio.wait_for(gone.wait(), 5)
        assert not client._transport._streams


async def test_a_watch_over_tls(tmp_path: Path) -> None:
    """An event of many TLS records, and one that comes with another."""
    authority = Authority(tmp_path)
    pair = authority.issue("server", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    large = b"x" * 300_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + chunk(large) + chunk(b"\nsmall\n") + chunk(b""))
        await writer.drain()

    listening = await asyncio.start_server(closing(serve), "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening, KubeClient(credentials(tmp_path, url, authority=str(authority.file))) as client:
        assert ([large, b"small"], "end") == await lines_of(client)
    async with KubeClient(credentials(tmp_path, url)) as stranger:
        told, why = await lines_of(stranger)
    assert not told
    assert why
