"""A bind may make a home in place of another, which must still be there then: whatever a person writes wins."""

from __future__ import annotations

import pytest

from app.framework.cycle_state import CycleState
from plugins.sticky_node.home import Claim, home_pod, recorded_home
from plugins.sticky_node.owners import Owner
from tests.fakes import Told
from tests.unit.plugins.sticky_node.machines import (
    HOME,
    HOME_AFTER,
    HOME_POD,
    HOME_REPLACES,
    MACHINE,
    NODES,
    Machines,
    launcher,
    own_home,
)

ALL = list(NODES)
POD = launcher(created="2026-11-21T10:00:00Z")
NEXT = launcher("launcher-2", created="2026-11-21T10:00:05Z")
CARRIED = {HOME: "n2", HOME_AFTER: "first", HOME_REPLACES: "n1"}


@pytest.fixture
def machines() -> Machines:
    machines = Machines()
    machines.machine()
    machines.change(MACHINE, own_home("n1", "first"))
    return machines


def passes_over(machines: Machines) -> None:
    """The pod goes to n2 by a policy that lets it, while its home is n1."""
    owner = machines.plugin._owners.of(POD)
    assert isinstance(owner, Owner)
    machines.plugin._making.begin(Claim(POD, "n2", owner, home_pod(owner), True, recorded_home(owner)))


async def bind(machines: Machines, *, copies: bool = True) -> dict[str, str]:
    return await machines.arrives(POD, "n2", copies=copies)


async def test_the_new_node_becomes_the_home(machines: Machines) -> None:
    passes_over(machines)
    assert ["n2"] == machines.allowed(NEXT), "the machine's other pods go where the first one does"

    assert CARRIED == await bind(machines)

    assert own_home("n2", POD.uid) == machines.annotations()
    note = "n2 is the home from now on: default/launcher was bound there, since n1 could not be had"
    told = Told("VirtualMachine default/db", f"Pod {POD}", "Normal", "HomeRemade", "Binding", note)
    assert [told] == machines.events.told


async def test_one_that_fails_leaves_the_home_as_it_was(machines: Machines) -> None:
    passes_over(machines)
    machines.plugin.unreserve(CycleState(), POD, "n2")

    assert (["n1"], own_home("n1", "first")) == (machines.allowed(NEXT), machines.annotations())


async def test_a_crash_after_the_binding_loses_nothing(machines: Machines) -> None:
    passes_over(machines)
    await bind(machines, copies=False)
    machines.restart()

    await machines.plugin.repair()

    assert own_home("n2", POD.uid) == machines.annotations()


@pytest.mark.parametrize("crashes", [False, True])
async def test_a_home_that_a_person_wrote_meanwhile_wins(machines: Machines, crashes: bool) -> None:
    passes_over(machines)
    await bind(machines, copies=False)
    machines.change(MACHINE, {**own_home("n1", "first"), HOME: "n3"})
    assert ["n3"] == machines.allowed(NEXT), "at once"
    if crashes:
        machines.restart()

    await machines.plugin.repair()

    assert own_home("n3", POD.uid) == machines.annotations()
    assert ["HomeOverridden"] == [it.reason for it in machines.events.told]


async def test_nor_does_it_undo_a_release(machines: Machines) -> None:
    passes_over(machines)
    await bind(machines, copies=False)
    released = {key: it for key, it in own_home("n1", "first").items() if key != HOME}
    machines.change(MACHINE, released)
    assert ALL == machines.allowed(NEXT)

    await machines.plugin.repair()

    assert {**released, HOME_POD: POD.uid} == machines.annotations()
    assert [] == machines.events.told


async def test_a_person_who_wrote_before_pre_bind_takes_the_word_away(machines: Machines) -> None:
    passes_over(machines)
    machines.change(MACHINE, {**own_home("n1", "first"), HOME: "n3"})

    assert {} == await bind(machines)
    assert "n3" == machines.annotations()[HOME]


async def test_the_same_node_may_become_the_home_anew(machines: Machines) -> None:
    """As when another machine has its name now."""
    owner = machines.plugin._owners.of(POD)
    assert isinstance(owner, Owner)
    machines.plugin._making.begin(Claim(POD, "n1", owner, "first", True, "n1"))

    await machines.arrives(POD, "n1")

    assert own_home("n1", POD.uid) == machines.annotations()


async def test_a_pod_that_does_not_decide_replaces_nothing(machines: Machines) -> None:
    """Whoever may create pods can make one that says so."""
    machines.runs(node="n1")
    machines.cluster.upsert_pod(launcher("forged", node="n2", annotations=CARRIED))

    await machines.plugin.repair()

    assert own_home("n1", "first") == machines.annotations()


@pytest.mark.parametrize("there", [{HOME_REPLACES: "n1"}, {HOME: "n9", HOME_AFTER: "x", HOME_REPLACES: "n1"}])
async def test_what_was_written_on_the_pod_before_does_not_survive(there: dict[str, str]) -> None:
    machines = Machines()
    machines.machine()

    assert {HOME: "n1", **{key: "" for key in there if key != HOME}} == await machines.bind(
        launcher(annotations=there), "n1"
    )
