"""Random interleavings of many binds: at no moment could the binds in flight, in any combination, break a constraint.

The checker shares no code with what it checks: it counts pods by zone itself, from what the fake API server accepted.
"""

from __future__ import annotations

import asyncio
from itertools import product
from random import Random
from typing import Any

import pytest

from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.points import PermitPlugin
from app.framework.spec import PluginSpec
from app.framework.status import SUCCESS, Code, Status, error
from app.kube.core_v1 import Pod
from plugins import DEFAULT_WEIGHTS
from tests.api.virtual import now, settle, virtual_time
from tests.builders import constraint, make_node, make_pod
from tests.fakes import NoArgs
from tests.unit.app.verbs.bench import AGAIN, WEB, Bench, Result

ZONES = ("z1", "z2", "z3")
NODES = {f"{zone}-{number}": zone for zone in ZONES for number in (1, 2)}
RUNS = 60


class Accepted:
    """What the API server took, in order: pod name to zone."""

    def __init__(self) -> None:
        self.zone_of: dict[str, str] = {}

    def counts(self, *more: str) -> dict[str, int]:
        zones = [*self.zone_of.values(), *more]
        return {zone: zones.count(zone) for zone in ZONES}


def skew(counts: dict[str, int]) -> int:
    return max(counts.values()) - min(counts.values())


def worst_skew_after(accepted: Accepted, in_flight: list[str], zone: str) -> int:
    """Of the zone a pod goes to, over all subsets of the other binds in flight that may yet succeed."""
    worst = 0
    for taken in product((False, True), repeat=len(in_flight)):
        counts = accepted.counts(zone, *(other for other, yes in zip(in_flight, taken, strict=True) if yes))
        worst = max(worst, counts[zone] - min(counts.values()))
    return worst


class Hesitates(PermitPlugin):
    """Makes every third pod wait at Permit, for much longer than anybody else waits for anything."""

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        pass

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        waits = int(pod.name.removeprefix("web-")) % 3 == 0
        return (Status(Code.WAIT), 600.0) if waits else (SUCCESS, 0.0)


SPEC: PluginSpec[Any] = PluginSpec("Hesitates", NoArgs, Hesitates)


class Run:
    """One random story: pods come and go to random nodes, the API server answers in random order and mood.

    ``hesitates``: some wait at Permit, and are let go or rejected at random, one or many at a time.
    """

    def __init__(self, seed: int, *, hesitates: bool = False) -> None:
        self.random = Random(seed)
        self.max_skew = self.random.choice((1, 1, 2))
        nodes = [make_node(name, zone=zone) for name, zone in NODES.items()]
        defaults = {**DEFAULT_WEIGHTS, "Hesitates": 1} if hesitates else DEFAULT_WEIGHTS
        self.bench = Bench(*nodes, specs=[SPEC] if hesitates else [], defaults=defaults)
        self.actions = [self.ask, self.ask, self.answer, self.answer, self.wait, self.hang_up]
        if hesitates:
            self.bench.verb._time_limit = 60.0
            self.actions += [self.let_go, self.let_go]
        self.reserved = 0
        self.accepted = Accepted()
        self.calls: list[asyncio.Task[Result]] = []
        self.made = 0
        self.judged = 0

    async def play(self) -> None:
        for _ in range(60):
            await self.random.choice(self.actions)()
            await settle()
            self.look()
        while self.bench.binder.under_way:
            await self.answer()
            await settle()
            self.look()
        await self.bench.verb.drain()

    async def ask(self) -> None:
        """A new pod, or one that failed before, is to be bound somewhere."""
        waiting = [pod.name for pod in self.bench.cluster.pods() if not pod.node_name]
        if waiting and self.random.random() < 0.3:
            name = self.random.choice(waiting)
        else:
            self.made += 1
            name = f"web-{self.made}"
            spread = [constraint(app="web", skew=self.max_skew)]
            self.bench.show(make_pod(name, labels=WEB, spread=spread))
        self.calls.append(await self.bench.start(name, self.random.choice(list(NODES))))

    async def answer(self) -> None:
        """The API server takes a binding, or does not; the watch shows it at once, later, or before the answer."""
        if not self.bench.binder.under_way:
            return
        name, node = self.random.choice(self.bench.binder.under_way)
        mood = self.random.random()
        if mood < 0.45:
            self.bench.binder.answer(name, error("refused") if mood < 0.35 else AGAIN)
            return
        self.accepted.zone_of[name] = NODES[node]
        shown = self.random.random()
        if shown < 0.3:
            self.bench.show_bound(name, node)
        self.bench.binder.answer(name, SUCCESS)
        if shown > 0.7:
            await settle()
            self.bench.show_bound(name, node)

    async def wait(self) -> None:
        await asyncio.sleep(self.random.choice((0.0, 0.1, 2.0, 6.0)))

    async def let_go(self) -> None:
        """Permit's plugin has made up its mind about some that wait, in one step."""
        waiting = list(self.bench.waiting.all())
        self.reserved = max(self.reserved, len(self.bench.cluster.assumed.reserved()))
        for pod in self.random.sample(waiting, self.random.randint(0, len(waiting))):
            if self.random.random() < 0.3:
                pod.reject("Hesitates", "no")
            else:
                pod.allow("Hesitates")

    async def hang_up(self) -> None:
        if self.calls:
            self.random.choice(self.calls).cancel()

    def look(self) -> None:
        """Each binding that was just posted held whatever becomes of the others in flight."""
        posted = [it for it in self.bench.binder.posted if not it.answer.done()]
        for it in self.bench.binder.posted[self.judged :]:
            others = [NODES[other.node] for other in posted if other is not it]
            worst = worst_skew_after(self.accepted, others, NODES[it.node])
            assert worst <= self.max_skew, f"{it.pod.name} to {it.node}: skew {worst}"
        self.judged = len(self.bench.binder.posted)


@pytest.mark.parametrize("hesitates", [False, True], ids=["", "some wait at Permit"])
@pytest.mark.parametrize("seed", range(RUNS))
@virtual_time
async def test_no_interleaving_breaks_a_hard_constraint(seed: int, hesitates: bool) -> None:
    run = Run(seed, hesitates=hesitates)
    started = now()
    await run.play()

    assert run.accepted.zone_of
    assert skew(run.accepted.counts()) <= run.max_skew, "at rest"
    assert {} == run.bench.assumed
    assert () == run.bench.cluster.assumed.reserved()
    assert [] == run.bench.cluster.check()
    placed = {pod.name: NODES[pod.node_name] for pod in run.bench.cluster.pods() if pod.node_name}
    assert run.accepted.zone_of == placed
    assert now() - started < 1000


def test_the_checker_sees_a_violation() -> None:
    accepted = Accepted()
    accepted.zone_of = {"a": "z1", "b": "z2"}

    assert 2 == worst_skew_after(accepted, ["z3"], "z1")
    assert 0 == worst_skew_after(accepted, ["z1"], "z3")
    assert 2 == skew({"z1": 2, "z2": 1, "z3": 0})


def test_the_stories_have_all_outcomes_and_many_pods_at_permit_together() -> None:
    outcomes: set[str] = set()
    most = 0

    @virtual_time
    async def play(seed: int, hesitates: bool) -> None:
        nonlocal most
        run = Run(seed, hesitates=hesitates)
        await run.play()
        most = max(most, run.reserved)
        outcomes.update([(await call)[0] for call in run.calls if not call.cancelled()])

    for seed in range(RUNS):
        play(seed, seed % 2 == 0)

    assert {"bound", "bind_failed", "bind_conflict", "out_of_time"} <= outcomes
    assert most >= 3
