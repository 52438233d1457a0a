"""An API server that lies to a reflector, then is honest again, in virtual time: the same for a seed.

A case is a script of answers to discovery, lists and watches. While it lasts, requests stay within the pace; afterwards
the picture comes to hold what the honest server has.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import httpx
import structlog
from msgspec import Struct

from app.cache.cluster import Cluster
from app.feeds.reflector import Reflector
from app.kube.kinds import PODS
from tests.api.mutations import mutated
from tests.api.virtual import VirtualLoop, now
from tests.apiserver import client_of
from tests.builders import encoded, pod_object
from tests.chaos.report import Report
from tests.fuzz.findings import Finding, Findings, What

_HONEST_VERSION: Final = 5000
_HONEST_PODS: Final = ("a", "b", "c")
_AFTERWARDS_SECONDS: Final = 900.0
"""Virtual seconds in which the feed has to recover; the longest delay is a minute, the longest silence 140 s."""

_MOST_LIES: Final = 25
_ENDED: Final = "the feed ended"
_A_SECOND: Final = 12
"""Lists that begin and watches in a second: 5 that are answered, and 7 that are lost at the start of an outage."""

_VERSIONS: Final[tuple[Any, ...]] = (
    "9" * 5000, "9" * 21, "9" * 20, str(2**64 - 1), str(2**63), "18446744073709551616", "0", "1", "-1", "", " ", "1.5",
    "1e9", "٣", "abc", "\x00", "4999", "6000", None, 7, -7, 1.5, True, [], {}, 10**30,
)  # fmt: skip
_TOKENS: Final[tuple[Any, ...]] = ("", "x", "x", "y", "9" * 5000, None, 7, [], "\n", "é")
_STATUSES: Final = (
    200, 200, 200, 201, 204, 301, 304, 400, 401, 403, 404, 408, 410, 410, 413, 422, 429, 500, 503, 504, 599,
)  # fmt: skip
_RETRY_AFTER: Final = ("0", "1", "-1", "9" * 5000, "1e9", "²", "soon", "", "nan", "inf")
_KINDS_OF_EVENT: Final = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "", "NEW", None, 7)


class Case(Struct, frozen=True):
    """``answers``: to the first requests, in turn; each is made anew by a generator with this seed."""

    number: int
    family: str
    seed: str


class Outcome(Struct, frozen=True):
    """What is wrong, empty if nothing is; and the longest step of the reflector, in ms of processor time."""

    wrong: str
    longest_ms: float


# what is answered


def page(random: Random) -> Any:
    """A page of a list."""
    names = [f"p{random.randrange(40)}" for _ in range(random.choice((0, 1, 3, 30)))]
    items = [json.loads(encoded(pod_object(name))) for name in names]
    for it in items:
        it["metadata"]["resourceVersion"] = random.choice(_VERSIONS)
    metadata = {"resourceVersion": random.choice(_VERSIONS), "continue": random.choice(_TOKENS)}
    return {"kind": "PodList", "metadata": metadata, "items": random.choice((items, items, items, None, {}, "x"))}


def told(random: Random) -> Any:
    """An event of a watch."""
    kind = random.choice(_KINDS_OF_EVENT)
    if kind == "ERROR":
        code = random.choice((*_STATUSES, 0, -1, None, "410", 10**30))
        details = {"retryAfterSeconds": random.choice((0, 1, -1, 1e300, "x", 10**30))}
        return {"type": kind, "object": {"code": code, "message": random.choice(("no", "", None)), "details": details}}
    found = json.loads(encoded(pod_object(f"p{random.randrange(40)}")))
    found["metadata"]["resourceVersion"] = random.choice(_VERSIONS)
    return {"type": kind, "object": found}


def discovery(random: Random) -> Any:
    names = ("pods", "pods", "podz", "secrets", "../pods", "", "pods/status", None, 7, "%2e", "é" * 300)
    found = [{"name": random.choice(names), "kind": random.choice(("Pod", "Pod", "Node", None)), "namespaced": True}]
    return {"resources": random.choice((found, found, [], None, {}))}


def headers_of(random: Random) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    if random.random() < 0.3:
        found[b"Retry-After"] = random.choice(_RETRY_AFTER).encode()
    if random.random() < 0.1:
        found[b"Set-Cookie"] = b"c%d=%s" % (random.randrange(9999), b"x" * 3000)
    if random.random() < 0.1:
        found[b"Content-Encoding"] = random.choice((b"gzip", b"deflate", b"br", b"x"))
    if random.random() < 0.1:
        found[b"Content-Type"] = random.choice((b"text/html", b"x", b"application/json; charset=\x80"))
    return found


class _Lines(httpx.AsyncByteStream):
    """The body of a watch: lines, then an end, a break, or silence."""

    def __init__(self, lines: list[bytes], pause: float, end: Exception | None) -> None:
        self._lines = lines
        self._pause = pause
        self._end = end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for line in self._lines:
            if self._pause:
                await asyncio.sleep(self._pause)
            yield line
        if self._end is not None:
            raise self._end


def body_of(random: Random, found: Any, spoiling: float) -> bytes:
    raw = json.dumps(found, ensure_ascii=random.random() < 0.5).encode(errors="replace")
    if random.random() < spoiling:
        raw = mutated(random, raw, deep=False).replace(b"\n", b" ")
    if random.random() < spoiling / 4:
        raw = raw[: random.randrange(len(raw) + 1)] + random.choice((b"\xff", b"", b"\x00", b"{", b"[" * 2000))
    return raw


Family = Callable[[Random, str], httpx.Response | Exception]


def answers(random: Random, words: str, spoiling: float = 0.2) -> httpx.Response | Exception:
    """Anything that looks like an answer to what was asked."""
    if words == "watch":
        lines = [body_of(random, told(random), spoiling) + b"\n" for _ in range(random.choice((0, 1, 2, 20)))]
        end = random.choice(
            (None, None, httpx.ReadError("reset"), httpx.RemoteProtocolError("x"), httpx.ReadTimeout("s"))
        )
        pause = random.choice((0.0, 0.0, 0.1, 3.0))
        return httpx.Response(200, stream=_Lines(lines, pause, end), headers=headers_of(random))
    made = discovery(random) if words == "discovery" else page(random)
    raw = body_of(random, made, spoiling)
    headers = headers_of(random)
    if headers.get(b"Content-Encoding") == b"gzip" and random.random() < 0.5:
        raw = gzip.compress(raw * random.choice((1, 1000)), 1)
    return httpx.Response(200, stream=_Lines([raw], 0.0, None), headers=headers)


def plausible(random: Random, words: str) -> httpx.Response | Exception:
    """JSON of the right form, with versions, tokens and names that are lies."""
    return answers(random, words, 0.0)


def refusals(random: Random, words: str) -> httpx.Response | Exception:
    """A status, with anything as its body."""
    status = random.choice(_STATUSES)
    body: Any = random.choice(
        (told(random)["object"], {"message": "Too large resource version: 5"}, "x" * 9000, None, [])
    )
    stream = _Lines([body_of(random, body, 0.3)], 0.0, None)
    return httpx.Response(status, stream=stream, headers=headers_of(random))


def losses(random: Random, words: str) -> httpx.Response | Exception:
    """No answer."""
    errors = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.ReadError)
    return random.choice(errors)("lost") if random.random() < 0.7 else plausible(random, words)


def mixed(random: Random, words: str) -> httpx.Response | Exception:
    return random.choice((answers, plausible, refusals, losses))(random, words)


FAMILIES: Final[Mapping[str, tuple[float, Family]]] = {
    "answers": (3, answers),
    "plausible": (4, plausible),
    "refusals": (1, refusals),
    "losses": (1, losses),
    "mixed": (3, mixed),
}


def made(seed: int, number: int, families: Mapping[str, tuple[float, Family]] = FAMILIES) -> Case:
    (name,) = Random(f"lies {seed} {number}").choices(tuple(families), [weight for weight, _ in families.values()])
    return Case(number, name, f"lies {seed} {number} {name}")


# the server, and what becomes of the reflector


class Steps(VirtualLoop):
    """Notes the longest step of the loop in processor time, less what the server spent on its lies (``excused``)."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0.0
        self.excused = 0.0

    def _run_once(self) -> None:
        began, self.excused = time.thread_time(), 0.0
        super()._run_once()  # type: ignore[misc]  # of asyncio's own loop
        self.longest = max(self.longest, time.thread_time() - began - self.excused)


class Server:
    """Lies so many times; then it is as honest as kube-apiserver, with ``_HONEST_PODS``."""

    def __init__(self, case: Case, loop: Steps) -> None:
        self._loop = loop
        self.random = Random(case.seed)
        self.left = self.random.randint(1, _MOST_LIES)
        self.at: list[float] = []
        self._family = FAMILIES[case.family][1]
        self._honest = [{**pod_object(name)} for name in _HONEST_PODS]

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        params = request.url.params
        words = "watch" if "watch" in params else "discovery" if request.url.path == "/api/v1" else "list"
        if self.left > 0:
            self.left -= 1
            began = time.thread_time()
            found = self._family(self.random, words)
            self._loop.excused += time.thread_time() - began
            begins = words == "list" and params.get("limit") not in (None, "1") and not params.get("continue")
            if words == "watch" or begins:
                self.at.append(now())
            if isinstance(found, Exception):
                raise found
            return found
        return self._answer(request, words)

    def _answer(self, request: httpx.Request, words: str) -> httpx.Response:
        if words == "discovery":
            return httpx.Response(200, json={"resources": [{"name": "pods", "kind": "Pod", "namespaced": True}]})
        if request.url.path != "/api/v1/pods":
            return httpx.Response(404, json={"code": 404, "message": "not found"})
        if words == "list" and request.url.params.get("continue"):
            return httpx.Response(410, json={"code": 410, "reason": "Expired", "message": "token"})
        if words == "list":
            metadata = {"resourceVersion": str(_HONEST_VERSION)}
            return httpx.Response(200, json={"metadata": metadata, "items": self._honest})
        return self._watched(request.url.params.get("resourceVersion", ""))

    def _watched(self, version: str) -> httpx.Response:
        if not (version.isascii() and version.isdecimal() and len(version) <= 20 and int(version) < 2**64):
            return httpx.Response(400, json={"code": 400, "message": "invalid resource version"})
        if int(version) > _HONEST_VERSION:
            return httpx.Response(504, json={"code": 504, "message": f"Too large resource version: {version}"})
        if int(version) < _HONEST_VERSION:
            return httpx.Response(410, json={"code": 410, "message": "too old resource version"})
        return httpx.Response(200, stream=_Silent())


class _Silent(httpx.AsyncByteStream):
    """A watch that stays open for as long as it was asked for, and brings nothing."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await asyncio.sleep(100.0)
        if now() < 0:
            yield b""


class _CacheStore:
    """Holds pods as they come."""

    newest_wins = True

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], Any] = {}

    def upsert(self, obj: Any) -> None:
        self.held[obj.key] = obj

    def delete(self, key: tuple[str, str], uid: str) -> None:
        self.held.pop(key, None)

    def keys(self) -> Any:
        return iter(list(self.held))

    def has(self, key: tuple[str, str]) -> bool:
        return key in self.held

    def count(self) -> int:
        return len(self.held)

    def mark_unreadable(self, key: tuple[str, str], cause: str) -> None:
        return

    def mark_readable(self, key: tuple[str, str]) -> None:
        return


async def _played(case: Case, loop: Steps) -> str:
    server, store, core = Server(case, loop), _CacheStore(), Cluster().core
    async with client_of(server) as client:
        reflector = Reflector(
            client,
            (PODS.api_version, PODS.kind),
            decode=core.decode_pod,
            key_of=lambda it: it.key,
            store=store,
            clock=now,
            rng=server.random.random,
        )
        tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(reflector.keep_fresh())]
        wrong = await _wrong(server, store, reflector, tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return wrong


async def _wrong(server: Server, store: _CacheStore, reflector: Reflector[Any], tasks: list[asyncio.Task[Any]]) -> str:
    until = now() + 3600.0
    while server.left > 0 and now() < until and not any(it.done() for it in tasks):  # noqa: ASYNC110  # virtual time
        await asyncio.sleep(1.0)
    server.left = 0
    until = now() + _AFTERWARDS_SECONDS
    honest = {("default", name) for name in _HONEST_PODS}
    while now() < until and not any(it.done() for it in tasks):
        if set(store.held) == honest and reflector.synced and reflector.state == "watching":
            break
        await asyncio.sleep(1.0)
    for it in tasks:
        if it.done():
            return f"{_ENDED}: {it.exception()!r}"
    if set(store.held) != honest or not reflector.synced:
        return f"{reflector.state} ({reflector.cause[:200]}), holds {sorted(store.held)[:9]}"
    window = min((late - early for early, late in zip(server.at, server.at[_A_SECOND:], strict=False)), default=1.0)
    return "" if window > 0.99 else f"{_A_SECOND + 1} lists and watches within {window:.2f} s"


def play(case: Case) -> Outcome:
    """Play one case through in virtual time."""
    loop = Steps()
    try:
        wrong = loop.run_until_complete(_played(case, loop))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    return Outcome(wrong, round(loop.longest * 1000, 1))


def report(
    seed: int, numbers: Sequence[int], families: Mapping[str, tuple[float, Family]], step_ms: float, findings: Findings
) -> Report:
    """Play the cases through. A long step counts if it is as long when its case is played again."""
    longest, sent, began = 0.0, Counter[str](), time.monotonic()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for number in numbers:
        case = made(seed, number, families)
        sent[case.family] += 1
        outcome = play(case)
        longest = max(longest, outcome.longest_ms)
        if outcome.wrong:
            what: What = "crash" if outcome.wrong.startswith(_ENDED) else "breach"
            findings.add(Finding(what, case.family, (number,), outcome.wrong))
        if outcome.longest_ms > step_ms and (again := play(case).longest_ms) > step_ms:
            findings.add(Finding("standstill", case.family, (number,), f"a step of {again} ms"))
    found = Report(f"lies, seed {seed}")
    found.add("lies sent", sent.total())
    found.add("breaches", findings.count("breach"), 0)
    found.add("crashes", findings.count("crash"), 0)
    found.add(f"standstills beyond {step_ms:g} ms", findings.count("standstill"), 0)
    found.add("longest step, processor time", longest, unit=" ms")
    found.add("seconds", round(time.monotonic() - began, 1), unit=" s")
    found.details |= {"families": dict(sent), "found": findings.by_family(), "findings": findings.told()}
    return found
