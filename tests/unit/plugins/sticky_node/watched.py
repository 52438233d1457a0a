"""Machines in virtual time, with what StickyNode does beside the decisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from msgspec.structs import replace

from app.framework.cycle_state import CycleState
from app.framework.handle import Timing
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from app.kube.kinds import AnnotatedObject, Kind
from plugins.sticky_node.background import Steps
from plugins.sticky_node.plugin import StickyNode
from tests.api.virtual import now
from tests.builders import JsonObject, taint
from tests.unit.plugins.sticky_node.machines import MACHINE, NODES, Machines, make_node

SINCE: Final = "homeport.dev/home-since"
NOON: Final = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
"""When virtual time begins."""

BEGINS: Final = 1000.0


def wall() -> float:
    return NOON + now() - BEGINS


def after(seconds: float) -> str:
    """So long after noon, in RFC 3339 to the second."""
    return datetime.fromtimestamp(NOON + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def at(seconds: float) -> None:
    """Until so long after noon."""
    await asyncio.sleep(BEGINS + seconds - now())


def counted_turns(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Gets an item each time that a task would let others run."""
    turns: list[None] = []

    async def turn(_: Steps) -> None:
        turns.append(None)

    monkeypatch.setattr(Steps, "__call__", turn)
    return turns


class Watched(Machines):
    """Made while virtual time runs. ``woken``: when and who, as asked of the scheduler."""

    def __init__(self, args: JsonObject | None = None) -> None:
        self.woken: list[tuple[float, str]] = []
        self.writes: list[float] = []
        super().__init__(args)
        self.handle = replace(self.handle, timing=Timing(now, wall), activate=self._activate, writer=self)
        self.restart()
        self.uncordon(*NODES)

    def _activate(self, pods: Iterable[Pod]) -> None:
        self.woken += [(round(now() - BEGINS, 6), it.name) for it in pods]

    async def annotate(
        self, kind: Kind[AnnotatedObject], found: AnnotatedObject, annotations: Mapping[str, str | None]
    ) -> None:
        self.writes.append(now() - BEGINS)
        await self.writer.annotate(kind, found, annotations)

    @asynccontextmanager
    async def leading(self, plugin: StickyNode | None = None) -> AsyncIterator[None]:
        """This process decides, and does what clocks and waiting pods ask for. ``plugin``: that of another profile."""
        decides = plugin or self.plugin
        decides._clocks.begin()
        running = asyncio.ensure_future(decides._watch())
        await asyncio.sleep(0)
        try:
            yield
            assert not running.done() or running.result()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def cordon(self, *names: str) -> None:
        for name in names:
            self.cluster.upsert_node(make_node(name, unschedulable=True))

    def uncordon(self, *names: str) -> None:
        for name in names:
            self.cluster.upsert_node(make_node(name))

    def leaves(self, name: str) -> None:
        self.cluster.upsert_node(make_node(name, taints=[taint("ToBeDeletedByClusterAutoscaler")]))

    def since(self, name: str = "db", kind: Kind[Any] = MACHINE) -> str:
        """What is written on the owner."""
        return self.annotations(kind, name).get(SINCE, "")

    def asks(self, pod: Pod) -> list[str]:
        """The scheduler asks about all nodes for a pod, which is in the picture."""
        return self.asks_about(pod, *self.nodes)

    def asks_about(self, pod: Pod, *names: str) -> list[str]:
        """The scheduler asks about some nodes."""
        self.cluster.upsert_pod(pod)
        state = CycleState()
        status, _ = self.plugin.pre_filter(state, pod)
        if status.is_skip:
            return list(names)
        if not status.is_success:
            return []
        nodes = Candidates.of({name: self.nodes[name] for name in names})
        passed = self.plugin.filter_nodes(state, pod, nodes).passed
        return list(self.plugin.filter_last(state, pod, nodes, passed).passed) if passed else []


def at_home(args: JsonObject | None = None) -> Watched:
    """A machine whose home is n1."""
    machines = Watched(args)
    machines.machine(home="n1")
    return machines


def away(args: JsonObject | None = None) -> Watched:
    """A machine whose home n1 is cordoned."""
    machines = at_home(args)
    machines.cordon("n1")
    return machines
