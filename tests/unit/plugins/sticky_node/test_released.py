"""What a person removed stays removed until the next first bind, whatever was under way."""

from __future__ import annotations

import pytest

from app.framework.cycle_state import CycleState
from tests.unit.plugins.sticky_node.machines import (
    HOME,
    HOME_AFTER,
    HOME_POD,
    MACHINE,
    NODES,
    Machines,
    launcher,
    own_home,
)

ALL = list(NODES)
FIRST = launcher("first", created="2026-11-21T10:00:00Z")
SECOND = launcher("second", created="2026-11-21T10:00:05Z")
THIRD = launcher("third", created="2026-11-21T10:00:10Z")


@pytest.fixture
def machines() -> Machines:
    machines = Machines()
    machines.machine()
    return machines


def release(machines: Machines) -> None:
    """As a person does it: the home goes, what tells whose it was stays."""
    machines.change(MACHINE, {key: value for key, value in machines.annotations().items() if key != HOME})


async def stays_released(machines: Machines) -> None:
    """Nor does it come back by the repair, or by that of a process that starts anew."""
    await machines.plugin.repair()
    assert (ALL, "") == (machines.allowed(THIRD), machines.annotations().get(HOME, ""))
    machines.restart()
    await machines.plugin.repair()
    assert (ALL, "") == (machines.allowed(THIRD), machines.annotations().get(HOME, ""))


async def test_a_pod_that_joined_and_copied_is_no_heir(machines: Machines) -> None:
    machines.reserve(FIRST, "n1")
    await machines.bind(SECOND, "n1")
    machines.plugin.unreserve(CycleState(), FIRST, "n1")
    assert "n1" == machines.annotations()[HOME]

    release(machines)

    await stays_released(machines)


async def test_nor_while_the_one_it_joined_is_still_on_its_way(machines: Machines) -> None:
    machines.reserve(FIRST, "n1")
    await machines.bind(SECOND, "n1")

    release(machines)

    assert ALL == machines.allowed(THIRD)
    assert {} == await machines.arrives(FIRST, "n1")
    await stays_released(machines)


async def test_a_home_that_a_person_wrote_after_reserve_leaves_nothing_in_memory(machines: Machines) -> None:
    machines.reserve(FIRST, "n1")
    machines.change(MACHINE, {HOME: "n1"})
    assert {} == await machines.arrives(FIRST, "n1")

    release(machines)

    await stays_released(machines)


async def test_a_home_that_a_person_wrote_after_pre_bind_closes_what_the_pod_says(machines: Machines) -> None:
    machines.reserve(FIRST, "n1")
    state = CycleState()
    await machines.plugin.pre_bind(state, FIRST, "n1")
    machines.change(MACHINE, {HOME: "n1"})
    await machines.lands(state, FIRST, "n1")
    assert {HOME: "n1", HOME_POD: FIRST.uid} == machines.annotations()

    release(machines)

    await stays_released(machines)


async def test_two_pods_that_brought_it_are_heard_once(machines: Machines) -> None:
    machines.reserve(FIRST, "n1")
    machines.reserve(SECOND, "n1")
    states = [(FIRST, CycleState()), (SECOND, CycleState())]
    for pod, state in states:
        await machines.plugin.pre_bind(state, pod, "n1")
    for pod, state in states:
        await machines.lands(state, pod, "n1")
    assert [{HOME: "n1"}] * 2 == [state.annotations for _, state in states]
    assert own_home("n1", FIRST.uid) == machines.annotations()

    release(machines)

    await stays_released(machines)


async def test_a_home_moved_by_hand_before_it_was_copied(machines: Machines) -> None:
    await machines.bind(FIRST, "n1", copies=False)
    machines.change(MACHINE, {HOME: "n3"})
    await machines.plugin.repair()
    assert own_home("n3", FIRST.uid) == machines.annotations()

    release(machines)

    await stays_released(machines)


async def test_a_home_in_memory_does_not_outlive_one_that_a_person_gave(machines: Machines) -> None:
    machines.writer.unwritable = {"db"}
    await machines.bind(FIRST, "n1")
    machines.change(MACHINE, {HOME: "n3"})
    await machines.plugin.repair()

    release(machines)

    assert ALL == machines.allowed(THIRD)


async def test_a_first_bind_after_the_release_survives_a_crash(machines: Machines) -> None:
    """Also if its pod is on its way out: what tells that it was bound since is on the pod."""
    await machines.bind(FIRST, "n1")
    release(machines)
    machines.cluster.delete_pod(FIRST.key)
    assert {HOME: "n2", HOME_AFTER: FIRST.uid} == await machines.bind(SECOND, "n2", copies=False)

    machines.restart()
    await machines.plugin.repair()

    assert own_home("n2", SECOND.uid) == machines.annotations()


async def test_who_removes_both_asks_for_the_home_of_a_pod_that_runs(machines: Machines) -> None:
    """As if none had ever been copied."""
    await machines.bind(FIRST, "n1")
    machines.change(MACHINE, {})

    await machines.plugin.repair()

    assert own_home("n1", FIRST.uid) == machines.annotations()
