"""Who judges the answers sees what is wrong with them, and nothing where nothing is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.builders import encoded
from tests.fuzz.answering import sent
from tests.fuzz.campaign import shrunk
from tests.fuzz.client import Listener
from tests.fuzz.findings import shown
from tests.fuzz.requests import Ask, Case, Due, whole

NAMES = ["n1", "n2"]
ASKED = encoded({"Pod": {}, "Nodes": None, "NodeNames": NAMES})
VERDICT: dict[str, Any] = {"Nodes": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
ALL = {**VERDICT, "NodeNames": NAMES}
ONE = {**VERDICT, "NodeNames": ["n1"]}
FILTER = Ask("POST", "/filter", ASKED, "filter")
LEAN = Ask("POST", "/lean/filter", ASKED, "filter")
SCORES = Ask("POST", "/lean/prioritize", ASKED, "prioritize")
PAGE = Ask("GET", "/livez", b"")


def answer(found: object, status: int = 200, kind: str = "application/json") -> bytes:
    body = found if isinstance(found, bytes) else encoded(found)
    return (
        b"HTTP/1.1 %d X\r\ncontent-length: %d\r\ncontent-type: %s\r\n\r\n" % (status, len(body), kind.encode()) + body
    )


@asynccontextmanager
async def telling(told: bytes) -> AsyncIterator[Listener]:
    """Somebody who says the same to everybody, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(told)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield Listener(server.sockets[0].getsockname()[1])


def case(*asks: Ask, due: Due = "answer", refusable: bool = False) -> Case:
    return Case(0, "made", "verbs", tuple(map(whole, asks)), asks, due, refusable=refusable)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        pytest.param(case(FILTER), answer(ALL), id="a verdict"),
        pytest.param(case(FILTER, FILTER), answer(ALL) * 2, id="two in a row"),
        pytest.param(case(LEAN), answer(ONE), id="lean, refusals left out"),
        pytest.param(case(LEAN), answer({**VERDICT, "NodeNames": None, "Error": "no"}), id="lean, an error"),
        pytest.param(case(SCORES), answer([{"Host": "n2", "Score": -10}]), id="lean, one score"),
        pytest.param(case(PAGE), answer(b"ok\n", kind="text/plain"), id="a page"),
        pytest.param(case(PAGE), answer(b"", 404), id="no such page"),
        pytest.param(case(FILTER, refusable=True), answer(b"", 413), id="refused, where that may be"),
        pytest.param(case(FILTER, due="answer or end"), b"", id="an end, where that may be"),
        pytest.param(case(FILTER, due="nothing"), b"", id="nothing, where nothing is due"),
        pytest.param(case(FILTER, due="nothing"), answer(b"Invalid", 400), id="a refusal, where nothing is due"),
    ],
)
async def test_good_answers(made: Case, told: bytes) -> None:
    async with telling(told) as listener:
        assert [] == await sent(made, listener)


@pytest.mark.parametrize(
    ("made", "told", "word"),
    [
        pytest.param(case(FILTER), b"", "missing", id="no answer"),
        pytest.param(case(FILTER, FILTER), answer(ALL), "answer 1 is missing", id="one of two"),
        pytest.param(case(FILTER), answer(ALL)[:-3], "half a body", id="half an answer"),
        pytest.param(case(FILTER), b"HTTP/1.1 200 OK\n\n", "half a head", id="no head"),
        pytest.param(case(FILTER), b"HTTP/1.1 20 OK\r\n\r\n", "no head", id="no status"),
        pytest.param(case(FILTER), answer(ONE), "no split", id="a node left out"),
        pytest.param(case(FILTER), answer(b"", 500), "500", id="a filter that fails"),
        pytest.param(case(FILTER), answer(b"", 413), "413", id="a refusal of what is none to refuse"),
        pytest.param(case(FILTER), answer(b"{"), "no JSON", id="no JSON"),
        pytest.param(case(LEAN), answer({**ALL, "NodeNames": ["n9"]}), "asked about", id="lean, a phantom"),
        pytest.param(case(LEAN), answer({**ALL, "NodeNames": []}), "refusals are missing", id="lean, no reasons"),
        pytest.param(case(SCORES), answer([{"Host": "n9", "Score": 0}]), "scores", id="lean, a phantom's score"),
        pytest.param(case(PAGE), answer(b"Traceback (most", 500), "fault", id="a traceback"),
        pytest.param(case(PAGE), answer(b"oh", 502), "502", id="a status nobody has"),
        pytest.param(case(FILTER, due="nothing"), answer(b"oh no", 500), "500", id="a fault, where nothing is due"),
        pytest.param(case(FILTER, due="nothing"), b"\x00" * 9 + b"\r\n\r\n", "no head", id="nonsense, likewise"),
    ],
)
async def test_bad_answers(made: Case, told: bytes, word: str) -> None:
    async with telling(told) as listener:
        found = await sent(made, listener)

    assert [True] == [word in it for it in found], found


async def test_what_is_not_needed_is_left_out() -> None:
    async def still(body: bytes) -> bool:
        return b"bad" in body

    assert b"bad" == await shrunk(b"much of this is good, and some is bad, as it goes", still)


def test_repeats_are_told_once() -> None:
    assert '"<7 x ab>"' != shown(b"ab" * 7)
    assert '"[<1000 x x>]"' == shown(b"[" + b"x" * 1000 + b"]")
