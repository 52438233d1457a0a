"""A service whose callers are slow, or too many."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from app.config.settings import Settings
from app.server.admission import OUT_OF_TIME
from tests.api.service import NODES, SAMPLE, example, serving


async def test_a_bind_may_take_long_and_its_body_may_not() -> None:
    """Otherwise who sends half a body would hold a connection for minutes."""

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"PodName":'
        await asyncio.Event().wait()

    async with serving(Settings(cluster=str(SAMPLE), http_timeout=0.5, bind_timeout=900.0)) as api:
        response = await api.http.post("/bind", content=slow())
        counted = api.outcomes("bind")

    assert ({"out_of_time": 1}, OUT_OF_TIME) == (counted, response.json()["Error"])


async def test_calls_beyond_the_limit_are_turned_away_and_the_rest_decided() -> None:
    """Prioritize scores every host even then: an error would pile all pods on one node."""
    asked = example("prioritize-spread")
    open_ = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        await open_.wait()
        yield json.dumps(asked).encode()

    async with serving(Settings(cluster=str(SAMPLE), max_in_flight=2)) as api:
        held = [asyncio.create_task(api.http.post("/prioritize", content=body())) for _ in range(2)]
        for _ in range(20):
            await asyncio.sleep(0)
        turned_away = await api.post("prioritize", asked)
        open_.set()
        decided = [(await it).json() for it in held]

    assert (200, "overloaded") == (turned_away.status, turned_away.outcome)
    assert [{"Host": name, "Score": 0} for name in asked["NodeNames"]] == turned_away.answer
    assert set(NODES) >= {it["Host"] for it in turned_away.answer}
    assert decided[0] == decided[1] != turned_away.answer
