import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from math import inf
from typing import Any, TypeAlias

import httpx
import msgspec
import pytest
from msgspec import Raw, Struct

from app.feeds.reflector import Reflector
from app.kube.api_requests import Resource
from app.kube.decoding import Decoder
from app.kube.meta_v1 import ObjectKey
from tests.apiserver import client_of

THINGS = Resource("example.org", "v1", "things", "Thing", namespaced=True)
Json: TypeAlias = dict[str, Any]
Answer: TypeAlias = httpx.Response | Exception


class Meta(Struct):
    name: str
    uid: str = ""


class Thing(Struct):
    """``spec`` must be a number, or the object does not decode."""

    metadata: Meta
    spec: int = 0


THING = Decoder[Thing](Thing)


def decode(raw: bytes | Raw) -> Thing:
    return THING.decode(raw)


def key_of(found: Thing) -> ObjectKey:
    return ("ns", found.metadata.name)


class Store:
    """Keeps what it is told, in words."""

    def __init__(self, *names: str) -> None:
        self.told: list[str] = []
        self.names = set(names)
        self.newest_wins = True
        self.unreadable: dict[str, str] = {}
        self.on_upsert: Callable[[], None] = lambda: None

    def upsert(self, obj: Thing) -> None:
        self.told.append(f"+{obj.metadata.name}{obj.spec or ''}")
        self.names.add(obj.metadata.name)
        self.on_upsert()

    def delete(self, key: ObjectKey, uid: str) -> None:
        self.told.append(f"-{key[1]}{uid}")
        self.names.discard(key[1])

    def keys(self) -> Iterator[ObjectKey]:
        return iter([("ns", name) for name in sorted(self.names)])

    def has(self, key: ObjectKey) -> bool:
        return key[1] in self.names

    def count(self) -> int:
        return len(self.names)

    def mark_unreadable(self, key: ObjectKey, cause: str) -> None:
        self.unreadable[key[1]] = cause

    def mark_readable(self, key: ObjectKey) -> None:
        self.unreadable.pop(key[1], None)


class Stream(httpx.AsyncByteStream):
    """A watch's body: documents, then an end, a break, or silence without end."""

    def __init__(self, documents: Sequence[Json | bytes], end: Exception | None) -> None:
        self._documents = documents
        self._end = end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for document in self._documents:
            yield document if isinstance(document, bytes) else msgspec.json.encode(document) + b"\n"
        if self._end is not None:
            raise self._end


class Open(Stream):
    """A watch that stays open; more can be said on it later."""

    def __init__(self) -> None:
        super().__init__((), None)
        self.opened = asyncio.Event()
        self.said: asyncio.Queue[Json] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.opened.set()
        while True:
            yield msgspec.json.encode(await self.said.get()) + b"\n"
            self.said.task_done()


def thing(name: str, version: int = 0, spec: Any = 0, uid: str = "") -> Json:
    return {
        "metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": str(version)},
        "spec": spec,
        "status": None,
    }


def listed(version: int | str, *names: str, more: str = "", items: list[Json] | None = None) -> httpx.Response:
    metadata = {"resourceVersion": str(version), "continue": more}
    return httpx.Response(200, json={"metadata": metadata, "items": items or [thing(name) for name in names]})


def event(type_: str, name: str, version: int, spec: Any = 0, uid: str = "") -> Json:
    return {"type": type_, "object": thing(name, version, spec, uid)}


def bookmark(version: int | str) -> Json:
    """As the API server sends one: no name, and null lists where it sends the kind's own type."""
    metadata = {"name": None, "creationTimestamp": None, "resourceVersion": str(version)}
    return {"type": "BOOKMARK", "object": {"metadata": metadata, "spec": {"containers": None}, "status": {}}}


def failure(code: int, reason: str = "") -> Json:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": reason, "message": "no"}}


def watched(*documents: Json | bytes, end: Exception | None = None) -> httpx.Response:
    return httpx.Response(200, stream=Stream(documents, end))


def refused(code: int, retry_after: str = "", message: str = "no") -> httpx.Response:
    headers = {"Retry-After": retry_after} if retry_after else {}
    return httpx.Response(code, json={"code": code, "reason": "R", "message": message}, headers=headers)


def discovered(*kinds: str) -> httpx.Response:
    resources = [{"name": kind.lower() + "s", "kind": kind, "namespaced": True} for kind in kinds]
    return httpx.Response(200, json={"resources": resources})


class Api:
    """Answers in turn; then every watch stays open."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.accepts: list[str] = []
        self.last = Open()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(_words(request))
        self.accepts.append(request.headers["Accept"].partition(";g=")[0])
        answer = self.answers.pop(0) if self.answers else httpx.Response(200, stream=self.last)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _words(request: httpx.Request) -> str:
    asked = request.url.params
    if "watch" in asked:
        return f"watch {asked['resourceVersion']}"
    if request.url.path == "/apis/example.org/v1":
        return "discover"
    return f"list {asked.get('continue', '')}".strip()


class Time:
    """A clock that only moves when somebody sleeps, and remembers for how long."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@asynccontextmanager
async def following(
    server: Any, store: Store, resource: Resource | tuple[str, str] = THINGS, **options: Any
) -> AsyncIterator[Reflector[Thing]]:
    """A running reflector."""
    async with client_of(server) as client:
        found = Reflector(client, resource, decode=decode, key_of=key_of, store=store, **options)
        task = asyncio.create_task(found.run())
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()


class Bench:
    """A reflector and all around it. ``api`` answers as the script says."""

    def __init__(self, *answers: Answer) -> None:
        self.api = Api(*answers)
        self.store = Store()
        self.time = Time()
        self.reflector: Reflector[Thing]

    def state(self) -> tuple[str, str, bool]:
        return self.reflector.state, self.reflector.cause, self.reflector.synced

    async def say(self, document: Json) -> None:
        """Send an event on the watch, and wait until it is taken."""
        self.api.last.said.put_nowait(document)
        await self.api.last.said.join()
        await asyncio.sleep(0)

    async def probe(self, answer: Answer, seconds: float = 50) -> bool:
        """Probe after so many seconds."""
        self.time.now += seconds
        self.api.answers.append(answer)
        return await self.reflector.probe()

    @asynccontextmanager
    async def running(
        self, resource: Resource | tuple[str, str] = THINGS, **options: Any
    ) -> AsyncIterator[Reflector[Thing]]:
        """Yield the reflector when it has come to the end of the script."""
        options = {"clock": self.time, "sleep": self.time.sleep, "rng": lambda: 1.0, **options}
        async with following(self.api, self.store, resource, **options) as found:
            self.reflector = found
            async with asyncio.timeout(30):
                await self.api.last.opened.wait()
                yield found

    async def run(self, **options: Any) -> Reflector[Thing]:
        """Run to the end of the script, and return the reflector."""
        async with self.running(**options) as found:
            return found


GONE = refused(410)
BROKEN = httpx.RemoteProtocolError("peer closed connection")
SILENT = httpx.ReadTimeout("")

ENDLESS = "9" * 5000
LARGE = str(2**64 - 1)

SCENARIOS = [
    pytest.param([listed(10, "a", "b")], "+a +b", "list, watch 10", (0, 0, 0, 0), id="a list, then its watch"),
    pytest.param(
        [listed(10, "a", more="x"), listed(10, "b", more="y"), listed(10, "c")],
        "+a +b +c",
        "list, list x, list y, watch 10",
        (0, 0, 0, 0),
        id="a list of three pages",
    ),
    pytest.param(
        [listed(10, "a", more="x"), GONE, listed(20, "a", "b")],
        "+a +a +b",
        "list, list x, list, watch 20",
        (0, 0, 0, 0),
        id="a page token that is gone starts the list again",
    ),
    pytest.param(
        [
            listed(10),
            watched(event("ADDED", "a", 11), event("MODIFIED", "a", 12, 5), event("DELETED", "a", 13, uid="u")),
        ],
        "+a +a5 -au",
        "list, watch 10, watch 13",
        (3, 0, 1, 0),
        id="a watch that ended in good order goes on where it was",
    ),
    pytest.param(
        [listed(10, "a"), watched(event("ADDED", "b", 11), end=BROKEN), watched(event("ADDED", "c", 12))],
        "+a +b +c",
        "list, watch 10, watch 11, watch 12",
        (2, 0, 2, 0),
        id="a broken watch is resumed without a list",
    ),
    pytest.param(
        [listed(10), watched(event("ADDED", "a", 11), b'{"type":"ADDED","obj', end=BROKEN)],
        "+a",
        "list, watch 10, watch 11",
        (1, 0, 1, 0),
        id="what a break leaves of an event comes again",
    ),
    pytest.param(
        [listed(10), watched(bookmark(15), bookmark(20))],
        "",
        "list, watch 10, watch 20",
        (0, 0, 1, 0),
        id="bookmarks move the version and are no objects",
    ),
    pytest.param(
        [listed(10, "a", "b"), GONE, listed(20, "b", "c")],
        "+a +b +b +c -a",
        "list, watch 10, list, watch 20",
        (0, 1, 0, 0),
        id="a version that is gone: a new list as a difference, deletions last",
    ),
    pytest.param(
        [listed(10, "a"), watched(event("ADDED", "b", 11), failure(410, "Expired")), listed(20, "b")],
        "+a +b +b -a",
        "list, watch 10, list, watch 20",
        (1, 1, 1, 0),
        id="gone, said within the stream",
    ),
    pytest.param(
        [listed(10), watched(failure(500)), watched(failure(500)), listed(20, "a")],
        "+a",
        "list, watch 10, watch 10, list, watch 20",
        (0, 1, 2, 0),
        id="a second error at one version: a list",
    ),
    pytest.param(
        [listed(10), watched({"type": "ERROR", "object": "?"}), discovered("Thing"), listed(20, "a")],
        "+a",
        "list, watch 10, discover, list, watch 20",
        (0, 1, 1, 0),
        id="an error of no status: a list",
    ),
    pytest.param(
        [listed(10), watched(bookmark(ENDLESS)), refused(400), discovered("Thing"), listed(20, "a")],
        "+a",
        f"list, watch 10, watch {ENDLESS}, discover, list, watch 20",
        (0, 1, 1, 0),
        id="a bookmark that no watch can begin from",
    ),
    pytest.param(
        [listed(10), watched(bookmark(LARGE)), refused(504, message="Too large resource version: …"), listed(20, "a")],
        "+a",
        f"list, watch 10, watch {LARGE}, list, watch 20",
        (0, 1, 1, 0),
        id="a bookmark from the future",
    ),
    pytest.param(
        [listed(ENDLESS, "a"), refused(414), discovered("Thing"), listed(20, "a")],
        "+a +a",
        f"list, watch {ENDLESS}, discover, list, watch 20",
        (0, 1, 0, 0),
        id="a list whose version no watch can begin from",
    ),
    pytest.param(
        [listed(10), httpx.Response(503, content=b'{"message": "\xff"}'), watched(event("ADDED", "a", 11))],
        "+a",
        "list, watch 10, watch 10, watch 11",
        (1, 0, 1, 0),
        id="a refusal that is no UTF-8",
    ),
    pytest.param(
        [listed(10, "a", "b"), GONE, listed(20, items=[thing("a"), thing("b", spec="?")])],
        "+a +b +a",
        "list, watch 10, list, watch 20",
        (0, 1, 0, 1),
        id="it exists: what was known of it stays",
    ),
    pytest.param(
        [listed(10, "b"), watched(event("MODIFIED", "b", 11, "?"), event("ADDED", "a", 12), event("DELETED", "b", 13))],
        "+b +a -b",
        "list, watch 10, watch 13",
        (3, 0, 1, 1),
        id="its events are passed over, and its deletion is not",
    ),
    pytest.param(
        [listed(10), watched(b"what?\n", b'{"type":"ADDED","object":{}}\n', event("ADDED", "a", 11))],
        "+a",
        "list, watch 10, watch 11",
        (1, 0, 1, 2),
        id="a line that is no event does not end the watch",
    ),
    pytest.param(
        [httpx.ConnectError(""), refused(503), listed(10, "a")],
        "+a",
        "list, list, list, watch 10",
        (0, 0, 0, 0),
        id="an API server that comes up late",
    ),
]


@pytest.mark.parametrize(("script", "told", "asked", "counts"), SCENARIOS)
async def test_the_sink_comes_to_hold_what_the_cluster_holds(
    script: list[Answer], told: str, asked: str, counts: tuple[int, int, int, int]
) -> None:
    bench = Bench(*script)
    async with bench.running() as found:
        counted = (found.events, found.relists, found.restarts, found.undecodable)

    assert (told, asked, counts) == (" ".join(bench.store.told), ", ".join(bench.api.asked), counted)
    assert (True, "watching", "") == (found.synced, found.state, found.cause)


@pytest.mark.parametrize(
    ("script", "slept"),
    [
        pytest.param(
            [*[httpx.ConnectError("")] * 8, listed(10)],
            [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0],
            id="doubled up to 2 s",
        ),
        pytest.param([refused(429, "7"), listed(10)], [7.0], id="as long as the API server asks for"),
        pytest.param([refused(429, "9999"), listed(10)], [10.0], id="within reason"),
        pytest.param([listed(10), GONE, listed(10), GONE], [0.05, 0.1], id="lists in vain"),
        pytest.param([listed(10), watched(), watched()], [0.05, 0.1], id="watches that end at once"),
        pytest.param(
            [listed(10), watched(), watched(event("ADDED", "a", 11)), watched()],
            [0.05, 0.05, 0.1],
            id="an event starts afresh",
        ),
        pytest.param(
            [refused(403), discovered("Thing"), refused(403), discovered("Thing"), listed(10)],
            [10.0, 10.0],
            id="forbidden: now and then",
        ),
    ],
)
async def test_waiting(script: list[Answer], slept: list[float]) -> None:
    bench = Bench(*script)
    await bench.run()

    assert slept == bench.time.slept


class Late(Stream):
    """A watch that ends after so many seconds."""

    def __init__(self, time: Time, seconds: float, end: Exception | None = None) -> None:
        super().__init__((), end)
        self._time = time
        self._seconds = seconds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._time.now += self._seconds
        async for document in super().__aiter__():
            yield document


async def test_a_watch_that_held_starts_afresh() -> None:
    """A quiet kind's watch ends every five minutes without an event, which is no reason to be late."""
    bench = Bench(listed(10))
    bench.api.answers += [httpx.Response(200, stream=Late(bench.time, 290)) for _ in range(3)]
    await bench.run()

    assert [0.05, 0.05, 0.05] == bench.time.slept


async def test_waiting_is_spread() -> None:
    """Many reflectors lose the API server at one moment and must not come back at one moment."""
    bench = Bench(refused(503), refused(503), listed(10))
    await bench.run(rng=lambda: 0.0)

    assert [0.025, 0.05] == bench.time.slept


async def test_a_kind_that_is_not_served_is_as_good_as_an_empty_one() -> None:
    """It counts as synced, is looked for again, and is watched from when it is there."""
    bench = Bench(refused(404), discovered("Other"), discovered("Thing"), listed(10, "a"))
    seen: list[object] = []
    found = await bench.run(resource=("example.org/v1", "Thing"), on_synced=lambda: seen.extend(bench.state()))

    assert [10.0, 10.0] == bench.time.slept
    assert ["discover", "discover", "discover", "list", "watch 10"] == bench.api.asked
    assert (["+a"], "watching", THINGS) == (bench.store.told, found.state, found.resource)
    assert ["not_served", "the API server does not serve example.org/v1 Thing", True] == seen


async def test_a_kind_whose_definition_goes_takes_its_objects_along() -> None:
    bench = Bench(listed(10, "a"), refused(404), refused(404), discovered("Thing"), listed(20, "b"))
    await bench.run()

    assert ["list", "watch 10", "discover", "discover", "list", "watch 20"] == bench.api.asked
    assert ["+a", "-a", "+b"] == bench.store.told


async def test_a_list_that_is_missing_for_a_moment_takes_nothing_along() -> None:
    """As while an API server starts."""
    bench = Bench(listed(10, "a"), refused(404), discovered("Thing"), listed(20, "a"))
    await bench.run()

    assert ["+a", "+a"] == bench.store.told


@pytest.mark.parametrize(
    ("script", "states"),
    [
        pytest.param(
            [refused(403), discovered("Thing"), refused(403), discovered("Thing"), listed(10)],
            [("forbidden", "no (403 R)", False)] * 2,
            id="a forbidden kind is named until it is allowed",
        ),
        pytest.param(
            [listed(10, "a"), watched(end=BROKEN), httpx.ConnectError("no route")],
            [
                ("retrying", "RemoteProtocolError peer closed connection", True),
                ("retrying", "ConnectError no route", True),
            ],
            id="it stays synced while the API server is away",
        ),
    ],
)
async def test_the_state_while_it_waits(script: list[Answer], states: list[tuple[str, str, bool]]) -> None:
    bench = Bench(*script)
    seen: list[tuple[str, str, bool]] = []

    async def look_and_sleep(seconds: float) -> None:
        state, cause, synced = bench.state()
        seen.append((state, cause.rpartition(": ")[2], synced))
        await bench.time.sleep(seconds)

    await bench.run(sleep=look_and_sleep)

    assert (states, ("watching", "", True)) == (seen, bench.state())


async def test_metadata_is_all_that_is_asked_for() -> None:
    bench = Bench(listed(10, "a"))
    await bench.run(metadata_only=True)

    lists, watches = "application/json;as=PartialObjectMetadataList", "application/json;as=PartialObjectMetadata"
    assert [lists, watches] == bench.api.accepts


async def test_a_long_list_lets_others_run() -> None:
    """Each upsert takes 1 ms here; nobody waits for more than a few of them."""
    bench = Bench(listed(10, *(f"t{n}" for n in range(40))))
    turns: list[int] = []

    async def other() -> None:
        while True:
            turns.append(len(bench.store.told))
            await asyncio.sleep(0)

    bench.store.on_upsert = lambda: bench.time.pass_by(0.001)
    task = asyncio.create_task(other())
    await bench.run()
    task.cancel()

    steps = [after - before for before, after in pairwise(turns)]
    assert (40, True) == (sum(steps), max(steps) <= 5)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        pytest.param(lambda names: names.add("new"), "+old +a -old", id="a pod read on its own while the list ran"),
        pytest.param(lambda names: names.discard("old"), "+old +a", id="a pod whose bind began while the list ran"),
    ],
)
async def test_what_changes_during_a_list_is_not_deleted_by_it(change: Callable[[set[str]], None], told: str) -> None:
    """It is newer than that list; the watch tells if it is gone."""
    bench = Bench(listed(10, "old"), GONE, listed(20, "a"))
    bench.store.on_upsert = lambda: change(bench.store.names) if bench.store.told[-1] == "+a" else None
    await bench.run()

    assert told == " ".join(bench.store.told)


async def test_an_undecodable_object_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    bad = event("MODIFIED", "b", 11, "?")
    found = await Bench(listed(10), watched(bad, bad, event("MODIFIED", "b", 12, 1), bad)).run()

    assert (3, 2) == (found.undecodable, capsys.readouterr().out.count("object left out"))


async def test_contact_and_freshness() -> None:
    """A list vouches for the moment it was asked for, an event only for being heard."""
    bench = Bench(listed(10, "a"))
    bench.store.on_upsert = lambda: bench.time.pass_by(4)
    async with bench.running() as found:
        assert (1004.0, 1000.0) == (found.last_contact, found.fresh_as_of)
        bench.time.now += 6
        await bench.say(bookmark(20))
        assert (1010.0, 1000.0) == (found.last_contact, found.fresh_as_of)


async def test_a_probe_that_finds_nothing_newer_vouches_for_now() -> None:
    bench = Bench(listed(10, "a"))
    async with bench.running() as found:
        assert await bench.probe(listed(10, "a"))

    assert (1050.0, 1050.0) == (found.last_contact, found.fresh_as_of)


async def test_a_probe_that_finds_newer_waits_for_the_watch_to_come_up_to_it() -> None:
    """The newer version may be of another kind, so it is no sign of being late; nor may it be taken for being fresh."""
    bench = Bench(listed(10, "a"))
    async with bench.running() as found:
        answers = [await bench.probe(listed(version, "a")) for version in (30, 40)]
        fresh = [found.fresh_as_of]
        for version in (29, 30, 45):
            await bench.say(bookmark(version))
            fresh.append(found.fresh_as_of)

    assert ([False, False], [1000.0, 1000.0, 1050.0, 1100.0]) == (answers, fresh)


async def test_an_opaque_version_proves_nothing() -> None:
    """A list still does, and it settles the probes that came before it."""
    bench = Bench(listed(10, "a"))
    async with bench.running() as found:
        proofs: list[object] = [await bench.probe(listed(30, "a"))]
        for opaque in (ENDLESS, "9" * 21, "\u0669" * 3, "-40", "4e1", " 40"):
            await bench.say(bookmark(opaque))
            proofs.append(found.fresh_as_of)
            proofs.append(await bench.probe(listed(opaque, "a"), seconds=0))
        bench.time.now += 50
        bench.api.answers += [listed(20, "a")]
        bench.api.last.opened.clear()
        found.list_anew()
        await bench.api.last.opened.wait()
        proofs.append(found.fresh_as_of)

    assert [False, *[1000.0, False] * 6, 1100.0] == proofs
    assert ["list", "watch 10", *["list"] * 8, "watch 20"] == bench.api.asked


async def test_after_a_gap_an_opaque_version_is_followed_by_a_list() -> None:
    """Its watch could not show when it has caught up."""
    bench = Bench(listed(ENDLESS, "a"))
    bench.api.answers += [httpx.Response(200, stream=Late(bench.time, 1000, BROKEN)), watched(), listed(20)]
    found = await bench.run()

    assert (found.fresh_as_of, found.last_contact) == (bench.time.now, bench.time.now)
    assert ["list", f"watch {ENDLESS}", f"watch {ENDLESS}", "list", "watch 20"] == bench.api.asked


@pytest.mark.parametrize("answer", [refused(503), httpx.ConnectError(""), httpx.Response(200, text="<html>")])
async def test_a_probe_that_fails_vouches_for_nothing(answer: Answer) -> None:
    bench = Bench(listed(10, "a"))
    async with bench.running() as found:
        assert not await bench.probe(answer)

    assert (1000.0, "watching") == (found.fresh_as_of, found.state)


async def test_versions_that_go_back_start_everything_over() -> None:
    """etcd was restored: a watch from the version we know would be silent until the cluster has come up to it."""
    bench = Bench(listed(10, "a", "b"))
    async with bench.running() as found:
        bench.api.answers += [listed(5, "a"), listed(6, "a")]
        bench.api.last.opened.clear()
        believed: list[bool] = []
        bench.store.on_upsert = lambda: believed.append(bench.store.newest_wins)
        assert not await found.probe()
        await bench.api.last.opened.wait()

    assert ["list", "watch 10", "list", "list", "watch 6"] == bench.api.asked
    assert (["+a", "+b", "+a", "-b"], 1) == (bench.store.told, found.relists)
    assert ([False], True) == (believed, bench.store.newest_wins)


def test_nothing_is_known_before_the_first_list() -> None:
    found = Reflector(client_of(Api()), THINGS, decode=decode, key_of=key_of, store=Store())

    assert ("starting", False, -inf, -inf) == (found.state, found.synced, found.last_contact, found.fresh_as_of)
    assert not asyncio.run(found.probe())


async def test_only_a_first_list_is_a_bulk_load(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: loads.append(True))
    await Bench(listed(10), GONE, listed(20)).run()

    assert ([True], True) == (loads, gc.isenabled())


LEVELS = (1_200, 9_000)


def deep(found: Json, levels: int) -> bytes:
    """With fields that somebody claims to manage, nested as deeply as the API server stores them."""
    text = msgspec.json.encode(found).replace(b'"status":null', b'"status":"DEEP"')
    return text.replace(b'"DEEP"', b'{"f:a":' * levels + b"{}" + b"}" * levels)


def page(*items: Json) -> Json:
    return {"metadata": {"resourceVersion": "10"}, "items": list(items)}


@pytest.mark.parametrize("levels", LEVELS)
class TestDepth:
    async def test_an_object_is_as_good_as_any_other(self, levels: int) -> None:
        """In a list beside others, told by the watch, changed and deleted."""
        listing = httpx.Response(200, content=deep(page(thing("a", spec=1)), levels))
        told = [event("ADDED", "b", 11, 2), event("MODIFIED", "b", 12, 3), event("DELETED", "b", 13, uid="u")]
        bench = Bench(listing, watched(*(deep(it, levels) + b"\n" for it in told)))
        found = await bench.run()

        assert (["+a1", "+b2", "+b3", "-bu"], ["list", "watch 10", "watch 13"]) == (bench.store.told, bench.api.asked)
        assert (0, set(), 3) == (found.undecodable, found.unreadable, found.events)

    async def test_a_probe_and_an_error_are_read(self, levels: int) -> None:
        gone = failure(410)
        gone["object"]["status"] = None
        bench = Bench(listed(10, "a"), watched(deep(gone, levels) + b"\n"), listed(10, "a"))
        async with bench.running():
            assert await bench.probe(httpx.Response(200, content=deep(page(thing("a")), levels)))

        assert ["list", "watch 10", "list", "watch 10", "list"] == bench.api.asked


class TestOneObject:
    """Whatever one object does, it is left out by itself, named, and taken back when it is gone or mended."""

    @pytest.mark.parametrize(
        "fault", [RuntimeError("a screw"), MemoryError(), KeyError("k"), ValueError("v")], ids=repr
    )
    @pytest.mark.parametrize("where", ["decode", "upsert"])
    async def test_a_fault_does_not_end_the_watch(
        self, where: str, fault: Exception, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither of a list nor of an event, as often as it comes."""
        bench = Bench(listed(10, "a", "bad", "b"), watched(event("MODIFIED", "bad", 11), event("ADDED", "c", 12)))

        def faulty(raw: bytes | Raw) -> Thing:
            if b'"bad"' in bytes(raw):
                raise fault
            return THING.decode(raw)

        def upsert() -> None:
            if bench.store.told[-1] == "+bad":
                raise fault

        if where == "decode":
            monkeypatch.setitem(globals(), "decode", faulty)
        else:
            bench.store.on_upsert = upsert
        found = await bench.run()

        assert ["+a", "+b", "+c"] == [it for it in bench.store.told if it != "+bad"]
        assert ({("ns", "bad")}, 2, {"bad": str(fault)}) == (
            found.unreadable,
            found.undecodable,
            bench.store.unreadable,
        )

    @pytest.mark.parametrize(
        "then",
        [
            pytest.param([watched(event("MODIFIED", "b", 11, 5))], id="mended, as the watch tells"),
            pytest.param([watched(event("DELETED", "b", 11))], id="deleted, as the watch tells"),
            pytest.param([GONE, listed(20, "a", "b")], id="mended, as a list tells"),
            pytest.param([GONE, listed(20, "a")], id="deleted, as a list tells"),
            pytest.param([refused(404), refused(404), discovered("Thing"), listed(20, "a")], id="with its kind"),
        ],
    )
    async def test_it_is_taken_back(self, then: list[Answer]) -> None:
        bench = Bench(listed(10, items=[thing("b", spec="?"), thing("a")]), *then)
        seen: list[dict[str, str]] = []
        bench.store.on_upsert = lambda: seen.append(dict(bench.store.unreadable))
        found = await bench.run()

        assert {"b": "Expected `int`, got `str` - at `$.spec`"} == seen[0]
        assert ({}, set()) == (bench.store.unreadable, found.unreadable)

    @pytest.mark.parametrize(
        ("metadata", "key"),
        [({}, ("", "")), ({"namespace": "ns", "name": "b", "resourceVersion": 5}, ("ns", "b"))],
        ids=["one without a name is counted", "one whose version makes no sense is named"],
    )
    async def test_one_that_makes_no_sense(self, metadata: Json, key: ObjectKey) -> None:
        bench = Bench(listed(10, "a"), watched({"type": "MODIFIED", "object": {"metadata": metadata}}))
        found = await bench.run()

        assert (["+a"], {key}, [key[1]] if key[1] else []) == (
            bench.store.told,
            found.unreadable,
            [*bench.store.unreadable],
        )
