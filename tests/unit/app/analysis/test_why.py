"""Verdicts of in-tree filters on one node: by the picture where it holds enough, else by reads, paced and bounded."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from app.analysis.why import CACHE_SECONDS, LONGEST_SECONDS, MOST_WAITING, PAUSE_SECONDS, InTreeVerdictReader
from app.cache.cluster import Cluster
from app.config.profile import Profile
from app.framework.handle import NodeVerdict, Why
from app.framework.node_info import NodeInfo
from app.framework.parts import extras_of
from app.kube.core_decoding import CoreV1, core_v1
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES
from app.runtime.guard import Guard
from app.runtime.one_node import OneNodeFilters
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from app.telemetry.metrics import Metrics
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.virtual import now, virtual_time
from tests.builders import JsonObject, encoded, make_node, make_pod, node_object, pod_object
from tests.harness import World

ASKS = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
DB = pod_object("db", containers=ASKS)


def node(name: str = "n1", cpu: str = "1") -> JsonObject:
    return node_object(name, status={"allocatable": {"cpu": cpu, "pods": "9"}})


class Api:
    """An API server with one full node. ``read``: what was read, and when. ``seconds``: what each answer takes."""

    def __init__(self, seconds: float = 0.0, pod: JsonObject = DB, fails: bool = False) -> None:
        self.read: list[tuple[str, float]] = []
        self._seconds = seconds
        self._pod = pod
        self._fails = fails

    async def pod(self, core: CoreV1, namespace: str, name: str) -> Pod | None:
        await self._asked(name)
        return core.decode_pod(encoded(self._pod)) if self._pod else None

    async def node(self, core: CoreV1, name: str) -> NodeInfo | None:
        await self._asked(name)
        web = core.decode_pod(encoded(pod_object("web", node=name, containers=ASKS)))
        return None if name == "gone" else NodeInfo(core.decode_node(encoded(node(name))), {web.uid: web})

    async def _asked(self, what: str) -> None:
        self.read.append((what, now()))
        await asyncio.sleep(self._seconds)
        if self._fails:
            raise OSError("no answer")


def why_of(cluster: Cluster, api: Api | None) -> tuple[Why, NodeVerdict]:
    """And what is answered where nothing is known."""
    registry = Registry(SHIPPED, DEFAULT_WEIGHTS)
    (resolved,) = resolve([Profile.model_validate({})], registry)
    filters = OneNodeFilters(resolved, registry, World().handle, Guard(Metrics()))
    return InTreeVerdictReader(cluster, api, now).add("default-scheduler", filters), filters.nothing


def pod_of(cluster: Cluster, found: JsonObject = DB) -> Pod:
    return cluster.core.decode_pod(encoded(found))


@virtual_time
async def test_of_a_picture_that_keeps_little_pod_and_node_are_read() -> None:
    cluster, api = Cluster(), Api()
    why, _ = why_of(cluster, api)

    found = await why(pod_of(cluster), "n1")

    assert ("Insufficient cpu",) == found.reasons
    assert ["db", "n1"] == [what for what, _ in api.read]


@virtual_time
async def test_of_a_picture_that_keeps_all_nothing_is_read() -> None:
    """Nor is the pod itself in its own way, where it runs there already."""
    api = Api()
    every = {part for spec in SHIPPED for part in spec.parts or ()}
    cluster = Cluster(core_v1(extras_of(every)))
    cluster.upsert_node(cluster.core.decode_node(encoded(node())))
    cluster.upsert_pod(pod_of(cluster, pod_object("db", node="n1", containers=ASKS)))
    why, nothing = why_of(cluster, api)

    assert () == (await why(pod_of(cluster, pod_object("db", node="n1", containers=ASKS)), "n1")).reasons
    assert ("Insufficient cpu",) == (await why(pod_of(cluster, pod_object("other", containers=ASKS)), "n1")).reasons
    assert nothing == await why(pod_of(cluster), "n2")
    cluster.mark_unreadable(NODES, ("", "n1"), "nonsense")
    assert nothing == await why(pod_of(cluster), "n1")
    assert [] == api.read


@virtual_time
async def test_where_it_cannot_be_known_nothing_is_said() -> None:
    cluster = Cluster()
    other = pod_object("db", uid="another", containers=ASKS)
    for api in (None, Api(fails=True), Api(pod={}), Api(pod=other), Api(seconds=LONGEST_SECONDS)):
        why, nothing = why_of(cluster, api)
        assert nothing == await why(pod_of(cluster), "n1")
        assert nothing == await why(pod_of(cluster), "gone")
        assert nothing.unasked


@virtual_time
async def test_a_node_is_read_again_after_some_seconds_or_a_change() -> None:
    cluster, api = Cluster(), Api()
    cluster.upsert_node(make_node("n1"))
    why, _ = why_of(cluster, api)

    def nodes_read() -> int:
        return [what for what, _ in api.read].count("n1")

    for _ in range(3):
        await why(pod_of(cluster), "n1")
    assert 1 == nodes_read()
    cluster.upsert_pod(make_pod("web", node="n1"))
    for _ in range(3):
        await why(pod_of(cluster), "n1")
    assert 2 == nodes_read()
    await asyncio.sleep(CACHE_SECONDS)
    await why(pod_of(cluster), "n1")
    assert 3 == nodes_read()


@virtual_time
async def test_nodes_are_read_one_at_a_time_and_with_pauses() -> None:
    cluster, api = Cluster(), Api(seconds=0.01)
    why, _ = why_of(cluster, api)

    await asyncio.gather(*(why(pod_of(cluster), name) for name in ("n1", "n2", "n3")))

    began = [at for what, at in api.read if what != "db"]
    assert [PAUSE_SECONDS] * 2 == [round(later - earlier, 6) for earlier, later in pairwise(began)]


@virtual_time
async def test_a_question_beyond_those_that_wait_is_answered_at_once() -> None:
    cluster, api = Cluster(), Api(seconds=0.1)
    why, nothing = why_of(cluster, api)
    waiting = [asyncio.ensure_future(why(pod_of(cluster), "n1")) for _ in range(MOST_WAITING)]
    await asyncio.sleep(0)
    began = now()

    assert (nothing, began) == (await why(pod_of(cluster), "n1"), now())
    await asyncio.gather(*waiting)
    assert began + LONGEST_SECONDS >= now()
    assert ("Insufficient cpu",) == (await why(pod_of(cluster), "n1")).reasons
