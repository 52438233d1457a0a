"""What outlives an owner: a machine made anew under its name comes home, unless somebody gave the home up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.framework.interface import NotServed, WriteConflict
from app.kube.homes_v1alpha1 import Home, Keeper, decode_home, memory_name
from app.kube.kinds import AnnotatedObject, Kind
from plugins.sticky_node import SPEC
from plugins.sticky_node.args import KUBEVIRT, OwnerRule, StickyNodeArgs
from plugins.sticky_node.home import Claim, home_pod, recorded_home
from plugins.sticky_node.memory import HOMES
from plugins.sticky_node.owners import Owner
from tests.builders import JsonObject, encoded, make_pod
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
    reference,
)

ALL = list(NODES)
POD = launcher()
SETS: JsonObject = {"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}
EARLIER = "earlier"
DB = "VirtualMachine default/db"


@pytest.fixture
def machines() -> Machines:
    machines = Machines()
    machines.machine()
    return machines


def memory(machines: Machines) -> list[Home]:
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
        machines.plugin._upkeep._remembering._memory._wall_clock = lambda: 1_800_000_000.0
        await machines.bind(POD, "n1")
        for _ in range(2):
            await machines.plugin.repair()

        uid = "uid-VirtualMachine-db"
        (found,) = memory(machines)
        assert ("n1", "", "2027-01-15T08:00:00Z") == (found.node, found.machine, found.since)
        assert Keeper("kubevirt.io/v1", "VirtualMachine", "db", uid, "") == found.keeper
        assert "1" == found.resource_version, "nothing is written twice"

    async def test_it_moves_with_the_home(self, machines: Machines) -> None:
        await machines.bind(POD, "n1")
        await machines.plugin.repair()
        machines.change(MACHINE, {**own_home("n3", POD.uid), "homeport.dev/home-machine": "m3"})

        await machines.plugin.repair()

        assert [("n3", "m3")] == [(it.node, it.machine) for it in memory(machines)]

    async def test_one_that_somebody_deletes_is_written_again(self, machines: Machines) -> None:
        """As long as the machine has that home."""
        await machines.bind(POD, "n1")
        await machines.plugin.repair()
        (found,) = memory(machines)
        machines.cluster.others.delete(HOMES, found.key)

        await machines.plugin.repair()

        assert ["n1"] == [it.node for it in memory(machines)]

    async def test_ordinals_are_remembered_each(self) -> None:
        machines = Machines({"owners": [SETS]})
        machines.add(SET)
        for number, node in enumerate(("n1", "n2")):
            await machines.bind(make_pod(f"db-{number}", owner=reference(SET)), node)
        await machines.plugin.repair()

        assert {("0", "n1"), ("1", "n2")} == {(it.keeper.slot, it.node) for it in memory(machines)}

    async def test_a_person_who_releases_it_has_it_forgotten(self, machines: Machines) -> None:
        await machines.bind(POD, "n1")
        await machines.plugin.repair()
        machines.change(MACHINE, {key: it for key, it in machines.annotations().items() if key != HOME})

        await machines.plugin.repair()

        assert ([], ALL) == (memory(machines), machines.allowed(launcher("next")))

    async def test_so_has_who_removes_all_that_is_written(self, machines: Machines) -> None:
        machines.change(MACHINE, own_home("n1"))
        await machines.plugin.repair()
        machines.change(MACHINE, {})
        assert ALL == machines.allowed(POD), "at once"

        await machines.plugin.repair()

        assert ([], {}) == (memory(machines), machines.annotations())

    async def test_what_is_no_name_of_a_node_is_not_remembered(self, machines: Machines) -> None:
        machines.change(MACHINE, {HOME: "\x1b[2J"})
        for _ in range(2):
            await machines.plugin.repair()

        assert [] == memory(machines)

    async def test_of_machines_that_are_not_there_so_many_are_kept(self, machines: Machines) -> None:
        for number in range(1003):
            found = home_object(name=f"gone-{number}")
            found["spec"]["since"] = f"2026-11-21T10:{number // 60:02}:{number % 60:02}Z"
            remember(machines, found)

        await machines.plugin.repair()

        assert {f"gone-{number}" for number in range(3, 1003)} == {it.keeper.name for it in memory(machines)}

    @pytest.mark.parametrize(
        ("failure", "tries"),
        [(NotServed("homeport.dev/v1alpha1 Home is not served"), 2), (OSError("forbidden"), 4)],
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
                await machines.plugin.repair()
            machines.clock.now += 60
            await machines.plugin.repair()

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
                await machines.plugin.repair()

        assert own_home("n1", EARLIER) == machines.annotations()
        note = "n1 is the home from now on: an earlier VirtualMachine of this name lived there"
        assert [Told(DB, "Node n1", "Normal", "HomeRemembered", "Remembering", note)] == machines.events.told
        assert [{"event": "home remembered", "log_level": "info", "machine": DB, "node": "n1"}] == said
        assert ["uid-VirtualMachine-db"] == [it.keeper.uid for it in memory(machines)]

    async def test_the_watch_does_not_take_it_for_a_persons(self, machines: Machines) -> None:
        known = machines.cluster.get(MACHINE, "default", "db")
        remember(machines)
        await machines.plugin.repair()
        machines.events.told.clear()
        assert SPEC.changed is not None
        SPEC.changed(MACHINE, known, machines.cluster.get(MACHINE, "default", "db"), machines.events)

        assert [] == machines.events.told

    async def test_what_a_person_wrote_counts_and_is_remembered_instead(self, machines: Machines) -> None:
        remember(machines)
        machines.change(MACHINE, {HOME: "n3"})
        assert ["n3"] == machines.allowed(POD)
        for _ in range(2):
            await machines.plugin.repair()

        assert ["n3"] == [it.node for it in memory(machines)]

    async def test_who_releases_it_then_has_it_forgotten(self, machines: Machines) -> None:
        remember(machines)
        await machines.plugin.repair()
        machines.change(MACHINE, {key: it for key, it in machines.annotations().items() if key != HOME})
        assert ALL == machines.allowed(POD)

        await machines.plugin.repair()

        assert ([], "") == (memory(machines), machines.annotations().get(HOME, ""))

    async def test_nor_does_it_come_back_to_one_that_was_released_before_it_could_be_forgotten(
        self, machines: Machines
    ) -> None:
        remember(machines)
        machines.change(MACHINE, {HOME_POD: "its own"})
        assert ALL == machines.allowed(POD)

        await machines.plugin.repair()

        assert ([], {HOME_POD: "its own"}) == (memory(machines), machines.annotations())

    async def test_a_restored_machine_has_what_is_remembered_not_what_was_copied(self, machines: Machines) -> None:
        """A backup brings annotations of the object that was, under the same name."""
        remember(machines)
        machines.change(MACHINE, {HOME: "n2", HOME_POD: "p", HOME_OWNER: f"{EARLIER} n2"})
        assert ["n1"] == machines.allowed(POD)
        for _ in range(2):
            await machines.plugin.repair()

        assert own_home("n1", EARLIER) == machines.annotations()

    async def test_a_bind_that_replaces_it_outlives_the_writing(self, machines: Machines) -> None:
        remember(machines)
        machines.reserve(POD, "n1")
        owner = machines.plugin._owners.of(POD)

        assert isinstance(owner, Owner)
        machines.plugin._making.begin(Claim(POD, "n2", owner, home_pod(owner), True, recorded_home(owner)))
        await machines.plugin.repair()

        await machines.arrives(POD, "n2")

        assert own_home("n2", POD.uid) == machines.annotations()

    async def test_an_edit_in_the_very_moment_wins(self, machines: Machines) -> None:
        remember(machines)

        def a_person_writes() -> Exception:
            machines.change(MACHINE, {HOME: "n3"})
            return WriteConflict("changed")

        machines.writer.before = [a_person_writes]
        for _ in range(2):
            await machines.plugin.repair()

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
        ],
    )
    async def test_what_somebody_else_wrote_there(self, machines: Machines, hostile: JsonObject) -> None:
        remember(machines, hostile)

        assert ALL == machines.allowed(POD)
        await machines.plugin.repair()
        assert ({}, []) == (machines.annotations(), machines.events.told)

    async def test_a_machine_of_another_namespace_has_no_part_in_it(self, machines: Machines) -> None:
        found = home_object()
        remember(machines, {**found, "metadata": {**found["metadata"], "namespace": "shop"}})

        assert ALL == machines.allowed(POD)

    async def test_by_uid_nothing_is_remembered(self) -> None:
        rule = {**KUBEVIRT.model_dump(by_alias=True, exclude_none=True), "remember": "uid"}
        machines = Machines({"owners": [rule]})
        machines.machine()
        remember(machines)
        assert ALL == machines.allowed(POD)
        await machines.bind(POD, "n2")
        await machines.plugin.repair()

        assert ["n1"] == [it.node for it in memory(machines)]


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
    assert by_name == (HOMES in SPEC.kinds(args))
    assert [by_name] * by_name == [it.whole for it in SPEC.writes(args) if it.kind == HOMES]
