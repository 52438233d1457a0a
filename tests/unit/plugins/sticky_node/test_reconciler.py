"""One object that cannot be read or written keeps no other from what is due to it, and nobody causes endless writes.

What outlives an owner: a machine made anew under its name comes home, unless somebody gave the home up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.framework.objects import NotServed, Unreadable, WriteConflict
from app.kube.api_errors import ApiUnavailable, UnknownOutcome
from app.kube.core_v1 import Pod
from app.kube.homes_v1alpha1 import HomeRecord, RecordedKeeper, decode_home, memory_name
from app.kube.kinds import AnnotatedObject, Kind
from plugins.sticky_node import SPEC, recorder
from plugins.sticky_node.annotations import Claim, home_pod, recorded_home
from plugins.sticky_node.args import KUBEVIRT, OwnerRule, StickyNodeArgs
from plugins.sticky_node.background import WriteBudget
from plugins.sticky_node.owners import HOMES, Owner
from tests.builders import JsonObject, encoded, node_object
from tests.fakes import ManualClock, Told
from tests.unit.plugins.sticky_node.machines import (
    CORE,
    HOME,
    HOME_OWNER,
    HOME_POD,
    INSTANCE,
    MACHINE,
    NODES,
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
        machines.cluster.mark_unreadable(INSTANCE, ("default", "evil"), "undecodable")

        assert not await machines.plugin._reconciler.round()
        assert (ADOPTED, {HOME: "n1"}) == (machines.annotations(), machines.annotations(name="evil"))

        machines.cluster.mark_readable(INSTANCE, ("default", "evil"))
        assert await machines.plugin._reconciler.round()
        assert own_home("n1", name="evil") == machines.annotations(name="evil")

    @pytest.mark.parametrize(
        "spoil",
        [
            pytest.param(
                lambda it: it.cluster.mark_unreadable(HOMES, ("default", name_of("evil")), "undecodable"),
                id="unreadable",
            ),
            pytest.param(lambda it: refuse(it, name_of("evil")), id="refused"),
        ],
    )
    async def test_one_home_keeps_no_other_from_being_remembered(self, spoil: Callable[[Machines], None]) -> None:
        machines = Machines()
        for name in ("evil", "good"):
            machines.change(MACHINE, own_home("n1", name=name), name)
        spoil(machines)

        assert not await machines.plugin._reconciler.round(), "it is tried again"
        assert {("good", "")} == remembered(machines)

    async def test_the_owner_of_a_machine_that_runs(self) -> None:
        machines = Machines({"adopt": True})
        for name in ("evil", "db"):
            machines.machine(name, runs_on="n2")
        for pod in (launcher("other", "evil", node="n2"), RUNS):
            machines.cluster.upsert_pod(pod)
        machines.gone(MACHINE, "evil")
        machines.cluster.mark_unreadable(MACHINE, ("default", "evil"), "undecodable")

        assert not await machines.plugin._reconciler.round()
        assert ADOPTED == machines.annotations()

    async def test_the_owner_of_what_is_remembered(self) -> None:
        machines = Machines()
        for name in ("evil", "good"):
            machines.add(MACHINE, name)
            machines.change(MACHINE, own_home("n1", name=name), name)
        await machines.repair()
        machines.gone(MACHINE, "evil")
        machines.cluster.mark_unreadable(MACHINE, ("default", "evil"), "undecodable")
        machines.change(MACHINE, {HOME_POD: "old"}, "good")

        assert not await machines.plugin._reconciler.round()
        assert {("evil", "")} == remembered(machines), "and what was given up is forgotten"

    async def test_what_becomes_so_in_the_very_moment(self) -> None:
        attempts = WriteBudget(ManualClock())

        async def unreadable() -> None:
            raise Unreadable("Home", "default/db", "undecodable")

        assert not await attempts.of_memory("default/db", unreadable)
        assert not await attempts.of_owner("uid", unreadable)

    async def test_what_was_noted_before(self) -> None:
        machines = Machines()
        machines.change(MACHINE, own_home("n1"))
        await machines.repair()
        machines.cluster.others.delete(HOMES, ("default", name_of("db")))
        machines.cluster.mark_unreadable(HOMES, ("default", name_of("db")), "undecodable")

        assert not await machines.plugin._reconciler.round()


class TestRefused:
    async def test_five_owners_keep_no_other_from_its_home(self) -> None:
        machines = adopting()
        for number in range(5):
            machines.add(MACHINE, f"bad-{number}", home="n1")
            machines.writer.unwritable.add(f"bad-{number}")

        assert not await machines.plugin._reconciler.round()

        assert ADOPTED == machines.annotations()

    async def test_nor_do_more_of_them_of_one_part(self) -> None:
        machines = Machines()
        for number in range(40):
            machines.add(MACHINE, f"bad-{number:02}", home="n1")
            machines.writer.unwritable.add(f"bad-{number:02}")
        machines.add(MACHINE, "good", home="n1")

        for _ in range(12):
            await machines.plugin._reconciler.round()
            machines.clock.now += 60  # those that were refused are tried again

        assert own_home("n1", name="good") == machines.annotations(name="good")

    @pytest.mark.parametrize(
        ("unanswered", "times"),
        [
            pytest.param(None, [0, 60, 180, 420, 900, 1860, 2820, 3780], id="refused"),
            pytest.param(ApiUnavailable("away"), [0, 2, 6, 14, 74, 194], id="no API server, and then refused"),
            pytest.param(UnknownOutcome("no answer"), [0, 2, 6, 14, 74, 194], id="no answer, and then refused"),
        ],
    )
    async def test_each_is_tried_less_and_less_often(self, unanswered: Exception | None, times: list[float]) -> None:
        """Soon where nobody answered: an owner that is deleted meanwhile takes its home along."""
        clock, tried = ManualClock(), list[float]()
        attempts = WriteBudget(clock)

        async def fails() -> None:
            tried.append(clock())
            raise OSError("it failed") from (unanswered if len(tried) < 4 else None)

        while clock() < 4000:
            attempts.begin()
            attempts.begin_part()
            assert not await attempts.of_memory("default/db", fails)
            clock.now += 1

        assert times == tried[: len(times)]

    async def test_where_the_kind_is_not_served_none_is_tried_for_a_minute(self) -> None:
        clock, tried = ManualClock(), list[str]()
        attempts = WriteBudget(clock)

        async def not_served() -> None:
            tried.append("home")
            raise NotServed("Home is not served")

        assert not await attempts.of_memory("default/a", not_served)
        assert (False, False) == (attempts.may_remember(), await attempts.of_memory("default/b", not_served))
        clock.now += 60
        assert attempts.may_remember()
        assert not await attempts.of_memory("default/b", not_served)
        assert 2 == len(tried)


class TestBounds:
    async def test_without_ordinals_an_object_has_one_home(self) -> None:
        machines = Machines()
        written = own_home("n1")
        for number in range(3):
            written |= own_home("n1", slot=str(number))
        machines.change(MACHINE, written)

        await machines.repair()

        assert {("db", "")} == remembered(machines)

    async def test_with_ordinals_so_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert 512 == recorder.MOST_REMEMBERED
        monkeypatch.setattr(recorder, "MOST_REMEMBERED", 3)
        machines = Machines({"owners": [SETS]})
        written: dict[str, str] = {}
        for slot, node in (("0", "n1"), ("10", "n1"), ("2", "n2"), ("9", "n3"), ("x", "n1")):
            written |= own_home(node, kind=SET, slot=slot)
        machines.change(SET, written)

        await machines.repair()

        assert {("0", "n1"), ("2", "n2"), ("9", "n3")} == {(it.keeper.slot, it.node) for it in memory(machines)}

    async def test_a_namespace_so_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those that are there are kept up."""
        monkeypatch.setattr(recorder, "MOST_OF_NAMESPACE", 2)
        machines = Machines()
        with capture_logs() as said:
            for name in ("a", "b", "c", "d"):
                machines.add(MACHINE, name)
                machines.change(MACHINE, own_home("n1", name=name), name)
                assert await machines.plugin._reconciler.round()
        assert [
            {"event": "homes not remembered", "log_level": "warning", "cause": "namespace default has 2 Homes"}
        ] == said
        machines.change(MACHINE, own_home("n3", name="a"), "a")
        await machines.repair()

        assert {("a", "n3"), ("b", "n1")} == {(it.keeper.name, it.node) for it in machines.cluster.every(HOMES)}


class TestEndless:
    @pytest.mark.parametrize("spec", [{"node": "N1 "}, {"node": "n1", "owner": {"name": "other", "slot": "7"}}, {}])
    async def test_what_somebody_wrote_under_our_name_is_put_right(self, spec: JsonObject) -> None:
        machines = Machines()
        machines.change(MACHINE, own_home("n1"))
        metadata = {"name": name_of("db"), "namespace": "default", "uid": "x", "resourceVersion": "1"}
        machines.cluster.others.upsert(HOMES, decode_home(encoded({"metadata": metadata, "spec": spec})))
        changed, taken = list[Mapping[str, Any]](), machines.writer.change

        async def change(kind: Kind[AnnotatedObject], obj: AnnotatedObject, spec: Mapping[str, Any]) -> None:
            changed.append(spec)
            await taken(kind, obj, spec)

        machines.writer.change = change  # type: ignore[method-assign]
        await machines.repair()

        (found,) = machines.cluster.every(HOMES)
        assert [(None, None)] == [(it["owner"]["slot"], it["machine"]) for it in changed], "nothing of theirs is left"
        assert ("db", "", "n1") == (found.keeper.name, found.keeper.slot, found.node)
        assert await machines.plugin._reconciler.round()

    async def test_who_takes_the_seal_away_gets_it_five_times_a_minute(self) -> None:
        machines = Machines()
        for _ in range(180):
            machines.change(MACHINE, {HOME: "n1"})
            await machines.plugin._reconciler.round()
            machines.clock.now += 1

        assert 15 == len(machines.writer.written)


class TestByHand:
    async def test_a_release_is_not_undone_by_adoption(self) -> None:
        """Also where no pod was heard: it was given by hand, and bound there."""
        machines = adopting()
        machines.change(MACHINE, {HOME_OWNER: "uid-VirtualMachine-db n2"})

        await machines.repair()

        assert "" == machines.annotations().get(HOME, "")

    async def test_adoption_hears_the_templates_policy(self) -> None:
        machines = adopting(launcher("runs", node="n2", annotations={POLICY: "off"}))
        await machines.repair()
        assert {} == machines.annotations()

    async def test_so_does_following(self) -> None:
        machines = Machines({"policy": "off"})
        machines.change(MACHINE, own_home("n1", "old"))
        machines.runs(node="n2", moved=("n1", "n2"))
        machines.cluster.upsert_pod(launcher("runs", node="n2", annotations={POLICY: "hard"}))

        await machines.repair()

        assert ADOPTED == machines.annotations()

    async def test_a_home_given_after_a_migration_stays_though_the_pod_comes_later(self) -> None:
        machines = Machines()
        machines.change(MACHINE, {HOME: "n1"})
        machines.runs(node="n2", moved=("n1", "n2"))
        assert not await machines.plugin._reconciler.round()
        assert {HOME: "n1"} == machines.annotations()

        machines.cluster.upsert_pod(RUNS)
        for _ in range(3):
            await machines.repair()

        assert own_home("n1", RUNS.uid) == machines.annotations()

    async def test_a_home_given_up_and_given_again_is_on_the_machine_of_now(self) -> None:
        machines = Machines({"identity": "machine", "policy": "hard"})
        found = node_object("n1")
        found.setdefault("status", {})["nodeInfo"] = {"systemUUID": "new"}
        machines.cluster.upsert_node(CORE.decode_node(encoded(found)))
        machines.machine()
        machines.change(MACHINE, {**own_home("n1", "old"), HOME_MACHINE: "former"})
        await machines.repair()
        assert [] == machines.allowed(launcher())

        kept = machines.annotations()
        machines.change(MACHINE, {key: it for key, it in kept.items() if key != HOME})
        await machines.repair()
        assert HOME_MACHINE not in machines.annotations()
        machines.change(MACHINE, {**machines.annotations(), HOME: "n1"})
        await machines.repair()

        assert {**own_home("n1", "old"), HOME_MACHINE: "new"} == machines.annotations()
        assert ["n1"] == machines.allowed(launcher())


async def test_one_round_at_a_time() -> None:
    machines = Machines()
    machines.add(MACHINE, home="n1")
    upkeep = machines.plugin._reconciler

    assert [True, False] == list(await asyncio.gather(upkeep.round(), upkeep.round()))
    assert 1 == len(machines.writer.written)
    assert await upkeep.round()


ALL = list(NODES)
POD = launcher()
EARLIER = "earlier"
DB = "VirtualMachine default/db"


@pytest.fixture
def machines() -> Machines:
    machines = Machines()
    machines.machine()
    return machines


def memory(machines: Machines) -> list[HomeRecord]:
    return list(machines.cluster.every(HOMES))


def home_object(node: str = "n1", *, name: str = "db", uid: str = EARLIER, **owner: str) -> JsonObject:
    keeper = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "uid": uid, **owner}
    of = memory_name(keeper["apiVersion"], keeper["kind"], name, keeper.get("slot", ""))
    metadata = {"name": of, "namespace": "default", "uid": f"memory of {name}", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"owner": keeper, "node": node, "since": "2026-11-21T10:00:00Z"}}


def remember(machines: Machines, found: JsonObject | None = None) -> None:
    """As an earlier object of the name left it."""
    machines.cluster.others.upsert(HOMES, decode_home(encoded(found or home_object())))


class TestKept:
    async def test_a_home_is_remembered_with_its_owners_uid_and_since_when(self, machines: Machines) -> None:
        machines.wall_clock.now = 1_800_000_000.0
        await machines.bind(POD, "n1")
        for _ in range(2):
            await machines.repair()

        uid = "uid-VirtualMachine-db"
        (found,) = memory(machines)
        assert ("n1", "", "2027-01-15T08:00:00Z") == (found.node, found.machine, found.since)
        assert RecordedKeeper("kubevirt.io/v1", "VirtualMachine", "db", uid, "") == found.keeper
        assert "1" == found.resource_version, "nothing is written twice"

    async def test_it_moves_with_the_home(self, machines: Machines) -> None:
        await machines.bind(POD, "n1")
        await machines.repair()
        machines.change(MACHINE, {**own_home("n3", POD.uid), "homeport.dev/home-machine": "m3"})

        await machines.repair()

        assert [("n3", "m3")] == [(it.node, it.machine) for it in memory(machines)]

    async def test_one_that_somebody_deletes_is_written_again(self, machines: Machines) -> None:
        """As long as the machine has that home."""
        await machines.bind(POD, "n1")
        await machines.repair()
        (found,) = memory(machines)
        machines.cluster.others.delete(HOMES, found.key)

        await machines.repair()

        assert ["n1"] == [it.node for it in memory(machines)]

    @pytest.mark.parametrize("home_pod", ["its pod", ""])
    async def test_who_releases_it_or_removes_all_has_it_forgotten(self, machines: Machines, home_pod: str) -> None:
        machines.change(MACHINE, own_home("n1", home_pod))
        await machines.repair()
        left = {key: it for key, it in machines.annotations().items() if key != HOME} if home_pod else {}
        machines.change(MACHINE, left)
        assert ALL == machines.allowed(POD), "at once"

        await machines.repair()

        assert ([], left, ALL) == (memory(machines), machines.annotations(), machines.allowed(POD))

    async def test_what_is_no_name_of_a_node_is_not_remembered(self, machines: Machines) -> None:
        machines.change(MACHINE, {HOME: "\x1b[2J"})
        for _ in range(2):
            await machines.repair()

        assert [] == memory(machines)

    async def test_of_machines_that_are_not_there_so_many_are_kept(self, machines: Machines) -> None:
        for number in range(1003):
            found = home_object(name=f"gone-{number}")
            found["spec"]["since"] = f"2026-11-21T10:{number // 60:02}:{number % 60:02}Z"
            remember(machines, found)

        await machines.repair()

        assert {f"gone-{number}" for number in range(3, 1003)} == {it.keeper.name for it in memory(machines)}

    @pytest.mark.parametrize(
        ("failure", "tries"), [(NotServed("homeport.dev/v1alpha1 Home is not served"), 2), (OSError("forbidden"), 4)]
    )
    async def test_without_the_kind_or_the_right_homes_are_recorded_all_the_same(
        self, machines: Machines, failure: OSError, tries: int
    ) -> None:
        """It is said once, and tried again after a minute: one Home where the kind is missing, and else each."""
        machines.machine("mail", home="n2")
        asked: list[str] = []

        async def refuses(kind: Kind[AnnotatedObject], namespace: str, name: str, spec: Mapping[str, Any]) -> None:
            asked.append(name)
            raise failure

        machines.writer.create = refuses  # type: ignore[method-assign]
        with capture_logs() as said:
            await machines.bind(POD, "n1")
            for _ in range(3):
                await machines.repair()
            machines.clock.now += 60
            await machines.repair()

        assert (own_home("n1", POD.uid), own_home("n2", name="mail")) == (
            machines.annotations(),
            machines.annotations(name="mail"),
        )
        refused = {"event": "homes not remembered", "log_level": "warning", "cause": str(failure)}
        assert [refused] == [it for it in said if it["event"] != "home made"]
        assert tries == len(asked)


class TestGivenBack:
    async def test_a_machine_made_anew_comes_home_before_anything_is_written(self, machines: Machines) -> None:
        remember(machines)

        assert ["n1"] == machines.allowed(POD)
        assert {} == await machines.bind(POD, "n1")
        assert {} == machines.annotations()

    async def test_its_home_is_written_and_told_once(self, machines: Machines) -> None:
        remember(machines)
        with capture_logs() as said:
            for _ in range(3):
                await machines.repair()

        assert own_home("n1", EARLIER) == machines.annotations()
        note = "n1 is the home from now on: an earlier VirtualMachine of this name lived there"
        assert [Told(DB, "Node n1", "Normal", "HomeRemembered", "Remembering", note)] == machines.events.told
        assert [{"event": "home remembered", "log_level": "info", "machine": DB, "node": "n1"}] == said
        assert ["uid-VirtualMachine-db"] == [it.keeper.uid for it in memory(machines)]

    async def test_the_watch_does_not_take_it_for_a_persons(self, machines: Machines) -> None:
        known = machines.cluster.get(MACHINE, "default", "db")
        remember(machines)
        await machines.repair()
        machines.events.told.clear()
        machines.plugin.object_changed(MACHINE, known, machines.cluster.get(MACHINE, "default", "db"))

        assert [] == machines.events.told

    async def test_what_a_person_wrote_counts_and_is_remembered_instead(self, machines: Machines) -> None:
        remember(machines)
        machines.change(MACHINE, {HOME: "n3"})
        assert ["n3"] == machines.allowed(POD)
        for _ in range(2):
            await machines.repair()

        assert ["n3"] == [it.node for it in memory(machines)]

    async def test_who_releases_it_then_has_it_forgotten(self, machines: Machines) -> None:
        remember(machines)
        await machines.repair()
        machines.change(MACHINE, {key: it for key, it in machines.annotations().items() if key != HOME})
        assert ALL == machines.allowed(POD)

        await machines.repair()

        assert ([], "") == (memory(machines), machines.annotations().get(HOME, ""))

    async def test_nor_does_it_come_back_to_one_that_was_released_before_it_could_be_forgotten(
        self, machines: Machines
    ) -> None:
        remember(machines)
        machines.change(MACHINE, {HOME_POD: "its own"})
        assert ALL == machines.allowed(POD)

        await machines.repair()

        assert ([], {HOME_POD: "its own"}) == (memory(machines), machines.annotations())

    async def test_a_restored_machine_has_what_is_remembered_not_what_was_copied(self, machines: Machines) -> None:
        """A backup brings annotations of the object that was, under the same name."""
        remember(machines)
        machines.change(MACHINE, {HOME: "n2", HOME_POD: "p", HOME_OWNER: f"{EARLIER} n2"})
        assert ["n1"] == machines.allowed(POD)
        for _ in range(2):
            await machines.repair()

        assert own_home("n1", EARLIER) == machines.annotations()

    async def test_a_bind_that_replaces_it_outlives_the_writing(self, machines: Machines) -> None:
        remember(machines)
        machines.reserve(POD, "n1")
        owner = machines.plugin._owners.of(POD)

        assert isinstance(owner, Owner)
        machines.plugin._pending.begin(Claim(POD, "n2", owner, home_pod(owner), True, recorded_home(owner)))
        await machines.repair()

        await machines.arrives(POD, "n2")

        assert own_home("n2", POD.uid) == machines.annotations()

    async def test_an_edit_in_the_very_moment_wins(self, machines: Machines) -> None:
        remember(machines)

        def a_person_writes() -> Exception:
            machines.change(MACHINE, {HOME: "n3"})
            return WriteConflict("changed")

        machines.writer.before = [a_person_writes]
        for _ in range(2):
            await machines.repair()

        assert own_home("n3") == machines.annotations()

    @pytest.mark.parametrize(
        "hostile",
        [
            pytest.param(home_object("no node!"), id="no name of a node"),
            pytest.param(home_object("x" * 10_240), id="10 KB"),
            pytest.param(home_object("n1", slot="../x"), id="a slot that is none"),
            pytest.param(home_object("n1", kind="Database", apiVersion="example.com/v1"), id="another kind"),
            pytest.param(
                {**home_object("n1", name="mail"), "metadata": home_object("n1")["metadata"]}, id="a wrong name"
            ),
            pytest.param({"metadata": {"name": "x", "namespace": "default", "uid": "x"}}, id="nothing"),
            pytest.param(
                {**home_object(), "metadata": {**home_object()["metadata"], "namespace": "shop"}}, id="elsewhere"
            ),
        ],
    )
    async def test_what_somebody_else_wrote_there(self, machines: Machines, hostile: JsonObject) -> None:
        remember(machines, hostile)

        assert ALL == machines.allowed(POD)
        await machines.repair()
        assert ({}, []) == (machines.annotations(), machines.events.told)


@pytest.mark.parametrize(
    ("rule", "by_name"),
    [
        pytest.param(KUBEVIRT, True, id="KubeVirt's machines"),
        pytest.param(OwnerRule(api_version="apps/v1", kind="StatefulSet", per_ordinal=True), True, id="ordinals"),
        pytest.param(OwnerRule(api_version="apps/v1", kind="StatefulSet"), False, id="a set as one"),
        pytest.param(OwnerRule(api_version="example.com/v1", kind="Database"), False, id="a custom resource"),
        pytest.param(OwnerRule(api_version="example.com/v1", kind="Database", remember="name"), True, id="if told so"),
        pytest.param(KUBEVIRT.model_copy(update={"remember": "uid"}), False, id="unless told otherwise"),
    ],
)
def test_whose_homes_are_the_names(rule: OwnerRule, by_name: bool) -> None:
    args = StickyNodeArgs(owners=(rule,))

    assert by_name == rule.by_name
    assert by_name == (HOMES in SPEC.needs(args).kinds)
    assert [by_name] * by_name == [it.whole for it in SPEC.needs(args).writes if it.kind == HOMES]
