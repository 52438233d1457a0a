"""What is taken by a known head is what the parser would have made of the same bytes."""

from __future__ import annotations

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.server.heads import KnownHead, known_head

HEAD = b"POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: %b\r\nX-B: c\r\n\r\n"
REQUEST = HEAD % b"3" + b"abc"


class Parsed:
    """What the parser makes of some bytes: of one whole message, or of none."""

    def __init__(self, data: bytes) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.messages = 0
        try:
            httptools.HttpRequestParser(self).feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.messages = 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.messages += 1


def known(request: bytes = REQUEST) -> KnownHead[str] | None:
    found = Parsed(request)
    return known_head(request, found.url, found.headers, "filter", {b"host": b"a"})


@st.composite
def _requests(draw: st.DrawFn) -> bytes:
    """The known one with another length, and a few bytes changed, put in or left out."""
    length = draw(st.one_of(st.integers(0, 9).map(lambda it: b"%d" % it), st.binary(max_size=9)))
    data = HEAD % length + draw(st.binary(max_size=9))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=2)) + data[at + draw(st.integers(0, 2)) :]
    return data


@given(_requests())
@example(REQUEST)
@example(HEAD % b"0" + b"")
@example(HEAD % b"007" + b"abcdefg")
@example(HEAD % b"3\r" + b"abc")
def test_nothing_is_taken_otherwise_than_by_the_parser(data: bytes) -> None:
    head = known()
    assert head is not None
    found = head.body(data)
    if found is None or len(data) - found[0] != found[1]:
        return
    parsed = Parsed(data)

    assert (1, b"/filter", data[found[0] :]) == (parsed.messages, parsed.url, parsed.body)
    assert head.headers == tuple(it for it in parsed.headers if it[0] != b"content-length")


def test_a_head_is_known_whatever_its_length() -> None:
    head = known()

    assert head is not None
    assert ((b"host", b"a"), (b"x-b", b"c")) == head.headers
    for length in (b"0", b"12", b"1048576"):
        data = HEAD % length + b"..."
        assert (len(data) - 3, int(length)) == head.body(data)


@pytest.mark.parametrize(
    "length", [b"", b"12345678", b"+3", b" 3", b"0x3", b"3 ", b"\xb2", b"3\r\nContent-Length: 3"], ids=repr
)
def test_a_length_in_another_spelling_is_for_the_parser(length: bytes) -> None:
    head = known()

    assert head is not None
    assert head.body(HEAD % length + b"abc") is None


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"\r\n" + REQUEST, id="a blank line before it"),
        pytest.param(REQUEST.replace(b"X-B: c", b"X-B: " + b"c" * 1024), id="long"),
        pytest.param(REQUEST.replace(b"Content-Length: 3", b"Content-Length:3"), id="another spelling"),
        pytest.param(REQUEST.replace(b"X-B: c", b"Traceparent: 00-1-2-01"), id="of a trace"),
        pytest.param(REQUEST.replace(b"X-B: c", b"Homeport-Forwarded: 4.987"), id="forwarded"),
        pytest.param(REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0"), id="HTTP/1.0"),
        pytest.param(
            HEAD.replace(b"Content-Length: %b", b"Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n", id="chunks"
        ),
    ],
)
def test_these_are_not_kept(request_: bytes) -> None:
    assert 1 == Parsed(request_).messages
    assert known(request_) is None
