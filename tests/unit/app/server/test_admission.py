"""Every call is answered in the defined way by its deadline, or turned away at once. In virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from app.server.admission import OUT_OF_TIME, OVERLOADED, READ_WHEN_LATE, Admission
from app.server.incoming import ARRIVED, StreamedRequest
from app.server.routes import VerbCall, verb_endpoints
from app.telemetry.metrics import Metrics
from app.verbs.outcome import Answer, Verb
from tests.api.virtual import now, settle, virtual_time

VERBS: tuple[Verb, ...] = ("filter", "prioritize", "preempt", "bind")
DECIDING = VERBS[:3]
LIMIT = 4.75
MOST = 3

Reply = tuple[int, Any]


def failed(verb: Verb, message: str, hosts: Sequence[str] = ("n1", "n2")) -> Reply:
    """What a failure looks like to its caller."""
    if verb == "filter":
        lists: dict[str, Any] = {"Nodes": None, "NodeNames": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}}
        return 200, {**lists, "Error": message}
    if verb == "bind":
        return 200, {"Error": message}
    if verb == "prioritize" and hosts:
        return 200, [{"Host": it, "Score": 0} for it in hosts]
    return 500, None


class Body:
    """A body that comes in parts; each part may have to wait for something. ``taken``: parts that were asked for."""

    def __init__(self, *parts: bytes | asyncio.Event) -> None:
        self._parts = list(parts)
        self.taken = 0

    async def __call__(self) -> Message:
        self.taken += 1
        part = self._parts.pop(0) if self._parts else b""
        if isinstance(part, asyncio.Event):
            await part.wait()
            part = b""
        return {"type": "http.request", "body": part, "more_body": bool(self._parts)}


class Gone(Body):
    """A caller that hangs up."""

    async def __call__(self) -> Message:
        return {"type": "http.disconnect"}


class Door:
    """Four verbs behind admission; each call is answered by ``answer``, which may take its time."""

    def __init__(
        self, answer: Callable[[], Awaitable[None]], most: int = MOST, of_verb: Mapping[Verb, float] = {}
    ) -> None:
        self.decided: list[Verb] = []
        self.told: list[float] = []
        self.metrics = Metrics()
        self._answer = answer
        calls: dict[Verb, VerbCall] = {verb: self._verb(verb) for verb in VERBS}
        admission = Admission(LIMIT, most, self._hosts, clock=now, of_verb=of_verb)
        self._endpoints = verb_endpoints({"": calls}, self.metrics, admission, max_body_bytes=8 << 20)

    def _verb(self, verb: Verb) -> VerbCall:
        async def call(_body: bytes | memoryview, *seconds: float) -> Answer:
            self.decided.append(verb)
            self.told += seconds
            await self._answer()
            return Answer(b'"decided"', "bound" if verb == "bind" else "scored")

        return call

    async def _hosts(self, body: bytes | memoryview) -> Sequence[str]:
        return bytes(body).decode().split() if body else []

    async def post(self, verb: Verb, body: Body | None = None, *, arrived: float | None = None) -> Reply:
        scope: dict[str, Any] = {"type": "http", "method": "POST", "path": f"/{verb}", "headers": []}
        if arrived is not None:
            scope[ARRIVED] = arrived
        asked = StreamedRequest(Request(scope, body or Body(b"n1 n2")))
        status, content = await self._endpoints[f"/{verb}"].answer(asked)
        assert isinstance(content, bytes)
        return status, json.loads(content) if content else None

    def counted(self, verb: Verb, outcome: str) -> float:
        return (
            self.metrics.registry.get_sample_value("homeport_requests_total", {"verb": verb, "outcome": outcome}) or 0.0
        )


async def never() -> None:
    await asyncio.Event().wait()


async def at_once() -> None:
    return


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("waited", [0.0, 3.0], ids=["seen at once", "seen after 3 s"])
@virtual_time
async def test_what_is_not_decided_in_time_is_answered_by_then(verb: Verb, waited: float) -> None:
    """Whatever it waits for: an owner, a bind that is due, its place. The time before it was seen counts."""
    door, began = Door(never), now()

    assert failed(verb, OUT_OF_TIME) == await door.post(verb, arrived=began - waited)
    assert began + LIMIT - waited == pytest.approx(now())
    assert 1 == door.counted(verb, "out_of_time")


@pytest.mark.parametrize(("verb", "limit"), [("bind", 60.0), ("filter", LIMIT)])
@virtual_time
async def test_a_verb_may_have_a_limit_of_its_own(verb: Verb, limit: float) -> None:
    door, began = Door(never, of_verb={"bind": 60.0}), now()

    assert failed(verb, OUT_OF_TIME) == await door.post(verb)
    assert began + limit == pytest.approx(now())


@virtual_time
async def test_bind_is_told_how_long_its_caller_waits() -> None:
    """Its transaction ends before: nothing is bound for a caller who has given up at Permit."""
    door = Door(at_once)

    await door.post("bind", arrived=now() - 3.0)
    await door.post("filter")

    assert [LIMIT - 3.0] == door.told


@pytest.mark.parametrize("verb", VERBS)
@virtual_time
async def test_a_body_that_does_not_come_is_not_waited_for_longer(verb: Verb) -> None:
    door, began = Door(at_once), now()

    assert failed(verb, OUT_OF_TIME, hosts=()) == await door.post(verb, Body(b"n1", asyncio.Event()))
    assert began + LIMIT == pytest.approx(now())
    assert [] == door.decided


@pytest.mark.parametrize("verb", VERBS)
@virtual_time
async def test_a_call_whose_time_is_over_when_it_is_seen_is_not_decided(verb: Verb) -> None:
    door = Door(at_once)

    assert failed(verb, OUT_OF_TIME)[0] == (await door.post(verb, arrived=now() - LIMIT))[0]
    assert [] == door.decided
    assert 1 == door.counted(verb, "out_of_time")


@pytest.mark.parametrize("verb", DECIDING)
@virtual_time
async def test_what_is_beyond_the_limit_is_turned_away_at_once(verb: Verb) -> None:
    """All deciding verbs count together. A filter's body is not even read."""
    door, began, body = Door(never), now(), Body(b"n1 n2")
    under_way = [asyncio.create_task(door.post(it)) for it in DECIDING]
    await settle()

    assert failed(verb, OVERLOADED) == await door.post(verb, body)
    assert (began, 1) == (now(), door.counted(verb, "overloaded"))
    assert body.taken == (verb == "prioritize")
    assert [failed(it, OUT_OF_TIME) for it in DECIDING] == list(await asyncio.gather(*under_way))


@virtual_time
async def test_no_bind_is_turned_away() -> None:
    """kube-scheduler opens a connection for each, and has hundreds under way."""
    door, open_ = Door(never), asyncio.Event()
    door._answer = open_.wait  # type: ignore[assignment]
    deciding = [asyncio.create_task(door.post("filter")) for _ in range(MOST + 1)]
    binds = [asyncio.create_task(door.post("bind")) for _ in range(1000)]
    for _ in range(2000):
        await asyncio.sleep(0)
    open_.set()

    assert [(200, "decided")] * 1000 == list(await asyncio.gather(*binds))
    await asyncio.gather(*deciding)
    assert 1 == door.counted("filter", "overloaded")


@virtual_time
async def test_the_names_of_an_endless_list_are_not_read_to_turn_it_away() -> None:
    door = Door(never)
    under_way = [asyncio.create_task(door.post("filter")) for _ in range(MOST)]
    await settle()
    piece = b"n" * 1024 * 1024
    body = Body(*[piece] * 8)

    assert (500, None) == await door.post("prioritize", body)
    assert body.taken == READ_WHEN_LATE // len(piece) + 1
    await asyncio.gather(*under_way)


@pytest.mark.parametrize("how", ["answered", "out of time", "hung up", "failed"])
@virtual_time
async def test_a_place_is_free_again_however_a_call_ended(how: str) -> None:
    async def fail() -> None:
        raise RuntimeError("a screw is loose")

    door = Door({"out of time": never, "failed": fail}.get(how, at_once), most=1)
    for _ in range(3):
        with suppress(ClientDisconnect):
            await door.post("filter", Gone() if how == "hung up" else None)

    assert 0 == door.counted("filter", "overloaded")


@virtual_time
async def test_a_burst_is_decided_one_in_a_round() -> None:
    """In between the event loop reads and writes: what arrives then is seen, and its time begins."""
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    seen: list[int] = []

    async def note() -> None:
        seen.append(rounds)

    door = Door(note, most=100)
    counting = asyncio.create_task(count())
    replies = await asyncio.gather(*(door.post("filter") for _ in range(100)))
    counting.cancel()

    assert [(200, "decided")] * 100 == replies
    assert 100 == len(set(seen))
