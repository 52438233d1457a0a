"""Rules of PreFilter and Filter: kube-scheduler's order, merging and stops."""

from collections.abc import Sequence
from itertools import combinations

import pytest

from app.framework.cycle_state import CycleState
from app.framework.status import SKIP, SUCCESS, Status, error, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.runtime import filters
from app.runtime.filters import FilterOutcome, Recheck
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.prefilter import PreFiltered
from tests.builders import make_pod
from tests.fakes import (
    NO,
    CountsPods,
    FakePlugin,
    NeedsPods,
    Prepares,
    PreparesAndRejects,
    Rejects,
    RejectsInBatch,
    RejectsUncertain,
)
from tests.unit.app.runtime.engine import NEVER, PENDING, POD, WAIT, feasible, framework, info, nodes

FURTHER = unschedulable("also")


def left(*names: str, by: str, otherwise: str = "") -> PreFiltered:
    """Nodes that the plugins ``by`` leave; the reason ``otherwise`` if there are none."""
    return PreFiltered(unresolvable(otherwise) if otherwise else SUCCESS, frozenset(names), tuple(by))


BOTH = "node(s) didn't satisfy plugin(s) [A B] simultaneously"
NOT_ASKED = Prepares("C", error("not asked"))
MERGED: dict[str, tuple[Sequence[FakePlugin], PreFiltered]] = {
    "nobody narrows the nodes": ([Prepares("A"), Prepares("B")], PreFiltered(SUCCESS)),
    "one narrows them": ([Prepares("A"), Prepares("B", names=["n1", "n2"])], left("n1", "n2", by="B")),
    "sets are intersected": ([Prepares("B", names=["n1", "n2"]), Prepares("A", names=["n2"])], left("n2", by="BA")),
    "one empty set": ([Prepares("A", names=[])], left(by="A", otherwise="node(s) didn't satisfy plugin A")),
    "an empty intersection names its plugins in order and stops": (
        [Prepares("B", names=["n1"]), Prepares("A", names=["n2"]), NOT_ASKED],
        left(by="BA", otherwise=BOTH),
    ),
    "of two rejections the last": ([Prepares("A", NO), Prepares("B", FURTHER)], PreFiltered(FURTHER.by("B"))),
    "unresolvable stops at once": ([Prepares("A", NEVER), NOT_ASKED], PreFiltered(NEVER.by("A"))),
    "unresolvable goes first": ([Prepares("A", NO), Prepares("B", NEVER)], PreFiltered(NEVER.by("B"))),
    "a rejection goes before a set": ([Prepares("A", NO), Prepares("B", names=["n1"])], PreFiltered(NO.by("A"))),
    "the node set of a skip is ignored": ([Prepares("A", SKIP, names=["n1"])], PreFiltered(SUCCESS)),
}


class TestPreFilter:
    """Semantics §3.3."""

    @pytest.mark.parametrize(("plugins", "expected"), MERGED.values(), ids=MERGED)
    def test_the_answers_are_merged(self, plugins: Sequence[FakePlugin], expected: PreFiltered) -> None:
        assert expected == framework(*plugins).filters.pre_filter(CycleState(), POD)

    @pytest.mark.parametrize("status", [error("broken"), WAIT, PENDING])
    def test_any_other_answer_is_an_error(self, status: Status) -> None:
        with pytest.raises(PluginError) as raised:
            framework(Prepares("A", status)).filters.pre_filter(CycleState(), POD)

        assert error(f'running PreFilter plugin "A": {status.message}', "A") == raised.value.status

    def test_the_others_still_prepare_after_a_rejection(self) -> None:
        """Preemption needs the state of all of them."""
        calls: list[str] = []

        framework(Prepares("A", NO, calls=calls), Prepares("B", calls=calls)).filters.pre_filter(CycleState(), POD)

        assert ["A: pre_filter", "B: pre_filter"] == calls

    def test_a_skip_leaves_out_the_plugins_filter(self) -> None:
        skips, rejects = PreparesAndRejects("Skips", SKIP), PreparesAndRejects("Rejects")

        assert FilterOutcome(SUCCESS, {}) == feasible(framework(skips))
        assert FilterOutcome(SUCCESS, {"n1": NO.by("Rejects"), "n2": NO.by("Rejects")}) == feasible(
            framework(skips, rejects)
        )

    def test_whoever_is_excused_the_others_are_asked(self) -> None:
        """More sets of them than are remembered, each twice."""
        names = "ABCDEFG"
        engine = framework(*(Rejects(it, {"n1": NO}) for it in names))
        sets = [set(it) for size in range(len(names)) for it in combinations(names, size)]
        for excused in (*sets, *sets):
            state = CycleState()
            state.skip_filter.update(excused)
            first = next(it for it in names if it not in excused)

            assert {"n1": NO.by(first)} == engine.filters.filter(state, POD, nodes("n1"))
        assert len(sets) > filters._MOST_SETS >= len(engine.filters._without)

    def test_a_rejection_holds_for_every_candidate(self) -> None:
        assert FilterOutcome(NO.by("A"), {"n1": NO.by("A"), "n2": NO.by("A")}) == feasible(framework(Prepares("A", NO)))

    def test_nodes_outside_a_set_are_unresolvable_and_not_filtered(self) -> None:
        calls: list[str] = []
        engine = framework(
            Prepares("B", names=["n1", "n2", "gone"]),
            Prepares("A", names=["n2", "n1"]),
            Rejects("F", {"n2": NO}, calls),
        )

        outside = unresolvable("node(s) didn't satisfy plugin(s) [A B]")
        assert FilterOutcome(SUCCESS, {"n3": outside, "n2": NO.by("F")}) == feasible(engine, "n1", "n2", "n3")
        assert ["F: filter n1", "F: filter n2"] == calls


class TestFilter:
    """Semantics §3.2."""

    def test_the_first_rejection_of_a_node_counts(self) -> None:
        calls: list[str] = []
        engine = framework(
            Rejects("A", {"n1": NO}, calls), Rejects("B", {"n1": NEVER, "n2": PENDING}, calls), Rejects("C", {}, calls)
        )

        assert {"n1": NO.by("A"), "n2": PENDING.by("B")} == feasible(engine, "n1", "n2", "n3").rejected
        assert ["A: filter n1", "A: filter n2", "A: filter n3", "B: filter n2", "B: filter n3", "C: filter n3"] == calls

    def test_a_batch_form_is_asked_once_for_those_still_left(self) -> None:
        calls: list[str] = []
        engine = framework(Rejects("A", {"n1": NO}), RejectsInBatch("B", {"n1": NEVER, "n2": NEVER}, calls))

        assert {"n1": NO.by("A"), "n2": NEVER.by("B")} == feasible(engine, "n1", "n2", "n3").rejected
        assert ["B: filter_nodes n2 n3"] == calls

    @pytest.mark.parametrize("form", [Rejects, RejectsInBatch])
    @pytest.mark.parametrize("status", [error("broken"), WAIT, SKIP])
    def test_what_is_no_rejection_ends_the_cycle(self, form: type[Rejects], status: Status) -> None:
        engine = framework(form("A", {"n1": status}))
        expected = error(f'running "A" filter plugin: {status.message}', "A")

        with pytest.raises(PluginError) as raised:
            feasible(engine)
        assert expected == raised.value.status

        with pytest.raises(PluginError) as raised:
            engine.filters.filter_node(CycleState(), POD, info("n1"))
        assert expected == raised.value.status


class TestNominatedPods:
    """Semantics §3.4: a node must do with the pods nominated to it and without."""

    def test_both_passes_must_succeed(self) -> None:
        room_for_one = CountsPods("Room", 1)
        nominated = {"n1": [make_pod("other", priority=5)]}

        assert {"n1": NO.by("Room")} == feasible(framework(room_for_one, nominated=nominated)).rejected

    def test_without_them_is_asked_too(self) -> None:
        """They may never come: what only holds because of them does not hold."""
        nominated = {"n1": [make_pod("other", priority=5)]}

        assert {"n1": NO.by("Needs"), "n2": NO.by("Needs")} == feasible(
            framework(NeedsPods("Needs"), nominated=nominated)
        ).rejected

    def test_the_first_pass_sees_them_on_the_node_and_in_the_state(self) -> None:
        calls: list[str] = []
        engine = framework(
            CountsPods("Room", 3, calls),
            nominated={"n1": [make_pod("a", priority=5), make_pod("b", priority=9)]},
        )

        assert FilterOutcome(SUCCESS, {}) == feasible(engine)
        assert [
            "Room: filter n2 with +0, sees",
            "Room: add a to n1",
            "Room: add b to n1",
            "Room: filter n1 with +2, sees a b",
            "Room: filter n1 with +0, sees",
        ] == calls

    @pytest.mark.parametrize(
        ("other", "expected"),
        [
            pytest.param(make_pod("other", priority=5), {"n1": NO.by("Room")}, id="of equal priority"),
            pytest.param(make_pod("other", priority=6), {"n1": NO.by("Room")}, id="of higher priority"),
            pytest.param(make_pod("other", priority=4), {}, id="of lower priority: it would be preempted"),
            pytest.param(make_pod("pending", priority=5), {}, id="the pod itself"),
            pytest.param(make_pod("other", priority=5, scheduler="else"), {}, id="of a scheduler we do not serve"),
        ],
    )
    def test_which_nominated_pods_count(self, other: Pod, expected: dict[str, Status]) -> None:
        engine = framework(CountsPods("Room", 1), nominated={"n1": [other]})

        assert expected == feasible(engine).rejected

        status = engine.filters.filter_node(_prepared(engine), POD, info("n1"))
        assert expected.get("n1", SUCCESS) == status

    def test_the_state_of_the_evaluation_is_left_alone(self) -> None:
        engine = framework(CountsPods("Room", 9), nominated={"n1": [make_pod("other", priority=5)]})
        state = _prepared(engine)

        engine.filters.filter(state, POD, nodes())
        engine.filters.filter(state, POD, nodes())

        assert 0 == state.read(engine.plugins["Room"].key).count

    def test_a_plugin_that_cannot_add_them_ends_the_cycle(self) -> None:
        room = CountsPods("Room", 9)
        room.shift_status = NO

        with pytest.raises(PluginError) as raised:
            feasible(framework(room, nominated={"n1": [make_pod("other", priority=5)]}))

        assert error('running AddPod on PreFilter plugin "Room": no', "Room") == raised.value.status


def _prepared(engine: Framework) -> CycleState:
    state = CycleState()
    engine.filters.pre_filter(state, POD)
    return state


class TestDryRun:
    def test_plugins_are_told_in_order(self) -> None:
        calls: list[str] = []
        engine = framework(CountsPods("A", 1, calls), Prepares("no extensions"), CountsPods("B", 1, calls))
        state = _prepared(engine)

        engine.filters.remove_pods(state, POD, [make_pod("x"), make_pod("y")], info("n1"))
        engine.filters.add_pods(state, POD, [make_pod("x")], info("n1"))

        assert [
            "A: remove x from n1",
            "B: remove x from n1",
            "A: remove y from n1",
            "B: remove y from n1",
            "A: add x to n1",
            "B: add x to n1",
        ] == calls
        assert [-1, -1] == [state.read(engine.plugins[name].key).count for name in "AB"]

    def test_a_plugin_that_skipped_is_not_told(self) -> None:
        calls: list[str] = []
        state = CycleState()
        state.skip_filter.add("A")

        framework(CountsPods("A", 1, calls)).filters.add_pods(state, POD, [make_pod("x")], info("n1"))

        assert [] == calls


OUTSIDE = unresolvable("node(s) didn't satisfy plugin(s) [A]")
RECHECKED = {
    "no filters at all": (framework(), Recheck(SUCCESS)),
    "PreFilter rejects": (framework(Prepares("A", NO)), Recheck(NO.by("A"))),
    "outside the set of a plugin": (framework(Prepares("A", names=["n2"])), Recheck(OUTSIDE)),
    "Filter rejects": (framework(Rejects("A", {"n1": NO})), Recheck(NO.by("A"))),
    "it may turn out otherwise": (framework(RejectsUncertain("A")), Recheck(SUCCESS, False)),
    "a rejection is not asked further": (framework(RejectsUncertain("A", {"n1": NO})), Recheck(NO.by("A"))),
    "a filter without bounds may depend on any pod": (framework(Rejects("A")), Recheck(SUCCESS, False)),
    "a filter that reads no pods is certain": (framework(Rejects("A"), certain=["A"]), Recheck(SUCCESS)),
    "a filter that skipped is certain": (framework(PreparesAndRejects("A", SKIP)), Recheck(SUCCESS)),
}


class TestRecheck:
    """Bind asks again for one node, and must know whether the answer holds whatever becomes of the binds in flight."""

    IN_FLIGHT = (make_pod("in-flight", node="n1"),)

    @pytest.mark.parametrize(("engine", "expected"), RECHECKED.values(), ids=RECHECKED)
    def test_the_answer_and_whether_it_is_certain(self, engine: Framework, expected: Recheck) -> None:
        assert expected == engine.at_bind.recheck(CycleState(), POD, info("n1"), self.IN_FLIGHT)

    @pytest.mark.parametrize("plugin", [RejectsUncertain("A"), Rejects("A")])
    def test_without_binds_in_flight_everything_is_certain(self, plugin: FakePlugin) -> None:
        assert Recheck(SUCCESS) == framework(plugin).at_bind.recheck(CycleState(), POD, info("n1"), [])

    def test_a_bind_in_flight_elsewhere_may_not_matter(self) -> None:
        engine = framework(RejectsUncertain("A"))

        assert Recheck(SUCCESS) == engine.at_bind.recheck(CycleState(), POD, info("n2"), self.IN_FLIGHT)


class TestDepends:
    """Two binds that do not depend on each other need not wait for one another."""

    OTHER = make_pod("other", labels={"app": "web"})

    @pytest.mark.parametrize(
        ("engine", "expected"),
        [
            pytest.param(framework(), False, id="no filters"),
            pytest.param(framework(Rejects("A")), True, id="a filter without bounds depends on every pod"),
            pytest.param(framework(Rejects("A"), certain=["A"]), False, id="a filter that reads no pods on none"),
            pytest.param(framework(RejectsUncertain("A")), True, id="a filter with bounds says so itself"),
        ],
    )
    def test_on_another_pod(self, engine: Framework, expected: bool) -> None:
        assert expected is engine.filters.depends(POD, self.OTHER)
