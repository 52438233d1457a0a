"""No binding is sent that could leave a hard constraint broken, whatever becomes of the others in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.cache import counters
from app.feeds.stores import PodStore, store_for
from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.points import FilterPlugin, PostBindPlugin, PreBindPlugin, ReservePlugin
from app.framework.spec import PluginSpec
from app.framework.status import SUCCESS, Code, Status, error, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES, PODS, Kind, owner_kind
from app.kube.meta_v1 import ObjectKey
from app.verbs.outcome import VerbFailure
from app.verbs.settlements import ENTANGLED, UNSETTLED
from app.writes.bind_guard import BindGuard
from plugins import DEFAULT_WEIGHTS
from tests.api.virtual import now, settle, virtual_time
from tests.builders import constraint, controller, make_pod
from tests.fakes import NoArgs
from tests.unit.app.verbs.bench import AGAIN, BOUND, LIMIT, REFUSED, WEB, Bench, Result, web, zones
from tests.unit.app.writes.leadership import Leadership

OUT_OF_TIME: Result = ("out_of_time", "homeport: the bind did not finish in time")
IN_VAIN: Result = ("bind_conflict", f"homeport: {UNSETTLED}")


class Gate(ReservePlugin, PreBindPlugin, PostBindPlugin):
    """Lets each pod through ``pre_bind`` when a test says so, and writes down what it is called for."""

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self.calls: list[str] = []
        self.open = asyncio.Event()
        self.reserves = SUCCESS
        self.pre_binds = SUCCESS

    def note(self, what: str, pod: Pod, node_name: str) -> None:
        self.calls.append(f"{what} {pod.name} {node_name}")

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.note("reserve", pod, node_name)
        return self.reserves

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.note("unreserve", pod, node_name)

    async def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        await self.open.wait()
        self.note("pre_bind", pod, node_name)
        state.annotations["example.com/gate"] = "open"
        return self.pre_binds

    async def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.note("post_bind", pod, node_name)
        await asyncio.sleep(100)


class Alone(FilterPlugin):
    """A filter that depends on other pods and cannot say how: at most one pod on a node."""

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        pass

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return unschedulable("taken") if node.pods else SUCCESS


MACHINES = owner_kind("kubevirt.io/v1", "VirtualMachineInstance")
GATE: PluginSpec[Any] = PluginSpec("Gate", NoArgs, Gate)
ALONE: PluginSpec[Any] = PluginSpec("Alone", NoArgs, Alone)


def gated(*objects: Any) -> tuple[Bench, Gate]:
    bench = Bench(*objects, specs=[GATE], defaults={**DEFAULT_WEIGHTS, "Gate": 1})
    gate = bench.framework.plugins["Gate"]
    assert isinstance(gate, Gate)
    return bench, gate


class TestOnePod:
    @virtual_time
    async def test_a_bind_is_posted_and_answered_once_it_is_done(self) -> None:
        bench = Bench(*zones(), web("web-1"))

        call = await bench.start("web-1", "n1")

        assert ([("web-1", "n1")], {"web-1": "n1"}) == (bench.binder.under_way, bench.assumed)
        assert not call.done()
        bench.binder.answer("web-1")
        assert await call == BOUND
        assert ({}, ["web-1"]) == (bench.assumed, bench.on("n1"))

    @virtual_time
    async def test_calls_for_the_same_pod_and_node_join(self) -> None:
        bench = Bench(*zones(), web("web-1"))

        calls = [await bench.start("web-1", "n1") for _ in range(3)]
        bench.binder.answer("web-1")

        assert [BOUND] * 3 == [await call for call in calls]
        assert len(bench.binder.posted) == 1

    @virtual_time
    async def test_a_call_for_another_node_waits_for_the_first_to_settle(self) -> None:
        bench = Bench(*zones(), web("web-1"))
        first = await bench.start("web-1", "n1")
        second = await bench.start("web-1", "n2")

        assert [("web-1", "n1")] == bench.binder.under_way
        bench.binder.answer("web-1", error("refused"))
        assert await first == ("bind_failed", "homeport: refused")
        await settle()
        assert [("web-1", "n2")] == bench.binder.under_way
        bench.binder.answer("web-1")
        assert await second == BOUND

    @virtual_time
    async def test_a_call_for_another_node_learns_where_the_first_took_the_pod(self) -> None:
        bench = Bench(*zones(), web("web-1"))
        first = await bench.start("web-1", "n1")
        second = await bench.start("web-1", "n2")

        bench.reader.pods[("default", "web-1")] = make_pod("web-1", node="n1", resource_version="9")
        bench.binder.answer("web-1")

        assert await first == BOUND
        assert await second == ("bind_failed", 'homeport: the pod is already bound to node "n1"')

    @virtual_time
    async def test_a_caller_that_hangs_up_changes_nothing(self) -> None:
        bench = Bench(*zones(), web("web-1"))
        call = await bench.start("web-1", "n1")

        call.cancel()
        await settle()

        assert call.cancelled()
        assert [("web-1", "n1")] == bench.binder.under_way
        bench.binder.answer("web-1")
        await bench.verb.drain()
        assert ({}, ["web-1"]) == (bench.assumed, bench.on("n1"))
        bench.show_bound("web-1", "n1")
        assert await bench.bind("web-1", "n1") == ("already_bound", "")

    @virtual_time
    async def test_a_failure_nobody_waits_for_is_undone_all_the_same(self) -> None:
        bench = Bench(*zones(), web("web-1"))
        call = await bench.start("web-1", "n1")
        call.cancel()

        bench.binder.answer("web-1", error("refused"))
        await bench.verb.drain()

        assert ({}, []) == (bench.assumed, bench.on("n1"))

    @virtual_time
    async def test_out_of_time_the_transaction_goes_on_and_the_next_call_joins_it(self) -> None:
        bench = Bench(*zones(), web("web-1"))
        started = now()

        assert await (await bench.start("web-1", "n1")) == OUT_OF_TIME
        assert started + LIMIT == pytest.approx(now())
        again = await bench.start("web-1", "n1")
        bench.binder.answer("web-1")

        assert await again == BOUND
        assert len(bench.binder.posted) == 1

    @virtual_time
    async def test_a_call_for_another_node_waits_no_longer_than_its_time(self) -> None:
        bench = Bench(*zones(), web("web-1"))
        await bench.start("web-1", "n1")

        second = await bench.start("web-1", "n2")

        assert await second == ("out_of_time", "homeport: an earlier bind of this pod did not finish in time")

    @pytest.mark.parametrize(
        ("pods", "name", "uid", "expected"),
        [
            pytest.param([web("web-1", "n1")], "web-1", None, ("already_bound", ""), id="already bound there"),
            pytest.param(
                [web("web-1", "n2")],
                "web-1",
                None,
                ("bind_failed", 'homeport: the pod is already bound to node "n2"'),
                id="already bound elsewhere",
            ),
            pytest.param(
                [web("web-1")],
                "web-1",
                "another",
                ("bind_failed", "homeport: the pod was replaced by another of the same name"),
                id="another UID",
            ),
            pytest.param(
                [web("web-1")],
                "web-1",
                "",
                ("bad_request", "homeport: malformed bind request: PodUID is empty"),
                id="no UID: any pod of that name",
            ),
            pytest.param([], "web-1", None, ("bind_failed", 'homeport: pods "web-1" not found'), id="no such pod"),
            pytest.param([make_pod("web-1", scheduler="volcano")], "web-1", None, BOUND, id="a pod of no profile here"),
        ],
    )
    @virtual_time
    async def test_which_pod_is_meant(self, pods: list[Pod], name: str, uid: str | None, expected: Result) -> None:
        bench = Bench(*zones(), *pods)

        assert expected == await bench.bind(name, "n1", uid=uid)

    @pytest.mark.parametrize("scheduler", ["default-scheduler", "volcano"])
    @virtual_time
    async def test_a_node_we_do_not_know_is_refused_since_the_api_server_would_take_any_name(
        self, scheduler: str
    ) -> None:
        bench = Bench(*zones(), make_pod("web-1", scheduler=scheduler))

        assert await bench.bind("web-1", "n9") == ("bind_failed", 'homeport: nodes "n9" not found')
        assert [] == bench.binder.posted


class TestYoungPods:
    """A pod can arrive at bind before the watch has shown it."""

    @virtual_time
    async def test_a_pod_we_do_not_know_is_read(self) -> None:
        bench = Bench(*zones())
        bench.reader.pods["default", "web-1"] = web("web-1")

        assert await bench.bind("web-1", "n1") == BOUND
        assert ["Pod default/web-1"] == bench.reader.asked

    @virtual_time
    async def test_a_recreated_pod_is_read_anew(self) -> None:
        bench = Bench(*zones(), make_pod("web-1", uid="old"))
        bench.reader.pods["default", "web-1"] = web("web-1")

        assert await bench.bind("web-1", "n1") == BOUND

    @virtual_time
    async def test_an_api_server_that_cannot_be_asked(self) -> None:
        bench = Bench(*zones())
        bench.reader.refuses = OSError("no route")

        assert await bench.bind("web-1", "n1") == ("bind_failed", "homeport: the pod cannot be read: no route")

    @virtual_time
    async def test_a_known_pod_is_not_read(self) -> None:
        bench = Bench(*zones(), web("web-1"))

        await bench.bind("web-1", "n1")

        assert [] == bench.reader.asked


class TestInFlight:
    """docs: the zones hold 1, 1 and 0; A is in flight to the third; B wants into the first."""

    @staticmethod
    async def a_under_way() -> tuple[Bench, asyncio.Task[Result]]:
        bench = Bench(*zones(), web("web-1", "n1"), web("web-2", "n2"), *map(web, "abc"))
        return bench, await bench.start("a", "n3")

    @virtual_time
    async def test_b_waits_for_a_and_is_refused_if_it_fails(self) -> None:
        bench, a = await self.a_under_way()
        b = await bench.start("b", "n1")
        assert ([("a", "n3")], {"a": "n3", "b": "n1"}) == (bench.binder.under_way, bench.assumed)

        bench.binder.answer("a", error("refused"))

        assert await a == ("bind_failed", "homeport: refused")
        assert await b == REFUSED
        assert ([], {}) == (bench.binder.under_way, bench.assumed)

    @virtual_time
    async def test_c_is_not_assumed_while_b_waits_for_a(self) -> None:
        """One pod at a time is assumed before its bind is certain, so that such pods never wait for each other."""
        bench, a = await self.a_under_way()
        b = await bench.start("b", "n1")
        c = await bench.start("c", "n2")
        assert {"a": "n3", "b": "n1"} == bench.assumed

        bench.binder.answer("a")
        assert await a == BOUND
        await settle()
        assert [("b", "n1"), ("c", "n2")] == bench.binder.under_way
        for name in "bc":
            bench.binder.answer(name)

        assert [BOUND, BOUND] == [await b, await c]

    @virtual_time
    async def test_a_that_is_sent_again_does_not_wait_for_b(self) -> None:
        """The check of this plugin depends on each other bind in flight, and b is assumed only early."""
        pods = [make_pod("a"), make_pod("b")]
        bench = Bench(*zones(), *pods, specs=[ALONE], defaults={**DEFAULT_WEIGHTS, "Alone": 1})
        calls = [await bench.start(name, node) for name, node in (("a", "n1"), ("b", "n2"))]
        assert {"a": "n1", "b": "n2"} == bench.assumed

        for name, status in (("a", AGAIN), ("a", SUCCESS), ("b", SUCCESS)):
            bench.binder.answer(name, status)
            await settle()

        assert [BOUND, BOUND] == [await it for it in calls]

    @virtual_time
    async def test_a_that_is_sent_again_is_not_refused_for_b(self) -> None:
        """The constraints of b and c allow more skew than that of a, and b depends on y."""
        loose = [make_pod(name, labels=WEB, spread=[constraint(app="web", skew=2)]) for name in "bc"]
        there = [web(f"web-{number}", "n1") for number in range(3)]
        bench = Bench(*zones(), *there, web("a"), web("y"), *loose)
        places = (("a", "n3"), ("y", "n2"), ("c", "n3"), ("b", "n3"))
        calls = [await bench.start(name, node) for name, node in places]
        assert (["a", "y", "c"], "n3") == ([name for name, _ in bench.binder.under_way], bench.assumed["b"])

        for name, status in (("a", AGAIN), ("y", SUCCESS), ("a", SUCCESS), ("c", SUCCESS), ("b", SUCCESS)):
            bench.binder.answer(name, status)
            await settle()

        assert [BOUND] * len(places) == [await it for it in calls]

    @virtual_time
    async def test_a_succeeds_and_b_is_bound_as_it_is_by_then(self) -> None:
        bench, a = await self.a_under_way()
        b = await bench.start("b", "n1")
        newer = replace(web("b"), resource_version="9")

        bench.show(newer)
        bench.binder.answer("a")
        assert await a == BOUND
        await settle()
        assert ["9"] == [it.pod.resource_version for it in bench.binder.posted if it.pod.name == "b"]
        bench.binder.answer("b")

        assert await b == BOUND

    @virtual_time
    async def test_neither_and_b_gives_up_in_time(self) -> None:
        bench, _ = await self.a_under_way()
        started = now()
        b = await bench.start("b", "n1")
        await asyncio.sleep(1.0)
        joined = await bench.start("b", "n1")

        assert await b == IN_VAIN
        assert await joined == IN_VAIN
        assert now() - started == pytest.approx(0.95 * LIMIT)
        assert {"a": "n3"} == bench.assumed

    @pytest.mark.parametrize("status", [pytest.param(SUCCESS, id="succeed"), pytest.param(error("no"), id="fail")])
    @virtual_time
    async def test_b_into_the_third_zone_holds_whatever_becomes_of_a(self, status: Status) -> None:
        bench, a = await self.a_under_way()
        b = await bench.start("b", "n3")

        assert [("a", "n3"), ("b", "n3")] == bench.binder.under_way
        bench.binder.answer("a", status)
        bench.binder.answer("b")

        assert [BOUND if status.is_success else ("bind_failed", "homeport: no"), BOUND] == [await a, await b]

    @virtual_time
    async def test_a_bind_is_certain_once_the_watch_confirms_it(self) -> None:
        bench, a = await self.a_under_way()
        b = await bench.start("b", "n1")

        bench.show_bound("a", "n3")
        await settle()

        assert [("a", "n3"), ("b", "n1")] == bench.binder.under_way
        for name in "ab":
            bench.binder.answer(name)
        assert [BOUND, BOUND] == [await a, await b]

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            pytest.param(lambda it: it.cluster.delete_pod(("default", "b")), 'pods "b" not found', id="pod deleted"),
            pytest.param(lambda it: it.show_bound("b", "n2"), "the pod was bound by another client", id="pod bound"),
            pytest.param(lambda it: it.cluster.delete_node("n1"), 'nodes "n1" not found', id="node deleted"),
        ],
    )
    @virtual_time
    async def test_everything_is_read_anew_after_a_wait(self, change: Callable[[Bench], None], expected: str) -> None:
        bench, _ = await self.a_under_way()
        b = await bench.start("b", "n1")

        change(bench)
        bench.binder.answer("a")

        assert await b == ("bind_failed", f"homeport: {expected}")


class TestUndo:
    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            pytest.param(error("no"), ("bind_failed", "homeport: no"), id="the API server would not"),
            pytest.param(unschedulable("changed"), ("bind_conflict", "homeport: changed"), id="the pod changed"),
            pytest.param(
                Status(Code.SKIP),
                ("bind_failed", "homeport: every bind plugin skipped the pod"),
                id="nobody binds",
            ),
        ],
    )
    @virtual_time
    async def test_a_failed_bind_is_undone_before_the_answer(self, status: Status, expected: Result) -> None:
        bench, gate = gated(*zones(), web("web-1"))
        gate.open.set()
        call = await bench.start("web-1", "n1")

        bench.binder.answer("web-1", status)

        assert expected == await call
        assert ["reserve web-1 n1", "pre_bind web-1 n1", "unreserve web-1 n1"] == gate.calls
        assert ({}, []) == (bench.assumed, bench.on("n1"))

    @pytest.mark.parametrize(
        ("point", "status", "expected", "calls"),
        [
            ("reserves", unschedulable("full"), "full", ["reserve", "unreserve"]),
            ("pre_binds", error("disk"), "disk", ["reserve", "pre_bind", "unreserve"]),
        ],
    )
    @virtual_time
    async def test_a_plugin_that_fails_is_undone(
        self, point: str, status: Status, expected: str, calls: list[str]
    ) -> None:
        bench, gate = gated(*zones(), web("web-1"))
        setattr(gate, point, status)
        gate.open.set()

        assert await bench.bind("web-1", "n1") == ("bind_conflict", f"homeport: Gate: {expected}")
        assert [f"{it} web-1 n1" for it in calls] == gate.calls
        assert ({}, [], []) == (bench.assumed, bench.on("n1"), bench.binder.posted)

    @virtual_time
    async def test_a_foreign_pod_is_forgotten_too(self) -> None:
        bench = Bench(*zones(), make_pod("web-1", scheduler="volcano"))

        assert await bench.bind("web-1", "n1", error("no")) == ("bind_failed", "homeport: no")
        assert ({}, []) == (bench.assumed, bench.on("n1"))

    @pytest.mark.parametrize("scheduler", ["default-scheduler", "volcano"])
    @virtual_time
    async def test_a_name_that_the_lease_cannot_be_made_to_hold_in_time(self, scheduler: str) -> None:
        """Of a profile here or not: a late Binding of either can be fenced off by the next leader."""
        leadership = Leadership(problem="no lease")
        bench = Bench(*zones(), make_pod("web-1", scheduler=scheduler), bind_guard=BindGuard(leadership))

        assert await bench.bind("web-1", "n1") == ("bind_failed", "homeport: no lease")
        assert ([(scheduler, 0.95 * LIMIT)], {}, []) == (leadership.asked, bench.assumed, bench.binder.posted)

    @virtual_time
    async def test_a_foreign_pod_is_not_bound_where_others_are_not_to_be(self) -> None:
        bench = Bench(*zones(), make_pod("web-1", scheduler="volcano"), bind_others=False)

        said = 'homeport: no profile for schedulerName "volcano", and bindOthers is false'
        assert await bench.bind("web-1", "n1") == ("bind_failed", said)
        assert ({}, []) == (bench.assumed, bench.binder.posted)


@pytest.mark.parametrize("held", ["in pre-bind", "before it is sent"])
class TestLaterChecks:
    """The snapshot changes while ``pre_bind`` waits, or while the Binding waits for a connection."""

    @staticmethod
    async def held_bind(held: str, name: str, *objects: Any) -> tuple[Bench, Gate, asyncio.Task[Result]]:
        bench, gate = gated(*zones(), web(name), *objects)
        if held == "before it is sent":
            gate.open.set()
            bench.binder.connected.clear()
        return bench, gate, await bench.start(name, "n1")

    @staticmethod
    async def release(bench: Bench, gate: Gate) -> None:
        gate.open.set()
        bench.binder.connected.set()
        await settle()

    @virtual_time
    async def test_a_peer_that_was_bound_meanwhile_refuses_the_bind(self, held: str) -> None:
        bench, gate, call = await self.held_bind(held, "web-1")

        bench.show(web("web-2", "n1"))
        await self.release(bench, gate)

        assert await call == REFUSED
        assert ([], {}) == (bench.binder.posted, bench.assumed)
        assert ["reserve web-1 n1", "pre_bind web-1 n1", "unreserve web-1 n1"] == gate.calls

    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            pytest.param(SUCCESS, BOUND, id="succeeds"),
            pytest.param(error("no"), REFUSED, id="fails"),
            pytest.param(None, IN_VAIN, id="never settles"),
        ],
    )
    @virtual_time
    async def test_it_waits_for_a_bind_that_it_came_to_depend_on(
        self, held: str, status: Status | None, expected: Result
    ) -> None:
        """The third zone lost its pod meanwhile, and another is on its way there."""
        pods = [web(f"web-{number}", f"n{number}") for number in (1, 2, 3)]
        foreign = make_pod("a", labels=WEB, scheduler="volcano")
        bench, gate, call = await self.held_bind(held, "b", *pods, foreign)
        bench.cluster.delete_pod(("default", "web-3"))
        await bench.start("a", "n3")

        await self.release(bench, gate)
        assert [("a", "n3")] == bench.binder.under_way
        if status is not None:
            bench.binder.answer("a", status)
            await settle()
        if expected == BOUND:
            bench.binder.answer("b")

        assert expected == await call


class TestSecondCheck:
    @virtual_time
    async def test_what_pre_bind_adds_travels_with_the_binding(self) -> None:
        bench, gate = gated(*zones(), web("web-1"))
        gate.open.set()

        await bench.bind("web-1", "n1")

        assert [{"example.com/gate": "open"}] == [posted.annotations for posted in bench.binder.posted]


class TestLastWord:
    """The picture moves on while the Binding waits for a connection."""

    @virtual_time
    async def test_two_that_wait_for_one_another(self) -> None:
        """Neither plugin says which other pods matter, so each would wait for the other; the second gives up."""
        pods = [make_pod("a"), make_pod("b")]
        bench = Bench(*zones(), *pods, specs=[ALONE], defaults={**DEFAULT_WEIGHTS, "Alone": 1})
        bench.binder.connected.clear()
        first = await bench.start("a", "n1")
        bench.cluster.accept(pods[0].uid)
        second = await bench.start("b", "n2")
        bench.cluster.forget(pods[0].uid)
        bench.cluster.assume(pods[0], "n1")

        bench.binder.connected.set()
        await settle()
        bench.binder.answer("a")

        assert (BOUND, ("bind_conflict", f"homeport: {ENTANGLED}")) == (await first, await second)

    @virtual_time
    async def test_counts_that_were_given_up_meanwhile_are_made_anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(counters, "_MIN_ENTRIES", 0)
        for level in ("_MOST_SELECTION_BYTES", "_MOST_TOPOLOGY_BYTES"):
            monkeypatch.setattr(counters, level, 50_000)
        bench = Bench(*zones(500), web("web-1"))
        bench.binder.connected.clear()
        call = await bench.start("web-1", "n1")

        for number in range(20):
            with suppress(Unprepared):
                bench.cluster.counts.values(f"key-{number}")
        bench.show(make_pod("any", node="n2"))
        bench.binder.connected.set()
        await settle()
        bench.binder.answer("web-1")

        assert BOUND == await call


class TestTakeOver:
    """A bind that comes during a take-over waits for it, within the time its caller has."""

    @staticmethod
    def bench(opens: float) -> tuple[Bench, Leadership]:
        leadership = Leadership(opens=opens)
        leadership.names.append("default-scheduler")
        return Bench(*zones(), web("web-1"), bind_guard=BindGuard(leadership)), leadership

    @virtual_time
    async def test_it_waits_for_the_take_over(self) -> None:
        (bench, leadership), started = self.bench(3.0), now()
        call = await bench.start("web-1", "n1")
        assert ([], {}) == (bench.binder.posted, bench.assumed)

        await asyncio.sleep(3.0)
        await settle()
        bench.binder.answer("web-1")

        assert (BOUND, 3.0) == (await call, now() - started)
        assert [("default", 0.9 * LIMIT)] == leadership.admissions

    @pytest.mark.parametrize(
        ("opens", "expected", "waited"),
        [
            pytest.param(60.0, ("no_leader", "homeport: taking over"), 0.9 * LIMIT, id="one that takes too long"),
            pytest.param(3.0, OUT_OF_TIME, LIMIT, id="both together do"),
        ],
    )
    @virtual_time
    async def test_not_for_ever(self, opens: float, expected: Result, waited: float) -> None:
        (bench, _), started = self.bench(opens), now()

        assert expected == await (await bench.start("web-1", "n1"))
        assert waited == pytest.approx(now() - started)

    @virtual_time
    async def test_what_cannot_be_read_is_told_at_once(self) -> None:
        (bench, leadership), started = self.bench(60.0), now()

        with pytest.raises(VerbFailure, match="malformed bind request"):
            await bench.verb(b"{")
        assert ([], 0.0) == (leadership.admissions, now() - started)


class TestTimeLimits:
    @virtual_time
    async def test_a_caller_that_waits_for_less_is_told_by_then(self) -> None:
        """Another replica sent it here, after it had waited there."""
        bench, started = Bench(*zones(), web("web-1")), now()
        body = {"PodName": "web-1", "PodNamespace": "default", "PodUID": "uid-default-web-1", "Node": "n1"}

        with pytest.raises(VerbFailure) as failed:
            await bench.verb(msgspec.json.encode(body), 2.0)

        assert (OUT_OF_TIME, 2.0) == ((failed.value.outcome, failed.value.message), now() - started)

    @virtual_time
    async def test_a_long_limit_leaves_half_a_second_to_say_why(self) -> None:
        bench = Bench(*zones(), web("web-1", "n1"), web("web-2", "n2"), web("a"), web("b"))
        bench.verb._time_limit = 600.0
        await bench.start("a", "n3")
        started = now()

        assert IN_VAIN == await (await bench.start("b", "n1"))
        assert 599.5 == pytest.approx(now() - started)


class TestPostBind:
    @virtual_time
    async def test_it_runs_after_the_answer(self) -> None:
        bench, gate = gated(*zones(), web("web-1"))
        gate.open.set()
        started = now()

        assert await bench.bind("web-1", "n1") == BOUND
        assert started == now()
        await bench.verb.drain(seconds=200.0)

        assert "post_bind web-1 n1" == gate.calls[-1]
        assert started + 100 == now()


class TestUncertainPlugins:
    """A filter that depends on pods and cannot say how: its binds go one after the other."""

    @staticmethod
    def bench() -> Bench:
        pods = [make_pod(name) for name in "abc"]
        return Bench(*zones(), *pods, specs=[ALONE], defaults={**DEFAULT_WEIGHTS, "Alone": 1})

    @virtual_time
    async def test_binds_wait_for_one_another(self) -> None:
        bench = self.bench()
        calls = [await bench.start(name, node) for name, node in zip("abc", ("n1", "n2", "n3"), strict=True)]

        for name, node in zip("abc", ("n1", "n2", "n3"), strict=True):
            await settle()
            assert [(name, node)] == bench.binder.under_way
            bench.binder.answer(name)

        assert [BOUND] * 3 == [await call for call in calls]


@virtual_time
async def test_an_orderly_end_waits_for_all_transactions() -> None:
    bench = Bench(*zones(), web("web-1"))
    call = await bench.start("web-1", "n1")
    draining = asyncio.create_task(bench.verb.drain())
    await settle()

    assert not draining.done()
    bench.binder.answer("web-1")
    await draining
    assert await call == BOUND


@virtual_time
async def test_two_pods_of_one_name_in_two_namespaces_are_two_pods() -> None:
    bench = Bench(*zones(), make_pod("web-1"), make_pod("web-1", namespace="shop"))
    body = {"PodName": "web-1", "PodNamespace": "shop", "PodUID": "uid-shop-web-1", "Node": "n2"}

    await bench.start("web-1", "n1")
    other = asyncio.create_task(bench.verb(msgspec.json.encode(body)))
    await settle()

    assert [("web-1", "n1"), ("web-1", "n2")] == bench.binder.under_way
    for posted in bench.binder.posted:
        posted.answer.set_result(SUCCESS)
    assert (await other).outcome == "bound"


class TestAPodThatAListLacks:
    """A pod deleted while nobody watched and its bind is in flight: what becomes of the bind does not bring it back."""

    @pytest.mark.parametrize("taken", [True, False], ids=["201", "404"])
    @pytest.mark.parametrize("first", ["the list", "the bind"])
    @virtual_time
    async def test_it_takes_no_place(self, first: str, taken: bool) -> None:
        """The place is free again for the next pod of the same constraint, in this zone too."""
        bench = Bench(*zones(), web("web-1"), web("web-2"))
        store = PodStore(bench.cluster)
        call = await bench.start("web-1", "n1")
        assert ("default", "web-1") in list(store.keys())

        async def settle_bind() -> None:
            bench.binder.answer("web-1", SUCCESS if taken else error('pods "web-1" not found'))
            await call

        if first == "the bind":
            await settle_bind()
        store.delete(("default", "web-1"), "")
        if first == "the list":
            await settle_bind()

        assert ({}, []) == (bench.assumed, bench.on("n1"))
        assert bench.cluster.pod("default", "web-1") is None
        assert await bench.bind("web-2", "n1") == BOUND
        assert [] == bench.cluster.check()


class TestLeftOut:
    """What is there and cannot be read is said, whatever was known of it before."""

    @pytest.mark.parametrize(
        ("kind", "key", "said"),
        [
            pytest.param(PODS, ("default", "web-1"), "Pod default/web-1 cannot be read: odd", id="the pod"),
            pytest.param(NODES, ("", "n1"), "Node n1 cannot be read: odd", id="the node"),
        ],
    )
    @virtual_time
    async def test_bind_names_it(self, kind: Kind[Any], key: ObjectKey, said: str) -> None:
        bench = Bench(*zones(), web("web-1"))
        store_for(bench.cluster, kind).mark_unreadable(key, "odd")

        assert await bench.bind("web-1", "n1") == ("bind_failed", f"homeport: {said}")

        store_for(bench.cluster, kind).mark_readable(key)
        assert await bench.bind("web-1", "n1") == BOUND

    @virtual_time
    async def test_an_owner_that_is_left_out_is_named(self) -> None:
        bench = Bench(
            *zones(), make_pod("vm-1", owner=controller("VirtualMachineInstance", "db", api_version="kubevirt.io/v1"))
        )
        store_for(bench.cluster, MACHINES).mark_unreadable(("default", "db"), "odd")

        outcome, said = await bench.bind("vm-1", "n1")

        assert ("fault", True) == (outcome, said.endswith("VirtualMachineInstance default/db cannot be read: odd"))
