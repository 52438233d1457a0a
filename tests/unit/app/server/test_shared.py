"""Answers that are computed once for all readers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from app.server.shared import FRESH_SECONDS, SharedAnswer
from app.verbs.outcome import VerbFailure


class Source:
    """Counts how often it is computed, and fails on demand. ``now`` is the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.computed = 0
        self.failure: Exception | None = None

    def clock(self) -> float:
        return self.now

    async def compute(self) -> Mapping[str, Any]:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.computed += 1
        return {"number": self.computed}


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def shared(source: Source) -> SharedAnswer:
    return SharedAnswer(source.compute, source.clock)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_readers_at_one_time_share_one_computation(source: Source, shared: SharedAnswer) -> None:
    answers = await asyncio.gather(*(shared.response("") for _ in range(100)))

    assert ({b'{"number":1}'}, 1) == ({it.body for it in answers}, source.computed)


async def test_a_reader_with_the_etag_gets_304_with_the_age(source: Source, shared: SharedAnswer) -> None:
    first = await shared.response("")
    source.now += 3

    again = await shared.response(f'"other", W/{first.headers["etag"]}')

    assert (304, b"", "3") == (again.status_code, again.body, again.headers["age"])


async def test_a_stale_answer_is_given_while_a_newer_one_is_computed(source: Source, shared: SharedAnswer) -> None:
    await shared.response("")
    source.now += FRESH_SECONDS + 1

    stale = await shared.response("")
    await settle()
    fresh = await shared.response("")

    assert (b'{"number":1}', b'{"number":2}', 2) == (stale.body, fresh.body, source.computed)


async def test_without_a_snapshot_the_last_answer_stays(source: Source, shared: SharedAnswer) -> None:
    await shared.response("")
    source.now += FRESH_SECONDS + 1
    source.failure = VerbFailure("not_ready", "no snapshot")
    await shared.response("")
    await settle()

    answer = await shared.response("")

    assert (b'{"number":1}', "6") == (answer.body, answer.headers["age"])


async def test_without_a_first_answer_the_failure_is_raised_and_the_next_reader_starts_anew(
    source: Source, shared: SharedAnswer
) -> None:
    source.failure = VerbFailure("not_ready", "no snapshot")
    with pytest.raises(VerbFailure):
        await shared.response("")
    source.failure = None

    assert b'{"number":1}' == (await shared.response("")).body


async def test_a_fault_reaches_a_reader(source: Source, shared: SharedAnswer) -> None:
    await shared.response("")
    source.now += FRESH_SECONDS + 1
    source.failure = ZeroDivisionError()
    await shared.response("")
    await settle()

    with pytest.raises(ZeroDivisionError):
        await shared.response("")
