"""How old the picture may get, in virtual time: quiet kinds, watches that are cut off without a word, and outages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import httpx
import pytest

from app.feeds.freshness import QUIET_SECONDS
from app.feeds.reflector import Reflector
from tests.api.virtual import now, virtual_time
from tests.apiserver import ApiServer, Network, Resource
from tests.unit.app.feeds.test_reflector import Store, Thing, following

READY_AGAIN_SECONDS = 5.0
SHORTEST_AGE = 5.0
"""The smallest ``maxFeedAge``."""


class Things(ApiServer):
    """The API server, asked after one kind, over a network that takes its time."""

    def __init__(self) -> None:
        super().__init__(served=(Resource("example.org/v1", "Thing", "things"),))
        self.round_trip = 0.005

    def write(self, name: str) -> None:
        """Somebody creates a thing."""
        metadata = {"namespace": "ns", "name": name}
        self.put({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": metadata, "spec": 0})

    @property
    def lists(self) -> int:
        return self.count("GET") - self.probes

    @property
    def probes(self) -> int:
        """Lists of one object, for the version alone."""
        return sum(it.url.params.get("limit") == "1" for it in self.requests)


class World:
    """A reflector that is kept fresh, and the API server it hears of."""

    def __init__(self, api: Things, store: Store, reflector: Reflector[Thing]) -> None:
        self.api = api
        self.store = store
        self.reflector = reflector
        self.caught_behind = 0

    @property
    def age(self) -> float:
        return now() - self.reflector.last_contact

    async def until_fresh(self, limit: float) -> float:
        """How long it takes until the API server is heard of again."""
        began = now()
        async with asyncio.timeout(limit):
            while self.reflector.last_contact < began:  # noqa: ASYNC110  # a reflector tells nobody of its state
                await asyncio.sleep(0.01)
        return now() - began


@asynccontextmanager
async def world(max_age: float = 4 * QUIET_SECONDS) -> AsyncIterator[World]:
    api, store = Things(), Store()
    quiet = min(QUIET_SECONDS, max_age / 4)
    async with following(api, store, quiet=quiet, clock=now, rng=lambda: 1.0) as reflector:
        asking = asyncio.create_task(reflector.keep_fresh())
        found = World(api, store, reflector)
        try:
            await found.until_fresh(1)
            yield found
        finally:
            asking.cancel()
            await asyncio.wait([asking])
            assert asking.cancelled()


async def oldest(found: World, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> float:
    """The highest age within ``seconds``, with something done every half a second."""
    worst = 0.0
    for _ in range(int(2 * seconds)):
        await asyncio.sleep(0.5)
        worst = max(worst, found.age)
        found.caught_behind += found.reflector.state == "watching" and found.reflector._fresh.behind
        meanwhile()
    return worst


@pytest.mark.parametrize("max_age", [SHORTEST_AGE, 20.0, 180.0])
@pytest.mark.parametrize("busy", [False, True], ids=["a quiet cluster", "a busy cluster"])
@virtual_time
async def test_a_quiet_kind_never_grows_too_old(max_age: float, busy: bool) -> None:
    """And what it costs stays small: requests a minute, never a list."""
    async with world(max_age) as found:
        worst = await oldest(found, 600, found.api.write_another_kind if busy else lambda: None)

        assert worst < max_age
        assert (found.api.lists, found.caught_behind) == (1, 0)
        a_minute = len(found.api.requests) / 10
        assert a_minute <= 4 * 60 / min(QUIET_SECONDS, max_age / 4)
        assert busy or found.api.count("WATCH") <= 3


@virtual_time
async def test_a_busy_kind_is_not_asked_after() -> None:
    async with world(SHORTEST_AGE) as found:
        await oldest(found, 120, lambda: found.api.write(f"t{now()}"))

        assert (1, 1, 0) == (found.api.lists, found.api.count("WATCH"), found.api.probes)


@pytest.mark.parametrize("max_age", [SHORTEST_AGE, 180.0])
@virtual_time
async def test_a_watch_that_is_cut_off_without_a_word_is_opened_anew(max_age: float) -> None:
    """Long before its silence would be noticed: its API server has newer things to tell."""
    async with world(max_age) as found:
        found.api.cut()
        found.api.write("late")
        await asyncio.sleep(min(QUIET_SECONDS, max_age / 4) + 3)

        assert found.store.told == ["+late"]
        assert found.age < max_age
        assert found.api.lists == 1


OUTAGES = [0.5, 2.0, 4.0, 7.0, 11.0, 30.0, 100.0, 1000.0]


@pytest.mark.parametrize("seconds", OUTAGES)
@pytest.mark.parametrize("how", ["silent", "refused"])
@pytest.mark.parametrize("offset", [0.1, 0.9, 1.7, 2.9])
@virtual_time
async def test_after_an_outage_it_is_soon_fresh(seconds: float, how: Network, offset: float) -> None:
    """Whatever was under way when it began; nothing was lost, and no list is needed."""
    async with world(SHORTEST_AGE) as found:
        await oldest(found, 10, found.api.write_another_kind)
        await asyncio.sleep(offset)
        found.api.lose(how)
        found.api.write("meanwhile")
        await asyncio.sleep(seconds)
        found.api.heal()
        found.api.write_another_kind()

        await asyncio.sleep(READY_AGAIN_SECONDS)
        assert found.age < SHORTEST_AGE
        assert await oldest(found, 30, found.api.write_another_kind) < SHORTEST_AGE
        assert found.store.told == ["+meanwhile"]
        assert found.api.lists == 1


@virtual_time
async def test_after_an_outage_what_was_missed_is_no_news() -> None:
    """A picture that catches up event by event is as old as the first that is missing."""
    async with world(SHORTEST_AGE) as found:
        began = now()
        found.api.lose("silent")
        for number in range(40):
            found.api.write(f"t{number}")
        found.api.pace = 0.1
        await asyncio.sleep(20)
        found.api.heal()
        heard_at: list[int] = []
        while found.reflector.last_contact <= began:
            await asyncio.sleep(0.05)
            heard_at.append(len(found.store.told))

    assert 0 < heard_at[len(heard_at) // 2] < 40
    assert heard_at[-1] == 40


@virtual_time
async def test_after_a_restart_of_the_api_server_everything_is_listed() -> None:
    async with world(SHORTEST_AGE) as found:
        found.api.write("before")
        await asyncio.sleep(1)
        found.api.write("missed")
        found.api.restart()
        await asyncio.sleep(8)
        found.api.heal()

        assert await found.until_fresh(60) <= READY_AGAIN_SECONDS
        assert found.store.names == {"before", "missed"}
        assert found.api.lists == 2


@virtual_time
async def test_nothing_is_fresh_during_an_outage() -> None:
    async with world(SHORTEST_AGE) as found:
        await oldest(found, 10, found.api.write_another_kind)
        found.api.lose("silent")
        began = now()
        await asyncio.sleep(20)

        assert found.reflector.last_contact <= began


@pytest.mark.parametrize("asked_for", ["1", "7", "3600"])
@virtual_time
async def test_an_api_server_that_asks_to_wait_is_obeyed_within_reason(asked_for: str) -> None:
    """It is told "too many requests" when it looks closer; afterwards it comes back by itself."""
    async with world(SHORTEST_AGE) as found:
        found.api.down = httpx.Response(429, json={"message": "slow down"}, headers={"Retry-After": asked_for})
        before = len(found.api.requests)
        found.api.lose("refused")
        found.api.heal()
        await asyncio.sleep(30)
        refused = len(found.api.requests) - before
        found.api.down = None

        assert 1 < refused <= 1 + 30 / min(float(asked_for), 10.0)
        assert await found.until_fresh(60) <= min(float(asked_for), 10.0) + READY_AGAIN_SECONDS


def hangs(
    times: int, answer: Callable[[], httpx.Response]
) -> Callable[[httpx.Request], Coroutine[None, None, httpx.Response]]:
    """An API server that takes requests and says nothing; from then on it answers."""
    left = iter(range(times))

    async def handle(request: httpx.Request) -> httpx.Response:
        if next(left, None) is not None:
            await asyncio.sleep(request.extensions["timeout"]["read"])
            raise httpx.ReadTimeout("silent")
        if "watch" in request.url.params:
            await asyncio.Event().wait()
        return answer()

    return handle


@pytest.mark.parametrize(("times", "seconds"), [(1, 5), (2, 5 + 10), (3, 5 + 10 + 20)])
@virtual_time
async def test_a_list_that_hangs_is_asked_for_again_with_more_patience(times: int, seconds: float) -> None:
    """One that is slow gets its time in the end."""

    def listed() -> httpx.Response:
        return httpx.Response(200, json={"metadata": {"resourceVersion": "7"}, "items": []})

    synced = asyncio.Event()
    began = now()
    async with following(hangs(times, listed), Store(), clock=now, on_synced=synced.set):
        await synced.wait()
        took = now() - began

    assert seconds <= took <= seconds + 0.5
