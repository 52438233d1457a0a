"""Rules of the engine: kube-scheduler's order, merging and stops at every extension point."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from app.cache.cluster import Cluster
from app.config.profile import POINTS
from app.framework.cycle_state import CycleState
from app.framework.interface import Figure, FiguresPlugin, PostFilterResult, Reads
from app.framework.node_info import Candidates, NodeInfo
from app.framework.status import SKIP, SUCCESS, Code, Status, error, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import SERVICES
from app.runtime.filtering import Judged, PreFiltered, Recheck
from app.runtime.framework import Framework
from app.runtime.guard import SAMPLE_EVERY, Guard, PluginError
from app.runtime.registry import POINT_METHODS
from app.runtime.slots import PluginSlot, declares
from app.runtime.waiting import WaitingPods
from app.telemetry.metrics import Metrics
from tests.builders import make_node, make_pod
from tests.fakes import (
    NO,
    Acts,
    ActsIfNeeded,
    CountsPods,
    FakePlugin,
    FixedNominations,
    Gates,
    HalvesInBatch,
    Helps,
    Misses,
    NeedsPods,
    Permits,
    Prepares,
    PreparesAndRejects,
    Rejects,
    RejectsInBatch,
    RejectsUncertain,
    Reserves,
    ReservesBadly,
    ScoresAfter,
    ScoresHalved,
    ScoresInBatch,
    ScoresNodes,
    Sorts,
)

POD = make_pod("pending", priority=5)
NEVER = unresolvable("never")
WAIT = Status(Code.WAIT, ("not now",))
PENDING = Status(Code.PENDING, ("later",))


def framework(
    *plugins: FakePlugin,
    weights: Mapping[str, int] | None = None,
    nominated: Mapping[str, Sequence[Pod]] | None = None,
    certain: Sequence[str] = (),
) -> Framework:
    """The plugins in the order given, each at every point it has; those ``certain`` read nodes alone."""
    slots = {
        point: [
            PluginSlot.of(
                it.name,
                it,
                weight=(weights or {}).get(it.name, 1),
                reads=Reads.NODE if it.name in certain else Reads.CLUSTER,
            )
            for it in plugins
            if point in POINT_METHODS and declares(type(it), POINT_METHODS[point])
        ]
        for point in POINTS
    }
    nominations = FixedNominations(nominated)
    picture = Cluster()
    for name in ("n1", "n2", "n3"):
        picture.upsert_node(make_node(name))
    return Framework(
        "default-scheduler",
        slots,
        served=["default-scheduler"],
        nominations=nominations,
        picture=picture,
        waiting=WaitingPods(),
        guard=Guard(Metrics()),
    )


def nodes(*names: str) -> Candidates:
    return Candidates.of({name: NodeInfo(make_node(name)) for name in names or ("n1", "n2")})


def info(name: str = "n1", *pods: Pod) -> NodeInfo:
    return NodeInfo(make_node(name)).with_pods(pods)


def feasible(engine: Framework, *names: str) -> Judged:
    return engine.feasible(CycleState(), POD, nodes(*names))


class TestPreFilter:
    """Semantics §3.3."""

    @pytest.mark.parametrize(
        ("plugins", "expected"),
        [
            pytest.param([], PreFiltered(SUCCESS), id="nobody says anything"),
            pytest.param([Prepares("A"), Prepares("B")], PreFiltered(SUCCESS), id="nobody narrows the nodes"),
            pytest.param(
                [Prepares("A"), Prepares("B", names=["n1", "n2"])],
                PreFiltered(SUCCESS, frozenset({"n1", "n2"}), ("B",)),
                id="one narrows them",
            ),
            pytest.param(
                [Prepares("B", names=["n1", "n2"]), Prepares("A", names=["n2", "n3"])],
                PreFiltered(SUCCESS, frozenset({"n2"}), ("B", "A")),
                id="sets are intersected",
            ),
            pytest.param(
                [Prepares("A", names=[])],
                PreFiltered(unresolvable("node(s) didn't satisfy plugin A"), frozenset(), ("A",)),
                id="one empty set",
            ),
            pytest.param(
                [Prepares("B", names=["n1"]), Prepares("A", names=["n2"]), Prepares("C", error("not asked"))],
                PreFiltered(
                    unresolvable("node(s) didn't satisfy plugin(s) [A B] simultaneously"), frozenset(), ("B", "A")
                ),
                id="an empty intersection names its plugins in order and stops",
            ),
            pytest.param([Prepares("A", NO)], PreFiltered(NO.by("A")), id="a rejection"),
            pytest.param(
                [Prepares("A", NO), Prepares("B", unschedulable("also"))],
                PreFiltered(unschedulable("also").by("B")),
                id="of two rejections the last",
            ),
            pytest.param(
                [Prepares("A", NEVER), Prepares("B", error("not asked"))],
                PreFiltered(NEVER.by("A")),
                id="an unresolvable rejection stops at once",
            ),
            pytest.param(
                [Prepares("A", NO), Prepares("B", NEVER)],
                PreFiltered(NEVER.by("B")),
                id="unresolvable goes before a rejection remembered",
            ),
            pytest.param(
                [Prepares("A", NO), Prepares("B", names=["n1"])],
                PreFiltered(NO.by("A")),
                id="a rejection remembered goes before a node set",
            ),
            pytest.param(
                [Prepares("A", SKIP, names=["n1"])], PreFiltered(SUCCESS), id="the node set of a skip is ignored"
            ),
        ],
    )
    def test_the_answers_are_merged(self, plugins: Sequence[FakePlugin], expected: PreFiltered) -> None:
        assert expected == framework(*plugins).pre_filter(CycleState(), POD)

    @pytest.mark.parametrize("status", [error("broken"), WAIT, PENDING])
    def test_any_other_answer_is_an_error(self, status: Status) -> None:
        with pytest.raises(PluginError) as raised:
            framework(Prepares("A", status)).pre_filter(CycleState(), POD)

        assert error(f'running PreFilter plugin "A": {status.message}', "A") == raised.value.status

    def test_the_others_still_prepare_after_a_rejection(self) -> None:
        """Preemption needs the state of all of them."""
        calls: list[str] = []

        framework(Prepares("A", NO, calls=calls), Prepares("B", calls=calls)).pre_filter(CycleState(), POD)

        assert ["A: pre_filter", "B: pre_filter"] == calls

    def test_a_skip_leaves_out_the_plugins_filter(self) -> None:
        skips, rejects = PreparesAndRejects("Skips", SKIP), PreparesAndRejects("Rejects")

        assert Judged(SUCCESS, {}) == feasible(framework(skips))
        assert Judged(SUCCESS, {"n1": NO.by("Rejects"), "n2": NO.by("Rejects")}) == feasible(framework(skips, rejects))

    def test_a_rejection_holds_for_every_candidate(self) -> None:
        assert Judged(NO.by("A"), {"n1": NO.by("A"), "n2": NO.by("A")}) == feasible(framework(Prepares("A", NO)))

    def test_nodes_outside_a_set_are_unresolvable_and_not_filtered(self) -> None:
        calls: list[str] = []
        engine = framework(
            Prepares("B", names=["n1", "n2", "gone"]),
            Prepares("A", names=["n2", "n1"]),
            Rejects("F", {"n2": NO}, calls),
        )

        outside = unresolvable("node(s) didn't satisfy plugin(s) [A B]")
        assert Judged(SUCCESS, {"n3": outside, "n2": NO.by("F")}) == feasible(engine, "n1", "n2", "n3")
        assert ["F: filter n1", "F: filter n2"] == calls


class TestFilter:
    """Semantics §3.2."""

    def test_the_first_rejection_of_a_node_counts(self) -> None:
        calls: list[str] = []
        engine = framework(
            Rejects("A", {"n1": NO}, calls), Rejects("B", {"n1": NEVER, "n2": NEVER}, calls), Rejects("C", {}, calls)
        )

        assert {"n1": NO.by("A"), "n2": NEVER.by("B")} == feasible(engine, "n1", "n2", "n3").rejected
        assert ["A: filter n1", "A: filter n2", "A: filter n3", "B: filter n2", "B: filter n3", "C: filter n3"] == calls

    def test_a_batch_form_is_asked_once_for_those_still_left(self) -> None:
        calls: list[str] = []
        engine = framework(Rejects("A", {"n1": NO}), RejectsInBatch("B", {"n1": NEVER, "n2": NEVER}, calls))

        assert {"n1": NO.by("A"), "n2": NEVER.by("B")} == feasible(engine, "n1", "n2", "n3").rejected
        assert ["B: filter_nodes n2 n3"] == calls

    @pytest.mark.parametrize("form", [Rejects, RejectsInBatch])
    @pytest.mark.parametrize("status", [NO, NEVER, PENDING])
    def test_rejections_are_named_after_their_plugin(self, form: type[Rejects], status: Status) -> None:
        assert {"n1": status.by("A")} == feasible(framework(form("A", {"n1": status}))).rejected

    @pytest.mark.parametrize("form", [Rejects, RejectsInBatch])
    @pytest.mark.parametrize("status", [error("broken"), WAIT, SKIP])
    def test_what_is_no_rejection_ends_the_cycle(self, form: type[Rejects], status: Status) -> None:
        engine = framework(form("A", {"n1": status}))
        expected = error(f'running "A" filter plugin: {status.message}', "A")

        with pytest.raises(PluginError) as raised:
            feasible(engine)
        assert expected == raised.value.status

        with pytest.raises(PluginError) as raised:
            engine.filter_node(CycleState(), POD, info("n1"))
        assert expected == raised.value.status

    def test_a_fault_ends_the_cycle_and_names_the_plugin(self) -> None:
        with pytest.raises(PluginError) as raised:
            framework(CountsPods("Forgetful", 1)).filter(CycleState(), POD, nodes("n1"))

        assert (
            error('running "Forgetful" filter plugin: reading "Forgetful" from cycleState: not found', "Forgetful")
            == raised.value.status
        )

    def test_no_candidates_no_rejections(self) -> None:
        empty = Candidates.of({})

        assert Judged(SUCCESS, {}) == framework(RejectsInBatch("A", {"n1": NO})).feasible(CycleState(), POD, empty)


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

        assert Judged(SUCCESS, {}) == feasible(engine)
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

        status = engine.filter_node(_prepared(engine), POD, info("n1"))
        assert expected.get("n1", SUCCESS) == status

    def test_the_state_of_the_evaluation_is_left_alone(self) -> None:
        engine = framework(CountsPods("Room", 9), nominated={"n1": [make_pod("other", priority=5)]})
        state = _prepared(engine)

        engine.filter(state, POD, nodes())
        engine.filter(state, POD, nodes())

        assert 0 == state.read(engine.plugins["Room"].key).count

    def test_a_plugin_that_cannot_add_them_ends_the_cycle(self) -> None:
        room = CountsPods("Room", 9)
        room.shift_status = NO

        with pytest.raises(PluginError) as raised:
            feasible(framework(room, nominated={"n1": [make_pod("other", priority=5)]}))

        assert error('running AddPod on PreFilter plugin "Room": no', "Room") == raised.value.status

    def test_candidates_nobody_asked_about_stay_out(self) -> None:
        engine = framework(CountsPods("Room", 1), nominated={"n9": [make_pod("other", priority=5)]})

        assert {} == feasible(engine).rejected


def _prepared(engine: Framework) -> CycleState:
    state = CycleState()
    engine.pre_filter(state, POD)
    return state


class TestDryRun:
    def test_plugins_are_told_in_order(self) -> None:
        calls: list[str] = []
        engine = framework(CountsPods("A", 1, calls), Prepares("no extensions"), CountsPods("B", 1, calls))
        state = _prepared(engine)

        engine.remove_pods(state, POD, [make_pod("x"), make_pod("y")], info("n1"))
        engine.add_pods(state, POD, [make_pod("x")], info("n1"))

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

        framework(CountsPods("A", 1, calls)).add_pods(state, POD, [make_pod("x")], info("n1"))

        assert [] == calls


class TestRecheck:
    """Bind asks again for one node, and must know whether the answer holds whatever becomes of the binds in flight."""

    IN_FLIGHT = (make_pod("in-flight", node="n1"),)

    @pytest.mark.parametrize(
        ("engine", "expected"),
        [
            pytest.param(framework(), Recheck(SUCCESS), id="no filters at all"),
            pytest.param(framework(Prepares("A", NO)), Recheck(NO.by("A")), id="PreFilter rejects"),
            pytest.param(
                framework(Prepares("A", names=["n2"])),
                Recheck(unresolvable("node(s) didn't satisfy plugin(s) [A]")),
                id="the node is outside the set of a plugin",
            ),
            pytest.param(framework(Rejects("A", {"n1": NO})), Recheck(NO.by("A")), id="Filter rejects"),
            pytest.param(framework(RejectsUncertain("A")), Recheck(SUCCESS, False), id="it may turn out otherwise"),
            pytest.param(
                framework(RejectsUncertain("A", {"n1": NO})),
                Recheck(NO.by("A")),
                id="a rejection on the optimistic view is not asked further",
            ),
            pytest.param(
                framework(Rejects("A")), Recheck(SUCCESS, False), id="a filter without bounds may depend on any pod"
            ),
            pytest.param(
                framework(Rejects("A"), certain=["A"]), Recheck(SUCCESS), id="a filter that reads no pods is certain"
            ),
            pytest.param(
                framework(PreparesAndRejects("A", SKIP)), Recheck(SUCCESS), id="a filter that skipped is certain"
            ),
        ],
    )
    def test_the_answer_and_whether_it_is_certain(self, engine: Framework, expected: Recheck) -> None:
        assert expected == engine.recheck(CycleState(), POD, info("n1"), self.IN_FLIGHT)

    @pytest.mark.parametrize("plugin", [RejectsUncertain("A"), Rejects("A")])
    def test_without_binds_in_flight_everything_is_certain(self, plugin: FakePlugin) -> None:
        assert Recheck(SUCCESS) == framework(plugin).recheck(CycleState(), POD, info("n1"), [])

    def test_a_bind_in_flight_elsewhere_may_not_matter(self) -> None:
        engine = framework(RejectsUncertain("A"))

        assert Recheck(SUCCESS) == engine.recheck(CycleState(), POD, info("n2"), self.IN_FLIGHT)

    def test_pods_nominated_to_the_node_are_taken_into_account(self) -> None:
        engine = framework(CountsPods("Room", 1), nominated={"n1": [make_pod("other", priority=5)]})

        assert Recheck(NO.by("Room")) == engine.recheck(CycleState(), POD, info("n1"), [])


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
        assert expected is engine.depends(POD, self.OTHER)


class TestRequiredObjects:
    def test_plugins_name_what_they_need_and_is_not_there(self) -> None:
        engine = framework(Misses("A", SERVICES, ["x", "y"]), Prepares("B"), Misses("C", SERVICES, []))

        assert [(SERVICES, "default", "x"), (SERVICES, "default", "y")] == list(engine.required_objects(POD))


class TestQueue:
    @pytest.mark.parametrize(
        ("statuses", "expected", "asked"),
        [
            pytest.param([], SUCCESS, "", id="no gates"),
            pytest.param([SUCCESS, SUCCESS], SUCCESS, "AB", id="all open"),
            pytest.param([SUCCESS, NO, NEVER], NO.by("B"), "AB", id="the first that is closed; no other is asked"),
        ],
    )
    def test_gates(self, statuses: Sequence[Status], expected: Status, asked: str) -> None:
        calls: list[str] = []
        engine = framework(*(Gates(name, status, calls) for name, status in zip("ABC", statuses, strict=False)))

        assert expected == engine.pre_enqueue(POD)
        assert [f"{name}: pre_enqueue" for name in asked] == calls

    def test_the_one_queue_sort_plugin_orders(self) -> None:
        engine = framework(Sorts("A"))

        assert [True, False] == [engine.less(POD, queued_at, POD, 2.0) for queued_at in (1.0, 3.0)]


class TestPostFilter:
    """Semantics §3.5."""

    @pytest.mark.parametrize(
        ("plugins", "expected", "asked"),
        [
            pytest.param([], (None, unschedulable()), "", id="nobody to ask"),
            pytest.param(
                [Helps("A", NO), Helps("B", SUCCESS, "n1"), Helps("C")],
                (PostFilterResult("n1"), SUCCESS.by("B")),
                "AB",
                id="the first that can do something",
            ),
            pytest.param(
                [Helps("A", NEVER), Helps("B")],
                (None, NEVER.by("A")),
                "A",
                id="the first that knows that nobody can",
            ),
            pytest.param(
                [Helps("A", NO, "n1"), Helps("B", unschedulable("nor I"), "")],
                (PostFilterResult(""), unschedulable("no", "nor I").by("A")),
                "AB",
                id="none can: all reasons, the last result, the first as rejector",
            ),
            pytest.param(
                [Helps("A", NO, "n1"), Helps("B", PENDING)],
                (PostFilterResult("n1"), unschedulable("no", "later").by("A")),
                "AB",
                id="who has no result leaves the others'",
            ),
        ],
    )
    def test_what_can_be_done(
        self, plugins: Sequence[Helps], expected: tuple[PostFilterResult | None, Status], asked: str
    ) -> None:
        calls: list[str] = []
        for plugin in plugins:
            plugin.calls = calls

        assert expected == framework(*plugins).post_filter(CycleState(), POD, {"n1": NO})
        assert [f"{name}: post_filter" for name in asked] == calls

    @pytest.mark.parametrize("status", [error("broken"), WAIT, SKIP])
    def test_any_other_answer_is_an_error(self, status: Status) -> None:
        with pytest.raises(PluginError) as raised:
            framework(Helps("A", status)).post_filter(CycleState(), POD, {})

        assert error(status.message, "A") == raised.value.status


class TestPermit:
    """Semantics §3.7."""

    @pytest.mark.parametrize(
        ("statuses", "expected", "asked"),
        [
            pytest.param([SUCCESS, SUCCESS], SUCCESS, "AB", id="all approve"),
            pytest.param([SUCCESS, NO, SUCCESS], NO.by("B"), "AB", id="the first rejection stops"),
            pytest.param([WAIT, NEVER], NEVER.by("B"), "AB", id="nobody waits for what is rejected"),
        ],
    )
    async def test_the_last_word(self, statuses: Sequence[Status], expected: Status, asked: str) -> None:
        calls: list[str] = []
        engine = framework(*(Permits(name, it, 60, calls) for name, it in zip("ABC", statuses, strict=False)))

        assert expected == await engine.permit(CycleState(), POD, "n1", limit=60)
        assert [f"{name}: permit n1" for name in asked] == calls

    @pytest.mark.parametrize("status", [error("broken"), SKIP])
    async def test_any_other_answer_is_an_error(self, status: Status) -> None:
        with pytest.raises(PluginError) as raised:
            await framework(Permits("A", status)).permit(CycleState(), POD, "n1", limit=60)

        assert error(f'running Permit plugin "A": {status.message}', "A") == raised.value.status

    async def test_who_waits_in_vain_is_rejected(self) -> None:
        """The caller's limit ends a wait that a plugin would have granted, and that is said aloud."""
        with capture_logs() as logs:
            status = await framework(Permits("A", WAIT, 60)).permit(CycleState(), POD, "n1", limit=0)

        assert unschedulable("rejected due to timeout after waiting 0s at plugin A").by("A") == status
        assert [("warning", "A", 60, 0)] == [(it["log_level"], it["plugin"], it["asked"], it["limit"]) for it in logs]


class TestScore:
    """Semantics §3.6."""

    @pytest.mark.parametrize(
        ("plugins", "weights", "expected"),
        [
            pytest.param([], {}, ({}, {"n1": 1, "n2": 1}, 0), id="without score plugins every node totals 1"),
            pytest.param(
                [ScoresNodes("A", {"n1": 3, "n2": 100})],
                {"A": 2},
                ({"A": {"n1": 3, "n2": 100}}, {"n1": 6, "n2": 200}, 2),
                id="the weight multiplies the total alone",
            ),
            pytest.param(
                [ScoresNodes("A", {"n1": 1, "n2": 2}), ScoresInBatch("B", {"n1": 10, "n2": 20})],
                {"A": 3},
                ({"A": {"n1": 1, "n2": 2}, "B": {"n1": 10, "n2": 20}}, {"n1": 13, "n2": 26}, 4),
                id="totals add up, batch form or not",
            ),
            pytest.param(
                [ScoresHalved("A", {"n1": 200, "n2": 7})],
                {},
                ({"A": {"n1": 100, "n2": 3}}, {"n1": 100, "n2": 3}, 1),
                id="who normalises may score anything",
            ),
            pytest.param(
                [HalvesInBatch("A", {"n1": 200, "n2": 7})],
                {},
                ({"A": {"n1": 100, "n2": 3}}, {"n1": 100, "n2": 3}, 1),
                id="in batch too",
            ),
            pytest.param(
                [ScoresNodes("A", {"n1": 5, "n2": 5}), ScoresNodes("B", {"n1": 1, "n2": 2})],
                {"A": 3},
                ({"A": {"n1": 5, "n2": 5}, "B": {"n1": 1, "n2": 2}}, {"n1": 16, "n2": 17}, 4),
                id="what one gives all alike is added to the others'",
            ),
            pytest.param(
                [ScoresNodes("A", {"n1": 5, "n2": 5}), ScoresNodes("B", {"n1": 2, "n2": 2})],
                {"A": 3},
                ({"A": {"n1": 5, "n2": 5}, "B": {"n1": 2, "n2": 2}}, {"n1": 17, "n2": 17}, 4),
                id="where all give all alike",
            ),
            pytest.param(
                [ScoresAfter("A", {}, SKIP), ScoresNodes("B", {"n1": 1, "n2": 2})],
                {"A": 7},
                ({"B": {"n1": 1, "n2": 2}}, {"n1": 1, "n2": 2}, 1),
                id="who skips is left out, weight and all",
            ),
            pytest.param([ScoresAfter("A", {}, SKIP)], {}, ({}, {"n1": 0, "n2": 0}, 0), id="if all skip, all total 0"),
        ],
    )
    def test_scores_and_totals(
        self, plugins: Sequence[FakePlugin], weights: Mapping[str, int], expected: tuple[Any, Any, int]
    ) -> None:
        found = framework(*plugins, weights=weights).score(CycleState(), POD, nodes())

        assert expected == (found.by_plugin, found.totals, found.weight)

    @pytest.mark.parametrize("value", [-1, 101])
    @pytest.mark.parametrize("form", [ScoresNodes, ScoresInBatch])
    def test_a_score_out_of_range_ends_the_cycle(self, form: type[ScoresNodes], value: int) -> None:
        with pytest.raises(PluginError) as raised:
            framework(form("A", {"n1": 1, "n2": value})).score(CycleState(), POD, nodes())

        text = (
            f'applying score defaultWeights on Score plugins: plugin "A" returns an invalid score {value}, '
            "it should in the range of [0, 100] after normalizing"
        )
        assert error(text, "A") == raised.value.status

    @pytest.mark.parametrize("status", [error("broken"), NO, NEVER, WAIT, PENDING])
    def test_pre_score_may_only_skip(self, status: Status) -> None:
        with pytest.raises(PluginError) as raised:
            framework(ScoresAfter("A", {}, status)).score(CycleState(), POD, nodes())

        assert error(f'running PreScore plugin "A": {status.message}', "A") == raised.value.status

    def test_all_prepare_before_any_scores(self) -> None:
        one, other = ScoresAfter("A", {"n1": 1}), ScoresAfter("B", {"n1": 1})
        one.calls = other.calls = []

        framework(one, other).score(CycleState(), POD, nodes("n1"))

        assert ["A: pre_score n1", "B: pre_score n1", "A: score n1", "B: score n1"] == one.calls


class TestReserve:
    def test_the_first_failure_stops(self) -> None:
        calls: list[str] = []
        engine = framework(Reserves("A", calls=calls), Reserves("B", NO, calls), Reserves("C", calls=calls))

        assert NO.by("B") == engine.reserve(CycleState(), POD, "n1")
        assert ["A: reserve n1", "B: reserve n1"] == calls

    def test_all_reserve(self) -> None:
        assert SUCCESS == framework(Reserves("A"), Reserves("B")).reserve(CycleState(), POD, "n1")

    def test_all_are_undone_in_reverse_whatever_they_raise(self) -> None:
        """Also those that never reserved: undoing is idempotent."""
        calls: list[str] = []
        engine = framework(Reserves("A", calls=calls), ReservesBadly("B", calls=calls), Reserves("C", calls=calls))

        engine.unreserve(CycleState(), POD, "n1")

        assert ["C: unreserve n1", "B: unreserve n1", "A: unreserve n1"] == calls


class TestBinding:
    async def test_the_first_pre_bind_failure_stops(self) -> None:
        calls: list[str] = []
        engine = framework(Acts("A", calls=calls), Acts("B", NO, calls), Acts("C", calls=calls))

        assert NO.by("B") == await engine.pre_bind(CycleState(), POD, "n1")
        assert ["A: pre_bind n1", "B: pre_bind n1"] == calls

    async def test_who_has_nothing_to_do_is_left_out(self) -> None:
        calls: list[str] = []
        engine = framework(ActsIfNeeded("A", SKIP, calls), ActsIfNeeded("B", SUCCESS, calls))

        assert SUCCESS == await engine.pre_bind(CycleState(), POD, "n1")
        assert ["A: pre_bind_pre_flight n1", "B: pre_bind_pre_flight n1", "B: pre_bind n1"] == calls

    @pytest.mark.parametrize("status", [error("broken"), NO, WAIT])
    async def test_a_pre_flight_may_only_succeed_or_skip(self, status: Status) -> None:
        with pytest.raises(PluginError) as raised:
            await framework(ActsIfNeeded("A", status)).pre_bind(CycleState(), POD, "n1")

        assert error(f'running PreBindPreFlight "A": {status.message}', "A") == raised.value.status

    async def test_all_pre_binds_succeed(self) -> None:
        assert SUCCESS == await framework(Acts("A"), Acts("B")).pre_bind(CycleState(), POD, "n1")

    @pytest.mark.parametrize(
        ("statuses", "expected", "asked"),
        [
            pytest.param([SUCCESS, NO], SUCCESS.by("A"), "A", id="the first binds"),
            pytest.param([SKIP, SUCCESS, NO], SUCCESS.by("B"), "AB", id="the first that does not skip binds"),
            pytest.param([NO, SUCCESS], NO.by("A"), "A", id="a failure is an answer too"),
            pytest.param([SKIP, SKIP], error("every bind plugin skipped the pod"), "AB", id="all skip"),
        ],
    )
    async def test_who_binds(self, statuses: Sequence[Status], expected: Status, asked: str) -> None:
        calls: list[str] = []
        engine = framework(*(Acts(name, status, calls) for name, status in zip("ABC", statuses, strict=False)))

        assert expected == await engine.bind(CycleState(), POD, "n1")
        assert [f"{name}: bind n1" for name in asked] == calls

    async def test_post_bind_tells_all_whatever_they_raise(self) -> None:
        calls: list[str] = []

        await framework(Acts("A", NO, calls), Acts("B", calls=calls)).post_bind(CycleState(), POD, "n1")

        assert ["A: post_bind n1", "B: post_bind n1"] == calls


def test_a_framework_knows_its_plugins_by_name() -> None:
    found: dict[str, Any] = {"A": Acts("A"), "B": Rejects("B")}

    assert found == framework(*found.values()).plugins


class TestTimes:
    """What the extension points take is observed: of those that decide now and then, of those that act always."""

    @staticmethod
    def timed(engine: Framework) -> dict[tuple[str, str], int]:
        """How often, by point and status."""
        family = next(iter(engine._guard._metrics.point_duration.collect()))
        return {
            (it.labels["extension_point"], it.labels["status"]): int(it.value)
            for it in family.samples
            if it.name.endswith("_count") and it.value
        }

    def test_one_decision_in_so_many_is_timed(self) -> None:
        engine = framework(Prepares("A"))
        for _ in range(2 * SAMPLE_EVERY):
            engine.pre_filter(CycleState(), POD)

        assert {("PreFilter", "Success"): 2} == self.timed(engine)

    def test_a_rejection_and_a_fault_are_told_by_their_status(self) -> None:
        rejecting, failing = framework(Prepares("A", NEVER)), framework(Prepares("A", error("broken")))
        for _ in range(SAMPLE_EVERY):
            rejecting.pre_filter(CycleState(), POD)
            with pytest.raises(PluginError):
                failing.pre_filter(CycleState(), POD)

        assert {("PreFilter", "UnschedulableAndUnresolvable"): 1} == self.timed(rejecting)
        assert {("PreFilter", "Error"): 1} == self.timed(failing)

    async def test_what_acts_is_always_timed(self) -> None:
        engine = framework(Reserves("R"), Acts("A"))

        engine.reserve(CycleState(), POD, "n1")
        await engine.permit(CycleState(), POD, "n1", limit=1)
        await engine.pre_bind(CycleState(), POD, "n1")
        await engine.bind(CycleState(), POD, "n1")
        await engine.post_bind(CycleState(), POD, "n1")

        points = ("Reserve", "Permit", "PreBind", "Bind", "PostBind")
        assert dict.fromkeys(((point, "Success") for point in points), 1) == self.timed(engine)

    async def test_a_wait_at_permit_is_no_part_of_the_point_and_told_by_what_came_of_it(self) -> None:
        engine = framework(Permits("P", WAIT, 0.01))

        assert not (await engine.permit(CycleState(), POD, "n1", limit=1)).is_success

        assert {("Permit", "Wait"): 1} == self.timed(engine)
        (family,) = engine._guard._metrics.permit_wait.collect()
        assert {"Unschedulable": 1} == {
            it.labels["result"]: int(it.value) for it in family.samples if it.name.endswith("_count")
        }

    def test_series_of_a_plugin_begin_at_zero(self) -> None:
        metrics = framework(Prepares("A"))._guard._metrics

        assert 0 == metrics.registry.get_sample_value(
            "homeport_plugin_faults_total", {"plugin": "A", "extension_point": "PreFilter"}
        )
        assert 0 == metrics.registry.get_sample_value(
            "homeport_plugin_execution_duration_seconds_count",
            {"plugin": "A", "extension_point": "PreFilter", "status": "Success"},
        )


class Tells(Sorts, FiguresPlugin):
    """Has the figures it is given."""

    def __init__(self, name: str, *figures: Any) -> None:
        super().__init__(name)
        self._figures = figures

    def figures(self) -> Iterator[Any]:
        for it in self._figures:
            if isinstance(it, Exception):
                raise it
            yield it


MOONS = Figure("moons", "Moons.", 2, {"planet": "mars"})


class TestFigures:
    """Figures of plugins cannot break the metrics page."""

    def test_they_are_handed_on_step_by_step(self) -> None:
        assert [None, MOONS, None] == list(framework(Tells("A", None, MOONS, None)).figures())

    @pytest.mark.parametrize(
        "wrong",
        [
            pytest.param(LookupError("broken"), id="a fault"),
            pytest.param("moons", id="no figure"),
            pytest.param(Figure("Moons!", "Moons.", 2), id="no name of a metric"),
            pytest.param(Figure("moons", "Moons.", 2, {"a-planet": "mars"}), id="no name of a label"),
            pytest.param(Figure("moons", "Moons.", "two"), id="no number"),  # type: ignore[arg-type]
            pytest.param(Figure("moons", "Moons.", 2, {"planet": 4}), id="no text"),  # type: ignore[dict-item]
            pytest.param(Figure("moons", "Moons.", 2, {"planet": "\ud800"}), id="a value that is no Unicode"),
            pytest.param(Figure("moons", "\udfff", 2), id="a text that is none"),
            pytest.param(Figure("moons", "Moons.", 2, {"profile": "mars"}), id="the label that is ours"),
            pytest.param(Figure("moons", "Moons.", 10**400), id="more than a float can be"),
        ],
    )
    def test_what_is_none_is_a_fault_and_left_out(self, wrong: object) -> None:
        engine = framework(Tells("A", MOONS, wrong, MOONS), Tells("B", MOONS))

        with capture_logs() as logs:
            assert [MOONS, MOONS] == list(engine.figures())

        assert [("plugin fault", "A", "Figures")] == [(it["event"], it["plugin"], it["point"]) for it in logs]
