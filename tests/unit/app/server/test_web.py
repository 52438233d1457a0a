"""A process that is told to end first does what has to be done while it still serves."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import httpx
import pytest
import uvicorn
from fastapi import APIRouter, FastAPI, Request
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from app.server.bodies import parsed
from app.server.failures import NOT_SERVED
from app.server.incoming import VerbRequest
from app.server.pages import Application, PageQueues
from app.server.web import create_web
from tests.api.contract import status_breaches
from tests.listening import on_loopback, running


async def test_it_serves_until_it_has_left() -> None:
    web, leaving, left = FastAPI(), asyncio.Event(), asyncio.Event()

    async def leave() -> None:
        leaving.set()
        await left.wait()

    listener = on_loopback(web)
    async with running(web, [listener], leave) as served, httpx.AsyncClient(trust_env=False) as http:
        served.handle_exit(signal.SIGTERM, None)
        await leaving.wait()
        assert 404 == (await http.get(f"http://127.0.0.1:{listener.port}/nothing")).status_code
        assert not served.should_exit

        left.set()
        await until_ended(served)


async def until_ended(served: uvicorn.Server) -> None:
    async with asyncio.timeout(10):
        while not served.should_exit:  # noqa: ASYNC110  # uvicorn tells nobody
            await asyncio.sleep(0.001)


CLOSED = "unable to perform operation on <TCPTransport closed=True reading=False 0x1>; the handler is closed"


@pytest.mark.parametrize(("path", "method"), [("/page", "GET"), ("/page", "POST"), ("/livez", "GET")])
async def test_an_answer_to_a_connection_that_has_closed_is_dropped(path: str, method: str) -> None:
    """uvloop raises on a write to a closed transport of which uvicorn has not heard yet."""
    router = APIRouter()

    @router.api_route(path, methods=[method])
    def page() -> dict[str, str]:
        return {}

    web = create_web([router], None, version="0", direct={}, pages=PageQueues())
    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", "http_version": "1.1"}

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def closed(_: object) -> None:
        raise RuntimeError(CLOSED)

    async def broken(_: object) -> None:
        raise RuntimeError("a screw is loose")

    with capture_logs() as logs:
        await web(dict(scope), receive, closed)
    assert [] == logs
    if path == "/page":
        with pytest.raises(RuntimeError, match="loose"):
            await web(dict(scope), receive, broken)


@pytest.mark.parametrize("leave", [None, lambda: asyncio.sleep(0)])
async def test_the_end_is_told(leave: Callable[[], Awaitable[None]] | None) -> None:
    """The signal, and at the end how long it took and what was left."""
    web = FastAPI()
    with capture_logs() as logs:
        async with running(web, [on_loopback(web)], leave) as served:
            served.handle_exit(signal.SIGTERM, None)
            await until_ended(served)

    ending, ended = logs
    assert {"log_level": "info", "event": "ending", "signal": "SIGTERM"} == ending
    assert 0 <= ended.pop("seconds")
    assert {"log_level": "info", "event": "ended", "connections": 0, "requests": 0} == ended


async def test_a_second_signal_does_not_wait() -> None:
    async def leave() -> None:
        await asyncio.Event().wait()

    web = FastAPI()
    async with running(web, [on_loopback(web)], leave) as served:
        for _ in range(2):
            served.handle_exit(signal.SIGTERM, None)
        await until_ended(served)
        assert served.should_exit


class Endpoint:
    async def answer(self, request: VerbRequest) -> tuple[int, bytes]:
        return 200, b"{}"

    def forbidden(self, message: str) -> tuple[int, bytes]:
        return 403, message.encode()


class Queue(PageQueues):
    """Notes who takes a turn, and lets him through."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[str, str]] = []

    async def __call__(self, application: Application, scope: Scope, receive: Receive, send: Send) -> None:
        self.taken.append((scope["method"], scope["path"]))
        await application(scope, receive, send)


async def test_a_call_of_a_verb_waits_for_no_page() -> None:
    """Only the call itself: who asks for a verb as for a page takes his turn."""
    pages = Queue()
    web = create_web((), None, version="test", direct={"/filter": Endpoint()}, pages=pages)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://homeport") as http:
        told = [
            (await http.request(method, path)).status_code
            for method, path in (("POST", "/filter"), ("GET", "/filter"), ("HEAD", "/"), ("GET", "/nothing"))
        ]

    assert [200, 405, 200, 404] == told
    assert [("GET", "/filter"), ("GET", "/"), ("GET", "/nothing")] == pages.taken


async def test_a_page_that_fails_again_and_again_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    router = APIRouter()

    @router.get("/page/{name}")
    async def page(name: str) -> None:
        raise ZeroDivisionError(name)

    web = create_web([router], None, version="test", direct={})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://homeport") as http:
        told = [(await http.get(f"/page/{number}")).status_code for number in range(5)]

    log = capsys.readouterr().out
    assert [500] * 5 == told
    assert (1, True) == (log.count("page failed"), "/page/{name}" in log)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/nothing", (404, {"reason": "NotFound", "message": NOT_SERVED}, None)),
        ("GET", "/api/v1", (404, {"reason": "NotFound", "message": NOT_SERVED}, None)),
        (
            "POST",
            "/api/v1/page",
            (405, {"reason": "MethodNotAllowed", "message": "homeport: the path does not accept the method"}, "GET"),
        ),
        ("GET", "/api/v1/page", (500, {"reason": "InternalError", "message": "homeport: internal error"}, None)),
        ("GET", "/nothing", (404, {"detail": "Not Found"}, None)),
        ("POST", "/page", (405, {"detail": "Method Not Allowed"}, "GET")),
        ("GET", "/page", (500, "Internal Server Error", None)),
    ],
)
async def test_what_no_endpoint_answers(method: str, path: str, expected: tuple[int, object, str | None]) -> None:
    """An unknown path, a wrong method, an exception: below /api/v1 a Status, elsewhere as ever."""
    router = APIRouter()

    @router.get("/api/v1/page")
    @router.get("/page")
    async def page() -> None:
        raise ZeroDivisionError

    web = create_web([router], None, version="test", direct={})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://homeport") as http:
        answer = await http.request(method, path)

    body: object = answer.text
    if answer.headers["content-type"] == "application/json":
        found = answer.json()
        assert "kind" not in found or [] == status_breaches(answer)
        body = {name: found[name] for name in ("reason", "message", "detail") if name in found}
    assert expected == (answer.status_code, body, answer.headers.get("allow"))


async def test_half_bodies_write_one_line(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """Of a page, of a cycle and of a verb."""
    router = APIRouter(prefix="/api/v1")

    @router.post("/explain")
    @router.post("/cycle")
    async def read(request: Request) -> int:
        return len(await parsed(request, bytes, 100))

    turned_away: list[str] = []
    web = create_web([router], None, version="test", direct={"/filter": Endpoint()})
    listener = on_loopback(web, turned_away=lambda _, cause: turned_away.append(cause))
    async with running(web, [listener]) as served:
        for path in ("/filter", "/api/v1/cycle", "/api/v1/explain") * 5:
            _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf".encode())
            await writer.drain()
            while not served.server_state.connections:  # noqa: ASYNC110  # uvicorn tells nobody
                await asyncio.sleep(0.001)
            writer.close()
            while served.server_state.connections:  # noqa: ASYNC110  # uvicorn tells nobody
                await asyncio.sleep(0.001)

    assert (1, []) == (capsys.readouterr().out.count("connection or request rejected"), caplog.records)
    assert ["body_cut_off"] * 15 == turned_away
