"""A home belongs to one object: copies of its annotations give nobody a home, and a person's word always does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from app.framework.objects import WriteConflict
from app.kube.kinds import AnnotatedObject
from plugins.sticky_node.annotations import home_in, is_copied, ownership_annotations, recorded_machine
from plugins.sticky_node.owners import HOMES, Owner
from tests.fakes import Told
from tests.unit.plugins.sticky_node.machines import (
    HOME,
    HOME_OWNER,
    HOME_POD,
    MACHINE,
    NODES,
    SET,
    Machines,
    launcher,
    own_home,
)

ALL = list(NODES)
OWN = "uid-VirtualMachine-db"
HOME_MACHINE = "homeport.dev/home-machine"
HOME_SINCE = "homeport.dev/home-since"
POD = launcher()
COPIED = {HOME: "n1", HOME_POD: "its pod", HOME_OWNER: "another n1", HOME_MACHINE: "m1", HOME_SINCE: "away 2026"}


@pytest.fixture
def machines() -> Machines:
    machines = Machines()
    machines.machine()
    return machines


def found(machines: Machines) -> AnnotatedObject:
    known = machines.cluster.get(MACHINE, "default", "db")
    assert known is not None
    return known


@pytest.mark.parametrize(
    ("annotations", "home"),
    [
        pytest.param({HOME: "n1", HOME_OWNER: f"{OWN} n1"}, "n1", id="its own"),
        pytest.param({HOME: "n2", HOME_OWNER: f"{OWN} n1"}, "n2", id="its own, moved by a person"),
        pytest.param({HOME: "n1", HOME_OWNER: OWN}, "n1", id="its own, by UID alone"),
        pytest.param({HOME: "n1"}, "n1", id="a person's word, without any UID"),
        pytest.param({HOME: "n1", HOME_OWNER: ""}, "n1", id="an empty UID is none"),
        pytest.param(COPIED, "", id="copied"),
        pytest.param({HOME: "n1", HOME_OWNER: "another"}, "", id="copied, by UID alone"),
        pytest.param({**COPIED, HOME: "n2"}, "n2", id="copied, and another node written there since"),
        pytest.param({HOME_OWNER: "another n1"}, "", id="copied, and removed since"),
        pytest.param({HOME: "n1", HOME_OWNER: "\x00\x1b[2J n1"}, "", id="a UID of control characters"),
        pytest.param({HOME: "n1", HOME_OWNER: "x" * 10_240}, "n1", id="a UID that is too long to be read is none"),
        pytest.param({HOME: "no node!", HOME_OWNER: OWN}, "no node!", id="its own, and no name of a node"),
    ],
)
def test_which_home_counts(machines: Machines, annotations: Mapping[str, str], home: str) -> None:
    machines.change(MACHINE, annotations)

    assert home == home_in(found(machines), "")
    assert ([home] if home in NODES else [] if home else ALL) == machines.allowed(POD)


async def test_a_first_bind_of_a_clone_writes_its_own(machines: Machines) -> None:
    machines.change(MACHINE, COPIED)

    assert {HOME: "n2"} == await machines.bind(POD, "n2")

    written = machines.annotations()
    assert own_home("n2", POD.uid) == {key: written[key] for key in (HOME, HOME_POD, HOME_OWNER)}
    assert HOME_MACHINE not in written, "that of another node says nothing of this one"


async def test_what_was_copied_is_removed_and_told_once(machines: Machines) -> None:
    machines.change(MACHINE, COPIED)

    with capture_logs() as said:
        for _ in range(2):
            await machines.repair()

    assert {} == machines.annotations()
    note = "the home n1 was copied from another object and is not this one's: it is removed"
    db = "VirtualMachine default/db"
    assert [Told(db, "Node n1", "Normal", "HomeNotInherited", "Cleaning", note)] == machines.events.told
    assert [{"event": "home not inherited", "log_level": "info", "machine": db, "node": "n1"}] == said


async def test_a_claim_of_a_clone_outlives_the_clean_up(machines: Machines) -> None:
    """It is made before and recorded after."""
    machines.change(MACHINE, COPIED)
    machines.reserve(POD, "n2")
    await machines.repair()
    assert {} == machines.annotations()

    await machines.arrives(POD, "n2")

    assert own_home("n2", POD.uid) == machines.annotations()


async def test_a_person_may_give_a_clone_the_very_node_that_was_copied(machines: Machines) -> None:
    machines.change(MACHINE, COPIED)
    await machines.repair()
    machines.change(MACHINE, {HOME: "n1"})

    assert ["n1"] == machines.allowed(POD)
    await machines.repair()
    assert own_home("n1") == machines.annotations()


async def test_a_persons_word_gets_the_owners_uid_beside_it(machines: Machines) -> None:
    """So that a clone of this one is told."""
    machines.change(MACHINE, {**own_home("n1", "first"), HOME: "n3"})

    for _ in range(2):
        await machines.repair()

    assert own_home("n3", "first") == machines.annotations()
    assert 1 == len(machines.writer.written)


async def test_slots_that_somebody_invented_keep_no_machine_from_its_own(machines: Machines) -> None:
    """What is written beside them would be more than an object may carry."""
    invented = {f"{HOME}.{number}": "n1" for number in range(3000)}
    machines.change(MACHINE, {HOME: "n1", **invented})

    await machines.repair()

    assert [("db", {HOME_OWNER: f"{OWN} n1"})] == machines.writer.written


async def test_a_home_that_no_node_can_be_called_is_not_written_again(machines: Machines) -> None:
    machines.change(MACHINE, {HOME: "\x1b[2J"})

    await machines.repair()

    assert {HOME: "\x1b[2J", HOME_OWNER: OWN} == machines.annotations()
    machines.change(MACHINE, {HOME: "\x1b[2J", HOME_OWNER: "another"})
    assert is_copied(found(machines), "")


async def test_a_persons_edit_during_the_clean_up_is_not_removed(machines: Machines) -> None:
    machines.change(MACHINE, COPIED)

    def a_person_writes() -> Exception:
        machines.change(MACHINE, {**COPIED, HOME: "n3"})
        return WriteConflict("changed")

    machines.writer.before = [a_person_writes]
    await machines.repair()

    assert (["n3"], "n3") == (machines.allowed(POD), machines.annotations()[HOME])
    assert [] == machines.events.told


async def test_each_ordinal_is_told_by_itself() -> None:
    machines = Machines({"owners": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}]})
    own = own_home("n1", "p0", SET, slot="0")
    machines.change(SET, {})
    machines.change(SET, {**own, f"{HOME}.1": "n2", f"{HOME_OWNER}.1": "another n2", f"{HOME_POD}.1": "p1"})

    await machines.repair()

    assert own == machines.annotations(SET)


def test_the_machine_is_known_of_the_home_that_it_was_written_with(machines: Machines) -> None:
    home, of_owner, of_machine = (f"{key}.3" for key in (HOME, HOME_OWNER, HOME_MACHINE))
    written = {**own_home("n1", slot="3"), of_machine: "m1", HOME_MACHINE: "of the first"}
    machines.change(MACHINE, written)
    owner = Owner(MACHINE, found(machines), "3", found(machines))
    assert "m1" == recorded_machine(owner)
    assert {of_owner: f"{OWN} n2", of_machine: "m2"} == ownership_annotations(owner, "n2", "m2")
    assert {of_owner: f"{OWN} n2", of_machine: None} == ownership_annotations(owner, "n2", "")

    machines.change(MACHINE, {**written, home: "n2"})
    assert "" == recorded_machine(Owner(MACHINE, found(machines), "3", found(machines)))


async def test_what_cannot_be_written_is_said_once_and_tried_again(machines: Machines) -> None:
    """And keeps no other from being written."""
    machines.change(MACHINE, {HOME: "n1"})
    machines.machine("mail", home="n1")
    machines.writer.unwritable = {"db"}
    upkeep = machines.plugin._reconciler

    with capture_logs() as said:
        assert [False, False] == [await upkeep.round() for _ in range(2)]
        assert own_home("n1", name="mail") == machines.annotations(name="mail")
        machines.clock.now += 60
        assert not await upkeep.round()
    assert [{"event": "homes not reconciled", "log_level": "warning", "cause": "forbidden"}] == said

    machines.writer.unwritable = set()
    assert not await upkeep.round(), "it was tried just now"
    machines.clock.now += 120
    assert await upkeep.round()
    assert own_home("n1") == machines.annotations()


async def test_where_nothing_can_be_written_little_is_tried(machines: Machines) -> None:
    for number in range(20):
        machines.add(MACHINE, f"db-{number}", home="n1")
    machines.writer.before = [OSError("forbidden") for _ in range(20)]

    for left in (15, 10, 5, 0):
        assert not await machines.plugin._reconciler.round()
        assert left == len(machines.writer.before)

    assert not await machines.plugin._reconciler.round()
    assert [] == machines.writer.written, "each was tried just now"
    machines.clock.now += 60
    assert await machines.plugin._reconciler.round()
    assert 20 == len(machines.writer.written)


async def test_a_round_writes_so_much_and_the_next_ones_the_rest() -> None:
    machines = Machines()
    for number in range(120):
        machines.add(MACHINE, f"db-{number}", home="n1")

    rounds = [await machines.plugin._reconciler.round() for _ in range(5)]

    assert [False, False, False, False, True] == rounds
    assert 120 == len({name for name, _ in machines.writer.written}) == len(list(machines.cluster.every(HOMES)))


async def test_a_round_comes_with_a_change_and_for_what_the_last_one_left(machines: Machines) -> None:
    """``asked`` are the moments at which the machines were looked at."""
    machines.writer.unwritable = {"db"}
    asked: list[tuple[float, bool]] = []
    upkeep = machines.plugin._reconciler
    taken = upkeep.round

    async def counted() -> bool:
        is_done = await taken()
        asked.append((machines.clock(), is_done))
        return is_done

    upkeep.round = counted  # type: ignore[method-assign]

    async def passes(seconds: float) -> None:
        machines.clock.now += seconds
        if machines.clock() == 3:
            machines.change(MACHINE, {HOME: "n1"})
        elif machines.clock() == 5:
            machines.writer.unwritable = set()
        elif machines.clock() > 100:
            raise asyncio.CancelledError

    upkeep._handle = replace(upkeep._handle, timing=replace(upkeep._handle.timing, sleep=passes))
    with suppress(asyncio.CancelledError):
        await upkeep.run()

    when_told = [(0.0, True), (3.0, False), (4.0, False), *((4.0 + 10 * n, False) for n in range(1, 6)), (64.0, True)]
    assert when_told == asked[: len(when_told)]
    assert own_home("n1") == machines.annotations()
