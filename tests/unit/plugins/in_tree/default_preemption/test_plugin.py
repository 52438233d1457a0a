"""Rules of DefaultPreemption: whom it would have evicted, where, and that it says so without moving anything."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Final, Unpack

import pytest
from pydantic import ValidationError

from app.cache.cluster import Cluster
from app.framework.background import run_to_end
from app.framework.cycle_state import CycleState
from app.framework.node_info import NodeInfo
from app.framework.points import FilterPlugin, PostFilterAnswer, PostFilterResult, Victims
from app.framework.status import SUCCESS, Code, Status, error, unresolvable, unschedulable
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Pod
from app.kube.extras import Extra
from app.kube.kinds import POD_DISRUPTION_BUDGETS
from app.kube.policy_v1 import PodDisruptionBudget, decode_budget
from app.runtime.guard import PluginError
from plugins.in_tree.default_preemption import budgets
from plugins.in_tree.default_preemption.plugin import DefaultPreemptionArgs
from tests.builders import JsonObject, PodFields, encoded, make_node, pod_object
from tests.fakes import FromSpec, spec_of
from tests.harness import World, only

PREEMPTION: Final = "DefaultPreemption"
CLOSED: Final = unresolvable("node(s) were closed")
FULL: Final = unschedulable("node(s) were full")
CORE: Final = core_v1([Extra.DISRUPTION])
LIMIT: Final = 3
PREEMPTED: Final = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}


class Room(FromSpec, FilterPlugin):
    """A node takes three pods, by what is on it. One with a label takes none, whatever leaves; one is broken."""

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        if "broken" in node.node.labels and not node.pods:
            raise ZeroDivisionError("a screw is loose")
        if "closed" in node.node.labels:
            return CLOSED
        return SUCCESS if len(node.pods) < LIMIT else FULL.by("Room")


def make(name: str, on: str = "", *, started: int | None = 0, **fields: Unpack[PodFields]) -> Pod:
    status = {} if started is None else {"startTime": f"2026-01-01T00:00:{started:02}Z"}
    if on:
        fields["node"] = on
    fields["status"] = {**status, **fields.get("status", {})}
    return CORE.decode_pod(encoded(pod_object(name, **fields)))


def budget(name: str = "web", allowed: int = 0, namespace: str = "default", **status: Any) -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": allowed, **status},
    }


def world(
    *pods: Pod,
    nodes: Mapping[str, Mapping[str, str]] | None = None,
    budgets: Sequence[JsonObject] = (),
    args: Mapping[str, int] | None = None,
) -> World:
    found = World(
        *(make_node(name, labels=labels) for name, labels in (nodes or {"n1": {}}).items()),
        *pods,
        profile=only("Room", PREEMPTION, DefaultPreemption=dict(args or {})),
        cluster=Cluster(CORE),
        specs=[spec_of(Room)],
    )
    for it in budgets:
        found.cluster.others.upsert(POD_DISRUPTION_BUDGETS, decode_budget(encoded(it)))
    return found


def prepared(found: World, pod: Pod) -> CycleState:
    state = CycleState()
    found.framework.filters.pre_filter(state, pod)
    return state


def victims(found: World, pod: Pod, node: str = "n1") -> tuple[list[str], int, Status]:
    """Who would have to go, how many against a budget, and the status."""
    chosen, status = found.framework.post_filters.victims_on(prepared(found, pod), pod, found.cluster.nodes[node])
    return [it.name for it in chosen.pods], chosen.pdb_violations, status


def post_filter(found: World, pod: Pod) -> tuple[PostFilterAnswer, int]:
    """The answer, and how many steps it took."""
    state = CycleState()
    judged = found.framework.filters.feasible(state, pod, found.candidates())
    steps = found.framework.post_filters.post_filter(state, pod, judged.rejected)
    return driven(steps, lambda: prepared(found, pod))


def begun(found: World) -> Generator[None, CycleState, PostFilterAnswer]:
    state = CycleState()
    judged = found.framework.filters.feasible(state, WAITING, found.candidates())
    return found.framework.post_filters.post_filter(state, WAITING, judged.rejected)


def victims_of(result: PostFilterResult | None) -> list[str]:
    return [] if result is None or result.victims is None else [it.name for it in result.victims.pods]


def driven(steps: Generator[None, CycleState, PostFilterAnswer], again: Any) -> tuple[PostFilterAnswer, int]:
    count = 1
    try:
        next(steps)
        while True:
            count += 1
            steps.send(again())
    except StopIteration as end:
        return end.value, count


WAITING: Final = make("waiting", priority=100)


class TestVictims:
    def test_nothing_moves(self) -> None:
        pods = [make(f"p{it}", "n1") for it in range(4)]
        found = world(*pods, budgets=[budget()])
        before = found.cluster.generation

        state = prepared(found, WAITING)
        assert victims(found, WAITING) == victims(found, WAITING)
        chosen, _ = found.framework.post_filters.victims_on(state, WAITING, found.cluster.nodes["n1"])

        assert 2 == len(chosen.pods)
        assert FULL.reasons == found.framework.filters.filter_node(state, WAITING, found.cluster.nodes["n1"]).reasons
        assert (before, [it.uid for it in pods]) == (found.cluster.generation, list(found.cluster.nodes["n1"].pods))
        assert [] == found.cluster.check()

    def test_a_plugin_that_fails_is_an_error_of_the_node(self) -> None:
        found = world(make("p1", "n1"), nodes={"n1": {"broken": ""}})

        *_, status = victims(found, WAITING)

        assert (Code.ERROR, "Room") == (status.code, status.plugin)
        assert "a screw is loose" in status.message


class TestBudgets:
    WEB: Final[list[Pod]] = [make(f"web-{it}", "n1", labels={"app": "web"}, started=it) for it in range(2)]
    OLD: Final = [make("old-1", "n1", priority=9), make("old-2", "n1", priority=9)]

    def test_what_changes_is_seen(self) -> None:
        found = world(*self.WEB, *self.OLD, budgets=[budget()])
        assert ["old-1", "old-2"] == victims(found, WAITING)[0]

        found.cluster.others.upsert(POD_DISRUPTION_BUDGETS, decode_budget(encoded(budget(allowed=2))))
        assert ["web-0", "web-1"] == victims(found, WAITING)[0]


def crowd(node: str, priority: int = 0, count: int = LIMIT) -> Iterator[Pod]:
    return (make(f"{node}-{it}", node, priority=priority, started=it) for it in range(count))


class TestPostFilter:
    def test_it_nominates_and_names_who_would_have_to_go(self) -> None:
        found = world(*crowd("n1", 5), *crowd("n2", 1), nodes={"n1": {}, "n2": {}})

        (result, status), steps = post_filter(found, WAITING)

        victim = found.cluster.nodes["n2"].pods["uid-default-n2-2"]
        assert (PostFilterResult("n2", Victims((victim,))), SUCCESS.by(PREEMPTION), 1) == (result, status, steps)

    def test_where_it_cannot_help_it_says_why_and_takes_a_nomination_back(self) -> None:
        found = world(
            *crowd("n1", 100), *crowd("n2", 200), *crowd("n3"), nodes={"n1": {}, "n2": {}, "n3": {"closed": ""}}
        )
        expected = unschedulable(
            "preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, "
            "2 No preemption victims found for incoming pod."
        )

        assert ((PostFilterResult(""), expected.by(PREEMPTION)), 1) == post_filter(found, WAITING)

    def test_where_only_unresolvable_nodes_are_left_none_is_tried(self) -> None:
        found = world(*crowd("n1"), nodes={"n1": {"closed": ""}})
        expected = unschedulable("preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")

        assert ((PostFilterResult(""), expected.by(PREEMPTION)), 1) == post_filter(found, WAITING)

    def test_who_is_not_eligible_keeps_his_nomination(self) -> None:
        never = make("never", priority=100, more={"preemptionPolicy": "Never"})
        expected = unschedulable("preemption: not eligible due to preemptionPolicy=Never.")

        assert ((None, expected.by(PREEMPTION)), 1) == post_filter(world(*crowd("n1")), never)

    def test_a_fault_everywhere_is_a_fault(self) -> None:
        found = world(*crowd("n1"), nodes={"n1": {"broken": ""}})

        with pytest.raises(PluginError) as raised:
            post_filter(found, WAITING)

        said = 'preemption: running "Room" filter plugin: a screw is loose'
        assert error(said, PREEMPTION) == raised.value.status

    def test_a_fault_somewhere_is_none_where_another_node_helps(self) -> None:
        found = world(*crowd("n1"), *crowd("n2"), nodes={"n1": {"broken": ""}, "n2": {}})

        (result, _), _ = post_filter(found, WAITING)

        assert result is not None
        assert "n2" == result.nominated_node_name

    def test_it_yields_after_some_work_and_goes_on_with_what_is_then(self) -> None:
        """Nodes may come and go between its steps, and be full no longer."""
        names = [f"n{it:02}" for it in range(40)]
        found = world(*(pod for name in names for pod in crowd(name)), nodes={name: {} for name in names})
        state = CycleState()
        judged = found.framework.filters.feasible(state, WAITING, found.candidates())
        steps = found.framework.post_filters.post_filter(state, WAITING, judged.rejected)

        next(steps)
        for name in names:
            for it in range(LIMIT):
                found.cluster.delete_pod(("default", f"{name}-{it}"))
        for name in names[::2]:
            found.cluster.delete_node(name)
        (result, status), _ = driven(steps, lambda: prepared(found, WAITING))

        assert (True, 1) == (status.is_success, len(result.victims.pods) if result and result.victims else 0)

    def test_one_that_was_full_and_is_no_longer_is_no_fault(self) -> None:
        found = world(*crowd("n1"))
        state = CycleState()
        judged = found.framework.filters.feasible(state, WAITING, found.candidates())
        found.cluster.delete_pod(("default", "n1-0"))

        answer = run_to_end(
            found.framework.post_filters.post_filter(prepared(found, WAITING), WAITING, judged.rejected)
        )

        said = '0/1 nodes are available: 1 expected at least one victim pod on node "n1".'
        assert (PostFilterResult(""), unschedulable(f"preemption: {said}").by(PREEMPTION)) == answer

    def test_enough_candidates_are_enough(self) -> None:
        """Of ten alike one is tried, and not always the first."""
        names = [f"n{it}" for it in range(10)]
        pods = [pod for name in names for pod in crowd(name)]
        few = {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 1}
        found = world(*pods, nodes={name: {} for name in names}, args=few)
        waiting = [make(f"w{it}", priority=100) for it in range(50)]

        answers = [post_filter(found, it)[0][0] for it in waiting]

        assert set(names) == {it.nominated_node_name for it in answers if it is not None}
        assert answers == [post_filter(found, it)[0][0] for it in waiting]

    def test_one_that_breaks_no_budget_is_sought_further(self) -> None:
        web = [make(f"web-{it}", "n1", labels={"app": "web"}, started=it) for it in range(LIMIT)]
        few = {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}
        found = world(*web, *crowd("n2", 50), nodes={"n1": {}, "n2": {}}, budgets=[budget()], args=few)

        answers = [post_filter(found, make(f"w{it}", priority=100))[0][0] for it in range(20)]

        assert {"n2"} == {it.nominated_node_name for it in answers if it is not None}


class TestManyBudgets:
    """What is to be counted of them is counted between the turns of others."""

    @pytest.fixture
    def crowded(self, monkeypatch: pytest.MonkeyPatch) -> World:
        """Four pods on a node, and forty budgets; one of them protects the least important."""
        monkeypatch.setattr(budgets, "_BUDGETS_A_STEP", 8)
        pods = [make(f"p{it}", "n1", priority=it, labels={"app": f"a{it}"}) for it in range(4)]
        others = [{**budget(f"b{it}", 0), "spec": {"selector": {"matchLabels": {"k": "v"}}}} for it in range(39)]
        ours = {**budget("ours", 0), "spec": {"selector": {"matchLabels": {"app": "a0"}}}}
        return world(*pods, budgets=[*others, ours])

    def test_no_step_compares_more_than_some(self, crowded: World, monkeypatch: pytest.MonkeyPatch) -> None:
        compared: list[int] = [0]
        guards = PodDisruptionBudget.guards

        def counted(found: PodDisruptionBudget, labels: Mapping[str, str]) -> bool:
            compared[-1] += 1
            return guards(found, labels)

        def again() -> CycleState:
            compared.append(0)
            return prepared(crowded, WAITING)

        monkeypatch.setattr(PodDisruptionBudget, "guards", counted)
        (result, _), steps = driven(begun(crowded), again)

        assert (4 * 40, True) == (sum(compared), max(compared) <= 8)
        assert steps == len(compared)
        assert ["p2", "p1"] == victims_of(result)
        assert victims(crowded, WAITING) == (["p2", "p1"], 0, SUCCESS)

    def test_what_was_counted_is_remembered(self, crowded: World) -> None:
        (first, _), steps = driven(begun(crowded), lambda: prepared(crowded, WAITING))
        (second, _), again = driven(begun(crowded), lambda: prepared(crowded, WAITING))

        assert (True, True, 1) == (first == second, steps > 10, again)

    def test_a_pod_that_comes_meanwhile_is_counted_too(self, crowded: World) -> None:
        steps = begun(crowded)
        next(steps)
        crowded.cluster.upsert_pod(make("late", "n1", priority=50, labels={"app": "a0"}))
        (result, _), _ = driven(steps, lambda: prepared(crowded, WAITING))

        assert result is not None
        assert result.victims is not None
        assert (["p3", "p2", "p1"], 0) == (victims_of(result), result.victims.pdb_violations)

    def test_a_node_that_goes_meanwhile_is_left_out(self, crowded: World) -> None:
        steps = begun(crowded)
        next(steps)
        crowded.cluster.delete_node("n1")
        (result, status), _ = driven(steps, lambda: prepared(crowded, WAITING))

        assert (PostFilterResult(""), False) == (result, status.is_success)

    def test_a_node_that_is_another_each_time_is_left_alone(self, crowded: World) -> None:
        """Whoever changes pods without end holds up nobody but himself."""
        turns = 0

        def again() -> CycleState:
            nonlocal turns
            turns += 1
            crowded.cluster.upsert_pod(make("p3", "n1", priority=3, labels={"turn": str(turns)}))
            return prepared(crowded, WAITING)

        (result, status), steps = driven(begun(crowded), again)

        said = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        assert (PostFilterResult(""), unschedulable(said).by(PREEMPTION)) == (result, status)
        assert steps < 500


class TestArguments:
    @pytest.mark.parametrize(
        ("args", "nodes", "expected"),
        [
            pytest.param({}, 5, 5, id="never more than there are"),
            pytest.param({}, 500, 100, id="at least so many"),
            pytest.param({}, 5000, 500, id="a tenth"),
            pytest.param({"minCandidateNodesPercentage": 0}, 5000, 100, id="no share"),
            pytest.param({"minCandidateNodesAbsolute": 0}, 19, 1, id="rounded down"),
            pytest.param({"minCandidateNodesPercentage": 100}, 5000, 5000, id="all"),
        ],
    )
    def test_how_many_candidates_are_enough(self, args: JsonObject, nodes: int, expected: int) -> None:
        assert expected == DefaultPreemptionArgs.model_validate(args).candidates(nodes)

    def test_both_limits_cannot_be_zero(self) -> None:
        with pytest.raises(ValidationError, match="minCandidateNodesAbsolute cannot both be zero"):
            DefaultPreemptionArgs.model_validate({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0})
