"""A body is read up to a limit, and judged by its declared length before that."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from app.server.incoming import read_body
from app.verbs.outcome import VerbFailure


class Sender:
    """Sends chunks, and knows how many were taken."""

    def __init__(self, chunks: Iterable[bytes], declared: str | None = None) -> None:
        self._messages: list[Message] = [{"type": "http.request", "body": it, "more_body": True} for it in chunks]
        self._headers = [] if declared is None else [(b"content-length", declared.encode())]
        self.taken = 0

    async def __call__(self) -> Message:
        self.taken += 1
        if self._messages:
            return self._messages.pop(0)
        return {"type": "http.request", "body": b"", "more_body": False}

    @property
    def request(self) -> Request:
        return Request({"type": "http", "method": "POST", "headers": self._headers}, self)


@pytest.mark.parametrize(
    ("chunks", "declared"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param([b"1234567890"], "10", id="in one piece"),
        pytest.param([b"12345", b"67890"], None, id="in pieces without a length"),
        pytest.param([b"12345"], "nonsense", id="a length that is none"),
    ],
)
async def test_a_body_within_the_limit_is_read(chunks: list[bytes], declared: str | None) -> None:
    assert b"".join(chunks) == await read_body(Sender(chunks, declared).request, 10)


@pytest.mark.parametrize(
    ("chunks", "declared", "taken"),
    [
        pytest.param([b"12345678901"], "11", 0, id="by its declared length, unread"),
        pytest.param([b"1"], "9" * 400, 0, id="by an absurd length, unread"),
        pytest.param([b"123456", b"78901", b"x"], None, 2, id="as it comes, the rest unread"),
        pytest.param([b"123456", b"78901", b"x"], "5", 2, id="where the length was a lie"),
    ],
)
async def test_a_body_beyond_the_limit_is_refused(chunks: list[bytes], declared: str | None, taken: int) -> None:
    sender = Sender(chunks, declared)

    with pytest.raises(VerbFailure, match=r"^homeport: the request body is larger than 10 bytes$") as refused:
        await read_body(sender.request, 10)

    assert ("bad_request", taken) == (refused.value.outcome, sender.taken)


async def test_a_caller_that_hangs_up_has_no_body() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        await read_body(Request({"type": "http", "method": "POST", "headers": []}, gone), 10)
