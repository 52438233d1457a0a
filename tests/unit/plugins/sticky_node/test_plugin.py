"""A home is made by the first bind, kept, copied to its owner, and never forced on a person who thinks otherwise."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.framework.objects import ObjectGone, WriteConflict
from app.kube.core_v1 import Pod
from app.kube.kinds import NODES as NODES_KIND
from plugins.sticky_node.plugin import OWNER_UNKNOWN, StickyNode
from tests.api.virtual import settle, virtual_time
from tests.unit.plugins.sticky_node.machines import (
    HOME,
    HOME_POD,
    INSTANCE,
    MACHINE,
    NODES,
    Machines,
    bound,
    launcher,
    make_pod,
    own_home,
    reference,
)
from tests.unit.plugins.sticky_node.watched import Watched

ALL = list(NODES)
POD = launcher()
NEXT = launcher("launcher-2")
COPIED = own_home("n1", POD.uid)


@pytest.fixture
def machines() -> Machines:
    machines = Machines()
    machines.machine()
    return machines


class TestFirstBind:
    async def test_it_makes_the_home_on_the_binding_and_on_the_owner(self, machines: Machines) -> None:
        assert {HOME: "n1"} == await machines.bind(POD, "n1")
        assert COPIED == machines.annotations()

    async def test_the_next_pod_comes_home_and_its_binding_says_nothing(self, machines: Machines) -> None:
        await machines.bind(POD, "n1")

        assert ["n1"] == machines.allowed(NEXT)
        assert {} == await machines.bind(NEXT, "n1")
        assert [("db", COPIED)] == machines.writer.written

    async def test_a_pod_of_no_machine_makes_none(self, machines: Machines) -> None:
        assert {} == await machines.bind(make_pod("web-1"), "n1")
        assert [] == machines.writer.written

    def test_the_pod_that_makes_the_home_is_not_held_by_it(self, machines: Machines) -> None:
        machines.reserve(POD, "n1")

        assert ALL == machines.allowed(POD)

    async def test_a_pod_that_joins_a_home_in_the_pending_carries_it_too(self, machines: Machines) -> None:
        """The bind that makes the home may yet fail, and then this one has made it."""
        machines.reserve(POD, "n1")

        assert {HOME: "n1"} == await machines.bind(NEXT, "n1")
        machines.plugin.unreserve(CycleState(), POD, "n1")

        assert ["n1"] == machines.allowed(POD)

    @pytest.mark.parametrize(("first", "second"), [(POD, NEXT), (NEXT, POD)], ids=["who began", "who joined"])
    def test_of_two_on_their_way_one_that_fails_leaves_the_home(
        self, machines: Machines, first: Pod, second: Pod
    ) -> None:
        """A third pod must not make another one."""
        third = launcher("launcher-db-3", "db")
        machines.reserve(POD, "n1")
        machines.reserve(NEXT, "n1")

        machines.plugin.unreserve(CycleState(), first, "n1")
        assert ["n1"] == machines.allowed(third)

        machines.plugin.unreserve(CycleState(), second, "n1")
        assert ALL == machines.allowed(third)

    async def test_a_failed_bind_leaves_no_home(self, machines: Machines) -> None:
        await machines.bind(POD, "n1", succeeds=False)

        assert (ALL, {}) == (machines.allowed(NEXT), machines.annotations())

    def test_undo_is_idempotent_and_leaves_homes_of_others(self, machines: Machines) -> None:
        machines.reserve(POD, "n1")

        for _ in range(2):
            machines.plugin.unreserve(CycleState(), NEXT, "n1")

        assert ["n1"] == machines.allowed(NEXT)

    @pytest.mark.parametrize("kind", [INSTANCE, MACHINE])
    def test_a_bind_that_fails_because_the_machine_was_stopped_leaves_no_home(
        self, machines: Machines, kind: object
    ) -> None:
        """The instance goes first: at the undo the pod no longer leads to its machine."""
        machines.reserve(POD, "n1")
        machines.gone(kind)  # type: ignore[arg-type]

        machines.plugin.unreserve(CycleState(), POD, "n1")
        machines.machine()

        assert ALL == machines.allowed(NEXT)

    def test_no_reservation_before_the_owner_is_known(self, machines: Machines) -> None:
        machines.gone(MACHINE)

        assert OWNER_UNKNOWN == machines.reserve(POD, "n1")


@pytest.mark.parametrize(
    ("home", "is_readable", "required"),
    [
        pytest.param("n9", True, [(NODES_KIND, "", "n9")], id="a home that seems to be gone"),
        pytest.param("n9", False, [], id="one that is there and cannot be read"),
        pytest.param("n1", True, [], id="one that is there"),
        pytest.param("", True, [], id="no home"),
    ],
)
def test_the_node_of_a_home_is_read_before_a_pod_goes_elsewhere(
    machines: Machines, home: str, is_readable: bool, required: list[object]
) -> None:
    machines.machine(home=home)
    if not is_readable:
        machines.cluster.mark_unreadable(NODES_KIND, ("", "n9"), "too long")

    assert required == list(machines.plugin.required_objects(launcher()))


class TestCopy:
    """The home is on the pod; what is on the owner is a copy, made under optimistic concurrency."""

    async def test_a_conflict_is_tried_again(self, machines: Machines) -> None:
        machines.writer.before = [WriteConflict("changed"), WriteConflict("changed")]

        await machines.bind(POD, "n1")

        assert COPIED == machines.annotations()

    async def test_a_home_that_a_person_wrote_meanwhile_wins(self, machines: Machines) -> None:
        def a_person_writes() -> Exception:
            machines.add(MACHINE, home="n3")
            return WriteConflict("changed")

        machines.writer.before = [a_person_writes]

        await machines.bind(POD, "n1")

        assert ({HOME: "n3", HOME_POD: POD.uid}, ["n3"]) == (machines.annotations(), machines.allowed(NEXT))

    async def test_a_home_that_a_person_wrote_before_wins(self, machines: Machines) -> None:
        machines.reserve(POD, "n1")
        machines.add(MACHINE, home="n3")

        assert ["n3"] == machines.allowed(NEXT)

    async def test_endless_conflicts_are_left_to_the_repair(self, machines: Machines) -> None:
        machines.writer.before = [WriteConflict("changed")] * 5

        await machines.bind(POD, "n1")
        assert ({}, ["n1"]) == (machines.annotations(), machines.allowed(NEXT))
        await machines.repair()

        assert COPIED == machines.annotations()

    async def test_a_machine_that_is_gone_needs_no_home(self, machines: Machines) -> None:
        machines.writer.before = [ObjectGone("VirtualMachine default/db")]

        await machines.bind(POD, "n1")

        assert ([], None) == (machines.plugin._pending.made(), machines.plugin._pending.of(POD))

    async def test_a_machine_whose_instance_is_gone_is_left_to_the_repair(self, machines: Machines) -> None:
        machines.gone(INSTANCE)
        machines.cluster.upsert_pod(bound(POD, "n1", {HOME: "n1"}))

        await machines.repair()

        assert {} == machines.annotations()


class TestRepair:
    @virtual_time
    async def test_it_comes_at_once_and_then_each_interval(self, monkeypatch: pytest.MonkeyPatch) -> None:
        machines = Watched()
        machines.machine()
        machines.cluster.upsert_pod(bound(POD, "n1", {HOME: "n1"}))
        machines.writer.unwritable = {"db"}
        monkeypatch.setattr(machines.plugin._reconciler, "run", asyncio.Event().wait)
        running = asyncio.ensure_future(machines.plugin.run())
        await asyncio.sleep(2.5 * machines.handle.timing.repair_interval)
        running.cancel()
        await settle()

        assert [0.0, 60.0, 120.0] == machines.writes

    async def test_it_writes_once(self, machines: Machines) -> None:
        machines.cluster.upsert_pod(bound(POD, "n1", {HOME: "n1"}))

        for _ in range(3):
            await machines.repair()

        assert [("db", COPIED)] == machines.writer.written

    @pytest.mark.parametrize(
        "pod",
        [
            pytest.param(POD, id="a waiting pod"),
            pytest.param(bound(POD, "n1", {}), id="a pod that brought no home"),
            pytest.param(make_pod("web", node="n1", annotations={HOME: "n1"}), id="a pod of no machine"),
            pytest.param(bound(launcher("x", "other"), "n1", {HOME: "n1"}), id="a pod of a machine that is gone"),
        ],
    )
    async def test_there_is_nothing_to_repair(self, machines: Machines, pod: Pod) -> None:
        machines.cluster.upsert_pod(pod)

        await machines.repair()

        assert [] == machines.writer.written

    @pytest.mark.parametrize(
        ("annotations", "written"),
        [
            pytest.param({}, 1, id="its machine never had a home: this one must not go with it"),
            pytest.param({"home_pod": "somebody"}, 0, id="its machine had one, and lost it since"),
        ],
    )
    async def test_a_pod_that_is_going(self, machines: Machines, annotations: dict[str, str], written: int) -> None:
        """Killed between Binding and copy, and the machine was stopped before Homeport was back."""
        machines.machine(**annotations)
        going = make_pod("launcher", node="n1", annotations={HOME: "n1"}, owner=reference(INSTANCE), terminating=True)
        machines.cluster.upsert_pod(going)

        await machines.repair()

        assert written == len(machines.writer.written)

    async def test_a_pod_that_is_only_assumed_has_no_home_to_copy(self, machines: Machines) -> None:
        machines.cluster.assume(make_pod("launcher", annotations={HOME: "n1"}, owner=reference(INSTANCE)), "n1")

        await machines.repair()

        assert [] == machines.writer.written

    async def test_one_owner_that_cannot_be_written_does_not_keep_the_others_from_theirs(self) -> None:
        machines = Machines()
        for name in ("a", "b", "c"):
            machines.machine(name)
            machines.cluster.upsert_pod(bound(launcher(f"launcher-{name}", name), "n1", {HOME: "n1"}))
        machines.writer.unwritable = {"b"}

        await machines.repair()

        assert ["a", "c"] == sorted(name for name, _ in machines.writer.written)

    async def test_a_cause_goes_with_the_last_claim(self) -> None:
        """A home that a person wrote, beside a word that could not be closed: nothing but the pod tells of it."""
        machines = Machines()
        machines.machine(home="n2")
        machines.writer.unwritable = {"db"}
        machines.cluster.upsert_pod(bound(POD, "n1", {HOME: "n1"}))
        kept = []
        for gone in (False, False, True):
            if gone:
                machines.gone(MACHINE)
            await machines.repair()
            kept.append(len(machines.plugin._recorder._causes))

        assert [1, 1, 0] == kept


class TestSharedMemory:
    """A second instance, which only answers queries, knows what the deciding one remembers. It is beside it here."""

    @staticmethod
    def beside(machines: Machines) -> StickyNode:
        """The other instance, whose methods ``machines`` calls from now on."""
        deciding = machines.plugin
        machines.handle = replace(machines.handle, is_asked=lambda: True)
        machines.restart()
        return deciding

    def test_a_home_in_the_making(self, machines: Machines) -> None:
        machines.reserve(POD, "n1")
        deciding = self.beside(machines)
        before = machines.allowed(NEXT)
        machines.plugin.share_memory(deciding)

        assert (ALL, ["n1"]) == (before, machines.allowed(NEXT))
        deciding.unreserve(CycleState(), POD, "n1")
        assert ALL == machines.allowed(NEXT)

    def test_a_grace_that_is_written_nowhere_yet(self) -> None:
        machines = Machines({"policy": "grace", "gracePeriod": "10m"})
        machines.machine(home="n1")
        machines.node("n1", unschedulable=True)
        machines.allowed(NEXT)
        deciding = self.beside(machines)
        machines.wall_clock.now += 601
        before = machines.allowed(NEXT)
        machines.plugin.share_memory(deciding)

        assert ([], ["n2", "n3"]) == (before, machines.allowed(NEXT))

    def test_a_bind_to_a_soft_home_that_failed(self) -> None:
        machines = Machines({"policy": "soft"})
        machines.machine(home="n1")
        machines.plugin.unreserve(CycleState(), NEXT, "n1")
        deciding = self.beside(machines)
        state, nodes = CycleState(), Candidates.of(machines.nodes)

        def last() -> list[str]:
            machines.plugin.pre_filter(state, NEXT)
            return [*machines.plugin.filter_last(state, NEXT, nodes, ALL).passed]

        before = last()
        machines.plugin.share_memory(deciding)

        assert (["n1"], ALL) == (before, last())
