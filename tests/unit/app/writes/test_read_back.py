"""A bind that is not seen bound keeps its place until a read, or the answer of a fence, settles it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, Final

import httpx
import pytest
import structlog

from app.cache.cluster import Cluster
from app.framework.status import SUCCESS, Status, error
from app.kube.client import KubeClient
from app.kube.core_decoding import decode_pod
from app.kube.core_v1 import Pod
from app.writes.api_writes import binding
from app.writes.read_back import (
    CONFIRM_SECONDS,
    FENCE,
    LOOK_SECONDS,
    MAX_RETRY_SECONDS,
    BindConfirmation,
    BindOutcome,
    ReadBack,
)
from tests.api.virtual import now, virtual_time
from tests.apiserver import ApiServer, Fault, client_of
from tests.builders import encoded, make_node, pod_object

PATH: Final = "/api/v1/namespaces/default/pods/web-1"
GET: Final = f"GET {PATH}"
PATCH: Final = f"PATCH {PATH}/status"
GONE: Final = error('pods "web-1" not found')
NOT_ARRIVED: Final = error("the binding did not arrive at the API server")
LATE: Final = CONFIRM_SECONDS + 2 * LOOK_SECONDS
"""Seconds after which a bind that nobody confirmed was read back."""


def page() -> httpx.Response:
    """A captive portal."""
    return httpx.Response(200, html="<html>Welcome</html>")


def lies() -> list[Any]:
    """Answers, and none, that prove nothing about the pod."""
    pending = encoded(pod_object("web-1", resource_version="1"))
    answers = {
        "a page": page(),
        "nothing": httpx.Response(200),
        "an empty object": httpx.Response(200, json={}),
        "a Status": httpx.Response(200, json={"kind": "Status", "apiVersion": "v1", "status": "Success"}),
        "metadata alone": httpx.Response(200, json={**json.loads(pending), "kind": "PartialObjectMetadata"}),
        "a list": httpx.Response(200, json={"kind": "PodList", "items": [json.loads(pending)]}),
        "a page that is not found": httpx.Response(404, html="not found"),
        "forbidden": httpx.Response(403, html="forbidden"),
    }
    faults: dict[str, Fault] = {**answers, "another pod": "another", "lost": "lost", "away": "unreachable", "down": 503}
    return [pytest.param(fault, id=name) for name, fault in faults.items()]


class World:
    """A pod that was bound to n1, as the API server and the cache have it, and what reads it back."""

    def __init__(self, client: KubeClient, server: ApiServer) -> None:
        self.client, self.server = client, server
        self.cluster = Cluster()
        self.cluster.upsert_node(make_node("n1"))
        self.cluster.upsert_node(make_node("n2"))
        self.confirmation = BindConfirmation(client, self.cluster, now)
        self.pod = self.assume("web-1")
        self.cluster.accept(self.pod.uid)

    def assume(self, name: str) -> Pod:
        found = self.server.get("Pod", name)
        assert found is not None
        pod = decode_pod(encoded(found))
        self.cluster.upsert_pod(pod)
        self.cluster.assume(pod, "n1")
        return pod

    def show_bound(self) -> None:
        """Somebody's Binding arrives, and the watch shows it."""
        self.server.put(pod_object("web-1", node="n1"))
        self.cluster.upsert_pod(decode_pod(encoded(self.server.get("Pod", "web-1"))))

    async def outcome(self) -> BindOutcome | None:
        return await ReadBack(self.client).outcome(self.pod, "n1")

    @property
    def on_n1(self) -> list[str]:
        return sorted(it.name for it in self.cluster.nodes["n1"].pods.values())

    @property
    def seen(self) -> tuple[list[str], int, int]:
        """The pods on n1; how many of all pods are assumed, and how many uncertain."""
        return (self.on_n1, len(self.cluster.assumed), len(self.cluster.assumed.in_flight()))

    @property
    def fenced(self) -> bool:
        found = self.server.get("Pod", "web-1")
        return found is not None and FENCE in (found["metadata"].get("annotations") or {})

    async def late_binding(self) -> int:
        """The status code that the Binding meets if it arrives now."""
        answer = self.server.answer("POST", f"{PATH}/binding", {}, encoded(binding(self.pod, "n1", {})))
        return answer.status


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    server = ApiServer(pod_object("web-1"), pod_object("web-2"))
    async with client_of(server) as client:
        yield World(client, server)


@asynccontextmanager
async def confirming() -> AsyncIterator[World]:
    """The long-running task is at work."""
    async with world() as it:
        running = asyncio.create_task(it.confirmation.run())
        yield it
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


BOUND = pytest.mark.parametrize(
    ("node", "status"), [("n1", SUCCESS), ("n2", error('pod web-1 is already assigned to node "n2"'))]
)


class TestFate:
    @BOUND
    async def test_a_pod_that_is_bound(self, node: str, status: Status) -> None:
        async with world() as it:
            it.server.put(pod_object("web-1", node=node))

            outcome = await it.outcome()

            assert outcome is not None
            assert (status, [GET], node) == (outcome.status, it.server.log, decode_pod(outcome.raw).node_name)

    @pytest.mark.parametrize(
        "gone",
        [
            pytest.param(lambda server: server.clear(), id="deleted"),
            pytest.param(lambda server: server.put(pod_object("web-1", uid="new")), id="recreated"),
        ],
    )
    @pytest.mark.parametrize("before", ["GET", "PATCH"])
    async def test_a_pod_that_is_gone(self, gone: Callable[[ApiServer], None], before: str) -> None:
        async with world() as it:
            it.server.meanwhile(before, lambda: gone(it.server))

            outcome = await it.outcome() or await it.outcome()

            assert outcome is not None
            assert GONE == outcome.status

    async def test_a_pending_pod_is_fenced_and_a_late_binding_meets_a_conflict(self) -> None:
        async with world() as it:
            outcome = await it.outcome()

            assert outcome is not None
            assert (NOT_ARRIVED, [GET, PATCH], 409) == (outcome.status, it.server.log, await it.late_binding())
            assert "resourceVersion" not in str(it.server.requests[0].url)

    @pytest.mark.parametrize("lie", lies())
    async def test_a_read_that_proves_nothing(self, lie: Fault) -> None:
        async with world() as it:
            it.server.fail("GET", lie)

            assert (None, [GET], False) == (await it.outcome(), it.server.log, it.fenced)

    @pytest.mark.parametrize("lie", [*lies(), pytest.param(409, id="a conflict"), pytest.param(422, id="refused")])
    async def test_a_fence_whose_answer_proves_nothing(self, lie: Fault) -> None:
        async with world() as it:
            it.server.fail("PATCH", lie)

            assert (None, [GET, PATCH]) == (await it.outcome(), it.server.log)

    async def test_a_fence_that_is_answered_with_the_pod_of_before(self) -> None:
        async with world() as it:
            it.server.fail("PATCH", httpx.Response(200, json=it.server.get("Pod", "web-1")))

            assert None is await it.outcome()
            assert 201 == await it.late_binding()

    async def test_a_binding_that_arrives_between_the_read_and_the_fence(self) -> None:
        async with world() as it:
            it.server.meanwhile("PATCH", lambda: it.server.put(pod_object("web-1", node="n1")))

            first, second = await it.outcome(), await it.outcome()

            assert second is not None
            assert (None, SUCCESS) == (first, second.status)

    @BOUND
    async def test_a_fence_whose_answer_shows_the_pod_bound(self, node: str, status: Status) -> None:
        """The binding did not move the version that the API server compares, or came with the fence."""
        async with world() as it:
            bound = pod_object("web-1", node=node, resource_version="9")
            it.server.fail("PATCH", httpx.Response(200, json=bound))

            outcome = await it.outcome()

            assert outcome is not None
            assert status == outcome.status


class TestConfirmation:
    @virtual_time
    async def test_what_the_watch_confirms_in_time_is_never_read(self) -> None:
        async with confirming() as it:
            await asyncio.sleep(CONFIRM_SECONDS - LOOK_SECONDS)
            it.show_bound()
            await asyncio.sleep(LATE)

            assert ([], (["web-1"], 0, 0)) == (it.server.log, it.seen)

    @virtual_time
    async def test_a_pending_pod_gives_its_place_up_once_it_is_fenced(self) -> None:
        async with confirming() as it:
            await asyncio.sleep(LATE)

            assert (([], 0, 0), 409) == (it.seen, await it.late_binding())
            found, stored = it.cluster.pod("default", "web-1"), it.server.get("Pod", "web-1")
            assert found is not None
            assert stored is not None
            assert stored["metadata"]["resourceVersion"] == found.resource_version, "the next bind meets no conflict"

    @virtual_time
    async def test_a_pod_that_is_bound_elsewhere_moves_there(self) -> None:
        async with confirming() as it:
            it.server.put(pod_object("web-1", node="n2"))
            await asyncio.sleep(LATE)

            assert (([], 0, 0), 1) == (it.seen, len(it.cluster.nodes["n2"].pods))

    @virtual_time
    async def test_a_pod_that_is_gone_gives_its_place_up(self) -> None:
        async with confirming() as it:
            it.server.clear()
            await asyncio.sleep(LATE)

            assert ([], 0, 0) == it.seen

    @pytest.mark.parametrize("method", ["GET", "PATCH"])
    @virtual_time
    async def test_until_it_is_settled_it_keeps_its_place_and_is_uncertain(self, method: str) -> None:
        """It is read again at growing intervals, for as long as needed."""
        async with confirming() as it:
            times: list[float] = []
            lying = True

            def lie() -> None:
                if lying:
                    times.append(now())
                    it.server.fail(method, page())
                    it.server.meanwhile(method, lie)

            it.server.meanwhile(method, lie)
            await asyncio.sleep(3600.0)
            waits = [round(later - earlier) for earlier, later in pairwise(times)]
            longest = round(MAX_RETRY_SECONDS)
            assert ((["web-1"], 1, 1), 1) == (it.seen, waits[0])
            assert waits == sorted(waits)
            assert longest <= waits[-1] <= longest + LOOK_SECONDS

            lying = False
            await asyncio.sleep(MAX_RETRY_SECONDS + 2 * LOOK_SECONDS)
            assert ([], 0, 0) == it.seen

    @virtual_time
    async def test_a_bind_that_ended_without_an_outcome_is_read_at_once(self) -> None:
        async with confirming() as it:
            pod = it.assume("web-2")
            it.cluster.doubt(pod.uid)
            await asyncio.sleep(2 * LOOK_SECONDS)

            assert (["web-1"], 1, 0) == it.seen

    @virtual_time
    async def test_what_a_transaction_still_owns_is_left_to_it(self) -> None:
        async with confirming() as it:
            it.server.put(pod_object("web-1", node="n1"))
            it.assume("web-2")
            await asyncio.sleep(60.0)

            assert ([GET], (["web-1", "web-2"], 1, 1)) == (it.server.log, it.seen)

    @pytest.mark.parametrize("method", ["GET", "PATCH"])
    @virtual_time
    async def test_the_watch_may_settle_it_while_it_is_being_read(self, method: str) -> None:
        async with confirming() as it:
            it.server.meanwhile(method, it.show_bound)
            await asyncio.sleep(LATE)

            assert (["web-1"], 0, 0) == it.seen

    @virtual_time
    async def test_a_fault_of_one_pod_holds_up_no_other(self) -> None:
        async with confirming() as it:
            it.cluster.accept(it.assume("web-2").uid)
            it.server.fail("GET", *[RuntimeError("a fault of ours")] * 2)
            with structlog.testing.capture_logs() as logs:
                await asyncio.sleep(LATE + 10 * LOOK_SECONDS)

            assert ([], 0, 0) == it.seen
            assert 2 == [log["event"] for log in logs].count("bind not settled")

    @virtual_time
    async def test_many_that_are_late_at_once_are_read_at_a_bounded_rate(self) -> None:
        async with confirming() as it:
            for number in range(200):
                it.server.put(pod_object(f"web-{number}", uid=f"uid-default-web-{number}"))
                it.cluster.accept(it.assume(f"web-{number}").uid)
            for number in range(200):
                it.server.put(pod_object(f"web-{number}", node="n1"))
            await asyncio.sleep(CONFIRM_SECONDS + LOOK_SECONDS)
            before = it.server.count("GET")
            await asyncio.sleep(1.0)

            assert 10 <= it.server.count("GET") - before <= 20
            await asyncio.sleep(20.0)
            assert (200, 0) == (len(it.on_n1), len(it.cluster.assumed))

    @virtual_time
    async def test_a_pod_that_was_read_bound_and_cannot_be_decoded_is_confirmed(self) -> None:
        async with confirming() as it:
            it.server.put(pod_object("web-1", node="n1"))
            it.server.spoil = lambda raw: raw.replace(b'"labels"', b'"labels": 5, "were"')
            await asyncio.sleep(LATE)

            assert (["web-1"], 0, 0) == it.seen
