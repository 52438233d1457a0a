"""Permit in the bind transaction: a pod waits as long as it may, holds nobody up, and is undone when it is rejected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.points import PermitPlugin, ReservePlugin
from app.framework.spec import PluginSpec
from app.framework.status import SUCCESS, Code, Status, error, unschedulable
from app.kube.core_v1 import Pod
from app.verbs.bind import ELSEWHERE, LOST, SHUTTING_DOWN
from app.verbs.transaction import RESERVED
from plugins import DEFAULT_WEIGHTS
from tests.api.virtual import now, settle, virtual_time
from tests.builders import make_pod
from tests.fakes import NoArgs
from tests.unit.app.verbs.bench import BOUND, REFUSED, Bench, Result, web, zones
from tests.unit.app.verbs.test_bind import ALONE

WAIT: Final = Status(Code.WAIT)
HOUR: Final = 3600.0


class Permit(PermitPlugin, ReservePlugin):
    """Answers what a test says, and ``Success`` for other pods than ``web-1``."""

    answer: tuple[Status, float] = (SUCCESS, 0.0)

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self.waiting = handle.waiting
        self.undone: list[str] = []

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        return self.answer if pod.name == "web-1" else (SUCCESS, 0.0)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.undone.append(pod.name)


class AlsoPermit(Permit):
    """A second one."""


def bench(*answers: tuple[Status, float], limit: float = HOUR) -> tuple[Bench, list[Permit]]:
    """Three zones and two pods; one Permit plugin for each answer. ``limit``: how long the caller waits."""
    specs: list[PluginSpec[Any]] = [PluginSpec(it.__name__, NoArgs, it) for it in (Permit, AlsoPermit)][: len(answers)]
    defaults = {**DEFAULT_WEIGHTS, **{spec.name: 1 for spec in specs}}
    found = Bench(*zones(), web("web-1"), web("web-2"), specs=specs, defaults=defaults)
    found.verb._time_limit = limit
    permits = [found.framework.plugins[spec.name] for spec in specs]
    for permit, answer in zip(permits, answers, strict=True):
        permit.answer = answer
    return found, permits


def rejected(plugin: str, message: str) -> Result:
    return ("bind_conflict", f"homeport: {plugin}: {message}")


@virtual_time
async def test_a_pod_that_is_allowed_is_bound() -> None:
    found, (permit,) = bench((WAIT, HOUR))

    call = await found.start("web-1", "n1")
    assert ([], ["web-1"], False) == (found.binder.under_way, found.on("n1"), call.done())
    (waiting,) = permit.waiting.all()
    waiting.allow("Permit")
    await settle()

    found.binder.answer("web-1")
    assert (BOUND, []) == (await call, permit.undone)


@virtual_time
async def test_while_one_waits_others_are_bound() -> None:
    found, (permit,) = bench((WAIT, HOUR))

    first = await found.start("web-1", "n1")
    second = await found.start("web-2", "n2")
    found.binder.answer("web-2")
    await settle()
    (waiting,) = permit.waiting.all()
    waiting.allow("Permit")
    await settle()
    found.binder.answer("web-1")

    assert (BOUND, BOUND) == (await second, await first)


@pytest.mark.parametrize(
    ("answers", "plugin", "seconds"),
    [
        pytest.param([(WAIT, 30.0), (SUCCESS, 1.0)], "Permit", 30, id="only the times of plugins that wait count"),
        pytest.param([(WAIT, 30.0), (WAIT, 20.0)], "AlsoPermit", 20, id="the shortest time"),
        pytest.param([(WAIT, 2 * HOUR)], "Permit", 900, id="15 minutes at most"),
        pytest.param([(WAIT, 0.0)], "Permit", 0, id="no time"),
    ],
)
@virtual_time
async def test_out_of_time_it_is_rejected(answers: list[tuple[Status, float]], plugin: str, seconds: int) -> None:
    found, _ = bench(*answers)
    started = now()

    call = await found.start("web-1", "n1")

    assert rejected(plugin, f"rejected due to timeout after waiting {seconds}s at plugin {plugin}") == await call
    assert (seconds, {}) == (now() - started, found.assumed)


@virtual_time
async def test_a_wait_ends_before_the_callers_time_limit() -> None:
    """A twentieth before it hangs up, so that it is told why. The log tells that the plugin wanted more."""
    found, (permit,) = bench((WAIT, 30.0), limit=5.0)
    started = now()
    with capture_logs() as logged:
        answer = await (await found.start("web-1", "n1"))

    assert rejected("Permit", "rejected due to timeout after waiting 4.75s at plugin Permit") == answer
    assert (4.75, {}, ["web-1"], ()) == (now() - started, found.assumed, permit.undone, permit.waiting.all())
    assert [
        {
            "log_level": "warning",
            "event": "permit wait clipped to the caller's time limit",
            "plugin": "Permit",
            "asked": 30.0,
            "limit": 4.75,
            "since_the_last_line": 0,
        }
    ] == logged


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param(
            [(WAIT, HOUR), (unschedulable("no"), 0.0)],
            rejected("AlsoPermit", "no"),
            id="a rejection after a wait: nobody waits",
        ),
        pytest.param(
            [(error("a screw is loose"), 0.0)],
            ("fault", 'homeport: running Permit plugin "Permit": a screw is loose'),
            id="an error",
        ),
    ],
)
@virtual_time
async def test_a_plugin_that_says_no_ends_the_bind(answers: list[tuple[Status, float]], expected: Result) -> None:
    found, (permit, *_) = bench(*answers)

    assert expected == await (await found.start("web-1", "n1"))
    assert (["web-1"], {}, ()) == (permit.undone, found.assumed, permit.waiting.all())


class TestReserved:
    """A pod that waits at Permit may be bound or not: who holds either way goes on, who does not is not kept waiting.

    docs: the zones hold 1, 1 and 0; web-1 waits at Permit with a place in the third.
    """

    @staticmethod
    async def waiting(*others: Pod, specs: Sequence[PluginSpec[Any]] = ()) -> tuple[Bench, asyncio.Task[Result]]:
        placed = [web("a", "n1"), web("b", "n2")]
        specs = [PluginSpec("Permit", NoArgs, Permit), *specs]
        defaults = {**DEFAULT_WEIGHTS, **{spec.name: 1 for spec in specs}}
        found = Bench(*zones(), *placed, web("web-1"), web("web-2"), *others, specs=specs, defaults=defaults)
        found.verb._time_limit = HOUR
        found.framework.plugins["Permit"].answer = (WAIT, HOUR)
        return found, await found.start("web-1", "n3")

    @staticmethod
    def allow(found: Bench) -> None:
        for waiting in found.waiting.all():
            waiting.allow("Permit")

    @virtual_time
    async def test_who_holds_only_if_it_is_bound_is_refused_at_once(self) -> None:
        """Before, it waited for as long as its caller did."""
        (found, call), started = await self.waiting(), now()

        assert await found.bind("web-2", "n1") == ("bind_conflict", f"homeport: {RESERVED}")
        assert (0.0, [], {}) == (now() - started, found.binder.posted, found.assumed)
        assert not call.done()
        found.waiting.reject_all("enough")

    @virtual_time
    async def test_who_holds_either_way_is_bound_meanwhile(self) -> None:
        found, call = await self.waiting()

        assert BOUND == await found.bind("web-2", "n3")
        assert not call.done()
        self.allow(found)
        await settle()
        found.binder.answer("web-1")
        assert BOUND == await call

    @virtual_time
    async def test_a_plugin_that_cannot_say_how_it_depends_on_others_does_not_wait_either(self) -> None:
        (found, _), started = await self.waiting(make_pod("other"), specs=[ALONE]), now()
        found.cluster.delete_pod(("default", "a"))

        assert await found.bind("other", "n1") == ("bind_conflict", f"homeport: {RESERVED}")
        assert 0.0 == now() - started
        found.waiting.reject_all("enough")

    @virtual_time
    async def test_it_is_checked_again_when_it_goes_on(self) -> None:
        found, call = await self.waiting()
        found.show(web("c", "n3"), web("d", "n3"))

        self.allow(found)

        assert REFUSED == await call
        assert ([], ["web-1"]) == (found.binder.posted, found.framework.plugins["Permit"].undone)


class TestTogether:
    """Pods that wait at Permit for one another: each goes there, also one that holds only once others are bound."""

    NAMES: Final = ("a", "b", "c", "d")

    @staticmethod
    async def all_at_permit() -> tuple[Bench, list[asyncio.Task[Result]]]:
        """Four pods of one group over three empty zones: the fourth holds only once the first three are bound."""
        spec: PluginSpec[Any] = PluginSpec("Group", NoArgs, Group)
        found = Bench(
            *zones(), *(web(it) for it in TestTogether.NAMES), specs=[spec], defaults={**DEFAULT_WEIGHTS, "Group": 1}
        )
        found.verb._time_limit = HOUR
        nodes = ("n1", "n2", "n3", "n1")
        return found, [await found.start(*it) for it in zip(TestTogether.NAMES, nodes, strict=True)]

    @virtual_time
    async def test_let_go_together_they_are_bound_in_an_order_that_holds(self) -> None:
        found, calls = await self.all_at_permit()
        started = now()
        assert ([*self.NAMES], []) == ([it.pod.name for it in found.waiting.all()], found.binder.under_way)

        for waiting in found.waiting.all():
            waiting.allow("Group")
        await settle()
        while found.binder.under_way:
            found.binder.answer(found.binder.under_way[0][0])
            await settle()

        results = [await it for it in calls]
        assert 0.0 == now() - started
        assert ([BOUND] * 4, {}) == (results, found.assumed)
        assert ["b", "c"] == [it.pod.name for it in found.binder.posted][:2], "the two in zone 1 hold after these"
        assert ["a", "d"] == found.on("n1")


class Group(PermitPlugin):
    """Makes every pod wait."""

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        pass

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> tuple[Status, float]:
        return WAIT, HOUR


class TestNobodyAsksAnyMore:
    """A wait of many minutes ends when the pod is no longer to be bound there by this process."""

    @pytest.mark.parametrize(
        "change", [lambda it: it.cluster.delete_pod(("default", "web-1")), lambda it: it.show_bound("web-1", "n2")]
    )
    @virtual_time
    async def test_the_pod_is_deleted_or_bound_elsewhere(self, change: Callable[[Bench], None]) -> None:
        (found, (permit,)), started = bench((WAIT, HOUR)), now()
        call = await found.start("web-1", "n1")

        change(found)

        assert ("bind_conflict", f"homeport: {LOST}") == await call
        assert (0.0, ["web-1"], (), []) == (
            now() - started,
            permit.undone,
            found.cluster.assumed.reserved(),
            found.binder.posted,
        )

    @virtual_time
    async def test_its_scheduler_has_chosen_another_node(self) -> None:
        """As one does that was restarted meanwhile: it knows nothing of the first bind."""
        (found, (permit,)), started = bench((WAIT, HOUR)), now()
        first = await found.start("web-1", "n1")

        second = await found.start("web-1", "n2")

        assert ("bind_conflict", f"homeport: {ELSEWHERE}") == await first
        assert (0.0, ["web-1"], ["web-1"]) == (now() - started, permit.undone, found.on("n2"))
        found.waiting.reject_all("enough")
        await second

    @virtual_time
    async def test_also_where_it_comes_to_permit_only_then(self) -> None:
        found, _ = bench((WAIT, HOUR))
        found.show(web("web-3"))
        found.cluster.assume(web("web-3"), "n2")  # in flight: nobody fits on n1 before it has settled
        found.show(web("a", "n3"))
        first = await found.start("web-1", "n1")
        second = await found.start("web-1", "n3")
        assert not found.waiting.all()

        found.cluster.accept("uid-default-web-3")
        await asyncio.sleep(1.5)
        await settle()

        assert first.done()
        found.waiting.reject_all("enough")
        await second

    @virtual_time
    async def test_the_process_ends(self) -> None:
        """Nothing of it is on its way: the end does not wait for it, and the next leader has nothing to fear."""
        (found, (permit,)), started = bench((WAIT, HOUR)), now()
        call = await found.start("web-1", "n1")

        assert await found.verb.drain()

        assert ("bind_conflict", f"homeport: {SHUTTING_DOWN}") == await call
        assert (0.0, ["web-1"]) == (now() - started, permit.undone)
