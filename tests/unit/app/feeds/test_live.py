"""The picture of a live cluster: complete once every kind is listed, and never trusted when it has gone silent."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from app.cache.cluster import Cluster
from app.feeds import freshness, live, reflector
from app.feeds.feed import FeedState
from app.feeds.live import LiveFeed
from app.framework.objects import Unreadable
from app.framework.status import error
from app.kube.client import KubeClient
from app.kube.credential_sources import CredentialsError
from app.kube.kinds import NODES, PODS, REPLICA_SETS, owner_kind
from app.telemetry import background
from app.writes.batches import BindBatches
from app.writes.bind_guard import passed_down
from tests.api.virtual import now, virtual_time
from tests.apiserver import RESOURCES, ApiServer, Fault, client_of, event, kubeconfig
from tests.builders import JsonObject, encoded, make_pod, node_object, pod_object, workload_object
from tests.chaos.failpoints import SIDES, matches, rewritten
from tests.unit.app.writes.leadership import Leadership

MACHINES = owner_kind("kubevirt.io/v1", "VirtualMachine")
MAX_AGE = 60.0


SERVED = tuple(it for it in RESOURCES if it.kind in ("Node", "Pod", "ReplicaSet"))


def answered(found: JsonObject) -> httpx.Response:
    """With this object, whatever was asked for. No watch has shown it."""
    return httpx.Response(200, json=found)


class World:
    """A feed, the API server it hears of, and the picture it fills."""

    def __init__(self, folder: Path, plane: ApiServer) -> None:
        self.plane = plane
        self.cluster = Cluster()
        kinds = (REPLICA_SETS, MACHINES)
        self.batches = BindBatches(1.0, monotonic)
        self.feed = LiveFeed(str(kubeconfig(folder)), self.cluster, kinds, max_age=MAX_AGE, batches=self.batches)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    plane = ApiServer(
        node_object("n1"), pod_object("web-1", node="n1"), workload_object("ReplicaSet", "web"), served=SERVED
    )
    monkeypatch.setattr(live, "KubeClient", functools.partial(KubeClient, transport=httpx.MockTransport(plane)))
    world = World(tmp_path, plane)
    yield world
    await world.feed.stop()


@pytest.fixture
async def complete(world: World) -> World:
    await world.feed.start()
    await asyncio.wait_for(world.feed.complete(), 30)
    return world


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  # a reflector tells nobody of its state
            await asyncio.sleep(0.001)


async def test_before_it_starts_it_waits_for_every_kind(world: World) -> None:
    assert (
        "the snapshot of the cluster is not complete: waiting for v1 Node, v1 Pod, "
        "apps/v1 ReplicaSet, kubevirt.io/v1 VirtualMachine (starting)"
    ) == world.feed.problem()


async def test_it_is_complete_once_every_kind_is_listed_or_not_served(complete: World) -> None:
    assert "" == complete.feed.problem()
    assert ["n1"] == list(complete.cluster.nodes)
    found = complete.plane.get("Pod", "web-1")
    assert found is not None
    assert [complete.cluster.core.decode_pod(encoded(found))] == list(complete.cluster.pods())
    assert 1 == complete.cluster.count_of(REPLICA_SETS)
    selectors = {it.url.path: it.url.params.get("fieldSelector") for it in complete.plane.requests}
    assert ("status.phase!=Succeeded,status.phase!=Failed", None) == (
        selectors["/api/v1/pods"],
        selectors["/api/v1/nodes"],
    )


async def test_kinds_that_are_not_served_at_the_start_are_one_line(world: World) -> None:
    with capture_logs() as lines:
        await world.feed.start()
        await asyncio.wait_for(world.feed.complete(), 30)

    assert [{"event": "kinds not served", "log_level": "info", "kinds": ["kubevirt.io/v1 VirtualMachine"]}] == [
        it for it in lines if it["event"] in ("kinds not served", "kind cannot be watched")
    ]


async def test_states(complete: World) -> None:
    await until(lambda: complete.feed.states()["apps/v1 ReplicaSet"].state == "watching")
    await until(lambda: {it.state for it in complete.feed.states().values()} == {"watching", "not_served"})

    states = complete.feed.states()
    assert all(0 <= it.age < 5 for it in states.values())
    assert {
        "v1 Node": FeedState("watching", 1, 0.0, True),
        "v1 Pod": FeedState("watching", 1, 0.0, True),
        "apps/v1 ReplicaSet": FeedState("watching", 1, 0.0, True),
        "kubevirt.io/v1 VirtualMachine": FeedState("not_served", 0, 0.0, True),
    } == {kind: FeedState(it.state, it.objects, 0.0, it.synced) for kind, it in states.items()}


async def test_a_kind_that_is_forbidden_is_named(world: World) -> None:
    world.plane.down_at["/api/v1/nodes"] = 403
    await world.feed.start()

    await until(lambda: "v1 Pod" not in world.feed.problem() and "forbidden" in world.feed.problem())
    assert world.feed.problem().startswith(
        "the snapshot of the cluster is not complete: waiting for v1 Node (forbidden: "
    )


async def test_a_watch_that_is_silent_for_too_long_is_not_trusted(complete: World) -> None:
    complete.feed._reflectors[PODS]._fresh.last_contact -= MAX_AGE + 1

    assert complete.feed.problem().startswith("nothing heard of v1 Pod (")
    assert complete.feed.problem().endswith(") for more than 60 s")


async def test_a_kind_that_is_not_served_is_as_old_as_the_last_look_for_it(
    complete: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have come to be served since, and then pods are decided on without its objects."""
    assert "not_served" == complete.feed.states()["kubevirt.io/v1 VirtualMachine"].state
    assert "" == complete.feed.problem()
    monkeypatch.setattr(live, "monotonic", lambda: monotonic() + MAX_AGE + 1)
    for kind, it in complete.feed._reflectors.items():
        it._fresh.last_contact += MAX_AGE + 1 if kind != MACHINES else 0

    assert complete.feed.problem().startswith("nothing heard of kubevirt.io/v1 VirtualMachine (not_served: ")


async def test_a_watch_that_fails_by_a_fault_of_ours_begins_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is heard of again nothing is decided, and a restart is not needed."""
    monkeypatch.setattr(background, "AGAIN_SECONDS", 0.01)
    world.plane.down_at["/api/v1/pods"] = RuntimeError("a screw is loose")
    await world.feed.start()

    await until(lambda: "the watch of v1 Pod failed with RuntimeError: a screw is loose" == world.feed.problem())
    del world.plane.down_at["/api/v1/pods"]
    await asyncio.wait_for(world.feed.complete(), 30)
    await until(lambda: "" == world.feed.problem())


CALLED_ONCE = ("*.probe:*", "*.keep_fresh:*")
"""Not called by the tasks themselves, or as their first step alone."""


@virtual_time
async def test_an_exception_at_any_await_of_a_feed_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that watches and the task that probes both start again, after a fault and after a stray cancellation."""
    at = Failpoint()
    points: list[str] = []
    copy: dict[str, Any] = {}
    for module in (freshness, reflector):
        code, found = rewritten(inspect.getsource(module), module.__name__, str(module.__file__))
        points += [f"{it.name}:{side}" for it in found if not matches(it.name, CALLED_ONCE) for side in SIDES]
        copy = dict(vars(module))
        exec(code, copy)
        copy |= {"__fire__": at.fire, "STEP_SECONDS": -1.0, "MOST_OBJECTS": 8}
        monkeypatch.setattr(module, "Freshness", copy["Freshness"])
    monkeypatch.setattr(live, "Reflector", functools.partial(copy["Reflector"], clock=now))
    monkeypatch.setattr(live, "monotonic", now)
    plane = ApiServer(node_object("n1"), pod_object("web-1", node="n1"), served=SERVED)
    monkeypatch.setattr(live, "KubeClient", lambda *_, **__: client_of(plane))
    feed = (world := World(tmp_path, plane)).feed
    await feed.start()
    await feed.complete()

    goes_on: list[str] = []
    for point in points:
        for fault in (RuntimeError("a screw is loose"), asyncio.CancelledError()):
            at.set(point, fault)
            await at.passed(plane)
            plane.put(pod_object("news", node="n1", labels={"of": str(plane.version)}))
            async with asyncio.timeout(60):
                while not _is_up_to_date(world):  # noqa: ASYNC110  # a reflector tells nobody of its state
                    await asyncio.sleep(1)
            goes_on.append(point)
    await feed.stop()

    assert goes_on == [point for point in points for _ in range(2)]


def _is_up_to_date(world: World) -> bool:
    found = world.plane.get("Pod", "news")
    return (
        world.feed.problem() == ""
        and found is not None
        and world.cluster.core.decode_pod(encoded(found)) in world.cluster.pods()
    )


TOO_DEEP = 20_000
"""Levels of an object that no supported Python decodes in one call: 3.13 allows some 10,000."""


class Failpoint:
    """One point of the feed that raises, once."""

    def __init__(self) -> None:
        self.left = ""
        self.error: BaseException = Exception()

    def set(self, point: str, error: BaseException) -> None:
        self.left, self.error = point, error

    async def fire(self, name: str, side: str) -> None:
        if f"{name}:{side}" == self.left:
            self.left = ""
            raise self.error

    async def passed(self, plane: ApiServer) -> None:
        """Return once it has raised. Meanwhile everything happens that an API server does to a feed."""
        deep = encoded(pod_object("deep")).replace(
            b'"spec"', b'"x":' + b'{"f:a":' * TOO_DEEP + b"{}" + b"}" * TOO_DEEP + b',"spec"'
        )
        page = {"metadata": {"resourceVersion": "5", "continue": "x"}}
        fruitless = httpx.Response(200, json={**page, "items": [pod_object("web-1")]})
        too_many = httpx.Response(200, json={**page, "items": [pod_object(f"web-{number}") for number in range(9)]})
        happenings: tuple[Callable[[], object], ...] = (
            lambda: plane.put(pod_object("web-2", node="n1")),
            lambda: plane.send("v1 Pod", event("ADDED", deep), once=True),
            plane.close,
            lambda: plane.forget("v1 Pod"),
            lambda: plane.down_at.update({"/api/v1/pods": 404, "/api/v1": 404}),
            plane.down_at.clear,
            plane.write_another_kind,
            plane.cut,
            lambda: plane.down_at.update({"/api/v1/pods": fruitless}),
            plane.down_at.clear,
            lambda: plane.down_at.update({"/api/v1/pods": too_many}),
            plane.down_at.clear,
        )
        for do in happenings:
            do()
            await asyncio.sleep(40 if not plane.down_at else 150)
            if not self.left:
                plane.down_at.clear()
                return
        raise AssertionError(f"{self.left} was not reached")


class TestFetch:
    PATH = "/api/v1/namespaces/default/pods/young"
    SET = "/apis/apps/v1/namespaces/default/replicasets/young"

    async def test_what_the_watch_has_not_shown(self, complete: World) -> None:
        for path, found in (
            (self.PATH, pod_object("young")),
            (self.SET, workload_object("ReplicaSet", "young")),
            ("/api/v1/nodes/young", node_object("young")),
        ):
            complete.plane.down_at[path] = answered(found)

        await complete.feed.fetch_pod("default", "young")
        await complete.feed.fetch(REPLICA_SETS, "default", "young")
        await complete.feed.fetch(NODES, "", "young")

        assert make_pod("young") == complete.cluster.pod("default", "young")
        assert complete.cluster.get(REPLICA_SETS, "default", "young") is not None
        assert complete.cluster.has_node("young")

    async def test_a_pod_that_is_not_there_is_no_error(self, complete: World) -> None:
        await complete.feed.fetch_pod("default", "young")

        assert complete.cluster.pod("default", "young") is None

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (403, "^told to$"),
            (500, "^told to$"),
            ("unreachable", "ConnectError no route$"),
            (
                answered(pod_object("young", namespace="other")),
                "^requested default/young, the answer is about other/young$",
            ),
            (answered(pod_object("young", labels={"app": 5})), "^metadata.labels: Expected"),  # type: ignore[dict-item]
        ],
        ids=["forbidden", "refused", "unreachable", "another pod", "a pod that makes no sense"],
    )
    async def test_a_pod_that_cannot_be_read_is_an_error(self, complete: World, answer: Fault, said: str) -> None:
        complete.plane.down_at[self.PATH] = answer

        with pytest.raises(OSError, match=said):
            await complete.feed.fetch_pod("default", "young")
        assert ["default/web-1"] == [str(it) for it in complete.cluster.pods()]

    @pytest.mark.parametrize(
        "answer",
        [403, 404, 500, "unreachable", answered(workload_object("ReplicaSet", "another"))],
        ids=["forbidden", "not there", "refused", "unreachable", "another owner"],
    )
    async def test_an_owner_that_cannot_be_read_is_missing(self, complete: World, answer: Fault) -> None:
        complete.plane.down_at[self.SET] = answer

        await complete.feed.fetch(REPLICA_SETS, "default", "young")

        assert 1 == complete.cluster.count_of(REPLICA_SETS)

    @pytest.mark.parametrize("name", ["..", "../../kube-system/pods/x", "a%2fb", "a" * 1_000_000])
    async def test_an_owner_of_no_name_is_neither_asked_for_nor_remembered(self, complete: World, name: str) -> None:
        """An owner reference may hold any text, and a tenant writes it."""
        asked = len(complete.plane.requests)

        await complete.feed.fetch(REPLICA_SETS, "default", name)

        assert (asked, {}) == (len(complete.plane.requests), complete.feed._missed)

    async def test_an_owner_that_makes_no_sense_is_named(self, complete: World) -> None:
        """Missing is what it is not."""
        complete.plane.down_at[self.SET] = answered({"metadata": {"name": 5}})

        with pytest.raises(Unreadable, match=r"^ReplicaSet default/young cannot be read: Expected"):
            await complete.feed.fetch(REPLICA_SETS, "default", "young")

    async def test_a_node_that_makes_no_sense_is_named(self, complete: World) -> None:
        complete.plane.down_at["/api/v1/nodes/n9"] = answered({"metadata": {"name": 5}})

        with pytest.raises(Unreadable, match=r"^Node n9 cannot be read: Expected"):
            await complete.feed.fetch(NODES, "", "n9")

    @pytest.mark.parametrize("status", [429, 500, "unreachable"])
    async def test_of_a_node_that_cannot_be_read_nothing_is_said(self, complete: World, status: Fault) -> None:
        complete.plane.down_at["/api/v1/nodes/n9"] = status
        asked = len(complete.plane.requests)
        for _ in range(2):
            with pytest.raises(Unreadable, match=r"^Node n9 cannot be read: "):
                await complete.feed.fetch(NODES, "", "n9")

        assert asked + 1 == len(complete.plane.requests)

    @pytest.mark.parametrize("status", [403, 404], ids=["without the right to read it", "a node that is gone"])
    async def test_a_node_that_the_watch_is_right_about_is_asked_for_once_a_second(
        self, complete: World, status: Fault
    ) -> None:
        complete.plane.down_at["/api/v1/nodes/n9"] = status
        asked = len(complete.plane.requests)
        for _ in range(2):
            await complete.feed.fetch(NODES, "", "n9")

        assert (False, asked + 1) == (complete.cluster.has_node("n9"), len(complete.plane.requests))

    async def test_a_kind_that_is_not_served_has_no_objects(self, complete: World) -> None:
        asked = len(complete.plane.requests)

        await complete.feed.fetch(MACHINES, "default", "young")
        await complete.feed.fetch(owner_kind("example.com/v1", "Unknown"), "default", "young")

        assert asked == len(complete.plane.requests)


async def test_a_kind_whose_watch_is_quiet_is_listed_to_catch_up(complete: World) -> None:
    """The version of the cluster has moved on, and nobody says whether by an object of this kind."""
    complete.plane.write_another_kind()
    complete.plane.list_also("v1 Pod", [encoded(pod_object("web-2", node="n1"))])
    await asyncio.wait_for(complete.feed.catch_up(), 20)

    assert ["default/web-1", "default/web-2"] == [str(it) for it in complete.cluster.pods()]


async def test_what_is_up_to_date_is_not_listed_again(complete: World) -> None:
    lists = [it for it in complete.plane.requests if it.url.params.get("limit") not in (None, "1")]
    await asyncio.wait_for(complete.feed.catch_up(), 20)

    assert lists == [it for it in complete.plane.requests if it.url.params.get("limit") not in (None, "1")]


async def test_a_process_that_does_not_lead_writes_nothing(complete: World) -> None:
    writes = complete.feed.writes(Leadership("no", "not leading"))
    replica_set = complete.cluster.get(REPLICA_SETS, "default", "web")
    assert replica_set is not None

    assert "failed" == await writes.nominator.nominate(make_pod("web-1"), "n1")
    with passed_down(make_pod("web-1"), "n1", lambda: None):
        assert error("no in default") == await writes.binder.bind(make_pod("web-1"), "n1", {})
    with pytest.raises(OSError, match=r"^not leading$"):
        await writes.writer.annotate(REPLICA_SETS, replica_set, {"home": "n1"})
    assert [] == [it for it in complete.plane.requests if it.method != "GET"]


async def test_all_its_bindings_leave_in_the_same_batches(complete: World) -> None:
    assert complete.batches is complete.feed.writes(Leadership()).bind_guard.batches


async def test_it_stops_whatever_it_waits_for(complete: World) -> None:
    tasks = set(complete.feed._background._tasks.values())
    await complete.feed.stop()

    assert (9, True) == (len(tasks), all(task.done() for task in tasks))


def test_bad_credentials_are_said_when_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(json.dumps({"clusters": []}))

    with pytest.raises(CredentialsError):
        LiveFeed(str(tmp_path / "kubeconfig"), Cluster(), [], max_age=1)


async def test_what_is_left_out_is_told(world: World) -> None:
    """In the states and in the picture."""
    world.plane.put(pod_object("odd", labels={"app": 5}))  # type: ignore[dict-item]
    await world.feed.start()
    await asyncio.wait_for(world.feed.complete(), 5)

    assert (("default/odd",), 1) == (world.feed.states()["v1 Pod"].left_out, world.feed.states()["v1 Pod"].objects)
    assert [("default", "odd")] == list(world.cluster.unreadable.of(PODS))
    assert "" == world.feed.problem()
