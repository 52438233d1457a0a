"""The bind verb on a real cluster and a real framework, with a binder that answers when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.cache.nodes import Nodes
from app.config.profile import Profile
from app.feeds.saved import MemoryWriter
from app.framework.handle import Handle, Timing
from app.framework.parts import extras_of
from app.framework.spec import PluginSpec
from app.framework.status import SUCCESS, Status, error
from app.kube.api_requests import PreSendCheck
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Node, Pod
from app.kube.kinds import Kind
from app.memory.expected_binds import ExpectedBinds
from app.runtime.building import build
from app.runtime.guard import Guard
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from app.runtime.waiting import PodsAtPermit
from app.telemetry.metrics import Metrics
from app.verbs.bind import BindVerb
from app.verbs.context import VerbContext
from app.verbs.outcome import Answer, VerbFailure
from app.writes.bind_guard import BindGuard, NotBound
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.virtual import now, settle
from tests.builders import JsonObject, constraint, encoded, make_node, make_pod

WEB: Final = {"app": "web"}
SPREAD: Final = [constraint(app="web")]
LIMIT: Final = 5.0

Result = tuple[str, str]
"""Outcome, and what the caller is told: empty for success."""

BOUND: Final[Result] = ("bound", "")
TOO_MANY: Final = "node(s) didn't match pod topology spread constraints"
REFUSED: Final[Result] = ("bind_conflict", f"homeport: no longer possible: {TOO_MANY}")


class Posted:
    """One binding that is under way."""

    def __init__(self, pod: Pod, node: str, annotations: Mapping[str, str]) -> None:
        self.pod = pod
        self.node = node
        self.annotations = dict(annotations)
        self.answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()


AGAIN: Final = error("send it again")
"""Answer after which the binder sends the Binding again, as after a conflict with another write."""


class ScriptedBinder:
    """Keeps every binding waiting until ``answer`` says what becomes of it.

    ``connected`` is cleared by a test to keep them from leaving: a connection is still to be opened.
    """

    def __init__(self, bind_guard: BindGuard) -> None:
        self.posted: list[Posted] = []
        self.bind_guard = bind_guard
        self.connected = asyncio.Event()
        self.connected.set()

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> Status:
        async def send(ask: PreSendCheck) -> Status:
            await self.connected.wait()
            ask()
            posted = Posted(pod, node_name, annotations)
            self.posted.append(posted)
            return await posted.answer

        try:
            while (status := await self.bind_guard.through(pod, node_name, send)) is AGAIN:
                pass
        except NotBound as held:
            return held.status
        return status

    @property
    def under_way(self) -> list[tuple[str, str]]:
        """(pod, node) of each binding without an answer."""
        return [(it.pod.name, it.node) for it in self.posted if not it.answer.done()]

    def answer(self, pod: str, status: Status = SUCCESS) -> None:
        (posted,) = [it for it in self.posted if it.pod.name == pod and not it.answer.done()]
        posted.answer.set_result(status)


class ScriptedReader:
    """An API server that has ``pods`` and ``others``, and remembers what it was asked."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.pods: dict[tuple[str, str], Pod] = {}
        self.others: dict[tuple[str, str, str], JsonObject] = {}
        self.asked: list[str] = []
        self.refuses: OSError | None = None

    async def fetch(self, kind: Kind[Any], namespace: str, name: str) -> None:
        self.asked.append(f"{kind.kind} {namespace}/{name}")
        await asyncio.sleep(0)
        found = self.others.get((kind.kind, namespace, name))
        if found is not None:
            self._cluster.others.upsert(kind, kind.decode(encoded(found)))

    async def fetch_pod(self, namespace: str, name: str) -> None:
        self.asked.append(f"Pod {namespace}/{name}")
        await asyncio.sleep(0)
        if self.refuses is not None:
            raise self.refuses
        if (namespace, name) in self.pods:
            self._cluster.upsert_pod(self.pods[(namespace, name)])


class Bench:
    """Everything a bind needs, made as ``app.main`` makes it. ``problem`` may be set; ``looks`` at it are counted."""

    def __init__(
        self,
        *objects: Node | Pod,
        profile: JsonObject | None = None,
        specs: Iterable[PluginSpec[Any]] = (),
        defaults: Mapping[str, int] = DEFAULT_WEIGHTS,
        bind_others: bool = True,
        bind_guard: BindGuard | None = None,
    ) -> None:
        found = resolve([Profile.model_validate(profile or {})], Registry([*SHIPPED, *specs], defaults))[0]
        self.cluster = Cluster(core_v1(extras_of(found.parts())))
        self.binder = ScriptedBinder(bind_guard or BindGuard())
        self.reader = ScriptedReader(self.cluster)
        self.problem = ""
        self.show(*objects)
        self.waiting = PodsAtPermit(self.cluster.assumed)
        handle = Handle(
            counts=self.cluster.counts,
            objects=self.cluster,
            writer=MemoryWriter(self.cluster),
            binder=self.binder,
            waiting=self.waiting,
            nodes=Nodes(self.cluster),
            timing=Timing(now),
        )
        name = found.scheduler_name
        self.framework = build(
            found,
            handle,
            served=[name],
            nominations=self.cluster,
            snapshot=self.cluster,
            waiting=self.waiting,
            guard=Guard(Metrics()),
        )
        self.due = ExpectedBinds(now, wait_seconds=0.0, observe=lambda _: None)
        self.looks = 0
        self.context = VerbContext(self.cluster, {name: self.framework}, self.reader, self._problem, self.due)
        self.verb = BindVerb(
            self.context,
            self.binder,
            self.binder.bind_guard,
            self.waiting,
            now,
            time_limit=LIMIT,
            bind_others=bind_others,
        )

    def _problem(self) -> str:
        """Asked once per look at the picture."""
        self.looks += 1
        return self.problem

    def show(self, *objects: Node | Pod) -> None:
        """What the watch shows."""
        for found in objects:
            if isinstance(found, Node):
                self.cluster.upsert_node(found)
            else:
                self.cluster.upsert_pod(found)

    def show_bound(self, name: str, node: str) -> None:
        known = self.cluster.pod("default", name)
        assert known is not None
        self.cluster.upsert_pod(replace(known, node_name=node, resource_version="9"))

    async def start(self, name: str, node: str, uid: str | None = None) -> asyncio.Task[Result]:
        """A caller asks; everything has happened that can happen without time or an answer."""
        task = asyncio.create_task(self._result(name, node, f"uid-default-{name}" if uid is None else uid))
        await settle()
        return task

    async def bind(self, name: str, node: str, status: Status = SUCCESS, uid: str | None = None) -> Result:
        """The same, and the API server answers ``status`` if it is asked."""
        task = await self.start(name, node, uid)
        if not task.done() and (name, node) in self.binder.under_way:
            self.binder.answer(name, status)
        return await task

    async def _result(self, name: str, node: str, uid: str) -> Result:
        body = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": node}
        try:
            return told(await self.verb(msgspec.json.encode(body)))
        except VerbFailure as failure:
            return (failure.outcome, failure.message)

    @property
    def assumed(self) -> dict[str, str]:
        """Pods whose binding is in flight, with their nodes."""
        return {pod.name: pod.node_name for pod in self.cluster.assumed.in_flight()}

    def on(self, node: str) -> list[str]:
        """The pods the picture has on a node."""
        return sorted(pod.name for pod in self.cluster.nodes[node].pods.values())


def told(answer: Answer) -> Result:
    assert isinstance(answer.body, bytes)
    error: str = msgspec.json.decode(answer.body)["Error"]
    return (answer.outcome, error)


def zones(count: int = 3) -> list[Node]:
    """n1 in z1, n2 in z2 …"""
    return [make_node(f"n{number}", zone=f"z{number}") for number in range(1, count + 1)]


def web(name: str, node: str = "") -> Pod:
    """A pod that is spread hard over zones."""
    return make_pod(name, labels=WEB, spread=SPREAD, node=node) if node else make_pod(name, labels=WEB, spread=SPREAD)
