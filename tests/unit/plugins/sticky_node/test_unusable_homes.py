"""Since when a home is not usable is written on its owner, with one write per owner and change of state, and told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from app.framework.objects import ObjectGone, Unreadable, WriteConflict
from app.homes.protocol import Policy
from app.kube.core_v1 import Pod
from app.kube.kinds import NAMESPACES, Kind
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.background import Steps
from plugins.sticky_node.home_state import HomeState
from plugins.sticky_node.owners import Owner
from plugins.sticky_node.plugin import StickyNode
from plugins.sticky_node.policy import AppliedPolicy
from plugins.sticky_node.unusable_homes import AGAIN_SECONDS, REST_SECONDS
from tests.api.virtual import now, virtual_time
from tests.builders import JsonObject, encoded, taint
from tests.fakes import Told
from tests.unit.plugins.sticky_node.machines import DATABASE, HOME, MACHINE, launcher, make_node
from tests.unit.plugins.sticky_node.watched import BEGINS, SINCE, Watched, after, at, at_home, away, counted_turns

DB = "VirtualMachine default/db"
POLICY = "homeport.dev/policy"
BY_ORDINAL: JsonObject = {"owners": [{"apiVersion": "example.com/v1", "kind": "Database", "perOrdinal": True}]}


async def passes(seconds: float = 8.0) -> None:
    """By default as long as it takes at most until a few changes are written."""
    await asyncio.sleep(seconds)


def written(machines: Watched) -> list[tuple[str, str | None]]:
    """Which machine was given which time, in order."""
    return [(name, annotations.get(SINCE)) for name, annotations in machines.writer.written]


def machine_in(machines: Watched, namespace: str, name: str) -> None:
    """One whose home is n1."""
    metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1", "annotations": {HOME: "n1"}}
    machines.cluster.others.upsert(MACHINE, MACHINE.decode(encoded({"metadata": metadata})))


def failing(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Its home is away, which cannot be written; what runs in the background fails after a minute."""
    machines = at_home({"gracePeriod": 400})
    machines.writer.unwritable = {"db"}
    machines.cordon("n1")

    async def fail() -> None:
        await asyncio.sleep(60)
        raise RuntimeError("a fault")

    monkeypatch.setattr(machines.plugin._reconciler, "run", fail)
    return machines


def by_number(each: tuple[str, object]) -> int:
    return int(each[0].removeprefix("vm-"))


class TestWritten:
    @virtual_time
    async def test_each_machine_of_a_node_gets_one_write_and_one_more_when_it_is_back(self) -> None:
        machines = Watched()
        for name in ("one", "two"):
            machines.machine(name, home="n1")
        machines.machine("three", home="n2")
        async with machines.leading():
            await at(10)
            machines.cordon("n1")
            await passes(60)
            away = f"away {after(10)} n1"
            assert [("one", away), ("two", away)] == written(machines)
            machines.uncordon("n1")
            await passes(60)

        assert [("one", None), ("two", None)] == written(machines)[2:]
        assert {"homeport.dev/home": "n1"} == machines.annotations(name="one")

    @virtual_time
    async def test_an_owner_of_many_homes_is_written_once(self) -> None:
        machines = Watched(BY_ORDINAL)
        machines.change(DATABASE, {f"homeport.dev/home.{number}": f"n{number}" for number in (1, 2, 3)})
        async with machines.leading():
            await passes()
            machines.cordon("n1", "n2")
            await passes()

        ((_, annotations),) = machines.writer.written
        assert {f"{SINCE}.1": f"away {after(8)} n1", f"{SINCE}.2": f"away {after(8)} n2"} == annotations

    @virtual_time
    async def test_another_home_has_a_time_of_its_own(self) -> None:
        machines = at_home()
        machines.cordon("n1", "n2")
        async with machines.leading():
            await at(50)
            machines.change(MACHINE, {**machines.annotations(), HOME: "n2"})
            await passes()
            assert f"away {after(50)} n2" == machines.since()
            machines.change(MACHINE, {**machines.annotations(), HOME: "n3"})
            await passes()
            assert {HOME: "n3"} == machines.annotations()

    @virtual_time
    async def test_without_a_home_there_is_no_time(self) -> None:
        machines = away()
        async with machines.leading():
            await passes()
            machines.change(MACHINE, {SINCE: machines.since(), f"{SINCE}.7": "left behind"})
            await passes()

        assert {} == machines.annotations()

    @virtual_time
    async def test_with_the_policy_off_nothing_is_written_and_what_is_there_goes(self) -> None:
        machines = Watched()
        machines.machine("off", home="n1", policy="off")
        machines.machine(home="n1")
        machines.cordon("n1")
        async with machines.leading():
            await passes()
            assert {HOME: "n1", POLICY: "off"} == machines.annotations(name="off")
            machines.change(MACHINE, {**machines.annotations(), POLICY: "off"})
            await passes()

        assert {HOME: "n1", POLICY: "off"} == machines.annotations()
        assert ["db", "db"] == [name for name, _ in written(machines)]
        assert {"VirtualMachine default/off"}.isdisjoint(it.regarding for it in machines.events.told)

    @virtual_time
    async def test_a_pod_whose_template_says_more_than_its_owner_has_a_clock(self) -> None:
        machines = away({"policy": "off"})
        async with machines.leading():
            await at(10)
            assert [] == machines.writer.written
            machines.asks(launcher(annotations={POLICY: "grace"}))
            await passes()

        assert f"away {after(10)} n1" == machines.since()

    @virtual_time
    async def test_namespaces_that_change_their_policy_are_looked_at(self) -> None:
        rule = {"namespaceSelector": {"matchLabels": {"homes": "on"}}, "policy": "hard"}
        machines = away({"policy": "off", "namespaces": [rule]})
        async with machines.leading():
            await at(20)
            metadata = {"name": "default", "uid": "u", "resourceVersion": "7", "labels": {"homes": "on"}}
            found = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            machines.cluster.others.upsert(NAMESPACES, NAMESPACES.decode(encoded(found)))
            await passes()

        assert f"away {after(20)} n1" == machines.since()

    @virtual_time
    async def test_who_comes_to_decide_goes_by_what_is_written(self) -> None:
        machines = away()
        async with machines.leading():
            await passes()
        machines.restart()
        async with machines.leading():
            await at(500)
            machines.leaves("n1")
            await passes()

        assert [f"away {after(0)} n1", f"leaving {after(0)} n1"] == [text for _, text in written(machines)]

    @virtual_time
    async def test_one_node_that_goes_with_200_machines_makes_50_writes_a_second(self) -> None:
        machines = Watched()
        for number in range(200):
            machines.add(MACHINE, f"vm-{number}", home="n1")
        machines.cordon("n1")
        async with machines.leading():
            await passes(10)

        assert 200 == len(machines.writes)
        begin = machines.writes[0]
        busiest = max(sum(start <= it < start + 1 for it in machines.writes) for start in machines.writes)
        assert busiest <= 50
        assert machines.writes[-1] - begin < 10

    @virtual_time
    async def test_an_owner_whose_node_comes_and_goes_is_written_every_few_seconds(self) -> None:
        machines = at_home()
        async with machines.leading():
            for _ in range(30):
                machines.cordon("n1")
                await passes(2)
                machines.uncordon("n1")
                await passes(2)
            await passes()

        assert len(machines.writes) <= 128 / REST_SECONDS + 1
        assert {HOME: "n1"} == machines.annotations()

    @virtual_time
    async def test_two_profiles_write_and_tell_once(self) -> None:
        machines = Watched()
        other = StickyNode(StickyNodeArgs(), machines.handle)
        for number in range(20):
            machines.machine(f"vm-{number}", home="n1")
        async with machines.leading(), machines.leading(other):
            machines.cordon("n1")
            await passes()
            machines.uncordon("n1")
            await passes()

        assert 40 == len(machines.writer.written)
        assert 20 == machines.events.reasons.count("HomeAway")
        assert 20 == machines.events.reasons.count("HomeReturned")

    @virtual_time
    async def test_two_profiles_of_which_one_is_off_do_not_fight(self) -> None:
        machines = Watched()
        other = StickyNode(StickyNodeArgs(policy=Policy.OFF), machines.handle)
        machines.machine(home="n1")
        machines.cordon("n1")
        async with machines.leading(), machines.leading(other):
            await passes(600)

        assert f"away {after(0)} n1" == machines.since()
        assert 1 == len(machines.writes)

    @virtual_time
    async def test_two_profiles_of_other_marks_fight_ever_less_and_the_grace_ends_all_the_same(self) -> None:
        machines = Watched({"maintenance": [{"taint": "example.com/mine"}], "gracePeriod": 400})
        other = StickyNode(StickyNodeArgs(adopt=False), machines.handle)
        machines.machine(home="n1")
        machines.cluster.upsert_node(make_node("n1", taints=[taint("example.com/mine")]))
        async with machines.leading(), machines.leading(other):
            assert [] == machines.asks(launcher())
            await at(399)
            assert [] == machines.asks(launcher())
            await at(401)
            assert ["n2", "n3"] == machines.asks(launcher())
            await at(7200)

        assert 4 < len(machines.writes) < 50

    @virtual_time
    @pytest.mark.parametrize("given_up", [{HOME: "n1", "homeport.dev/policy": "off"}, {}], ids=["off", "released"])
    async def test_of_a_home_that_nobody_had_meanwhile_nothing_is_remembered(self, given_up: dict[str, str]) -> None:
        machines = away({"gracePeriod": 900})
        async with machines.leading():
            await at(1)
            assert [] == machines.asks(launcher())
            await at(50)
            machines.change(MACHINE, given_up)
            await at(100)
            machines.uncordon("n1")
            await at(5000)
            machines.cordon("n1")
            await at(5100)
            machines.change(MACHINE, {HOME: "n1"})
            await at(5103)
            assert [] == machines.asks(launcher("second"))

    @virtual_time
    async def test_somebody_who_removes_it_now_and_then_delays_nothing(self) -> None:
        machines = away({"policy": "hard"})
        async with machines.leading():
            for number in range(1, 11):
                await at(2000 * number)
                machines.change(MACHINE, {HOME: "n1"})
            await at(20_030)
            machines.uncordon("n1")
            await at(20_060)

        assert "" == machines.since()

    @virtual_time
    async def test_what_somebody_else_removes_is_remembered(self) -> None:
        machines = away({"gracePeriod": 400})
        async with machines.leading():
            for minute in range(1, 6):
                await at(60 * minute)
                machines.machine(home="n1")
            await at(390)
            assert [] == machines.asks(launcher())
            assert f"away {after(0)} n1" == machines.since()
            await at(401)
            assert ["n2", "n3"] == machines.asks(launcher())


def moved(machines: Watched) -> Exception:
    machines.change(MACHINE, {HOME: "n2"})
    return WriteConflict("it changed")


def deleted(machines: Watched) -> Exception:
    machines.gone(MACHINE)
    return ObjectGone("it is gone")


def conflict(_: Watched) -> Exception:
    return WriteConflict("it changed")


class TestNotWritten:
    @virtual_time
    @pytest.mark.parametrize(
        ("failures", "attempts", "left"),
        [
            pytest.param([moved], 1, {HOME: "n2"}, id="what changed meanwhile is written against its newest form"),
            pytest.param([deleted], 1, None, id="one that is gone is forgotten"),
            pytest.param(
                [conflict] * 7,
                8,
                {HOME: "n1", SINCE: f"away {after(0)} n1"},
                id="one that changes is left alone",
            ),
        ],
    )
    async def test_an_owner_that_changes_meanwhile(
        self, failures: list[Callable[[Watched], Exception]], attempts: int, left: dict[str, str] | None
    ) -> None:
        machines = at_home()
        machines.writer.before = [partial(it, machines) for it in failures]
        machines.cordon("n1")
        async with machines.leading():
            await passes(300)

        found = machines.cluster.get(MACHINE, "default", "db")
        assert (attempts, left) == (len(machines.writes), None if found is None else found.annotations)

    @virtual_time
    async def test_without_the_right_it_is_said_once_tried_rarely_and_kept_in_memory(self) -> None:
        machines = Watched()
        for number in range(50):
            machine_in(machines, f"team-{number % 4}", f"vm-{number}")
            machines.writer.unwritable.add(f"vm-{number}")
        with capture_logs() as said:
            machines.cordon("n1")
            async with machines.leading():
                await passes(3600)
                tried = len(machines.writes)
                machines.writer.unwritable.clear()
                await passes(120)

        lines = [it for it in said if it["event"] == "state of homes not recorded"]
        assert [("VirtualMachine team-0/vm-0", "forbidden")] == [(it["machine"], it["cause"]) for it in lines]
        assert tried < 3600 / AGAIN_SECONDS + 50
        times = [(name, annotations[SINCE]) for name, annotations in machines.writer.written]
        assert [(f"vm-{number}", f"away {after(0)} n1") for number in range(50)] == sorted(times, key=by_number)

    @virtual_time
    async def test_many_that_cannot_be_written_keep_no_other_from_it(self) -> None:
        machines = Watched()
        for number in range(40):
            machine_in(machines, f"team-{number % 2}", f"vm-{number}")
            machines.writer.unwritable.add(f"vm-{number}")
        machines.machine("good", home="n1")
        async with machines.leading():
            await at(600)
            machines.writes.clear()
            machines.cordon("n1")
            await at(605)
            assert f"away {after(600)} n1" == machines.since("good")
            await at(4200)

        assert len(machines.writes) <= 40 * (3600 / AGAIN_SECONDS + 10)

    @virtual_time
    async def test_one_that_cannot_be_written_is_tried_ever_less_often(self) -> None:
        machines = at_home()
        machines.writer.unwritable = {"db"}
        machines.cordon("n1")
        async with machines.leading():
            await at(600)

        between = [round(after - before) for before, after in pairwise(machines.writes)]
        assert [1, 2, 4, 8, 16, 32, 60, 60] == between[:8]

    @virtual_time
    async def test_what_its_policy_rests_on_being_unreadable_it_waits_for_that(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        machines = Watched()
        for name in ("one", "two"):
            machines.machine(name, home="n1")
        of, asked = machines.plugin._policies.of, list[float]()

        def unreadable(owner: Owner, pod: Pod | None = None) -> AppliedPolicy:
            if owner.obj.name == "one":
                asked.append(now())
                raise Unreadable("VirtualMachine", "default/one", "odd")
            return of(owner, pod)

        async with machines.leading():
            machines.writer.unwritable = {"one"}
            machines.cordon("n1")
            await passes()
            monkeypatch.setattr(machines.plugin._policies, "of", unreadable)
            machines.writer.unwritable = set()
            await passes(600)
            assert ["two"] == [name for name, _ in written(machines)]
            assert 1 <= len(asked) <= 20
            monkeypatch.undo()
            await passes(AGAIN_SECONDS + 5)

        assert ["two", "one"] == [name for name, _ in written(machines)]

    @virtual_time
    async def test_an_owner_that_cannot_be_read_keeps_no_other_from_it(self) -> None:
        machines = Watched()
        for name in ("one", "two"):
            machines.machine(name, home="n1")
        machines.cordon("n1")
        async with machines.leading():
            machines.cluster.mark_unreadable(MACHINE, ("default", "one"), "odd")
            await passes(10)
            assert ["two"] == [name for name, _ in written(machines)]
            machines.cluster.mark_readable(MACHINE, ("default", "one"))
            machines.leaves("n1")
            await passes()

        assert f"leaving {after(0)} n1" == machines.since("one")

    @virtual_time
    @pytest.mark.parametrize(
        ("begins_again", "allowed"),
        [pytest.param(61, ["n2", "n3"], id="in this term"), pytest.param(3600, [], id="in an earlier term")],
    )
    async def test_what_was_seen_before_a_fault_counts_within_the_term(
        self, monkeypatch: pytest.MonkeyPatch, begins_again: float, allowed: list[str]
    ) -> None:
        machines = failing(monkeypatch)
        for _ in range(2):
            machines.asks(launcher())
            with pytest.raises(RuntimeError):
                await machines.plugin.run()
            await at(begins_again)
        await asyncio.sleep(280)

        assert allowed == machines.asks(launcher())

    @virtual_time
    async def test_who_stops_deciding_forgets_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        machines = at_home({"gracePeriod": 400})
        machines.writer.unwritable = {"db"}
        machines.cordon("n1")
        monkeypatch.setattr(machines.plugin._reconciler, "run", asyncio.Event().wait)
        for seconds in (60, 450):
            running = asyncio.ensure_future(machines.plugin.run())
            await asyncio.sleep(1)
            assert [] == machines.asks(launcher())
            await at(seconds)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        assert [] == machines.asks(launcher())


class TestManySlots:
    """Anybody who may edit an owner may write as many homes on it as annotations hold."""

    @virtual_time
    async def test_each_is_looked_at_as_often_as_one_would_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        machines = Watched(BY_ORDINAL)
        machines.change(DATABASE, {f"{HOME}.{number}": "nowhere" for number in range(200)})
        looked: list[str] = []
        of_node = machines.plugin._home_states.of_node

        def counted(home: str, owner: Owner) -> HomeState:
            looked.append(owner.slot)
            return of_node(home, owner)

        monkeypatch.setattr(machines.plugin._home_states, "of_node", counted)
        async with machines.leading():
            await passes()

        assert {str(number) for number in range(200)} == set(looked)
        assert len(looked) <= 200 * 8


class TestTurns:
    """Others have their turn."""

    @virtual_time
    async def test_between_the_homes_of_one_owner(self, monkeypatch: pytest.MonkeyPatch) -> None:
        turns = counted_turns(monkeypatch)
        machines = Watched(BY_ORDINAL)
        machines.change(DATABASE, {f"{HOME}.{number}": "n1" for number in range(100)})

        await machines.plugin._unusable_homes.look(Steps(asyncio.sleep))

        assert len(turns) >= 100

    @virtual_time
    async def test_while_many_come_due(self, monkeypatch: pytest.MonkeyPatch) -> None:
        machines = Watched()
        for number in range(200):
            machines.machine(f"vm-{number}", home="n1")
        machines.cordon("n1")
        homes = machines.plugin._unusable_homes
        await homes.look(Steps(asyncio.sleep))
        turns = counted_turns(monkeypatch)

        await homes.write(0.0, Steps(asyncio.sleep))

        assert (200, 0) == (len(turns), len(written(machines)))


class TestQuiet:
    @virtual_time
    async def test_of_many_owners_the_one_that_changed_is_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        machines = Watched()
        for number in range(50):
            machines.machine(f"vm-{number}", home="n1")
        looked: list[str] = []
        of = machines.plugin._policies.of

        def counted(owner: Owner, pod: Pod | None = None) -> AppliedPolicy:
            looked.append(owner.obj.name)
            return of(owner, pod)

        async with machines.leading():
            await passes()
            monkeypatch.setattr(machines.plugin._policies, "of", counted)
            machines.machine("vm-7", home="n2")
            await passes()

        assert {"vm-7"} == set(looked)

    @virtual_time
    async def test_where_nothing_moves_nothing_is_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        machines = away()
        looks: list[float] = []
        every = machines.cluster.every

        def counted(kind: Kind[Any]) -> Iterator[Any]:
            looks.append(now() - BEGINS)
            return every(kind)

        monkeypatch.setattr(machines.cluster, "every", counted)
        async with machines.leading():
            await passes(10)
            before = len(looks)
            await passes(3600)
            assert before == len(looks)
            for _ in range(20):  # a busy cluster
                machines.machine("other", home="n2")
                await passes(0.1)
            await passes(0.5)

        assert len(looks) - before <= 3

    @virtual_time
    async def test_those_that_rest_are_not_looked_at_before_their_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        machines = Watched()
        for number in range(40):
            machines.machine(f"vm-{number}", home="n1")
        asked = 0

        def counted() -> float:
            nonlocal asked
            asked += 1
            return now()

        async with machines.leading():
            machines.cordon("n1")
            await passes(3)
            assert 40 == len(written(machines))
            machines.uncordon("n1")
            await passes(1.5)
            homes = machines.plugin._unusable_homes
            timing = replace(homes._handle.timing, clock=counted)
            monkeypatch.setattr(homes, "_handle", replace(homes._handle, timing=timing))
            assert 40 == len(homes._unwritten)
            for _ in range(4):
                await homes.write(0.25, Steps(asyncio.sleep))
            assert (True, 40) == (asked <= 20, len(written(machines)))
            await passes(60)

        assert 80 == len(written(machines))

    @virtual_time
    async def test_a_node_that_comes_and_goes_at_once_makes_no_write(self) -> None:
        machines = at_home()
        async with machines.leading():
            await passes()
            machines.cordon("n1")
            machines.uncordon("n1")
            await passes()

        assert [] == machines.writer.written


class TestTold:
    """On the owner, and in the log."""

    @virtual_time
    async def test_also_where_nothing_may_be_written(self) -> None:
        machines = at_home()
        machines.writer.unwritable = {"db"}
        async with machines.leading():
            await passes()
            machines.cordon("n1")
            await passes(1000)
            machines.uncordon("n1")
            await passes(1000)

        assert ["HomeAway", "HomeReturned"] == machines.events.reasons

    @virtual_time
    async def test_each_state_that_a_home_comes_to(self) -> None:
        machines = at_home()
        with capture_logs() as said:
            async with machines.leading():
                await passes()
                machines.cordon("n1")
                await passes()
                machines.leaves("n1")
                await passes()
                machines.cluster.delete_node("n1")
                await passes()
                machines.uncordon("n1")
                await passes()

        def told(type_: Any, reason: str, note: str) -> Told:
            return Told(DB, "Node n1", type_, reason, "Watching", note)

        assert [
            told("Normal", "HomeAway", "the home n1 is away (cordoned)"),
            told("Normal", "HomeLeaving", "the home n1 is leaving (taint ToBeDeletedByClusterAutoscaler)"),
            told("Warning", "HomeGone", "the home n1 is gone"),
            told("Normal", "HomeReturned", "the home n1 is usable again"),
        ] == machines.events.told
        lines = [(it["event"], it.get("state", "")) for it in said if it.get("machine") == DB]
        states = [("home not usable", it) for it in ("away", "leaving", "gone")]
        assert [*states, ("home returned", "")] == lines

    @virtual_time
    async def test_it_is_not_told_again_by_who_comes_to_decide(self) -> None:
        machines = away()
        async with machines.leading():
            await passes()
        machines.restart()
        async with machines.leading():
            await passes()
            assert ["HomeAway"] == machines.events.reasons
        machines.uncordon("n1")
        machines.restart()
        async with machines.leading():
            await passes()

        assert ["HomeAway", "HomeReturned"] == machines.events.reasons

    @virtual_time
    async def test_a_home_written_by_hand_that_is_no_node(self) -> None:
        machines = at_home()
        with capture_logs() as said:
            async with machines.leading():
                await passes()
                machines.change(MACHINE, {HOME: "N 1\x00" * 100})
                await passes()
                machines.machine("new", home="n9")
                await passes()

        assert ["HomeUnknown", "HomeUnknown"] == machines.events.reasons
        bad, new = machines.events.told
        assert ("", True) == (bad.related, bad.note.startswith("the home 'N 1\\x00N 1"))
        assert len(bad.note) < 300
        note = "the home n9 does not name an existing node: correct or remove homeport.dev/home"
        assert Told("VirtualMachine default/new", "Node n9", "Warning", "HomeUnknown", "Watching", note) == new
        assert ["home unknown"] * 2 == [it["event"] for it in said if it["event"] == "home unknown"]

    @virtual_time
    async def test_one_that_went_before_anybody_looked(self) -> None:
        machines = Watched()
        machines.machine(home="n9")
        async with machines.leading():
            await passes()

        assert ["HomeGone"] == machines.events.reasons

    @virtual_time
    async def test_one_of_which_a_pod_asks_at_once(self) -> None:
        machines = at_home()
        async with machines.leading():
            await passes()
            machines.machine("other", home="n2")
            await passes(0.5)
            machines.change(MACHINE, {HOME: "n9"})
            machines.asks(launcher())
            await passes()

        told = [it for it in machines.events.told if (it.regarding, it.action) == (DB, "Watching")]
        assert ["HomeUnknown"] == [it.reason for it in told]

    @virtual_time
    async def test_a_policy_that_is_none_once_for_each_that_was_written(self) -> None:
        machines = Watched()
        machines.machine(policy="stict")
        async with machines.leading():
            await passes()
            machines.change(MACHINE, {**machines.annotations(), "homeport.dev/other": "1"})
            await passes()
            machines.change(MACHINE, {POLICY: "x" * 900})
            await passes()
            machines.change(MACHINE, {POLICY: "hard"})
            await passes()

        first, second = machines.events.told
        note = (
            "homeport.dev/policy says 'stict', which is not a policy and is ignored: use one of off, soft, hard, grace"
        )
        assert Told(DB, "", "Warning", "PolicyUnknown", "Watching", note.replace("'stict'", "stict")) == first
        assert len(second.note) < 300
