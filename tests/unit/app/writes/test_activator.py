"""A waiting pod is woken by one small write, one at a time and not too fast; what cannot be written is let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from app.cache.cluster import Cluster
from app.kube.client import KubeClient
from app.kube.core_decoding import decode_pod
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ACTIVATED
from app.runtime.read_only import ReadOnlyActivate, read_only
from app.writes import activator as module
from app.writes.activator import PAUSE_SECONDS, ApiActivator, activation
from tests.apiserver import ApiServer, Fault, client_of
from tests.builders import encoded, make_pod, pod_object
from tests.fakes import ManualClock

PATCHES = "PATCH /api/v1/namespaces/default/pods/{}/status"
RETRY = 0.5


class World:
    """What the API server has, what the picture has of it, and what wakes it."""

    def __init__(self, client: KubeClient, server: ApiServer) -> None:
        self.server = server
        self.clock = ManualClock()
        self.cluster = Cluster()
        self.activator = ApiActivator(client, self.cluster, lambda: self.bars, self._sleep, self.clock)
        self.slept: list[float] = []
        self.bars = ""
        for found in server.all("Pod"):
            self.cluster.upsert_pod(decode_pod(encoded(found)))

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.now += seconds
        await asyncio.sleep(0)

    def pod(self, name: str) -> Pod:
        return make_pod(name)

    async def written(self) -> list[str]:
        """All that is written until nothing is left to be written, by pod."""
        async with asyncio.timeout(10):
            running = asyncio.create_task(self.activator.run())
            while self.activator._some.is_set():  # noqa: ASYNC110  # it tells nobody that it is done
                await asyncio.sleep(0)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        every = [name for name in ("a", "b", "c") for _ in range(self.server.log.count(PATCHES.format(name)))]
        assert len(every) == len(self.server.log)
        return [line.split("/")[-2] for line in self.server.log]

    def stamp(self, name: str) -> str | None:
        found = self.server.get("Pod", name)
        assert found is not None
        return (found["metadata"].get("annotations") or {}).get(ACTIVATED)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    server = ApiServer(*(pod_object(name) for name in "abc"))
    async with client_of(server) as client:
        yield World(client, server)


@pytest.fixture
def logs() -> Iterator[list[EventDict]]:
    with capture_logs() as captured:
        yield captured


def warnings(logs: list[EventDict]) -> list[str]:
    return [it["event"] for it in logs if it["log_level"] == "warning"]


def test_what_is_patched() -> None:
    """The UID is a precondition; a version would meet every condition that the scheduler writes."""
    now = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)

    assert {"metadata": {"uid": "u", "annotations": {ACTIVATED: "2026-01-02T03:04:05.000006+00:00"}}} == activation(
        "u", now
    )


async def test_pods_are_woken_one_after_the_other_in_the_order_asked(world: World) -> None:
    world.activator([world.pod("b"), world.pod("a")])

    assert ["b", "a"] == await world.written()
    assert [] == world.slept
    assert (None, True, True) == (world.stamp("c"), bool(world.stamp("a")), bool(world.stamp("b")))


async def test_many_go_at_once_and_then_as_many_a_second(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_AT_ONCE", 2)
    for _ in range(4):
        world.activator([world.pod("a")])
        await world.written()
    assert pytest.approx([PAUSE_SECONDS] * 2) == world.slept

    world.clock.now += 10
    world.slept.clear()
    world.activator(world.pod(name) for name in "abc")
    await world.written()
    assert pytest.approx([PAUSE_SECONDS]) == world.slept


async def test_asked_for_while_it_is_written_a_pod_is_woken_once_more(world: World) -> None:
    world.server.meanwhile("PATCH", lambda: world.activator([world.pod("a"), world.pod("a")]))
    world.activator([world.pod("a"), world.pod("b")])

    assert ["a", "b", "a"] == await world.written()


@pytest.mark.parametrize(
    "now",
    [
        pytest.param(make_pod("a", resource_version="999999", node="n1"), id="bound"),
        pytest.param(make_pod("a", resource_version="999999", gated=True), id="gated"),
        pytest.param(make_pod("a", resource_version="999999", terminating=True), id="being deleted"),
        pytest.param(make_pod("a", resource_version="999999", phase="Failed"), id="failed"),
        pytest.param(make_pod("a", resource_version="999999", uid="anew"), id="another pod of that name"),
    ],
)
async def test_a_pod_that_does_not_wait_is_left_alone(world: World, now: Pod) -> None:
    world.cluster.upsert_pod(now)
    world.activator([world.pod("a"), world.pod("nobody knows")])

    assert [] == await world.written()


async def test_a_pod_whose_binding_may_be_on_its_way_is_left_alone(world: World) -> None:
    """The Binding carries the version that would be moved."""
    world.activator([world.pod("a")])
    world.cluster.assume(world.pod("a"), "n1")

    assert [] == await world.written()


async def test_only_who_leads_wakes_pods(world: World) -> None:
    world.bars = "another replica leads"
    world.activator([world.pod("a")])
    assert [] == await world.written()

    world.bars = ""
    world.activator([world.pod("b")])
    assert ["b"] == await world.written()


async def test_a_lead_that_is_lost_before_the_write_drops_what_was_asked(world: World) -> None:
    world.activator([world.pod("a")])
    world.bars = "another replica leads"

    assert [] == await world.written()


async def test_what_is_left_when_it_is_stopped_is_not_written_in_a_later_term(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_AT_ONCE", 0)
    world.activator([world.pod("a"), world.pod("b")])
    running = asyncio.create_task(world.activator.run())
    while not world.server.log:  # noqa: ASYNC110  # the first write is under way
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    world.activator([world.pod("c")])
    assert ["a", "c"] == await world.written()


@pytest.mark.parametrize(
    ("faults", "tried", "stamped", "slept", "told"),
    [
        pytest.param([404], ["a", "b"], False, [], [], id="the pod is gone"),
        pytest.param([409], ["a", "b"], False, [], [], id="it is another by now"),
        pytest.param([422], ["a", "b"], False, [], [], id="it is another by its UID"),
        pytest.param([400], ["a", "b"], False, [], ["pod not activated"], id="it is refused"),
        pytest.param([500], ["a", "b", "a"], True, [RETRY], [], id="a fault"),
        pytest.param([429], ["a", "b", "a"], True, [RETRY], [], id="too many requests"),
        pytest.param(["lost"], ["a", "b", "a"], True, [RETRY], [], id="no answer"),
        pytest.param(["unreachable"], ["a", "b", "a"], True, [RETRY], [], id="no server"),
    ],
)
async def test_what_goes_wrong(
    world: World,
    logs: list[EventDict],
    faults: list[Fault],
    tried: list[str],
    stamped: bool,
    slept: list[float],
    told: list[str],
) -> None:
    world.server.fail("PATCH", *faults)
    world.activator([world.pod("a"), world.pod("b")])

    assert (tried, slept) == (await world.written(), world.slept)
    assert (stamped, True) == (bool(world.stamp("a")), bool(world.stamp("b")))
    assert told == warnings(logs)


async def test_a_pod_that_cannot_be_written_is_given_up_in_the_end(world: World, logs: list[EventDict]) -> None:
    world.server.fail("PATCH", 500, "lost", "unreachable")
    world.activator([world.pod("a")])

    assert ["a"] * 3 == await world.written()
    assert ([RETRY] * 3, ["pod not activated"]) == (world.slept, warnings(logs))


async def test_a_right_that_is_missing_is_told_once_until_it_was_there(world: World, logs: list[EventDict]) -> None:
    every = [world.pod(name) for name in "abc"]
    world.server.fail("PATCH", 403, 403, 403)
    world.activator(every)
    await world.written()
    once = warnings(logs)
    world.activator(every)
    await world.written()
    world.server.fail("PATCH", 403)
    world.activator(every)
    await world.written()

    assert (["pod not activated"], ["pod not activated"] * 2) == (once, warnings(logs))


async def test_more_than_there_is_room_for_are_let_go_and_told_once(
    world: World, logs: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_QUEUED", 2)
    world.activator([world.pod(name) for name in "abc"])
    world.activator([world.pod("c")])

    assert ["a", "b"] == await world.written()
    assert ["activation queue full"] == warnings(logs)
    world.activator([world.pod("c")])
    assert ["a", "b", "c"] == await world.written()


async def test_a_question_wakes_nobody(world: World) -> None:
    asked = ReadOnlyActivate(world.activator)
    with read_only():
        asked([world.pod("a")])
    asked([world.pod("b")])

    assert ["b"] == await world.written()


def test_what_is_written_is_not_read() -> None:
    """Else every pod that was woken once would be looked at by repairs."""
    annotations = {ACTIVATED: "2026-01-02", "homeport.dev/home": "n1"}

    assert {"homeport.dev/home": "n1"} == make_pod("a", annotations=annotations).annotations
