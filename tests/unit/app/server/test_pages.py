"""A request takes its turn once its body is there; a body that is late, too long or cut off is refused as ever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import APIRouter, Request
from starlette.types import Message, Scope

from app.server.bodies import BODY_SECONDS, MOST_BYTES, parsed
from app.server.pages import LONG_BYTES, MOST_LONG_BODIES, TOO_MANY
from app.server.web import Web, create_web
from tests.api.virtual import now, virtual_time


def web() -> Web:
    """An application with one page at two paths, which answers with the length of its body."""
    router = APIRouter()

    @router.post("/api/v1/page")
    @router.post("/page")
    async def page(request: Request) -> int:
        return len(await parsed(request, bytes, MOST_BYTES))

    return create_web([router], None, version="test", direct={})


async def body_of(*parts: bytes, ends: bool = True) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    if not ends:
        await asyncio.Event().wait()


async def ask(
    app: Web, body: AsyncIterator[bytes], declared: int | None = None, path: str = "/page"
) -> tuple[int, str]:
    headers = {} if declared is None else {"content-length": str(declared)}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://homeport") as http:
        answer = await http.post(path, content=body, headers=headers, timeout=None)
    return answer.status_code, answer.text


def slow_clients(app: Web, number: int, declared: int | None) -> list[asyncio.Task[tuple[int, str]]]:
    """Clients that send half a body and then nothing."""
    return [asyncio.create_task(ask(app, body_of(b"{", ends=False), declared)) for _ in range(number)]


@virtual_time
async def test_clients_that_send_slowly_hold_up_no_other() -> None:
    app, began = web(), now()
    slow = slow_clients(app, 200, 2)
    await asyncio.sleep(0.01)

    assert (200, "2") == await ask(app, body_of(b"{", b"}"), 2)
    assert now() - began < 1
    assert {408} == {status for status, _ in await asyncio.gather(*slow)}
    assert now() - began == pytest.approx(BODY_SECONDS, abs=1)


@virtual_time
@pytest.mark.parametrize("declared", [pytest.param(LONG_BYTES + 1, id="declared"), pytest.param(None, id="in chunks")])
async def test_few_long_bodies_are_kept_at_a_time(declared: int | None) -> None:
    """Long ones wait for a place, and short ones do not."""
    app = web()
    slow = slow_clients(app, MOST_LONG_BODIES, declared)
    await asyncio.sleep(1)
    waiting = asyncio.create_task(ask(app, body_of(b"x" * (LONG_BYTES + 1)), LONG_BYTES + 1))
    await asyncio.sleep(0.01)

    assert (200, "2") == await ask(app, body_of(b"{}"), 2)
    assert not waiting.done()
    assert {408} == {status for status, _ in await asyncio.gather(*slow)}
    assert (200, str(LONG_BYTES + 1)) == await waiting


@virtual_time
async def test_who_finds_no_place_in_time_is_turned_away() -> None:
    app = web()
    slow = slow_clients(app, 2 * MOST_LONG_BODIES, None)

    answers = [text for _, text in await asyncio.gather(*slow)]
    assert 0 < sum(TOO_MANY in it for it in answers) <= MOST_LONG_BODIES
    assert (200, "2") == await ask(app, body_of(b"{}"))


@virtual_time
async def test_a_busy_answer_has_the_form_of_its_path() -> None:
    app, found = web(), []
    slow = slow_clients(app, 2 * MOST_LONG_BODIES, None)
    for path in ("/page", "/api/v1/page"):
        slow += [asyncio.create_task(ask(app, body_of(b"{", ends=False), None, path)) for _ in range(4)]
    for status, text in await asyncio.gather(*slow):
        found += [json.loads(text)] if status == 503 else []

    assert {"detail": TOO_MANY} in found
    (told,) = {(it["kind"], it["reason"], it["message"], it["code"]) for it in found if "kind" in it}
    assert ("Status", "ServiceUnavailable", TOO_MANY, 503) == told


@virtual_time
@pytest.mark.parametrize("declared", [pytest.param(MOST_BYTES + 1, id="declared"), pytest.param(None, id="in chunks")])
async def test_a_body_that_is_too_long_is_refused(declared: int | None) -> None:
    status, _ = await ask(web(), body_of(b"x" * MOST_BYTES, b"x", ends=False), declared)

    assert 413 == status


@virtual_time
async def test_nothing_is_made_for_a_client_that_is_gone() -> None:
    scope: Scope = {"type": "http", "method": "POST", "path": "/page", "headers": [(b"content-length", b"2")]}
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await web()(scope, receive, send)

    assert [] == sent
