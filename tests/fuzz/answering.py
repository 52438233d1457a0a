"""Sends cases of requests and judges what comes back."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from app.server.pages import ONE_AT_A_TIME, WHAT_IFS
from app.verbs.outcome import Verb
from tests.api.contract import _transport, asked_names, asked_of, breaches, status_breaches
from tests.fuzz.client import Answer, Listener, NotHttp, connected, read_answer
from tests.fuzz.requests import Ask, Case

ANSWER_SECONDS: Final = 60.0
"""After which what is due is missing, on however busy a machine: httpTimeout is five seconds."""

HELD_SECONDS: Final = 30.0
"""For half a request to be given up by the service: ten seconds, and room for a busy machine."""

_LINGER_SECONDS: Final = 0.01
"""For what may or may not be answered."""

_BUSY = 503
"""Status of a page that gets no turn in time. Verbs answer 500 without a body instead."""

_REFUSED: Final = frozenset({400, 403, 404, 405, 408, 411, 413, 414, 415, 417, 421, 426, 429, 431, 501, 505})
_LEAKS: Final = (b"Traceback", b"internal error", b"returns an invalid score")
_NAMES_A_PLUGIN: Final = re.compile(rb'plugin \\"|\\" filter plugin: ')
_PAGES: Final = _REFUSED | {200, 204, 307, 422}


async def sent(case: Case, to: Listener) -> list[str]:
    """Everything that is wrong with what came back; empty if all is well. Raises ``OSError`` where nobody listens."""
    seconds = HELD_SECONDS if case.due == "end" else ANSWER_SECONDS
    async with connected(to) as (reader, writer):
        sending = asyncio.create_task(_send(case, writer))
        try:
            if case.due == "nothing":
                return await _what_comes(reader, sending)
            async with asyncio.timeout(seconds):
                return await (_the_end(reader) if case.due == "end" else _all_due(case, reader))
        except TimeoutError:
            return [f"no {case.due} within {seconds:g} s"]
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _send(case: Case, writer: asyncio.StreamWriter) -> None:
    waits = case.waits or (0.0,) * len(case.pieces)
    for piece, wait in zip(case.pieces, waits, strict=True):
        writer.write(piece)
        await writer.drain()
        if wait:
            await asyncio.sleep(wait)


async def _all_due(case: Case, reader: asyncio.StreamReader) -> list[str]:
    found: list[str] = []
    for place, ask in enumerate(case.asks):
        try:
            answer = await read_answer(reader, to_head=ask.method == "HEAD")
        except NotHttp as error:
            return [*found, f"answer {place}: {error}"]
        except ConnectionError as error:
            answer, reason = None, str(error)
        else:
            reason = "closed"
        if answer is None:
            return found if case.due == "answer or end" else [*found, f"answer {place} is missing: {reason}"]
        found += [f"answer {place} to {ask.method} {ask.path[:80]}: {it}" for it in _judged(ask, answer, case)]
        if answer.headers.get("connection") == "close" and place + 1 < len(case.asks):
            return [*found, f"the connection was closed after answer {place}"]
    return found


async def _the_end(reader: asyncio.StreamReader) -> list[str]:
    """However it comes about."""
    with suppress(ConnectionError):
        await reader.read()
    return []


async def _what_comes(reader: asyncio.StreamReader, sending: asyncio.Task[None]) -> list[str]:
    """Nothing, an end, or answers that are HTTP and no fault."""
    await asyncio.wait({sending}, timeout=ANSWER_SECONDS)
    found: list[str] = []
    while True:
        try:
            answer = await asyncio.wait_for(read_answer(reader), _LINGER_SECONDS)
        except (TimeoutError, ConnectionError):
            return found
        except NotHttp as error:
            # TRACE and HEAD are not told apart here, and what we hung up on may be half an answer.
            return [*found, *([f"{error}"] if "no head" in str(error) else [])]
        if answer is None:
            return found
        found += _leaks(answer)
        if answer.status >= 500 and answer.status != _BUSY and answer.body:
            found.append(f"{answer.status} with a body: {answer.body[:300]!r}")


def _judged(ask: Ask, answer: Answer, case: Case) -> Iterator[str]:
    if leaks := _leaks(answer):
        yield from leaks
        return
    if case.refusable and answer.status in _REFUSED:
        return
    try:
        if ask.verb is None:
            yield from _page(ask, answer)
        elif ask.path.startswith("/lean/") and ask.verb in ("filter", "prioritize") and answer.status == 200:
            yield from lean_breaches(ask.verb, ask.body, answer)
        else:
            yield from breaches(ask.verb, ask.body, answer.as_httpx())
    except (AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
        yield f"an answer that the checker cannot read: {error!r}: {answer.body[:300]!r}"


def _leaks(answer: Answer) -> list[str]:
    return [f"a fault: {answer.body[:1000]!r}"] if any(it in answer.body for it in _LEAKS) else []


def _page(ask: Ask, answer: Answer) -> Iterator[str]:
    """A page or a body of the operator; errors below /api/v1 are a Status. A plugin may fail on nonsense."""
    status = answer.status
    is_bare = ask.method == "HEAD" and ask.path.partition("?")[0] in WHAT_IFS  # its answer has no text
    if status == 503 and (is_bare or ONE_AT_A_TIME.encode() in answer.body):
        return  # requests of a case are sent side by side
    if status == 500 and ask.path.startswith(("/api/v1/cycle", "/api/v1/explain", *WHAT_IFS)):
        if not _NAMES_A_PLUGIN.search(answer.body):
            yield f"a fault: {answer.body[:500]!r}"
    elif status == 503 and ask.path.startswith(("/readyz", "/api/v1/")):
        yield f"not ready: {answer.body[:500]!r}"
    elif status not in _PAGES:
        yield f"status {status}: {answer.body[:300]!r}"
    elif answer.headers.get("content-type") == "application/json" and answer.body:
        json.loads(answer.body)
        if status >= 400 and ask.path.startswith("/api/v1/"):
            yield from status_breaches(answer.as_httpx())


def lean_breaches(verb: Verb, request: bytes, answer: Answer) -> Iterator[str]:
    """What kube-scheduler reads of a lean answer must not contradict what it asked. Failures are told as in full."""
    response = answer.as_httpx()
    told = json.loads(answer.body.decode("utf-8", "surrogateescape"), strict=False)
    if verb == "filter" and told["Error"]:
        yield from breaches(verb, request, response)
        return
    yield from _transport(response)
    asked = asked_of(request)
    names = asked_names(asked)
    yield from _lean_scores(names, told) if verb == "prioritize" else _lean_verdict(names, _passed(asked, told), told)


def _lean_scores(names: list[str], told: list[dict[str, Any]]) -> Iterator[str]:
    hosts = [it["Host"] for it in told]
    if len(set(hosts)) != len(hosts) or not set(hosts) <= set(names):
        yield f"scores of {hosts}, asked about {names}"
    if not all(type(it["Score"]) is int and -100 <= it["Score"] <= 100 for it in told):
        yield f"scores: {told}"


def _lean_verdict(names: list[str], passed: list[str], told: dict[str, Any]) -> Iterator[str]:
    failed = told["FailedAndUnresolvableNodes"]
    if len(set(passed)) != len(passed) and len(set(names)) == len(names):
        yield f"twice: {passed}"
    if not set(passed) | failed.keys() <= set(names) or set(passed) & failed.keys():
        yield f"{passed} and {failed}, asked about {names}"
    if not passed and failed.keys() != set(names):
        yield f"refusals are missing: {failed} of {names}"


def _passed(asked: dict[str, Any], told: dict[str, Any]) -> list[str]:
    if asked.get("nodenames") is not None:
        return list(told["NodeNames"])
    return asked_names({"nodes": told["Nodes"]})
