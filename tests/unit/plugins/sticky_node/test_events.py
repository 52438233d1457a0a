"""What people see of homes on the machine: an Event for each that is made, lost, overridden or not recorded.

What the log says of homes: each made, moved or given up in one line, and what cannot be recorded once.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from plugins.sticky_node import SPEC
from plugins.sticky_node.events import MOST_REPORTED
from tests.builders import JsonObject, claim_object, encoded, volume_object
from tests.fakes import Told
from tests.unit.plugins.sticky_node.machines import (
    HOME,
    HOME_POD,
    MACHINE,
    SET,
    Machines,
    launcher,
    own_home,
)

DB = "VirtualMachine default/db"
POD = "Pod default/first"
FIRST = launcher("first")


@pytest.fixture
def machines() -> Machines:
    machines = Machines()
    machines.machine()
    return machines


async def test_a_home_that_a_bind_made_is_told_once(machines: Machines) -> None:
    with capture_logs() as said:
        await machines.bind(FIRST, "n1")
        await machines.bind(launcher("second"), "n1")
        await machines.repair()

    assert [made()] == said
    note = "n1 is the home from now on: default/first was bound there first"
    assert [Told(DB, POD, "Normal", "HomeMade", "Binding", note)] == machines.events.told


async def test_one_that_a_person_wrote_meanwhile_is_told_as_overriding(machines: Machines) -> None:
    await machines.bind(FIRST, "n1", copies=False)
    machines.change(MACHINE, {HOME: "n3"})
    with capture_logs() as said:
        await machines.repair()

    assert [] == said
    note = "default/first runs on n1; the home stays n3, which was written meanwhile"
    assert [Told(DB, POD, "Warning", "HomeOverridden", "Binding", note)] == machines.events.told


async def test_the_same_home_written_by_a_person_overrides_nothing(machines: Machines) -> None:
    await machines.bind(FIRST, "n1", copies=False)
    machines.change(MACHINE, {HOME: "n1"})
    await machines.repair()

    assert [] == machines.events.told


async def test_what_cannot_be_recorded_is_told_once_for_each_cause(machines: Machines) -> None:
    machines.writer.before = [OSError(cause) for cause in ("forbidden", "forbidden", "no route", "no route")]
    with capture_logs() as said:
        await machines.bind(FIRST, "n1")
        for _ in range(4):
            await machines.repair()

    assert [not_recorded("forbidden"), not_recorded("no route"), made()] == said
    note = "the home n1 of default/first cannot be written here, and is kept in memory: forbidden"
    assert Told(DB, POD, "Warning", "HomeNotRecorded", "Binding", note) == machines.events.told[0]
    assert ["HomeNotRecorded", "HomeNotRecorded", "HomeMade"] == machines.events.reasons


class TestNoName:
    """An annotation holds what anybody wrote, up to 1 KB: what is no name of a node is related to none, and cut."""

    HUGE = "n" * 1024

    def change(self, machines: Machines, old: str, new: str) -> Told:
        machines.change(MACHINE, {HOME: old} if old else {})
        known = machines.cluster.get(MACHINE, "default", "db")
        machines.change(MACHINE, {HOME: new} if new else {})
        machines.plugin.object_changed(MACHINE, known, machines.cluster.get(MACHINE, "default", "db"))
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
        await machines.repair()

        (told,) = machines.events.told
        assert ("HomeOverridden", True) == (told.reason, len(told.note) < 200)


def test_ordinals_are_named() -> None:
    machines = Machines({"owners": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "perOrdinal": True}]})
    machines.add(SET)
    known = machines.cluster.get(SET, "default", "db")
    machines.change(SET, {f"{HOME}.3": "n1"})

    machines.plugin.object_changed(SET, known, machines.cluster.get(SET, "default", "db"))

    assert ["n1 is the home of ordinal 3 from now on"] == [it.note for it in machines.events.told]


OURS = {HOME_POD: FIRST.uid}
Lines = list[dict[str, object]]


def made() -> dict[str, object]:
    return {"event": "home made", "log_level": "info", "machine": DB, "node": "n1", "pod": "default/first"}


def not_recorded(cause: str) -> dict[str, object]:
    said = {"event": "home not recorded", "log_level": "warning", "machine": DB}
    return {**said, "verb": "patch", "pod": "default/first", "cause": cause}


class TestNotRecorded:
    async def test_it_is_tried_again_after_a_restart(self, machines: Machines) -> None:
        """And kept in memory, where the pod was bound by an earlier process."""
        machines.writer.unwritable = {"db"}
        await machines.bind(FIRST, "n1")
        machines.restart()

        with capture_logs() as said:
            await machines.repair()
        machines.cluster.delete_pod(FIRST.key)
        assert ([not_recorded("forbidden")], ["n1"]) == (said, machines.allowed(launcher("second")))

        machines.writer.unwritable = set()
        await machines.repair()
        assert own_home("n1", FIRST.uid) == machines.annotations()

    async def test_a_write_of_which_nobody_heard_is_told_when_it_shows(self, machines: Machines) -> None:
        def arrives_unheard() -> Exception:
            machines.change(MACHINE, {HOME: "n1", **OURS})
            return OSError("timed out")

        machines.writer.before = [arrives_unheard]
        with capture_logs() as said:
            await machines.bind(FIRST, "n1")
            await machines.repair()

        assert [not_recorded("timed out"), made()] == said

    async def test_later_boots_of_such_a_machine_leave_nothing_behind(self, machines: Machines) -> None:
        machines.writer.unwritable = {"db"}
        for number in range(3):
            pod = launcher(f"boot-{number}", created=f"2026-11-21T10:00:0{number}Z")
            assert ["n1", "n2", "n3"][: 1 if number else 3] == machines.allowed(pod)
            await machines.bind(pod, "n1")
            machines.cluster.delete_pod(pod.key)

        assert ["default/boot-2"] == [str(it.pod) for it in machines.plugin._pending.made()]

    async def test_one_of_a_machine_that_is_gone_is_forgotten(self, machines: Machines) -> None:
        machines.writer.unwritable = {"db"}
        await machines.bind(FIRST, "n1")
        machines.gone(MACHINE)

        await machines.repair()

        assert [] == machines.plugin._pending.made()
        assert {} == machines.plugin._recorder._causes


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param({HOME: "n1", **OURS}, {HOME: "n1", **OURS}, [], id="nothing changed"),
        pytest.param({HOME: "n1", **OURS}, {HOME: "n1"}, [], id="the home is as it was"),
        pytest.param({}, {HOME: "n1", **OURS}, [], id="a home that Homeport made is told elsewhere"),
        pytest.param({}, {HOME: "n1"}, [{"event": "home given", "node": "n1"}], id="given"),
        pytest.param(OURS, {HOME: "n1", **OURS}, [{"event": "home given", "node": "n1"}], id="given back"),
        pytest.param(
            {HOME: "n1", **OURS},
            {HOME: "n2", **OURS},
            [{"event": "home moved", "before": "n1", "node": "n2"}],
            id="moved",
        ),
        pytest.param({HOME: "n1", **OURS}, OURS, [{"event": "home given up", "node": "n1"}], id="given up"),
        pytest.param({HOME: "n1", **OURS}, {}, [{"event": "home given up", "node": "n1"}], id="given up altogether"),
        pytest.param({HOME: "n1"}, {HOME: ""}, [{"event": "home given up", "node": "n1"}], id="emptied"),
        pytest.param(
            {f"{HOME}.0": "n1", f"{HOME}.1": "n1"},
            {f"{HOME}.0": "n2"},
            [
                {"event": "home moved", "machine": f"{DB}, ordinal 0", "before": "n1", "node": "n2"},
                {"event": "home given up", "machine": f"{DB}, ordinal 1", "node": "n1"},
            ],
            id="of ordinals",
        ),
        pytest.param({"homeport.dev/homely": "x"}, {}, [], id="an annotation of another name"),
    ],
)
def test_what_somebody_changed(old: Mapping[str, str], new: Mapping[str, str], said: Lines) -> None:
    machines = Machines()
    machines.change(MACHINE, old)
    known = machines.cluster.get(MACHINE, "default", "db")
    machines.change(MACHINE, new)
    found = machines.cluster.get(MACHINE, "default", "db")

    with capture_logs() as told:
        machines.plugin.object_changed(MACHINE, known, found)

    reasons = {"home given": "HomeGiven", "home moved": "HomeMoved", "home given up": "HomeGivenUp"}
    assert [(DB, f"Node {line['node']}", "Normal", reasons[str(line["event"])]) for line in said] == [
        (it.regarding, it.related, it.kind, it.reason) for it in machines.events.told
    ]
    assert [{"log_level": "info", "machine": DB, **line} for line in said] == told


def test_of_one_object_some_tens_are_told() -> None:
    """Anybody who may edit it may write as many homes on it as annotations hold, time and again."""
    machines = Machines()
    old, new = ({f"{HOME}.{number}": node for number in range(500)} for node in ("n1", "n2"))
    machines.change(MACHINE, old)
    known = machines.cluster.get(MACHINE, "default", "db")
    machines.change(MACHINE, {**new, f"{HOME}.0": "n1"})

    with capture_logs() as told:
        machines.plugin.object_changed(MACHINE, known, machines.cluster.get(MACHINE, "default", "db"))

    assert {"home moved"} == {it["event"] for it in told}
    assert MOST_REPORTED == len(told) == len(machines.events.told)


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(claim_object(), id="a claim"),
        pytest.param(volume_object(), id="a volume"),
        pytest.param({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}, id="a namespace"),
    ],
)
def test_of_what_keeps_no_home_nothing_is_told(before: JsonObject) -> None:
    """They are read nevertheless, and change all the time."""
    machines = Machines({"namespaces": [{"namespaceSelector": {}, "policy": "soft"}]})
    (kind,) = [it for it in SPEC.needs(machines._args).kinds if it.kind == before["kind"]]
    after = {**before, "metadata": {**before["metadata"], "resourceVersion": "2", "labels": {"a": "b"}}}

    with capture_logs() as said:
        machines.plugin.object_changed(kind, kind.decode(encoded(before)), kind.decode(encoded(after)))

    assert ([], []) == (said, machines.events.told)
