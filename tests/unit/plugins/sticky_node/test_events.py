"""What people see of homes on the machine: an Event for each that is made, lost, overridden or not recorded."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from plugins.sticky_node import SPEC
from tests.fakes import Told
from tests.unit.plugins.sticky_node.machines import HOME, MACHINE, SET, Machines, launcher

DB = "VirtualMachine default/db"
POD = "Pod default/first"
FIRST = launcher("first")


@pytest.fixture
def machines() -> Machines:
    machines = Machines()
    machines.machine()
    return machines


async def test_a_home_that_a_bind_made_is_told_once(machines: Machines) -> None:
    await machines.bind(FIRST, "n1")
    await machines.bind(launcher("second"), "n1")
    await machines.plugin.repair()

    note = "n1 is the home from now on: default/first was bound there first"
    assert [Told(DB, POD, "Normal", "HomeMade", "Binding", note)] == machines.events.told


async def test_one_that_a_person_wrote_meanwhile_is_told_as_overriding(machines: Machines) -> None:
    await machines.bind(FIRST, "n1", copies=False)
    machines.change(MACHINE, {HOME: "n3"})
    await machines.plugin.repair()

    note = "default/first runs on n1; the home stays n3, which was written meanwhile"
    assert [Told(DB, POD, "Warning", "HomeOverridden", "Binding", note)] == machines.events.told


async def test_the_same_home_written_by_a_person_overrides_nothing(machines: Machines) -> None:
    await machines.bind(FIRST, "n1", copies=False)
    machines.change(MACHINE, {HOME: "n1"})
    await machines.plugin.repair()

    assert [] == machines.events.told


async def test_what_cannot_be_recorded_is_told_once_for_each_cause(machines: Machines) -> None:
    machines.writer.unwritable = {"db"}
    await machines.bind(FIRST, "n1")
    await machines.plugin.repair()
    machines.writer.unwritable = set()
    await machines.plugin.repair()

    note = "the home n1 of default/first cannot be written here, and is kept in memory: forbidden"
    assert Told(DB, POD, "Warning", "HomeNotRecorded", "Binding", note) == machines.events.told[0]
    assert ["HomeNotRecorded", "HomeMade"] == machines.events.reasons


class TestNoName:
    """An annotation holds what anybody wrote, up to 1 KB: what is no name of a node is related to none, and cut."""

    HUGE = "n" * 1024

    def change(self, machines: Machines, old: str, new: str) -> Told:
        machines.change(MACHINE, {HOME: old} if old else {})
        known = machines.cluster.get(MACHINE, "default", "db")
        machines.change(MACHINE, {HOME: new} if new else {})
        assert SPEC.changed is not None
        SPEC.changed(MACHINE, known, machines.cluster.get(MACHINE, "default", "db"), machines.events)
        return machines.events.told[-1]

    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            pytest.param("", HUGE, "HomeGiven", id="given"),
            pytest.param("n1", HUGE, "HomeMoved", id="moved"),
            pytest.param(HUGE, "", "HomeGivenUp", id="given up"),
        ],
    )
    def test_one_that_somebody_wrote(self, machines: Machines, old: str, new: str, reason: str) -> None:
        with capture_logs() as said:
            told = self.change(machines, old, new)

        assert (reason, "") == (told.reason, told.related)
        assert f"'{'n' * 64}...'" in told.note
        assert len(told.note) < 200
        assert len(str(said)) < 400

    def test_one_that_moved_to_a_node_is_related_to_that(self, machines: Machines) -> None:
        assert "Node n1" == self.change(machines, self.HUGE, "n1").related

    async def test_one_that_overrode(self, machines: Machines) -> None:
        await machines.bind(FIRST, "n1", copies=False)
        machines.change(MACHINE, {HOME: self.HUGE})
        await machines.plugin.repair()

        (told,) = machines.events.told
        assert ("HomeOverridden", True) == (told.reason, len(told.note) < 200)


def test_ordinals_are_named() -> None:
    machines = Machines({"owners": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}]})
    machines.add(SET)
    known = machines.cluster.get(SET, "default", "db")
    machines.change(SET, {f"{HOME}.3": "n1"})
    assert SPEC.changed is not None

    SPEC.changed(SET, known, machines.cluster.get(SET, "default", "db"), machines.events)

    assert ["n1 is the home of ordinal 3 from now on"] == [it.note for it in machines.events.told]
