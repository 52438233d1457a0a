"""The check goes down with the bind, through plugins that know nothing of it, and what it says comes straight back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest

from app.framework.cycle_state import CycleState, StateKey
from app.framework.handle import Handle
from app.framework.node_info import Candidates, NodeInfo
from app.framework.points import BindPlugin, FilterPlugin, PreFilterPlugin
from app.framework.spec import Needs, PluginSpec, Reads
from app.framework.status import SUCCESS, Code, Status, error, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, SERVICES, STORAGE_CLASSES, Kind
from app.verbs.bind import UNCONFIRMED
from app.verbs.transaction import UNCLEAR
from plugins import DEFAULT_WEIGHTS
from tests.api.virtual import settle, virtual_time
from tests.builders import (
    JsonObject,
    claim_object,
    class_object,
    encoded,
    make_node,
    make_pod,
    mounting,
    pod_object,
)
from tests.fakes import Counted, NoArgs
from tests.unit.app.verbs.bench import BOUND, REFUSED, TOO_MANY, Bench, Result, web, zones

MOST: Final[StateKey[Counted]] = StateKey("most")
NO_ROOM: Final = "no room"
REFUSED_ROOM: Final[Result] = ("bind_conflict", f"homeport: no longer possible: {NO_ROOM}")


class Binds(BindPlugin):
    """A bind plugin of somebody else's. ``seen``: what the binder told it."""

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self.binder = handle.binder
        self.seen: list[Status] = []

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return await self.by_binder(pod, node_name)

    async def by_binder(self, pod: Pod, node_name: str) -> Status:
        status = await self.binder.bind(pod, node_name, {"example.com/by": "binds"})
        self.seen.append(status)
        return status


class InATask(Binds):
    """Binds in a task of its own, with a time limit."""

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return await asyncio.wait_for(asyncio.create_task(self.by_binder(pod, node_name)), 60.0)


class TriesAgain(Binds):
    """Once more after a failure. ``between``: what happens before that."""

    between: Callable[[], None] = staticmethod(lambda: None)

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        first = await self.by_binder(pod, node_name)
        if first.is_success:
            return first
        self.between()
        return await self.by_binder(pod, node_name)


class BindsAnother(Binds):
    """Takes a pod along of which nothing was decided."""

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        await self.by_binder(make_pod("web-2"), node_name)
        return await self.by_binder(pod, node_name)


class GivesUp(Binds):
    """Waits a second for the outcome of its Binding, and then says ``says``. Its task goes on."""

    says = SUCCESS

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self.task = asyncio.create_task(self.by_binder(pod, node_name))
        done, _ = await asyncio.wait({self.task}, timeout=1.0)
        return self.task.result() if done else self.says


class Trips(Binds):
    """Fails before, while or after it binds. ``fails_after``: seconds."""

    fails_after = 1.0

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        async with asyncio.timeout(self.fails_after):
            return await self.by_binder(pod, node_name)


class Skips(Binds):
    """Leaves it to the next."""

    async def bind(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        return Status(Code.SKIP)


class Breaks(FilterPlugin):
    """A filter with a fault that shows only while ``broken``."""

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self.broken = False

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        if self.broken:
            raise ZeroDivisionError("a screw is loose")
        return SUCCESS


class Room(PreFilterPlugin, FilterPlugin):
    """Room for one pod on a node; as many as its PreFilter says."""

    def __init__(self, args: NoArgs, handle: Handle) -> None:
        self.objects = handle.objects

    def required_objects(self, pod: Pod) -> list[tuple[Kind[Any], str, str]]:
        here = self.objects.get(SERVICES, pod.namespace, "room")
        return [] if here else [(SERVICES, pod.namespace, "room")]

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        state.write(MOST, Counted(1))
        return SUCCESS, None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS if len(node.pods) < state.read(MOST).count else unschedulable(NO_ROOM)


def bench_with(plugin: type[Any], *objects: Any) -> tuple[Bench, Any]:
    """A bench whose profile has this plugin, before DefaultBinder if it binds."""
    spec: PluginSpec[Any] = PluginSpec(plugin.__name__, NoArgs, plugin)
    defaults = {**DEFAULT_WEIGHTS, spec.name: 1}
    profile: JsonObject | None = None
    if issubclass(plugin, Binds):
        enabled = [{"name": spec.name}, {"name": "DefaultBinder"}]
        profile = {"plugins": {"bind": {"enabled": enabled, "disabled": [{"name": "*"}]}}}
        defaults = dict(DEFAULT_WEIGHTS)
    found = Bench(*zones(), web("web-1"), web("web-2"), *objects, specs=[spec], defaults=defaults, profile=profile)
    return found, found.framework.plugins[spec.name]


class TestBindPlugins:
    @virtual_time
    async def test_one_of_somebody_elses_binds_through_the_handle(self) -> None:
        bench, plugin = bench_with(Binds)

        assert BOUND == await bench.bind("web-1", "n1")
        assert ([SUCCESS], [{"example.com/by": "binds"}]) == (
            plugin.seen,
            [it.annotations for it in bench.binder.posted],
        )

    @virtual_time
    async def test_what_one_attempt_was_told_does_not_stand_against_the_next(self) -> None:
        """The second attempt went through: the pod is bound, whatever was said of the first."""
        bench, plugin = bench_with(TriesAgain)
        call = await bench.start("web-1", "n1")

        bench.binder.answer("web-1", error("refused"))
        await settle()
        bench.binder.answer("web-1")

        assert (BOUND, [error("refused"), SUCCESS]) == (await call, plugin.seen)

    @virtual_time
    async def test_nor_does_what_the_check_held_back(self) -> None:
        bench, plugin = bench_with(TriesAgain)
        bench.binder.connected.clear()
        call = await bench.start("web-1", "n1")
        bench.show(web("web-3", "n1"))
        bench.binder.connected.set()
        plugin.between = lambda: bench.cluster.delete_pod(("default", "web-3"))
        await settle()
        bench.binder.answer("web-1")

        assert BOUND == await call
        assert ([False, True], 1) == ([it.is_success for it in plugin.seen], len(bench.binder.posted))

    @virtual_time
    async def test_a_pod_that_is_not_its_own_is_not_bound_along(self) -> None:
        bench, plugin = bench_with(BindsAnother)

        assert BOUND == await bench.bind("web-1", "n1")
        assert error('no bind of pod "default/web-2" is in flight here') == plugin.seen[0]
        assert ["web-1"] == [it.pod.name for it in bench.binder.posted]

    @pytest.mark.parametrize("plugin", [Binds, InATask, Skips])
    @virtual_time
    async def test_every_bind_is_held_to_the_check(self, plugin: type[Binds]) -> None:
        """In a task of its own too, and by the next plugin where one skips."""
        bench, made = bench_with(plugin)
        bench.binder.connected.clear()
        call = await bench.start("web-1", "n1")

        bench.show(web("web-3", "n1"))
        bench.binder.connected.set()

        assert (REFUSED, []) == (await call, bench.binder.posted)
        assert plugin is Skips or [unschedulable(f"no longer possible: {TOO_MANY}")] == made.seen


class TestUnclearOutcome:
    """A transaction that ends while its Binding may be on its way gives no place up."""

    @staticmethod
    def seen(bench: Bench) -> tuple[list[str], list[str]]:
        """The pods on n1, and those of which nobody knows whether they are bound."""
        return bench.on("n1"), [it.name for it in bench.cluster.assumed.unconfirmed()]

    @pytest.mark.parametrize(
        ("says", "message"), [pytest.param(error("no"), "no", id="error"), pytest.param(SUCCESS, UNCLEAR, id="success")]
    )
    @virtual_time
    async def test_a_plugin_that_gives_its_binding_up_on_the_way(self, says: Status, message: str) -> None:
        bench, plugin = bench_with(GivesUp)
        plugin.says = says

        assert ("bind_failed", f"homeport: {message}") == await (await bench.start("web-1", "n1"))
        assert (["web-1"], ["web-1"]) == self.seen(bench)
        assert {"web-1": "n1"} == bench.assumed, "others hold whether it is bound or not"
        bench.binder.answer("web-1")

    @pytest.mark.parametrize("sent", [True, False])
    @virtual_time
    async def test_a_plugin_that_fails_before_or_after_its_binding_leaves(self, sent: bool) -> None:
        bench, _ = bench_with(Trips)
        if not sent:
            bench.binder.connected.clear()

        outcome, _ = await (await bench.start("web-1", "n1"))
        assert ("fault", (["web-1"], ["web-1"]) if sent else ([], [])) == (outcome, self.seen(bench))

    @virtual_time
    async def test_the_pod_is_not_bound_anew_before_it_is_settled(self) -> None:
        bench, plugin = bench_with(Trips)
        await (await bench.start("web-1", "n1"))
        plugin.fails_after = 60.0
        unconfirmed = ("bind_failed", f"homeport: {UNCONFIRMED.format('n1')}")

        assert [unconfirmed] * 2 == [await bench.bind("web-1", node) for node in ("n1", "n2")]
        assert ["Pod default/web-1"] * 2 == bench.reader.asked
        bench.cluster.forget("uid-default-web-1")
        assert BOUND == await bench.bind("web-1", "n2")

    @virtual_time
    async def test_a_read_that_shows_it_bound_settles_it(self) -> None:
        bench, _ = bench_with(Trips)
        await (await bench.start("web-1", "n1"))
        bench.reader.pods[("default", "web-1")] = make_pod("web-1", node="n1", resource_version="9")

        assert ("already_bound", "") == await bench.bind("web-1", "n1")
        assert (["web-1"], []) == self.seen(bench)

    @virtual_time
    async def test_nobody_takes_over_without_a_fence_while_there_is_one(self) -> None:
        bench, _ = bench_with(Trips)
        await (await bench.start("web-1", "n1"))

        assert not await bench.verb.drain()
        bench.cluster.forget("uid-default-web-1")
        assert await bench.verb.drain()

    @virtual_time
    async def test_a_pod_of_no_profile_keeps_its_place_too(self) -> None:
        bench = Bench(*zones(), make_pod("web-1", scheduler="volcano"), profile={"schedulerName": "mine"})
        call = await bench.start("web-1", "n1")

        bench.binder.posted[0].answer.set_exception(ZeroDivisionError("a fault of ours"))
        with pytest.raises(ZeroDivisionError):
            await call
        assert (["web-1"], ["web-1"]) == self.seen(bench)

    @virtual_time
    async def test_a_decision_that_took_it_for_certain_is_taken_anew(self) -> None:
        """web-1 was accepted in the third zone; as that is no longer certain, web-2 may not follow in the first."""
        bench = Bench(*zones(), web("web-a", "n1"), web("web-b", "n2"), web("web-1"), web("web-2"))
        await bench.bind("web-1", "n3")
        bench.binder.connected.clear()
        call = await bench.start("web-2", "n1")

        bench.cluster.doubt("uid-default-web-1")
        bench.binder.connected.set()
        await settle()
        assert [] == bench.binder.under_way

        bench.cluster.forget("uid-default-web-1")
        assert REFUSED == await call


def rechecking(name: str) -> Bench:
    """A bench of three nodes and three pods that nothing keeps apart but what is asked at bind alone."""
    spec: PluginSpec[Any] = PluginSpec(
        "Room", NoArgs, Room, reads=Reads.PODS_ON_NODE, needs=lambda _: Needs(kinds=(SERVICES,))
    )
    pods = (make_pod(f"web-{it}") for it in (1, 2, 3))
    return Bench(*zones(), *pods, specs=[spec], profile={"bindRecheck": [name]})


class TestBindRecheck:
    @virtual_time
    async def test_what_only_bind_asks_is_asked_by_bind_alone(self) -> None:
        bench = rechecking("Room")
        assert BOUND == await bench.bind("web-1", "n1")
        pod, nodes = make_pod("web-2"), Candidates.of(bench.cluster.nodes)

        assert {"n1", "n2", "n3"} == {*bench.framework.search.find_nodes_that_fit(pod, nodes).passed}
        assert {} == bench.framework.filters.feasible(CycleState(), pod, nodes).rejected
        assert not bench.framework.filters.depends(pod, make_pod("web-3"))
        assert [] == bench.framework.required_objects(pod)
        assert REFUSED_ROOM == await bench.bind("web-2", "n1")
        assert BOUND == await bench.bind("web-2", "n2")

    @virtual_time
    async def test_what_it_needs_is_looked_up_at_bind(self) -> None:
        bench = rechecking("Room")
        await bench.bind("web-1", "n1")

        assert ["Service default/room"] == bench.reader.asked

    @virtual_time
    async def test_the_second_on_a_node_does_not_wait_to_be_told_no_nor_one_elsewhere_for_a_yes(self) -> None:
        """More pods on a node never help: whatever becomes of the first, both answers are certain."""
        bench = rechecking("Room")
        first = await bench.start("web-1", "n1")

        assert REFUSED_ROOM == await bench.bind("web-2", "n1")
        assert BOUND == await bench.bind("web-3", "n2")
        bench.binder.answer("web-1")
        assert BOUND == await first

    @virtual_time
    async def test_a_node_that_is_cordoned_on_the_way(self) -> None:
        """Nothing else has changed: the last look before the Binding leaves is no shortcut."""
        bench = rechecking("NodeUnschedulable")
        bench.binder.connected.clear()
        call = await bench.start("web-1", "n1")

        bench.show(make_node("n1", zone="z1", unschedulable=True))
        bench.binder.connected.set()

        expected = ("bind_conflict", "homeport: no longer possible: node(s) were unschedulable")
        assert (expected, []) == (await call, bench.binder.posted)

    @virtual_time
    async def test_a_pod_nominated_to_the_node_keeps_it_from_those_of_lower_priority(self) -> None:
        bench = rechecking("Room")
        bench.show(make_pod("urgent", priority=10, nominated="n1"))

        assert REFUSED_ROOM == await bench.bind("web-1", "n1")
        assert BOUND == await bench.bind("urgent", "n1")


class TestVolumes:
    """No pod is bound before its claims are."""

    def bench(self) -> Bench:
        found = Bench(*zones(), profile={"plugins": {"multiPoint": {"enabled": [{"name": "VolumeBinding"}]}}})
        found.cluster.upsert_pod(found.cluster.core.decode_pod(encoded(pod_object(more=mounting("data")))))
        self.show(found, STORAGE_CLASSES, class_object("later"))
        self.show(found, PERSISTENT_VOLUME_CLAIMS, claim_object(class_name="later", node="n1"))
        return found

    def show(self, bench: Bench, kind: Kind[Any], found: JsonObject) -> None:
        bench.cluster.others.upsert(kind, kind.decode(encoded(found)))

    @virtual_time
    async def test_out_of_time_it_is_refused_and_nothing_was_sent(self) -> None:
        bench = self.bench()
        outcome, message = await bench.bind("web-1", "n1")

        assert (REFUSED[0], []) == (outcome, bench.binder.posted)
        assert "homeport: VolumeBinding: the volumes of the pod were not bound in time" == message
        assert {} == bench.assumed


class TestFaults:
    @virtual_time
    async def test_a_filter_that_breaks_at_the_last_check_is_the_one_that_is_named(self) -> None:
        """The bind plugin that its fault came through has none."""
        bench, plugin = bench_with(Breaks)
        bench.binder.connected.clear()
        call = await bench.start("web-1", "n1")

        plugin.broken = True
        bench.show(web("web-3", "n2"))
        bench.binder.connected.set()

        assert ("fault", 'homeport: running "Breaks" filter plugin: a screw is loose') == await call
        assert ({}, [], {"Breaks": 1.0}) == (bench.assumed, bench.binder.posted, faults(bench))


def faults(bench: Bench) -> dict[str, float]:
    """By plugin, where there were any."""
    (family,) = bench.framework._guard._metrics.plugin_faults.collect()
    counted = [it for it in family.samples if it.name.endswith("_total") and it.value]
    return {it.labels["plugin"]: it.value for it in counted}
