"""After a take-over every pod that waits gets a new version, so that what a former leader sent meets a conflict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from app.cache.cluster import Cluster
from app.kube.api_errors import ApiError
from app.kube.client import REQUEST_SECONDS, KubeClient
from app.kube.core_decoding import decode_pod
from app.writes.api_writes import binding
from app.writes.callers import ALL_CALLERS, Callers
from app.writes.fences import Fences
from app.writes.read_back import FENCE
from tests.apiserver import ApiServer, Fault, client_of
from tests.builders import JsonObject, encoded, make_pod, pod_object

NAMES = Callers(frozenset({"default-scheduler"}))


class World:
    """What the API server has, what the picture has of it, and what fences it off."""

    def __init__(self, client: KubeClient, server: ApiServer) -> None:
        self.client, self.server = client, server
        self.cluster = Cluster()
        self.fences = Fences(client, self.cluster, self._sleep)
        self.slept: list[float] = []
        for found in server.all("Pod"):
            self.cluster.upsert_pod(decode_pod(encoded(found)))

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    def fenced(self) -> list[str]:
        return sorted(
            it["metadata"]["name"]
            for it in self.server.all("Pod")
            if FENCE in (it["metadata"].get("annotations") or {})
        )


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = ApiServer(
        pod_object("waits"),
        pod_object("bound", node="n1"),
        pod_object("gated", gated=True),
        pod_object("going", terminating=True),
        pod_object("foreign", scheduler="volcano"),
        pod_object("apart", namespace="other"),
    )
    async with client_of(server) as client:
        yield World(client, server)


async def test_all_that_may_be_bound_are_fenced_off(world: World) -> None:
    assert 2 == world.fences.note(NAMES)
    assert (2, True, True, False) == (
        world.fences.pending,
        world.fences.pending_in("default"),
        world.fences.pending_in("other"),
        world.fences.pending_in("third"),
    )

    await world.fences.raise_all()

    assert (["apart", "waits"], 0) == (world.fenced(), world.fences.pending)


async def test_where_nobody_knows_who_has_bound_all_are_fenced_off(world: World) -> None:
    assert 3 == world.fences.note(ALL_CALLERS)
    await world.fences.raise_all()

    assert ["apart", "foreign", "waits"] == world.fenced()


@pytest.mark.parametrize("reserved", [False, True])
async def test_what_is_only_meant_to_be_bound_here_is_fenced_off_too(world: World, reserved: bool) -> None:
    """It may have been since an earlier term of this process, and keeps its place."""
    pod = world.cluster.pod("default", "waits")
    assert pod is not None
    world.cluster.assume(pod, "n1")
    if reserved:
        world.cluster.assumed.reserve(pod.uid)

    world.fences.note(NAMES)
    await world.fences.raise_all()

    found = world.cluster.pod("default", "waits")
    assert found is not None
    assert (["apart", "waits"], "n1") == (world.fenced(), found.node_name)
    assert found.resource_version != pod.resource_version


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param({"PATCH": ["another"]}, id="another pod"),
        pytest.param({"PATCH": [httpx.Response(200, html="Welcome")]}, id="a page"),
        pytest.param({"PATCH": [409], "GET": ["another"]}, id="another pod after a conflict"),
        pytest.param({"PATCH": [409]}, id="not moved after a conflict"),
        pytest.param({"PATCH": [httpx.Response(404, text="no such backend")]}, id="the 404 of a proxy"),
    ],
)
async def test_an_answer_that_does_not_show_the_pod_moved_on_is_no_fence(
    world: World, faults: dict[str, list[Fault]]
) -> None:
    for method, found in faults.items():
        world.server.fail(method, *found)
    world.fences.note(NAMES)
    await world.fences.raise_all()

    assert (["apart", "waits"], None) == (world.fenced(), world.cluster.pod("default", "another"))


async def test_a_fence_that_is_answered_with_the_pod_of_before_is_tried_again(world: World) -> None:
    world.server.meanwhile("PATCH", lambda: world.server.fail("PATCH", httpx.Response(200, json=stored())))

    def stored() -> JsonObject:
        path = world.server.requests[-1].url.path
        found = world.server.get("Pod", "apart" if "apart" in path else "waits")
        assert found is not None
        return found

    world.fences.note(NAMES)
    await world.fences.raise_all()

    assert (["apart", "waits"], 3) == (world.fenced(), world.server.count("PATCH"))


async def test_a_late_binding_of_before_meets_a_conflict_and_the_next_one_does_not(world: World) -> None:
    late = world.cluster.pod("default", "waits")
    world.fences.note(NAMES)
    await world.fences.raise_all()
    now = world.cluster.pod("default", "waits")
    assert late is not None
    assert now is not None

    path = "/api/v1/namespaces/default/pods/waits/binding"
    with pytest.raises(ApiError) as refused:
        await world.client.post(path, binding(late, "n1", {}))
    await world.client.post(path, binding(now, "n2", {}))

    assert 409 == refused.value.status
    found = world.server.get("Pod", "waits")
    assert found is not None
    assert "n2" == found["spec"]["nodeName"]


def bound(found: JsonObject) -> JsonObject:
    return {**found, "spec": {**found["spec"], "nodeName": "n3"}}


async def test_one_that_a_late_binding_reached_first_counts_where_it_is(world: World) -> None:
    world.fences.note(NAMES)
    world.server.put(bound(pod_object("waits")))
    await world.fences.raise_all()

    pod = world.cluster.pod("default", "waits")
    assert pod is not None
    assert ("n3", ["apart"]) == (pod.node_name, world.fenced())


async def test_one_that_is_gone_is_done_with(world: World) -> None:
    world.fences.note(NAMES)
    world.server.clear()
    await world.fences.raise_all()

    assert 0 == world.fences.pending


@pytest.mark.parametrize("fault", ["lost", "unanswered", "unreachable", 500, 429])
async def test_it_is_tried_until_it_is_done(world: World, fault: Fault) -> None:
    world.server.fail("PATCH", fault, fault, fault)
    world.fences.note(NAMES)
    await world.fences.raise_all()

    assert ["apart", "waits"] == world.fenced()


@pytest.mark.parametrize("status", [403, 422])
async def test_where_it_is_refused_a_late_binding_is_waited_for(world: World, status: int) -> None:
    """All wait for the same moment, and are read then."""
    world.server.fail("PATCH", status, status)
    world.fences.note(NAMES)
    world.server.put(bound(pod_object("waits")))
    await world.fences.raise_all()

    pod = world.cluster.pod("default", "waits")
    assert pod is not None
    assert ("n3", [], 0) == (pod.node_name, world.fenced(), world.fences.pending)
    assert 2 == sum(REQUEST_SECONDS - 5 < it <= REQUEST_SECONDS for it in world.slept)


async def test_a_pod_that_can_be_neither_fenced_nor_read_has_one_line_for_each(world: World) -> None:
    world.server.fail("PATCH", 403, 403)
    world.server.fail("GET", 403, 403)
    world.fences.note(NAMES)

    with capture_logs() as logged:
        await world.fences.raise_all()

    errors = [(it["event"], it["pod"]) for it in logged if it["log_level"] == "error"]
    assert sorted(errors) == [
        ("pod cannot be fenced off", "default/waits"),
        ("pod cannot be fenced off", "other/apart"),
        ("pod that is not fenced cannot be read", "default/waits"),
        ("pod that is not fenced cannot be read", "other/apart"),
    ]
    assert 0 == world.fences.pending


async def test_a_namespace_that_a_bind_asks_for_comes_first(world: World) -> None:
    for number in range(40):
        world.server.put(pod_object(f"web-{number}"))
        world.cluster.upsert_pod(make_pod(f"web-{number}", resource_version=str(world.server.version)))
    world.fences.note(NAMES)
    working = asyncio.create_task(world.fences.raise_all())
    await world.fences.cleared("other")
    left = world.fences.pending
    await world.fences.cleared("default")
    await working

    assert left > 20
    assert 42 == len(world.fenced())


async def test_together_no_namespace_is_free_before_all_are(world: World) -> None:
    world.server.fail("PATCH", "lost")  # of one of them, which is tried again later
    world.fences.note(NAMES, together=True)
    working = asyncio.create_task(world.fences.raise_all())
    free = {name: asyncio.create_task(world.fences.cleared(name)) for name in ("default", "other", "third")}
    seen = set()
    while world.fences.pending:
        seen.add((*(world.fences.pending_in(name) for name in free), any(it.done() for it in free.values())))
        await asyncio.sleep(0)
    await asyncio.gather(working, *free.values())

    assert {(True, True, True, False)} == seen
    assert not any(world.fences.pending_in(name) for name in free)


async def test_a_term_that_ends_leaves_nothing_pending(world: World) -> None:
    world.fences.note(NAMES)
    working = asyncio.create_task(world.fences.raise_all())
    await asyncio.sleep(0)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)

    assert 0 == world.fences.pending
    await world.fences.cleared("default")


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda raw: b'{"x":' + b"[" * 9_000 + b"]" * 9_000 + b"," + raw[1:], id="nested deeply"),
        pytest.param(lambda raw: raw.replace(b'"labels"', b'"labels": 5, "were"'), id="that makes no sense"),
    ],
)
async def test_an_answer(world: World, spoil: Callable[[bytes], bytes]) -> None:
    """What counts is that the pod has moved on."""
    world.fences.note(NAMES)
    world.server.spoil = spoil

    await world.fences.raise_all()

    assert (["apart", "waits"], 0) == (world.fenced(), world.fences.pending)
