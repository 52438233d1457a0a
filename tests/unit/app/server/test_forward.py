"""What becomes of a verb that another replica decides: sent on once, answered as that one answers, or refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final

import httpx
import pytest

from app.replicas.replica import Route
from app.server.admission import Admission
from app.server.forward import Forwarder, seconds_left
from app.server.incoming import FORWARDED
from app.server.routes import verb_endpoints
from app.server.web import create_web
from app.telemetry.metrics import Metrics
from app.verbs.candidates import requested_hosts
from app.verbs.outcome import Answer, Verb, VerbFailure
from tests.api.small import request

HERE: Final = Route("here")
NOWHERE: Final = Route("nowhere")
SOON: Final = Route("soon")
VERBS: Final[tuple[Verb, ...]] = ("filter", "prioritize", "preempt", "bind")

Serve = Callable[[bytes], Awaitable[bytes | None]]


def answer(status: str, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


async def decided(_head: bytes) -> bytes:
    return answer("200 OK", b'{"by":"leader"}')


@asynccontextmanager
async def leader(serve: Serve = decided) -> AsyncIterator[tuple[Route, list[tuple[bytes, bytes]]]]:
    """A leader that answers what ``serve`` says, ``None``: hangs up. Yields where it is, and what it was asked."""
    asked: list[tuple[bytes, bytes]] = []

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                asked.append((head, await reader.readexactly(length)))
                told = await serve(head)
                if told is None:
                    return
                writer.write(told)
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()

    listening = await asyncio.start_server(connection, "127.0.0.1", 0)
    try:
        yield Route("there", f"127.0.0.1:{listening.sockets[0].getsockname()[1]}", "it"), asked
    finally:
        listening.close()


class Routes:
    """Goes through ``routes``, the last one for ever; a wait for a change takes the next one."""

    def __init__(self, *routes: Route) -> None:
        self.routes = list(routes)
        self.waits = 0

    def route(self, *, binds: bool) -> Route:
        return self.routes[0]

    async def changed(self, seconds: float) -> bool:
        self.waits += 1
        if len(self.routes) == 1 or seconds <= 0:
            return False
        self.routes.pop(0)
        return True


class Follower:
    """The four verbs of a replica, over HTTP."""

    def __init__(self, *routes: Route, time_limit: float = 5.0) -> None:
        self.metrics = Metrics()
        self.routes = Routes(*routes)
        self.decides: Serve = self._here
        self.forwarder = Forwarder(self.routes, self.metrics, self._hosts, clock=monotonic)
        endpoints = verb_endpoints(
            {"": dict.fromkeys(VERBS, self._decide), "/lean": dict.fromkeys(VERBS, self._decide)},
            self.metrics,
            Admission(time_limit, 100, self._hosts),
            max_body_bytes=1 << 20,
            forwarder=self.forwarder,
        )
        self.web = create_web((), None, version="test", direct=endpoints)

    async def _hosts(self, body: bytes | memoryview) -> Sequence[str]:
        return await requested_hosts(body, {})

    async def _here(self, _body: bytes) -> bytes | None:
        return b'{"by":"follower"}'

    async def _decide(self, body: bytes | memoryview, *_: float) -> Answer:
        return Answer(await self.decides(bytes(body)) or b"", "bound")

    async def post(self, verb: Verb, prefix: str = "", **headers: str) -> tuple[int, Any]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.web), base_url="http://homeport") as http:
            got = await http.post(f"{prefix}/{verb}", json=request(verb), headers=headers)
        self.forwarder.close()
        return got.status_code, json.loads(got.content) if got.content else None

    def counted(self, metric: str, verb: Verb) -> dict[str, float]:
        return {
            sample.labels["outcome"]: sample.value
            for found in self.metrics.registry.collect()
            for sample in found.samples
            if sample.name == metric and sample.labels["verb"] == verb and sample.value
        }


@pytest.mark.parametrize("prefix", ["", "/lean"])
@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_goes_to_the_leader_as_it_came_and_its_answer_comes_back(verb: Verb, prefix: str) -> None:
    async with leader() as (route, asked):
        follower = Follower(route)
        assert (200, {"by": "leader"}) == await follower.post(verb, prefix)

    ((head, body),) = asked
    assert head.startswith(f"POST {prefix}/{verb} HTTP/1.1\r\n".encode())
    assert request(verb) == json.loads(body)
    assert {"answered": 1} == follower.counted("homeport_forwarded_requests_total", verb)
    assert {"forwarded": 1} == follower.counted("homeport_requests_total", verb)


async def test_the_leader_is_told_how_long_the_caller_still_waits() -> None:
    async with leader() as (route, asked):
        await Follower(route, time_limit=7.0).post("filter")

    told = asked[0][0].lower().partition(FORWARDED.encode() + b": ")[2].partition(b"\r\n")[0]
    assert 0.0 < float(told) <= 7.0


async def test_an_answer_without_a_body_stays_one() -> None:
    async def fails(_head: bytes) -> bytes:
        return answer("500 Internal Server Error")

    async with leader(fails) as (route, _):
        assert (500, None) == await Follower(route).post("preempt")


REFUSALS = [
    pytest.param("filter", lambda said: (200, said), id="filter: an Error"),
    pytest.param("bind", lambda said: (200, said), id="bind: an Error"),
    pytest.param(
        "prioritize",
        lambda _: (200, [{"Host": host, "Score": 0} for host in ("n1", "n2", "n3")]),
        id="prioritize: the same for every host",
    ),
    pytest.param("preempt", lambda _: (500, None), id="preempt: 500"),
]


@pytest.mark.parametrize(("verb", "expected"), REFUSALS)
async def test_without_a_leader(verb: Verb, expected: Callable[[str], tuple[int, Any]]) -> None:
    follower = Follower(NOWHERE)
    status, got = await follower.post(verb)
    said = got["Error"] if isinstance(got, dict) else got

    assert expected("homeport: no replica leads") == (status, said)
    assert {"no_leader": 1} == follower.counted("homeport_requests_total", verb)
    assert 0 == follower.routes.waits


@pytest.mark.parametrize("verb", ["filter", "bind"])
async def test_a_leader_that_is_dead(verb: Verb) -> None:
    async with leader() as (route, _):
        pass
    follower = Follower(route)
    _, got = await follower.post(verb)

    assert got["Error"].startswith("homeport: the leader cannot be reached: ")
    assert {"unreachable": 1} == follower.counted("homeport_forwarded_requests_total", verb)


async def hangs_up(_head: bytes) -> None:
    return None


async def breaks_off(_head: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: 10"


async def never_ends(_head: bytes) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("verb", ["filter", "bind"])
@pytest.mark.parametrize("serve", [hangs_up, breaks_off, never_ends])
async def test_an_answer_that_does_not_come_is_no_success_and_nothing_is_sent_again(verb: Verb, serve: Serve) -> None:
    async with leader(serve) as (route, asked):
        _, got = await Follower(route, time_limit=0.2).post(verb)

    assert got["Error"] in ("homeport: the leader did not answer", "homeport: not decided within the time limit")
    assert 1 == len(asked)


async def test_an_answer_that_is_missing_is_counted_as_such() -> None:
    async with leader(never_ends) as (route, _):
        follower = Follower(route)
        with pytest.raises(VerbFailure, match=r"^homeport: the leader did not answer$"):
            await follower.forwarder("bind", b"{}", 0.05, hopped=False)
        follower.forwarder.close()

    assert {"unanswered": 1} == follower.counted("homeport_forwarded_requests_total", "bind")


@pytest.mark.parametrize("address", ["", "host:port", "127.0.0.1:70000"])
async def test_an_address_that_is_none_cannot_be_reached(address: str) -> None:
    _, got = await Follower(Route("there", address, "it")).post("bind")

    assert got["Error"].startswith("homeport: the leader cannot be reached")


async def test_one_that_no_longer_leads_sends_nowhere_and_its_successor_is_asked() -> None:
    async def misdirected(_head: bytes) -> bytes:
        return answer("421 Misdirected Request")

    async with leader(misdirected) as (old, asked), leader() as (new, _):
        follower = Follower(old, new)
        assert (200, {"by": "leader"}) == await follower.post("bind")

    assert 1 == len(asked)
    assert {"misdirected": 1, "answered": 1} == follower.counted("homeport_forwarded_requests_total", "bind")


async def test_between_two_leaders_a_request_is_kept_waiting() -> None:
    async with leader() as (route, _):
        assert (200, {"by": "leader"}) == await Follower(SOON, SOON, route).post("bind")
    assert (200, {"by": "follower"}) == await Follower(SOON, HERE).post("bind")
    assert (200, {"Error": "homeport: no replica leads"}) == await Follower(SOON).post("bind")


@pytest.mark.parametrize("route", [NOWHERE, SOON, Route("there", "127.0.0.1:1", "it")])
async def test_what_was_sent_on_is_not_sent_on_again(route: Route) -> None:
    follower = Follower(route)

    assert (421, None) == await follower.post("bind", **{FORWARDED: "3.0"})
    assert {"no_leader": 1} == follower.counted("homeport_requests_total", "bind")
    assert {} == follower.counted("homeport_forwarded_requests_total", "bind")


async def test_what_was_sent_on_is_answered_before_its_forwarder_gives_up() -> None:
    follower = Follower(HERE)
    follower.decides = never_ends

    assert (200, {"Error": "homeport: not decided within the time limit"}) == await follower.post(
        "bind", **{FORWARDED: "0.1"}
    )
    assert {"out_of_time": 1} == follower.counted("homeport_requests_total", "bind")


@pytest.mark.parametrize(("told", "seconds"), [(None, None), ("2.5", 2.5), ("-1", 0.0), ("soon", 0.0)])
def test_the_header(told: str | None, seconds: float | None) -> None:
    assert seconds == seconds_left(told)
