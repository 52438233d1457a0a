"""How much and how often a reflector requests, whatever an API server answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import httpx
import pytest

from app.feeds import pacing, reflector
from app.feeds.freshness import QUIET_SECONDS
from app.feeds.pacing import PageSize, RequestThrottle
from tests.api.virtual import now, virtual_time
from tests.apiserver import ApiServer, Resource
from tests.unit.app.feeds.test_reflector import (
    Open,
    Store,
    _words,
    bookmark,
    discovered,
    event,
    failure,
    following,
    listed,
    refused,
    watched,
)

KIND = ("example.org/v1", "Thing")
WANTED = 1 << 20


class TestPageSize:
    def test_it_begins_small_and_follows_the_size_of_objects(self) -> None:
        size = PageSize(WANTED)
        limits = [size.limit]
        for bytes_each in (4096, 4096, 1 << 20, 100, 100, 100):
            size.adapt(size.limit, size.limit * bytes_each)
            limits.append(size.limit)

        assert [50, 256, 256, 1, 8, 64, 512] == limits

    def test_a_page_without_objects_changes_nothing(self) -> None:
        size = PageSize(WANTED)
        size.adapt(0, 100)

        assert 50 == size.limit

    def test_a_page_of_twice_the_size_is_broken_off_and_shrunk_until_it_is_one_object(self) -> None:
        size = PageSize(WANTED)
        seen = [(size.limit, size.most_bytes)]
        while size.shrink():
            seen.append((size.limit, size.most_bytes))

        assert [(50, 2 * WANTED), (6, 2 * WANTED), (1, pacing.MOST_PAGE_BYTES)] == seen


class TestPace:
    def delays(self, times: int, fruitful: Sequence[int] = ()) -> list[float]:
        """The delay before each of so many requests that leave as early as they may."""
        at = [1000.0]
        pace = RequestThrottle(lambda: at[0])
        found = []
        for number in range(times):
            if number in fruitful:
                pace.fruitful()
            found.append(max(pace.delay(), 0.0))
            at[0] += found[-1]
            pace.sent(at[0])
        return found

    def test_at_most_five_leave_in_a_second_then_ever_fewer_up_to_one_a_minute(self) -> None:
        assert [0.0] * 5 + [1.0, 0.0, 0.0, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60.0, 60.0] == pytest.approx(
            self.delays(18)
        )

    def test_something_new_ends_the_back_off_and_not_the_rate(self) -> None:
        assert [0.0] * 5 + ([1.0] + [0.0] * 4) * 3 == self.delays(20, fruitful=range(20))


class Liar:
    """An API server that serves things and lies; notes when it was asked for a list, a page or a watch."""

    def __init__(self, on_list: Callable[[], Any], on_watch: Callable[[], Any]) -> None:
        self.at: list[float] = []
        self._on_list = on_list
        self._on_watch = on_watch

    def __call__(self, request: httpx.Request) -> httpx.Response:
        words = _words(request)
        if words == "discover":
            return discovered("Thing")
        self.at.append(now())
        found = self._on_watch() if words.startswith("watch") else self._on_list()
        return found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)


fresh = count(11)


def gone() -> httpx.Response:
    return refused(410)


def ten() -> httpx.Response:
    return listed(10, "a")


LIES: list[Any] = [
    pytest.param(lambda: {"metadata": {"resourceVersion": "9", "continue": "x"}}, gone, id="pages without an object"),
    pytest.param(lambda: listed(10, "a", more="x"), gone, id="one page without an end"),
    pytest.param(ten, watched, id="watches that end at once"),
    pytest.param(ten, lambda: watched(bookmark(next(fresh))), id="watches that bring a bookmark"),
    pytest.param(ten, lambda: watched(event("ADDED", "a", 10)), id="watches that repeat an event"),
    pytest.param(ten, gone, id="watches that are gone"),
    pytest.param(ten, lambda: refused(400), id="watches that are refused"),
    pytest.param(ten, lambda: watched(failure(410)), id="watches that tell of the end"),
    pytest.param(lambda: refused(404), gone, id="lists that are refused"),
    pytest.param(lambda: httpx.Response(200, content=b" " * (9 << 20)), gone, id="pages that are too long"),
]


@pytest.mark.parametrize(("on_list", "on_watch"), LIES)
@virtual_time
async def test_lies_are_requested_ever_more_rarely(
    on_list: Callable[[], Any], on_watch: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 5 in a second, and one a minute after some minutes; a list that is too long takes three."""
    monkeypatch.setattr(pacing, "MOST_PAGE_BYTES", 2 << 20)
    api = Liar(on_list, on_watch)
    async with following(api, Store(), KIND, clock=now):
        await asyncio.sleep(1200)

    last = [at for at in api.at if at > now() - 600]
    assert (len(api.at) <= 60, 10 <= len(last) <= 30) == (True, True)
    assert min((late - early for early, late in zip(api.at, api.at[5:], strict=False)), default=1.0) >= 1 - 1e-6


def served(*sizes: int) -> ApiServer:
    """An API server with things of so many bytes."""
    api = ApiServer(served=(Resource("example.org/v1", "Thing", "things"),))
    for number, size in enumerate(sizes):
        metadata = {"namespace": "ns", "name": f"t{number}"}
        api.put(
            {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": metadata, "spec": 0, "filler": "x" * size}
        )
    return api


@pytest.mark.parametrize(
    ("sizes", "limits"),
    [
        pytest.param([10] * 600, [50, 400, 2000], id="small ones"),
        pytest.param([4000] * 600, [50, 400, 505], id="usual ones"),
        pytest.param([1_400_000] * 4, [50, 6, 1, 1, 1, 1], id="as large as there are"),
        pytest.param([10] * 50 + [1_400_000] * 4, [50, 400, 50, 6, 1, 1, 1, 1], id="large ones behind small ones"),
    ],
)
@virtual_time
async def test_a_list_takes_every_object_in_pages_that_fit(
    sizes: list[int], limits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "FIRST_PAGE_BYTES", 2 << 20)
    api, store = served(*sizes), Store()
    async with following(api, store, KIND, clock=now):
        await asyncio.sleep(5)

    assert limits == [int(it.url.params["limit"]) for it in api.requests if it.url.params.get("limit")]
    assert len(sizes) == store.count()


@virtual_time
async def test_pages_are_small_from_the_first_list_on_beside_another_snapshot() -> None:
    api, store = served(*[4000] * 600), Store()
    async with following(api, store, KIND, clock=now, beside=True):
        await asyncio.sleep(5)

    limits = [int(it.url.params["limit"]) for it in api.requests if it.url.params.get("limit")]
    assert all(limit * 4000 <= reflector.PAGE_BYTES for limit in limits)
    assert 600 == store.count()


@virtual_time
async def test_a_list_of_too_many_objects_is_given_up_and_leaves_room_for_an_honest_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reflector, "MOST_OBJECTS", 20)
    honest = False

    def page() -> httpx.Response:
        return ten() if honest else listed(10, *(f"t{next(fresh)}" for _ in range(15)), more="x")

    store = Store()
    liar = Liar(page, lambda: httpx.Response(200, stream=Open()))
    async with following(liar, store, KIND, clock=now) as found:
        counts = []
        for _ in range(10):
            await asyncio.sleep(30)
            counts.append(store.count())
        seen = found.state, found.cause
        honest = True
        await asyncio.sleep(65)

    assert (max(counts) <= 35, seen) == (True, ("retrying", "list given up: more than 20 objects"))
    assert ({"a"}, True) == (store.names, found.synced)


@virtual_time
async def test_news_are_requested_five_times_a_second_at_most() -> None:
    api = Liar(ten, lambda: watched(event("ADDED", f"t{next(fresh)}", next(fresh))))
    async with following(api, Store(), KIND, clock=now):
        await asyncio.sleep(60)

    assert 100 < len(api.at) <= 300


@pytest.mark.parametrize("quiet", [1.25, 5.0, QUIET_SECONDS])
@virtual_time
async def test_a_quiet_kind_is_not_slowed_by_its_own_short_watches(quiet: float) -> None:
    """The API server begins to time a watch before its answer arrives, so a watch of 3 s seems shorter."""
    api = served(10)

    async def slow(request: httpx.Request) -> httpx.Response:
        answer = await api(request)
        await asyncio.sleep(0.01)
        return answer

    ages = []
    async with following(slow, Store(), KIND, quiet=quiet, clock=now) as found:
        asking = asyncio.create_task(found.keep_fresh())
        for _ in range(300):
            await asyncio.sleep(1)
            api.write_another_kind()
            ages.append(now() - found.last_contact)
        asking.cancel()
        await asyncio.wait([asking])

    assert max(ages[5:]) < quiet + 3
