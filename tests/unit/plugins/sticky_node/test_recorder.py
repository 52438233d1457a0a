"""A bind may make a home in place of another, which must still be there then: whatever a person writes wins.

What a person removed stays removed until the next first bind, whatever was under way.

Machines that migrate take their homes along, and those that run without one get theirs.
"""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from app.framework.cycle_state import CycleState
from app.framework.objects import WriteConflict
from app.kube.core_v1 import Pod
from plugins.sticky_node.annotations import Claim, home_pod, recorded_home
from plugins.sticky_node.owners import Owner
from tests.builders import JsonObject
from tests.fakes import Told
from tests.unit.plugins.sticky_node.machines import (
    HOME,
    HOME_AFTER,
    HOME_POD,
    HOME_REPLACES,
    INSTANCE,
    MACHINE,
    NODES,
    Machines,
    launcher,
    make_node,
    own_home,
    reference,
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
    machines.plugin._pending.begin(Claim(POD, "n2", owner, home_pod(owner), True, recorded_home(owner)))


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

    await machines.repair()

    assert own_home("n2", POD.uid) == machines.annotations()


@pytest.mark.parametrize("crashes", [False, True])
async def test_a_home_that_a_person_wrote_meanwhile_wins(machines: Machines, crashes: bool) -> None:
    passes_over(machines)
    await bind(machines, copies=False)
    machines.change(MACHINE, {**own_home("n1", "first"), HOME: "n3"})
    assert ["n3"] == machines.allowed(NEXT), "at once"
    if crashes:
        machines.restart()

    await machines.repair()

    assert own_home("n3", POD.uid) == machines.annotations()
    assert ["HomeOverridden"] == [it.reason for it in machines.events.told]


async def test_a_person_who_wrote_before_pre_bind_takes_the_word_away(machines: Machines) -> None:
    passes_over(machines)
    machines.change(MACHINE, {**own_home("n1", "first"), HOME: "n3"})

    assert {} == await bind(machines)
    assert "n3" == machines.annotations()[HOME]


async def test_a_pod_that_does_not_decide_replaces_nothing(machines: Machines) -> None:
    """Whoever may create pods can make one that says so."""
    machines.runs(node="n1")
    machines.cluster.upsert_pod(launcher("forged", node="n2", annotations=CARRIED))

    await machines.repair()

    assert own_home("n1", "first") == machines.annotations()


FIRST = launcher("first", created="2026-11-21T10:00:00Z")
SECOND = launcher("second", created="2026-11-21T10:00:05Z")
THIRD = launcher("third", created="2026-11-21T10:00:10Z")


@pytest.fixture
def fresh() -> Machines:
    machines = Machines()
    machines.machine()
    return machines


def release(fresh: Machines) -> None:
    """As a person does it: the home goes, what tells whose it was stays."""
    fresh.change(MACHINE, {key: value for key, value in fresh.annotations().items() if key != HOME})


async def stays_released(fresh: Machines) -> None:
    """Nor does it come back by the repair, or by that of a process that starts anew."""
    await fresh.repair()
    assert (ALL, "") == (fresh.allowed(THIRD), fresh.annotations().get(HOME, ""))
    fresh.restart()
    await fresh.repair()
    assert (ALL, "") == (fresh.allowed(THIRD), fresh.annotations().get(HOME, ""))


async def test_a_home_that_a_person_wrote_after_pre_bind_closes_what_the_pod_says(
    fresh: Machines,
) -> None:
    fresh.reserve(FIRST, "n1")
    state = CycleState()
    await fresh.plugin.pre_bind(state, FIRST, "n1")
    fresh.change(MACHINE, {HOME: "n1"})
    await fresh.lands(state, FIRST, "n1")
    assert {HOME: "n1", HOME_POD: FIRST.uid} == fresh.annotations()

    release(fresh)

    await stays_released(fresh)


async def test_a_first_bind_after_the_release_survives_a_crash(fresh: Machines) -> None:
    """Also if its pod is on its way out: what tells that it was bound since is on the pod."""
    await fresh.bind(FIRST, "n1")
    release(fresh)
    fresh.cluster.delete_pod(FIRST.key)
    assert {HOME: "n2", HOME_AFTER: FIRST.uid} == await fresh.bind(SECOND, "n2", copies=False)

    fresh.restart()
    await fresh.repair()

    assert own_home("n2", SECOND.uid) == fresh.annotations()


async def test_who_removes_both_asks_for_the_home_of_a_pod_that_runs(fresh: Machines) -> None:
    """As if none had ever been copied."""
    await fresh.bind(FIRST, "n1")
    fresh.change(MACHINE, {})

    await fresh.repair()

    assert own_home("n1", FIRST.uid) == fresh.annotations()


DB = "VirtualMachine default/db"
TARGET = {"kubevirt.io/migrationJobUID": "m-1"}
SOURCE = launcher("source", node="n1", created="2026-11-21T10:00:00Z")
MOVED = launcher("target", node="n2", created="2026-11-21T10:00:05Z", labels=TARGET)
AT_HOME = own_home("n1", SOURCE.uid)


def started(args: JsonObject | None = None, *, machine: bool = True) -> Machines:
    """A machine that lives on n1, with a migration to n2 under way."""
    machines = Machines(args)
    if machine:
        machines.machine(runs_on="n1")
        machines.change(MACHINE, AT_HOME)
    for pod in (SOURCE, MOVED):
        machines.cluster.upsert_pod(pod)
    return machines


async def migrated(machines: Machines, to: str = "n2") -> Machines:
    machines.runs(node=to, moved=("n1", "n2"))
    await machines.repair()
    return machines


async def moves_unwritten(*, restarts: bool, is_late: bool = False) -> Machines:
    """A machine whose home n3 was to become n2 when a migration to n1 began; its source pod is gone.

    ``is_late``: the watch has not shown yet that it runs on n2.
    """
    machines = Machines({"policy": "soft"})
    machines.machine(runs_on="" if is_late else "n2")
    machines.change(MACHINE, own_home("n3", "another"))
    machines.node("n3", unschedulable=True)
    first = launcher("source", created="2026-11-21T10:00:00Z")
    machines.cluster.upsert_pod(first)
    await machines.bind(first, "n2", copies=False)
    if restarts:
        machines.restart()
    target = launcher("target", created="2026-11-21T10:00:05Z", labels=TARGET)
    machines.cluster.upsert_pod(target)
    assert {HOME: "n2", HOME_AFTER: "another", HOME_REPLACES: "n3"} == await machines.bind(target, "n1")
    machines.cluster.delete_pod(first.key)
    return machines


class TestMigration:
    @pytest.mark.parametrize("is_late", [True, False])
    @pytest.mark.parametrize("restarts", [True, False])
    async def test_the_target_carries_a_home_that_is_not_written_yet(self, restarts: bool, is_late: bool) -> None:
        """A soft machine starts elsewhere and migrates before that home is written; then the source pod is gone."""
        machines = await moves_unwritten(restarts=restarts, is_late=is_late)
        machines.runs(node="n1", moved=("n2", "n1"))
        await machines.repair()
        assert own_home("n1", MOVED.uid) == machines.annotations()

    async def test_the_target_carries_a_home_that_another_profile_made(self) -> None:
        """A machine whose home a person released starts on n2 under one profile and migrates under another."""
        machines = Machines()
        machines.machine(runs_on="n2")
        machines.change(MACHINE, {HOME_POD: "old"})
        there = {HOME: "n2", HOME_AFTER: "old"}
        machines.cluster.upsert_pod(launcher("source", node="n2", scheduler="another", annotations=there))
        target = launcher("target", created="2026-11-21T10:00:05Z", labels=TARGET)
        machines.cluster.upsert_pod(target)

        assert there == await machines.bind(target, "n1")

    @pytest.mark.parametrize("word", [{HOME: "n3", HOME_POD: "a-later-pod"}, {HOME: "n2"}, {HOME_POD: "another"}])
    async def test_a_carried_home_counts_only_while_nothing_else_was_written(self, word: dict[str, str]) -> None:
        machines = await moves_unwritten(restarts=True)
        machines.change(MACHINE, word)
        machines.runs(node="n1", moved=("n2", "n1"))
        await machines.repair()
        assert word.get(HOME) == machines.annotations().get(HOME)

    async def test_a_carried_home_counts_only_for_a_move_from_there(self) -> None:
        machines = await moves_unwritten(restarts=True)
        machines.runs(node="n1", moved=("n4", "n1"))
        await machines.repair()
        assert "n3" == machines.annotations()[HOME]

    async def test_the_home_follows_once_and_is_told(self) -> None:
        machines = started()
        with capture_logs() as said:
            await migrated(machines)
            await machines.repair()

        assert own_home("n2", MOVED.uid) == machines.annotations()
        note = "n2 is the home from now on: default/target migrated there from n1"
        assert [Told(DB, f"Pod {MOVED}", "Normal", "HomeFollowed", "Following", note)] == machines.events.told
        told = {"machine": DB, "node": "n2", "pod": "default/target", "before": "n1"}
        assert [{"event": "home followed", "log_level": "info", **told}] == said

    async def test_it_follows_through_a_failure_and_a_retry(self) -> None:
        machines = await migrated(started(), to="n1")
        machines.cluster.delete_pod(MOVED.key)
        again = launcher("again", node="n3", created="2026-11-21T10:05:00Z", labels=TARGET)
        machines.cluster.upsert_pod(again)

        machines.runs(node="n3", moved=("n1", "n3"))
        await machines.repair()

        assert own_home("n3", again.uid) == machines.annotations()

    async def test_and_through_one_after_the_other(self) -> None:
        machines = await migrated(started())
        back = launcher("back", node="n1", created="2026-11-21T10:05:00Z", labels=TARGET)
        machines.cluster.upsert_pod(back)

        machines.runs(node="n1", moved=("n2", "n1"))
        await machines.repair()

        assert own_home("n1", back.uid) == machines.annotations()

    async def test_a_target_on_its_way_is_free_and_its_bind_says_nothing(self) -> None:
        machines = started()
        machines.change(MACHINE, {})
        target = launcher("another", created="2026-11-21T10:00:06Z", labels=TARGET)

        assert {} == await machines.bind(target, "n3")
        assert ALL == machines.allowed(launcher("next"))
        machines.runs(node="n3")
        await machines.repair()
        assert {} == machines.annotations()

    async def test_nor_is_a_targets_word_heard(self) -> None:
        machines = started()
        machines.change(MACHINE, {})
        machines.cluster.upsert_pod(launcher("forged", node="n3", annotations={HOME: "n3"}, labels=TARGET))
        machines.runs(node="n3")

        await machines.repair()

        assert {} == machines.annotations()

    async def test_not_to_a_node_that_is_not_there(self) -> None:
        machines = started()
        machines.cluster.delete_node("n2")
        assert AT_HOME == (await migrated(machines)).annotations()
        assert not await machines.plugin._reconciler.round(), "it is looked at again"

        machines.cluster.upsert_node(make_node("n2"))
        await machines.repair()
        assert own_home("n2", MOVED.uid) == machines.annotations()

    async def test_not_of_pods_that_another_scheduler_places(self) -> None:
        machines = Machines(served="another")
        machines.machine(runs_on="n1")
        machines.change(MACHINE, AT_HOME)
        machines.cluster.upsert_pod(MOVED)

        assert AT_HOME == (await migrated(machines)).annotations()


KIND_IS_OFF: JsonObject = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "through": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance"}],
    "policy": "off",
}
RELEASED = {key: it for key, it in AT_HOME.items() if key != HOME}


@pytest.mark.parametrize(
    ("args", "before", "expected"),
    [
        pytest.param({"followMigration": False}, AT_HOME, AT_HOME, id="it is not to"),
        pytest.param({"policy": "off"}, AT_HOME, AT_HOME, id="the policy is off"),
        pytest.param({"owners": [KIND_IS_OFF]}, AT_HOME, AT_HOME, id="that of the kind is"),
        pytest.param({}, {**AT_HOME, HOME: "n3"}, own_home("n3", MOVED.uid), id="a person moved it meanwhile"),
        pytest.param({}, own_home("n3", SOURCE.uid), own_home("n3", SOURCE.uid), id="the machine ran away from home"),
        pytest.param({"adopt": True}, RELEASED, RELEASED, id="a person released it"),
    ],
)
async def test_what_a_migration_does_not_move(
    args: JsonObject, before: dict[str, str], expected: dict[str, str]
) -> None:
    machines = started(args)
    machines.change(MACHINE, before)

    assert expected == (await migrated(machines)).annotations()


class TestPerson:
    """Their word is about the machine as it is, so it is never taken back by a migration that began before."""

    @pytest.mark.parametrize("before", [AT_HOME, {}, {HOME_POD: SOURCE.uid}], ids=["followed", "none", "released"])
    async def test_who_gives_one_after_the_migration(self, before: dict[str, str]) -> None:
        machines = started()
        machines.change(MACHINE, before)
        await migrated(machines)

        machines.change(MACHINE, {**machines.annotations(), HOME: "n1"})
        for _ in range(2):
            await machines.repair()

        assert own_home("n1", MOVED.uid) == machines.annotations()

    @pytest.mark.parametrize(
        ("to", "expected"),
        [
            pytest.param("n2", own_home("n2", MOVED.uid), id="it follows: Homeport saw it before"),
            pytest.param("n1", own_home("n1"), id="not a migration that failed, which KubeVirt calls completed"),
        ],
    )
    async def test_who_gave_one_before_the_first_boot(self, to: str, expected: dict[str, str]) -> None:
        machines = started()
        machines.change(MACHINE, {HOME: "n1"})
        await machines.repair()

        assert expected == (await migrated(machines, to)).annotations()

    async def test_whose_word_could_not_be_closed_yet(self) -> None:
        """What nobody has seen before the migration does not follow it, whatever becomes of the write beside it."""
        machines = started()
        machines.change(MACHINE, {HOME: "n1"})
        machines.writer.before = [WriteConflict("changed")]

        assert {HOME: "n1"} == (await migrated(machines)).annotations()

    async def test_who_writes_in_the_very_moment(self) -> None:
        machines = started()

        def a_person_writes() -> Exception:
            machines.change(MACHINE, {**AT_HOME, HOME: "n3"})
            return WriteConflict("changed")

        machines.writer.before = [a_person_writes]
        await migrated(machines)

        assert own_home("n3", MOVED.uid) == {**machines.annotations(), **own_home("n3")}


class TestAdoption:
    async def test_a_machine_that_runs_gets_the_node_where_it_does(self) -> None:
        machines = started({"adopt": True})
        machines.change(MACHINE, {})
        with capture_logs() as said:
            for _ in range(2):
                await machines.repair()

        assert AT_HOME == machines.annotations()
        note = "n1 is the home from now on: default/source runs there"
        assert [Told(DB, f"Pod {SOURCE}", "Normal", "HomeAdopted", "Adopting", note)] == machines.events.told
        told = {"machine": DB, "node": "n1", "pod": "default/source"}
        assert [{"event": "home adopted", "log_level": "info", **told}] == said

    @pytest.mark.parametrize(
        ("args", "written"),
        [
            pytest.param({"adopt": False}, {}, id="it is not to"),
            pytest.param({"adopt": True, "policy": "off"}, {}, id="the policy is off"),
            pytest.param({"adopt": True}, {HOME_POD: "first"}, id="a person released it"),
            pytest.param({"adopt": True}, own_home("n3", "first"), id="it has a home"),
        ],
    )
    async def test_who_is_left_alone(self, args: JsonObject, written: dict[str, str]) -> None:
        machines = started(args)
        machines.change(MACHINE, written)

        await machines.repair()

        assert written == machines.annotations()

    async def test_the_clone_of_a_released_machine_was_not_released(self) -> None:
        machines = started({"adopt": True})
        machines.change(MACHINE, {HOME_POD: "of another", "homeport.dev/home-owner": "another n3"})

        await machines.repair()

        assert AT_HOME == machines.annotations()

    @pytest.mark.parametrize(
        "pod",
        [
            pytest.param(launcher("hp", node="n1", owner={**reference(INSTANCE), "kind": "Pod"}), id="a hotplug pod"),
            pytest.param(launcher("other", node="n2"), id="one on another node"),
            pytest.param(launcher("shop", node="n1", namespace="shop"), id="one of another namespace"),
        ],
    )
    async def test_it_waits_for_the_machines_own_pod(self, pod: Pod) -> None:
        machines = Machines({"adopt": True})
        machines.machine(runs_on="n1")
        machines.cluster.upsert_pod(pod)
        assert not await machines.plugin._reconciler.round()
        assert {} == machines.annotations()

        machines.cluster.upsert_pod(SOURCE)
        assert await machines.plugin._reconciler.round()
        assert AT_HOME == machines.annotations()

    async def test_one_that_does_not_run_yet_is_no_matter(self) -> None:
        machines = Machines({"adopt": True})
        machines.machine()
        machines.cluster.upsert_pod(SOURCE)

        assert (True, {}) == (await machines.plugin._reconciler.round(), machines.annotations())

    async def test_an_instance_without_a_virtual_machine_has_no_keeper(self) -> None:
        machines = Machines({"adopt": True})
        machines.add(INSTANCE)
        machines.cluster.upsert_pod(SOURCE)

        assert await machines.plugin._reconciler.round()
        assert [] == machines.writer.written
