"""One object that cannot be read or written keeps no other from what is due to it, and nobody causes endless writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.framework.interface import NotServed, Unreadable
from app.kube.api_errors import ApiUnavailable, UnknownOutcome
from app.kube.core_v1 import Pod
from app.kube.homes_v1alpha1 import decode_home, memory_name
from app.kube.kinds import AnnotatedObject, Kind
from plugins.sticky_node import memory, remembering
from plugins.sticky_node.attempts import Attempts, Enough
from plugins.sticky_node.memory import HOMES
from tests.builders import JsonObject, encoded, node_object
from tests.fakes import ManualClock
from tests.unit.plugins.sticky_node.machines import (
    CORE,
    HOME,
    HOME_OWNER,
    HOME_POD,
    INSTANCE,
    MACHINE,
    SET,
    Machines,
    launcher,
    own_home,
)

HOME_MACHINE = "homeport.dev/home-machine"
POLICY = "homeport.dev/policy"
RUNS = launcher("runs", node="n2")
ADOPTED = own_home("n2", RUNS.uid)
SETS: JsonObject = {"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}


def adopting(pod: Pod = RUNS) -> Machines:
    """Machines of which ``db`` runs without a home."""
    machines = Machines({"adopt": True})
    machines.machine(runs_on="n2")
    machines.cluster.upsert_pod(pod)
    return machines


def remembered(machines: Machines) -> set[tuple[str, str]]:
    return {(it.keeper.name, it.keeper.slot) for it in machines.cluster.every(HOMES)}


def name_of(machine: str) -> str:
    return memory_name("kubevirt.io/v1", "VirtualMachine", machine, "")


def refuse(machines: Machines, *names: str) -> None:
    """Homes of these names are not let be made."""
    taken = machines.writer.create

    async def create(kind: Kind[AnnotatedObject], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
        if name in names:
            raise OSError("denied by a webhook")
        await taken(kind, namespace, name, spec)

    machines.writer.create = create  # type: ignore[method-assign]


class TestUnreadable:
    async def test_an_instance(self) -> None:
        machines = adopting()
        machines.machine("evil", home="n1")
        machines.cluster.leave_out(INSTANCE, ("default", "evil"), "undecodable")

        assert not await machines.plugin._upkeep.round()
        assert (ADOPTED, {HOME: "n1"}) == (machines.annotations(), machines.annotations(name="evil"))

        machines.cluster.take_back(INSTANCE, ("default", "evil"))
        assert await machines.plugin._upkeep.round()
        assert own_home("n1", name="evil") == machines.annotations(name="evil")

    async def test_what_is_remembered(self) -> None:
        machines = Machines()
        for name in ("evil", "good"):
            machines.add(MACHINE, name)
            machines.change(MACHINE, own_home("n1", name=name), name)
        machines.cluster.leave_out(HOMES, ("default", name_of("evil")), "undecodable")

        assert not await machines.plugin._upkeep.round()
        assert {("good", "")} == remembered(machines)

    async def test_the_owner_of_a_machine_that_runs(self) -> None:
        machines = Machines({"adopt": True})
        for name in ("evil", "db"):
            machines.machine(name, runs_on="n2")
        for pod in (launcher("other", "evil", node="n2"), RUNS):
            machines.cluster.upsert_pod(pod)
        machines.gone(MACHINE, "evil")
        machines.cluster.leave_out(MACHINE, ("default", "evil"), "undecodable")

        assert not await machines.plugin._upkeep.round()
        assert ADOPTED == machines.annotations()

    async def test_the_owner_of_what_is_remembered(self) -> None:
        machines = Machines()
        for name in ("evil", "good"):
            machines.add(MACHINE, name)
            machines.change(MACHINE, own_home("n1", name=name), name)
        await machines.plugin.repair()
        machines.gone(MACHINE, "evil")
        machines.cluster.leave_out(MACHINE, ("default", "evil"), "undecodable")
        machines.change(MACHINE, {HOME_POD: "old"}, "good")

        assert not await machines.plugin._upkeep.round()
        assert {("evil", "")} == remembered(machines), "and what was given up is forgotten"

    async def test_what_becomes_so_in_the_very_moment(self) -> None:
        attempts = Attempts(ManualClock())

        async def unreadable() -> None:
            raise Unreadable("Home", "default/db", "undecodable")

        assert not await attempts.of_memory("default/db", unreadable)
        assert not await attempts.of_owner("uid", unreadable)

    async def test_what_was_noted_before(self) -> None:
        machines = Machines()
        machines.change(MACHINE, own_home("n1"))
        await machines.plugin.repair()
        machines.cluster.others.delete(HOMES, ("default", name_of("db")))
        machines.cluster.leave_out(HOMES, ("default", name_of("db")), "undecodable")

        assert not await machines.plugin._upkeep.round()


class TestRefused:
    async def test_five_owners_keep_no_other_from_its_home(self) -> None:
        machines = adopting()
        for number in range(5):
            machines.add(MACHINE, f"bad-{number}", home="n1")
            machines.writer.unwritable.add(f"bad-{number}")

        assert not await machines.plugin._upkeep.round()

        assert ADOPTED == machines.annotations()

    async def test_nor_do_more_of_them_of_one_part(self) -> None:
        machines = Machines()
        for number in range(40):
            machines.add(MACHINE, f"bad-{number:02}", home="n1")
            machines.writer.unwritable.add(f"bad-{number:02}")
        machines.add(MACHINE, "good", home="n1")

        for _ in range(12):
            await machines.plugin._upkeep.round()
            machines.clock.now += 60  # those that were refused are tried again

        assert own_home("n1", name="good") == machines.annotations(name="good")

    async def test_each_is_tried_less_and_less_often(self) -> None:
        clock, tried = ManualClock(), list[float]()
        attempts = Attempts(clock)

        async def refused() -> None:
            tried.append(clock())
            raise OSError("forbidden")

        for _ in range(4000):
            attempts.begin()
            attempts.begin_part()
            assert not await attempts.of_owner("uid", refused)
            clock.now += 1

        assert [0, 60, 180, 420, 900, 1860, 2820, 3780] == tried

    @pytest.mark.parametrize("nobody", [ApiUnavailable("away"), UnknownOutcome("no answer")])
    async def test_where_nobody_answered_it_is_tried_again_soon(self, nobody: Exception) -> None:
        """An owner that is deleted meanwhile takes its home along. Refused after that, it is left alone for longer."""
        clock, tried = ManualClock(), list[float]()
        attempts = Attempts(clock)

        async def unanswered() -> None:
            tried.append(clock())
            raise OSError(str(nobody)) from (nobody if len(tried) < 4 else None)

        for _ in range(200):
            attempts.begin()
            attempts.begin_part()
            assert not await attempts.of_memory("default/db", unanswered)
            clock.now += 1

        assert [0, 2, 6, 14, 74, 194] == tried

    async def test_one_home_keeps_no_other_from_being_remembered(self) -> None:
        machines = Machines()
        for name in ("a-stuck", "good"):
            machines.add(MACHINE, name)
            machines.change(MACHINE, own_home("n1", name=name), name)
        refuse(machines, name_of("a-stuck"))

        assert not await machines.plugin._upkeep.round(), "it is tried again"

        assert {("good", "")} == remembered(machines)

    async def test_where_the_kind_is_not_served_none_is_tried_for_a_minute(self) -> None:
        clock, tried = ManualClock(), list[str]()
        attempts = Attempts(clock)

        async def not_served() -> None:
            tried.append("home")
            raise NotServed("Home is not served")

        assert not await attempts.of_memory("default/a", not_served)
        assert (False, False) == (attempts.may_remember(), await attempts.of_memory("default/b", not_served))
        clock.now += 60
        assert attempts.may_remember()
        assert not await attempts.of_memory("default/b", not_served)
        assert 2 == len(tried)

    async def test_a_part_ends_after_five(self) -> None:
        attempts = Attempts(ManualClock())

        async def refused() -> None:
            raise OSError("forbidden")

        attempts.begin_part()
        for number in range(4):
            assert not await attempts.of_owner(str(number), refused)
        with pytest.raises(Enough):
            await attempts.of_owner("4", refused)


class TestBounds:
    async def test_without_ordinals_an_object_has_one_home(self) -> None:
        machines = Machines()
        written = own_home("n1")
        for number in range(3):
            written |= own_home("n1", slot=str(number))
        machines.change(MACHINE, written)

        await machines.plugin.repair()

        assert {("db", "")} == remembered(machines)

    async def test_with_ordinals_so_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(remembering, "MOST_REMEMBERED", 3)
        machines = Machines({"owners": [SETS]})
        written: dict[str, str] = {}
        for slot in ("0", "10", "2", "9", "x"):
            written |= own_home("n1", kind=SET, slot=slot)
        machines.change(SET, written)

        await machines.plugin.repair()

        assert {("db", "0"), ("db", "2"), ("db", "9")} == remembered(machines)
        assert 512 == memory.MOST_REMEMBERED

    async def test_a_namespace_so_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those that are there are kept up."""
        monkeypatch.setattr(remembering, "MOST_OF_NAMESPACE", 2)
        machines = Machines()
        with capture_logs() as said:
            for name in ("a", "b", "c", "d"):
                machines.add(MACHINE, name)
                machines.change(MACHINE, own_home("n1", name=name), name)
                assert await machines.plugin._upkeep.round()
        assert [
            {"event": "homes not remembered", "log_level": "warning", "cause": "namespace default has 2 Homes"}
        ] == said
        machines.change(MACHINE, own_home("n3", name="a"), "a")
        await machines.plugin.repair()

        assert {("a", "n3"), ("b", "n1")} == {(it.keeper.name, it.node) for it in machines.cluster.every(HOMES)}


class TestEndless:
    @pytest.mark.parametrize("spec", [{"node": "N1 "}, {"node": "n1", "owner": {"name": "other", "slot": "7"}}, {}])
    async def test_what_somebody_wrote_under_our_name_is_put_right(self, spec: JsonObject) -> None:
        machines = Machines()
        machines.change(MACHINE, own_home("n1"))
        metadata = {"name": name_of("db"), "namespace": "default", "uid": "x", "resourceVersion": "1"}
        machines.cluster.others.upsert(HOMES, decode_home(encoded({"metadata": metadata, "spec": spec})))
        changed, taken = list[Mapping[str, Any]](), machines.writer.change

        async def change(kind: Kind[AnnotatedObject], found: AnnotatedObject, spec: Mapping[str, Any]) -> None:
            changed.append(spec)
            await taken(kind, found, spec)

        machines.writer.change = change  # type: ignore[method-assign]
        await machines.plugin.repair()

        (found,) = machines.cluster.every(HOMES)
        assert [(None, None)] == [(it["owner"]["slot"], it["machine"]) for it in changed], "nothing of theirs is left"
        assert ("db", "", "n1") == (found.keeper.name, found.keeper.slot, found.node)
        assert await machines.plugin._upkeep.round()

    async def test_who_takes_the_seal_away_gets_it_five_times_a_minute(self) -> None:
        machines = Machines()
        for _ in range(180):
            machines.change(MACHINE, {HOME: "n1"})
            await machines.plugin._upkeep.round()
            machines.clock.now += 1

        assert 15 == len(machines.writer.written)


class TestByHand:
    async def test_a_release_is_not_undone_by_adoption(self) -> None:
        """Also where no pod was heard: it was given by hand, and bound there."""
        machines = adopting()
        machines.change(MACHINE, {HOME_OWNER: "uid-VirtualMachine-db n2"})

        await machines.plugin.repair()

        assert "" == machines.annotations().get(HOME, "")

    async def test_adoption_hears_the_templates_policy(self) -> None:
        machines = adopting(launcher("runs", node="n2", annotations={POLICY: "off"}))
        await machines.plugin.repair()
        assert {} == machines.annotations()

    async def test_so_does_following(self) -> None:
        machines = Machines({"policy": "off"})
        machines.change(MACHINE, own_home("n1", "old"))
        machines.runs(node="n2", moved=("n1", "n2"))
        machines.cluster.upsert_pod(launcher("runs", node="n2", annotations={POLICY: "hard"}))

        await machines.plugin.repair()

        assert ADOPTED == machines.annotations()

    async def test_a_home_given_after_a_migration_stays_though_the_pod_comes_later(self) -> None:
        machines = Machines()
        machines.change(MACHINE, {HOME: "n1"})
        machines.runs(node="n2", moved=("n1", "n2"))
        assert not await machines.plugin._upkeep.round()
        assert {HOME: "n1"} == machines.annotations()

        machines.cluster.upsert_pod(RUNS)
        for _ in range(3):
            await machines.plugin.repair()

        assert own_home("n1", RUNS.uid) == machines.annotations()

    async def test_a_home_given_up_and_given_again_is_on_the_machine_of_now(self) -> None:
        machines = Machines({"identity": "machine", "policy": "hard"})
        found = node_object("n1")
        found.setdefault("status", {})["nodeInfo"] = {"systemUUID": "new"}
        machines.cluster.upsert_node(CORE.decode_node(encoded(found)))
        machines.machine()
        machines.change(MACHINE, {**own_home("n1", "old"), HOME_MACHINE: "former"})
        await machines.plugin.repair()
        assert [] == machines.allowed(launcher())

        kept = machines.annotations()
        machines.change(MACHINE, {key: it for key, it in kept.items() if key != HOME})
        await machines.plugin.repair()
        assert HOME_MACHINE not in machines.annotations()
        machines.change(MACHINE, {**machines.annotations(), HOME: "n1"})
        await machines.plugin.repair()

        assert {**own_home("n1", "old"), HOME_MACHINE: "new"} == machines.annotations()
        assert ["n1"] == machines.allowed(launcher())


async def test_one_round_at_a_time() -> None:
    machines = Machines()
    machines.add(MACHINE, home="n1")
    upkeep = machines.plugin._upkeep

    assert [True, False] == list(await asyncio.gather(upkeep.round(), upkeep.round()))
    assert 1 == len(machines.writer.written)
    assert await upkeep.round()
