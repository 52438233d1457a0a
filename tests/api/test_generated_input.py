"""Two thousand requests that nobody should send, and some that are very long: every one is answered, and quickly.

``test_bad_input`` spoils recorded requests one at a time; here whole requests are made up too, for the endpoints of
other schedulers as well. ``make fuzz`` sends more of them.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from random import Random
from time import thread_time
from typing import Any, Final

import httpx
import pytest
from structlog.testing import capture_logs

from app.verbs.outcome import Verb
from tests.api.contract import breaches, status_breaches
from tests.api.mutations import mutated
from tests.api.recorded import recased
from tests.api.service import example, serving
from tests.builders import JsonObject, encoded

REQUESTS: Final = {
    "/filter": 400,
    "/prioritize": 400,
    "/preempt": 400,
    "/bind": 400,
    "/api/v1/cycle": 200,
    "/api/v1/explain": 160,
    "/api/v1/drain": 160,
    "/api/v1/rebalance": 80,
}
MOST_SECONDS: Final = 5.0
"""No request may hold up the others for longer, in processor time: other processes do not count.

Thirty times what 100 MB take and hundreds of times what the others do: a bound for work that grows faster than its
input, and not for speed.
"""

VERBS: Final[dict[str, Verb]] = {
    "/filter": "filter",
    "/prioritize": "prioritize",
    "/preempt": "preempt",
    "/bind": "bind",
}
POD: Final = example("filter-spread")["Pod"]
GOOD: Final[dict[str, list[JsonObject]]] = {
    "/filter": [example("filter-spread"), example("filter-home"), example("filter-first-boot")],
    "/prioritize": [example("prioritize-spread")],
    "/preempt": [example("preempt")],
    "/bind": [example("bind-spread"), example("bind-crowded"), example("bind-first-boot")],
    "/api/v1/cycle": [{"pod": POD}, {"pod": POD, "nodes": ["node-a1"]}, {"namespace": "shop", "name": "web-urgent"}],
    "/api/v1/explain": [{"pod": POD}, {"namespace": "machines", "name": "virt-launcher-db01-x7k2p"}],
    "/api/v1/drain": [{"nodes": ["node-b2"]}],
    "/api/v1/rebalance": [{"namespace": "shop", "kind": "Deployment", "name": "web", "most": 2, "soft": True}],
}

_WORDS: Final = (
    *("Pod", "Nodes", "NodeNames", "NodeNameToVictims", "NodeNameToMetaVictims", "Pods", "UID", "NumPDBViolations"),
    *("PodName", "PodNamespace", "PodUID", "Node", "pod", "name", "namespace", "nodes", "items", "metadata", "uid"),
    *("labels", "annotations", "ownerReferences", "controller", "kind", "apiVersion", "resourceVersion", "spec"),
    *("schedulerName", "nodeName", "priority", "tolerations", "affinity", "nodeAffinity", "nodeSelector", "status"),
    *("topologySpreadConstraints", "maxSkew", "topologyKey", "whenUnsatisfiable", "labelSelector", "matchLabels"),
    *("matchExpressions", "operator", "values", "key", "minDomains", "matchLabelKeys", "phase", "", "\u0000", "ключ"),
)
_TEXTS: Final = ("", "node-a1", "shop", "web-urgent", "DoNotSchedule", "In", "\u0000", "ключ", "\U0001f600", "a" * 5000)
_NUMBERS: Final = (0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 1.5, 1e308)


def grown(random: Random, depth: int = 0) -> Any:
    """Any JSON value, with the words of the protocol for keys."""
    if depth < 5 and random.random() < 0.6:
        if random.random() < 0.7:
            return {random.choice(_WORDS): grown(random, depth + 1) for _ in range(random.randint(0, 6))}
        return [grown(random, depth + 1) for _ in range(random.randint(0, 4))]
    return random.choice((None, True, False, random.choice(_TEXTS), random.choice(_NUMBERS)))


def made_up(random: Random, good: JsonObject) -> bytes:
    return encoded_any(grown(random))


def half_made_up(random: Random, good: JsonObject) -> bytes:
    """Some outer fields are anything at all."""
    fields = random.sample(list(good), random.randint(1, len(good)))
    return encoded_any({**good, **{name: grown(random, 1) for name in fields}})


def spoiled(random: Random, good: JsonObject) -> bytes:
    return mutated(random, encoded(good))


def oddly_cased(random: Random, good: JsonObject) -> bytes:
    """Every key in another case, also all of them twice with different values."""
    cases: tuple[Callable[[str], str], ...] = (str.lower, str.upper, str.swapcase, str.title)
    odd = encoded(recased(good, random.choice(cases)))
    return odd if random.random() < 0.5 else odd[:-1] + b"," + encoded(good)[1:]


def repeated(random: Random, good: JsonObject) -> bytes:
    """A key comes twice in some object, with different values."""
    body = encoded(good)
    places = [index for index, byte in enumerate(body) if byte == ord("{") and body[index + 1] != ord("}")]
    at = random.choice(places) + 1
    again = encoded_any({random.choice(_WORDS): grown(random, 3)})[1:-1]
    return body[:at] + again + b"," + again + b"," + body[at:]


def nested(random: Random, good: JsonObject) -> bytes:
    """Somewhere in it 100,000 levels."""
    field = random.choice(list(good))
    value: Any = "DEEP"
    for _ in range(random.randint(0, 3)):
        value = {random.choice(_WORDS): value}
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
    depth = random.choice((200, 1000, 100_000))
    return encoded({**good, field: value}).replace(b'"DEEP"', opening * depth + b"1" + closing * depth)


def huge(random: Random, good: JsonObject) -> bytes:
    """A text of a megabyte, or a number of a thousand digits."""
    text = random.choice((b'"' + b"x" * 1_000_000 + b'"', b"9" * 1000, b"-1e9999", b'"\\ud800"', b'"\xff\xfe"'))
    place = random.choice(encoded(good).split(b'"')[1::2]) or b"Pod"
    return encoded(good).replace(b'"' + place + b'"', text, 1)


KINDS: Final = (made_up, *(half_made_up,) * 3, *(spoiled,) * 8, *(oddly_cased,) * 2, *(repeated,) * 2, huge)
EVERY: Final = 20
"""One request in so many is nested deeply: these take milliseconds."""


def generated(path: str) -> Iterator[bytes]:
    """The same requests at every run."""
    random = Random(f"generated {path}")
    for number in range(REQUESTS[path]):
        kind = nested if number % EVERY == 0 else random.choice(KINDS)
        yield kind(random, random.choice(GOOD[path]))


def encoded_any(found: Any) -> bytes:
    """As ``json`` writes it: numbers of any size."""
    return json.dumps(found, ensure_ascii=False).encode()


@pytest.mark.parametrize("path", REQUESTS)
async def test_generated_requests(path: str) -> None:
    """The contract holds, nothing is raised, nobody is held up, and the picture is sound after it all."""
    slowest, codes = 0.0, Counter[int]()
    with capture_logs() as logged:
        async with serving() as api:
            for number, body in enumerate(generated(path)):
                started = thread_time()
                response = await api.http.post(path, content=body)
                slowest = max(slowest, thread_time() - started)
                codes[response.status_code] += 1
                assert [] == wrong(path, body, response), (number, body[:2000], response.content[:2000])
            check = await api.get("/api/v1/check")

    assert {"consistent": True, "differences": []} == check
    assert [] == [entry["traceback"] for entry in logged if "traceback" in entry]
    assert slowest < MOST_SECONDS
    assert codes[200] > REQUESTS[path] // 50
    assert path in ("/filter", "/bind") or len(codes) > 1


def wrong(path: str, body: bytes, response: httpx.Response) -> list[str]:
    """What is wrong with an answer."""
    return breaches(VERBS[path], body, response) if path in VERBS else list(_mistakes(response))


def _mistakes(response: httpx.Response) -> Iterator[str]:
    """A Status where there is no answer. A plugin may fail on constraints that nobody can create."""
    found = response.json()
    if response.status_code == 500 and 'plugin "PodTopologySpread"' not in found["message"]:
        yield f"a fault: {found}"
    if response.status_code not in (200, 404, 422, 500):
        yield f"status {response.status_code}"
    if response.status_code != 200:
        yield from status_breaches(response)


MEGABYTE: Final = 1 << 20
HUNDRED: Final = 100
LIMIT: Final = 128
"""Default of ``maxBodyBytes``, in MiB."""


class Long:
    """A body of a request with a filling of so many MiB in ``opening…closing``; ``sent`` counts its parts."""

    def __init__(self, before: bytes, filling: bytes, after: bytes, megabytes: int) -> None:
        self._parts = (before, filling, after)
        self._megabytes = megabytes
        self.sent = 0

    @property
    def length(self) -> int:
        before, filling, after = self._parts
        return len(before) + len(filling) * self._megabytes + len(after)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        before, filling, after = self._parts
        for part in (before, *(filling,) * self._megabytes, after):
            self.sent += 1
            yield part
            await asyncio.sleep(0)


@asynccontextmanager
async def heartbeat() -> AsyncIterator[list[float]]:
    """How long others had to wait for each of their turns, in seconds of processor time."""
    waits: list[float] = []

    async def beat() -> None:
        while True:
            started = thread_time()
            try:
                await asyncio.sleep(0)
            finally:
                waits.append(thread_time() - started)

    task = asyncio.create_task(beat())
    await asyncio.sleep(0)
    try:
        yield waits
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


FILLINGS: Final = {
    "a long text": (b'"', b"x" * MEGABYTE, b'"'),
    "blanks": (b"", b" " * MEGABYTE, b"1"),
    "no UTF-8": (b'"', b"\xff" * MEGABYTE, b'"'),
    "one list": (b"[0", b",0" * (MEGABYTE // 2), b"]"),
}


def long_request(path: str, filling: str, megabytes: int = HUNDRED, field: str = "more") -> Long:
    """A good request with one field more, or with another value of one."""
    opening, middle, closing = FILLINGS[filling]
    before = encoded({**GOOD[path][0], field: "HERE"}).partition(b'"HERE"')
    return Long(before[0] + opening, middle, closing + before[2], megabytes)


OUTCOMES: Final = {"/filter": "feasible", "/prioritize": "scored", "/preempt": "candidates"}
FIELDS: Final = {"/filter": "NodeNames", "/prioritize": "Nodes", "/preempt": "NodeNameToMetaVictims"}


@pytest.mark.parametrize(
    ("path", "filling", "field", "outcome"),
    [
        *(
            pytest.param(path, filling, "more", outcome, id=f"{path}: {filling} in a field that nobody reads")
            for path, outcome in OUTCOMES.items()
            for filling in FILLINGS
        ),
        *(
            pytest.param(path, "one list", field, "bad_request", id=f"{path}: a list for {field}")
            for path, field in FIELDS.items()
        ),
    ],
)
async def test_a_hundred_megabytes_are_read_and_answered(path: str, filling: str, field: str, outcome: str) -> None:
    body = long_request(path, filling, field=field)
    async with serving() as api, heartbeat() as waits:
        response = await api.http.post(path, content=body, headers={"content-length": str(body.length)})
        outcomes = api.outcomes(VERBS[path])

    assert (HUNDRED + 2, {outcome: 1}) == (body.sent, outcomes)
    assert outcome == "bad_request" or [] == breaches(VERBS[path], encoded(GOOD[path][0]), response)
    assert max(waits) < MOST_SECONDS


@pytest.mark.parametrize("path", REQUESTS)
@pytest.mark.parametrize("declared", [pytest.param(True, id="declared"), pytest.param(False, id="not declared")])
async def test_a_body_above_the_limit_is_refused_unread(path: str, declared: bool) -> None:
    """With a length it is not read at all, without one no further than the limit: 4 MiB under /api, less for bind."""
    body = long_request(path, "a long text", LIMIT + 10)
    headers = {"content-length": str(body.length)} if declared else {}
    async with serving() as api, heartbeat() as waits:
        response = await api.http.post(path, content=body, headers=headers)

    assert (0 if declared else _parts_read(path)) == body.sent
    assert max(waits, default=0.0) < MOST_SECONDS
    assert told(path) == (response.status_code, response.content.partition(b"homeport: ")[2].partition(b" bytes")[0])


def _parts_read(path: str) -> int:
    """The beginning, and one part of a MiB more than the limit lets in."""
    return 2 if path == "/bind" else 5 if path.startswith("/api") else LIMIT + 1


def told(path: str) -> tuple[int, bytes]:
    """Status, and the sentence where there is one."""
    sentence = b"the request body is larger than "
    match path:
        case "/prioritize" | "/preempt":
            return 500, b""
        case "/filter":
            return 200, sentence + b"134217728"
        case "/bind":
            return 200, sentence + b"65536"
    return 413, sentence + b"4194304"
