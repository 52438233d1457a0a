"""Lines of an answer that goes on, whatever pieces it comes in, and whatever else comes instead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube import streams
from app.kube.connections import BrokenConnection
from app.kube.streams import Silent, Stream

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


class Socket(asyncio.Transport):
    """Remembers what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.done: list[str] = []

    def write(self, data: Any) -> None:
        self.sent += bytes(data)

    def abort(self) -> None:
        self.done.append("abort")

    def is_closing(self) -> bool:
        return "abort" in self.done

    def pause_reading(self) -> None:
        self.done.append("pause")

    def resume_reading(self) -> None:
        self.done.append("resume")


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return f"{len(data):x}".encode() + extension + b"\r\n" + data + b"\r\n"


def opened(silence: float = 60.0) -> tuple[Stream, Socket]:
    stream, socket = Stream(b"GET", silence), Socket()
    stream.connection_made(socket)
    return stream, socket


async def told(stream: Stream) -> tuple[list[bytes], str]:
    """Every line, and how it ends; empty for a good end."""
    lines: list[bytes] = []
    try:
        await stream.answer()
        while more := await stream.lines():
            lines += more
    except (BrokenConnection, Silent) as error:
        return lines, str(error)
    return lines, ""


async def heard(*parts: bytes) -> tuple[list[bytes], str]:
    """The same of a peer that sends these, one by one, and hangs up."""
    stream, _ = opened()
    for part in parts:
        stream.data_received(part)
    stream.connection_lost(None)
    return await told(stream)


async def test_a_stream_is_asked_for_as_soon_as_it_is_connected() -> None:
    stream, socket = opened()
    stream.close()
    assert (b"GET", ["abort"]) == (socket.sent, socket.done)


@given(
    st.lists(st.binary(max_size=40).map(lambda it: it.replace(b"\n", b"").replace(b"\r", b"")), max_size=8),
    st.lists(st.integers(1, 60), min_size=1, max_size=6),
    st.lists(st.integers(1, 30), min_size=1, max_size=6),
    st.sampled_from((b"", b";name=value", b';a="b;c"')),
)
def test_lines_do_not_depend_on_chunks_or_packets(
    lines: list[bytes], chunks: list[int], packets: list[int], extension: bytes
) -> None:
    body = b"".join(line + b"\n" for line in lines) + b"what is cut off"
    wire = HEAD + b"".join(chunk(part, extension) for part in _cut(body, chunks)) + END

    found = asyncio.run(heard(*_cut(wire, packets)))

    assert ([line for line in lines if line], "") == found


def _cut(data: bytes, sizes: list[int]) -> list[bytes]:
    parts, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        parts.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return parts


ONE = HEAD + chunk(b"one\n")
UPGRADE = b"HTTP/1.1 101 Over\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        pytest.param(ONE, ([b"one"], "closed by the other side"), id="cut between chunks"),
        pytest.param(ONE + b"5\r\ntw", ([b"one"], "closed by the other side"), id="cut within a chunk"),
        pytest.param(ONE + END, ([b"one"], ""), id="the end"),
        pytest.param(ONE + END + b"HTTP/1.1 200 OK\r\n\r\n", ([b"one"], ""), id="more after the end"),
        pytest.param(ONE + b"0\r\nTrailer: a\r\n\r\n", ([b"one"], ""), id="a trailer"),
        pytest.param(ONE + b"zz\r\n", ([b"one"], "invalid HTTP"), id="a size that is none"),
        pytest.param(ONE + b"5\r\ntwo\n\r\n", ([b"one", b"two"], "invalid HTTP"), id="a chunk shorter than it says"),
        pytest.param(
            HEAD[:-2] + b"Content-Length: 4\r\n\r\n" + chunk(b"one\n") + END, ([], "invalid HTTP"), id="two lengths"
        ),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", ([], "invalid HTTP"), id="another protocol"),
        pytest.param(b"", ([], "closed by the other side"), id="nothing"),
        pytest.param(
            b"HTTP/1.1 101 Over\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", ([], "invalid HTTP"), id="upgrade"
        ),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + ONE + END, ([b"one"], ""), id="another answer announced"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\none\ntwo\n", ([b"one", b"two"], ""), id="of known length"
        ),
    ],
)
@pytest.mark.parametrize("packet", [1, 7, 1 << 16])
async def test_what_comes_instead_of_lines(wire: bytes, expected: tuple[list[bytes], str], packet: int) -> None:
    lines, end = await heard(*_cut(wire, [packet]))

    assert expected[0] == lines
    assert expected[1] in end
    assert bool(expected[1]) == bool(end)


async def test_a_refusal_comes_with_its_body() -> None:
    stream, socket = opened()
    stream.data_received(b"HTTP/1.1 410 Gone\r\nContent-Length: 7\r\nRetry-After: 1\r\n\r\nto")
    stream.data_received(b"o\nol")
    stream.connection_lost(None)
    with pytest.raises(BrokenConnection):
        await stream.answer()

    stream, socket = opened()
    stream.data_received(b"HTTP/1.1 410 Gone\r\nContent-Length: 7\r\nRetry-After: 1\r\n\r\nto")
    stream.data_received(b"o\nold")
    answered = await stream.answer()

    assert (410, b"too\nold", "1") == (answered.status, answered.body, answered.headers["retry-after"])
    assert "abort" in socket.done


@pytest.mark.parametrize(
    ("bound", "wire", "said"),
    [
        ("LONGEST_LINE", HEAD + chunk(b"x" * 60) * 3, "more than 100 bytes"),
        ("_LONGEST_ERROR_BODY", b"HTTP/1.1 500 No\r\nContent-Length: 400\r\n\r\n" + b"x" * 150, "more than 100 bytes"),
        ("_MOST_UNPRODUCTIVE", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 150, "headers of more than 100 bytes"),
        ("_MOST_UNPRODUCTIVE", HEAD + chunk(b"a\n") + b"0\r\nX: " + b"x" * 150, "headers of more than 100 bytes"),
        ("_MOST_UNPRODUCTIVE", HEAD + b"1;" + b"x" * 150, "headers of more than 100 bytes"),
    ],
)
async def test_nothing_grows_without_end(bound: str, wire: bytes, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, bound, 100)
    stream, socket = opened()
    for part in _cut(wire, [50]):
        stream.data_received(part)

    assert said in (await told(stream))[1]
    assert ["abort"] == socket.done


async def test_who_does_not_take_lines_is_not_sent_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """But a line that is not complete is read on: nobody could take it."""
    monkeypatch.setattr(streams, "MOST_WAITING", 100)
    stream, socket = opened()
    stream.data_received(HEAD + chunk(b"x" * 300))
    assert [] == socket.done

    stream.data_received(chunk(b"\n"))
    stream.data_received(chunk(b"y\n"))
    assert ["pause"] == socket.done

    assert [b"x" * 300, b"y"] == await stream.lines()
    assert ["pause", "resume"] == socket.done

    stream.data_received(chunk(b"z\n"))
    assert [b"z"] == await stream.lines()
    assert ["pause", "resume"] == socket.done


async def test_silence_ends_it() -> None:
    stream, socket = opened(silence=0.01)
    stream.data_received(ONE)

    assert ([b"one"], "silent for 0.01 s") == await told(stream)
    assert ["abort"] == socket.done


async def test_while_nobody_listens_there_is_no_silence() -> None:
    """Whoever was away for long, or is busy with what came, has not waited for the peer."""
    stream, _ = opened(silence=0.02)
    stream.data_received(ONE)
    await asyncio.sleep(0.1)
    stream.data_received(chunk(b"two\n") + END)

    assert ([b"one", b"two"], "") == await told(stream)


async def test_a_waiting_reader_that_is_cancelled_leaves_it_usable() -> None:
    stream, _ = opened()
    stream.data_received(HEAD)
    waiting = asyncio.create_task(stream.lines())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    stream.data_received(chunk(b"one\n"))

    assert [b"one"] == await stream.lines()
    stream.close()


async def test_what_is_closed_before_it_is_connected() -> None:
    stream, socket = Stream(b"GET", 60.0), Socket()
    stream.close()
    stream.connection_made(socket)
    stream.data_received(ONE)

    assert "abort" in socket.done
    assert ([], "closed by us") == await told(stream)
