"""A pod refused on every node it was shown is nominated to one that it was not; what is in vain is not hammered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from app.controllers.nominations import CountedNominations
from app.controllers.pacing import LOOK_SECONDS
from app.controllers.sampling_guard import ANSWER_SECONDS, SamplingGuard
from app.kube.core_v1 import Node, Pod
from app.telemetry.metrics import Metrics
from app.verbs.context import VerbContext
from app.verbs.outcome import Outcome
from app.writes.nominator import Nominated
from tests.api.virtual import now, settle, virtual_time
from tests.builders import controller, make_node, make_pod, taint
from tests.fakes import RecordingRecorder, Told
from tests.unit.app.verbs.bench import SPREAD, WEB, Bench

CROWD = [f"a{number}" for number in range(1, 4)]
QUIET = 0.01


class World:
    """Zone a has three nodes and a pod, so that the next goes to zone b, in which ``closed`` is tainted.

    What a scheduler shows and does about it, a test says.
    """

    def __init__(self, *left: str, pods: Sequence[Pod] = ()) -> None:
        crowd = [make_node(name, zone="a") for name in CROWD]
        closed = make_node("closed", zone="b", taints=[taint("dedicated")])
        self.bench = Bench(
            *crowd, closed, *self.left(*left), make_pod("web-1", labels=WEB, spread=SPREAD, node="a1"), *pods
        )
        self.cluster = self.bench.cluster
        self.nominations = CountedNominations(self.cluster)
        self.metrics = Metrics()
        self.written: list[tuple[float, str, str]] = []
        self.answers: list[Nominated] = []
        self.looks = 0
        context = VerbContext(
            self.cluster,
            {"default-scheduler": self.bench.framework},
            self.bench.reader,
            self._problem,
            self.bench.due,
        )
        self.events = RecordingRecorder()
        self.guard = SamplingGuard(context, self, self.nominations, now, self.metrics, self.events)
        self.started = now()

    def _problem(self) -> str:
        """Asked once per look at the picture."""
        self.looks += 1
        return self.bench.problem

    @staticmethod
    def left(*names: str) -> list[Node]:
        return [make_node(name, zone="b") for name in names]

    async def nominate(self, pod: Pod, node_name: str) -> Nominated:
        """The API server: what is written is in the picture at once."""
        self.written.append((round(now() - self.started, 6), pod.name, node_name))
        answer = self.answers.pop(0) if self.answers else "taken"
        known = self.cluster.pod(*pod.key)
        if answer == "taken" and known is not None:
            self.cluster.upsert_pod(known.nominated(node_name))
        return answer

    def clear(self, name: str) -> None:
        """The scheduler clears a nomination."""
        known = self.cluster.pod("default", name)
        assert known is not None
        self.cluster.upsert_pod(known.nominated(""))

    def asked(self, name: str, names: Sequence[str] = CROWD, outcome: Outcome = "no_fit", nominated: str = "") -> None:
        """A filter call was answered, for the pod as the scheduler has it."""
        self.guard.answered(late(name, nominated=nominated), len(names), names[0] if len(names) == 1 else "", outcome)

    async def refuse_in_tree(self, name: str, node: str) -> None:
        """What a probe that in-tree filters refuse looks like from here: a full list, and the nomination is cleared."""
        self.asked(name, nominated=node)
        self.clear(name)
        await settle()

    @property
    def nominated(self) -> list[tuple[str, str]]:
        return [(pod, node) for _, pod, node in self.written]

    @property
    def results(self) -> dict[str, int]:
        (found,) = self.metrics.nominations.collect()
        return {it.labels["result"]: int(it.value) for it in found.samples if it.name.endswith("_total")}

    @property
    def sampled_out(self) -> float:
        (found,) = self.metrics.sampled_out.collect()
        return next(it.value for it in found.samples if it.name.endswith("_total"))


def late(name: str = "late", **fields: Any) -> Pod:
    return make_pod(name, labels=WEB, spread=SPREAD, **fields)


async def elapse(seconds: float) -> None:
    await asyncio.sleep(seconds)
    await settle()


@virtual_time
async def test_a_refusal_on_all_nodes_that_a_late_event_cures_is_looked_at_again() -> None:
    """The scheduler had seen the event before it asked: nothing would wake the pod."""
    world = World(pods=[late()])
    world.asked("late", list(world.cluster.nodes))
    await elapse(0.01)

    world.cluster.delete_pod(("default", "web-1"))
    await elapse(1)

    assert ["late"] == [pod for pod, _ in world.nominated]


@virtual_time
async def test_one_that_nothing_cures_costs_no_look() -> None:
    world = World(pods=[late()])
    for _ in range(20):
        world.asked("late", list(world.cluster.nodes))
        await elapse(0.1)

    assert ([], 0) == (world.nominated, world.looks)


@virtual_time
async def test_it_is_nominated_shortly_after_the_last_refusal() -> None:
    """Its own retry comes 6 ms after the first refusal; a nomination written in between would be cleared unseen."""
    world = World("b1", pods=[late()])
    world.asked("late")
    await elapse(0.006)
    world.asked("late")
    await elapse(0.5)
    world.asked("late", ["b1"], "feasible", nominated="b1")
    await elapse(60)

    assert [(0.006 + QUIET, "late", "b1")] == world.written
    assert ({"hit": 1}, 1, {}) == (world.results, world.sampled_out, world.guard._cases)


@pytest.mark.parametrize(("answer", "told"), [("taken", 1), ("failed", 0), ("gone", 0), ("forbidden", 0)])
def test_people_are_told_of_a_nomination_that_was_written(answer: Nominated, told: int) -> None:
    @virtual_time
    async def test() -> None:
        world = World("b1", pods=[late()])
        world.answers = [answer] * 9
        world.asked("late")
        await elapse(0.5)
        await world.guard.leave_all()

        note = (
            f"refused on all {len(CROWD)} nodes that the scheduler showed; led to b1, which it did not show, by "
            "nominatedNodeName"
        )
        event = Told("Pod default/late", "Node b1", "Normal", "NominatedUnshown", "Nominating", note)
        assert [event] * told == world.events.told

    test()


@virtual_time
async def test_a_pod_that_is_asked_about_without_a_pause_is_nominated_all_the_same() -> None:
    world = World("b1", pods=[late()])
    for _ in range(40):
        world.asked("late")
        await elapse(0.003)

    ((at, *nominated),) = world.written
    assert ["late", "b1"] == nominated
    assert pytest.approx(0.1, abs=0.004) == at
    await world.guard.leave_all()


@pytest.mark.parametrize(
    ("names", "outcome", "pod", "nodes"),
    [
        pytest.param([*CROWD, "closed", "b1"], "no_fit", late(), ["b1"], id="all nodes were shown"),
        pytest.param(CROWD, "feasible", late(), ["b1"], id="a node passed"),
        pytest.param([], "nothing_to_do", late(), ["b1"], id="nothing was asked"),
        pytest.param(CROWD, "no_fit", late(), [], id="no other node would do"),
        pytest.param(CROWD, "no_fit", late(nominated="a2"), ["b1"], id="somebody else has nominated it"),
        pytest.param(CROWD, "no_fit", late(node="b1"), ["b1"], id="it was bound meanwhile"),
        pytest.param(CROWD, "no_fit", late(terminating=True), ["b1"], id="it is being deleted"),
        pytest.param(CROWD, "no_fit", late(uid="another"), ["b1"], id="it was replaced"),
    ],
)
@virtual_time
async def test_who_is_left_alone(names: list[str], outcome: Outcome, pod: Pod, nodes: list[str]) -> None:
    world = World(*nodes, pods=[pod])
    world.asked("late", names, outcome)
    await elapse(3600)

    assert ([], 0, {}) == (world.written, world.sampled_out, world.guard._cases)


@virtual_time
async def test_without_a_picture_nobody_is_nominated() -> None:
    world = World("b1", pods=[late()])
    world.bench.problem = "the watch is silent"
    world.asked("late")
    await elapse(60)

    assert [] == world.written


@virtual_time
async def test_a_pod_is_nominated_once_the_watch_has_shown_it() -> None:
    world = World("b1")
    world.asked("late")
    await elapse(0.1)
    assert [] == world.written
    world.bench.show(late())
    await elapse(0.3)

    assert [("late", "b1")] == world.nominated
    await world.guard.leave_all()


@virtual_time
async def test_one_that_the_watch_never_shows_is_let_be() -> None:
    world = World("b1")
    world.asked("late")
    await elapse(3)

    assert ([], {}) == (world.written, world.guard._cases)


@virtual_time
async def test_a_request_decides_neither_who_is_nominated_nor_where() -> None:
    """Forged: another pod's UID, and labels, owner and constraints that the pod does not have."""
    owner = controller("ReplicaSet", "web")
    honest = make_pod("late", labels=WEB, owner=owner)
    world = World("b1", pods=[honest, make_pod("batch")])
    forged = late(uid="uid-default-batch")
    world.guard.answered(forged, len(CROWD), "", "no_fit")
    await elapse(1)
    assert [] == world.written
    world.guard.answered(late(), len(CROWD), "", "no_fit")
    world.guard.answered(make_pod("batch", uid="uid-default-late"), len(CROWD), "", "no_fit")
    await elapse(0.1)

    ((_, name, node),) = world.written
    assert ("late", True, ["uid-web"]) == (name, node in {*CROWD, "b1"}, list(world.guard._pacing._workloads))
    await world.guard.leave_all()


@virtual_time
async def test_a_node_that_in_tree_filters_refused_is_not_tried_again_at_once() -> None:
    """Another is taken after the back-off; the same one again after 10 s, then 20 s."""
    world = World("b1", "b2", pods=[late()])
    world.asked("late")
    await elapse(QUIET)
    first = world.written[0][2]
    (second,) = {"b1", "b2"} - {first}
    await world.refuse_in_tree("late", first)
    await elapse(0.25)
    assert [("late", first), ("late", second)] == world.nominated
    await world.refuse_in_tree("late", second)
    await elapse(9)
    assert 2 == len(world.written)
    await elapse(2)

    assert ("late", first) == world.nominated[2]
    assert {"refused": 2} == world.results
    await world.guard.leave_all()


@virtual_time
async def test_a_node_that_comes_is_tried_before_one_that_was_refused_may_be() -> None:
    """Its arrival wakes the pod, which is not shown it."""
    world = World("b1", pods=[late()])
    world.asked("late")
    await elapse(QUIET)
    await world.refuse_in_tree("late", "b1")
    await elapse(2)
    world.cluster.upsert_node(make_node("b2", zone="b"))
    world.asked("late")
    await elapse(1)

    assert [("late", "b1"), ("late", "b2")] == world.nominated
    await world.guard.leave_all()


@virtual_time
async def test_a_node_that_was_never_refused_comes_first() -> None:
    """Chance decides among the others: once more for each time that it may have been right."""
    for _ in range(8):
        world = World("b1", pods=[late()])
        world.asked("late")
        await elapse(QUIET)
        await world.refuse_in_tree("late", "b1")
        await elapse(9)
        world.cluster.upsert_node(make_node("b2", zone="b"))
        await elapse(2)

        assert [("late", "b1"), ("late", "b2")] == world.nominated
        await world.guard.leave_all()


@virtual_time
async def test_attempts_end_in_a_rest() -> None:
    """Twelve nodes without room: six attempts, with pauses that double, and no more for five minutes."""
    world = World(*(f"b{number}" for number in range(12)), pods=[late()])
    world.asked("late")
    for _ in range(6):
        before = len(world.written)
        while len(world.written) == before:
            await elapse(0.05)
        await world.refuse_in_tree("late", world.written[-1][2])
    await elapse(299)

    assert (6, 6) == (len(world.written), len(set(world.nominated)))
    moments = [at for at, *_ in world.written]
    assert [True] * 5 == [
        later - earlier >= 0.25 * 2**number for number, (earlier, later) in enumerate(pairwise(moments))
    ]
    await world.guard.leave_all()


@virtual_time
async def test_replicas_share_what_was_refused() -> None:
    owner = controller("ReplicaSet", "web")
    world = World("b1", pods=[late("late-1", owner=owner), late("late-2", owner=owner)])
    world.guard.answered(late("late-1", owner=owner), len(CROWD), "", "no_fit")
    await elapse(QUIET)
    world.guard.answered(late("late-1", owner=owner, nominated="b1"), len(CROWD), "", "no_fit")
    world.clear("late-1")
    world.guard.answered(late("late-2", owner=owner), len(CROWD), "", "no_fit")
    await elapse(9)

    assert [("late-1", "b1")] == world.nominated
    await world.guard.leave_all()


@virtual_time
async def test_pods_take_turns_at_a_node() -> None:
    """Two that are nominated to one node count against each other in-tree: neither would get the last place."""
    world = World("b1", pods=[late("late-1"), late("late-2")])
    for name in ("late-1", "late-2"):
        world.asked(name)
    await elapse(0.5)
    assert [("late-1", "b1")] == world.nominated
    world.asked("late-1", ["b1"], "feasible", nominated="b1")
    await settle()

    assert [("late-1", "b1"), ("late-2", "b1")] == world.nominated
    await world.guard.leave_all()


@virtual_time
async def test_pods_are_nominated_to_different_nodes() -> None:
    names = [f"late-{number}" for number in range(4)]
    world = World("b1", "b2", "b3", "b4", pods=[late(name) for name in names])
    for name in names:
        world.asked(name)
    await elapse(QUIET + 4 * LOOK_SECONDS)

    assert {"b1", "b2", "b3", "b4"} == {node for _, node in world.nominated}
    await world.guard.leave_all()


@virtual_time
async def test_one_whose_turn_comes_too_late_is_nominated_elsewhere() -> None:
    """The first took the last place of the zone: for the second the node would break its constraint."""
    world = World("b1", pods=[late("late-1"), late("late-2")])
    for name in ("late-1", "late-2"):
        world.asked(name)
    await elapse(QUIET + LOOK_SECONDS)
    world.cluster.upsert_pod(late("late-1", node="b1"))
    world.cluster.upsert_pod(make_pod("web-2", labels=WEB, spread=SPREAD, node="b1"))
    world.asked("late-1", ["b1"], "feasible", nominated="b1")
    await elapse(LOOK_SECONDS)

    assert ("late-1", "b1") == world.nominated[0]
    assert world.nominated[1] in [("late-2", node) for node in CROWD]
    await world.guard.leave_all()


@virtual_time
async def test_a_nomination_that_was_cleared_unseen_is_repeated() -> None:
    """Two calls without it: the second one came after the scheduler had cleared it."""
    world = World("b1", pods=[late()])
    world.asked("late")
    await elapse(QUIET)
    for _ in range(2):
        world.asked("late")
        await elapse(0.004)
    world.clear("late")
    await elapse(QUIET)

    assert [("late", "b1")] * 2 == world.nominated
    assert {"lost": 1} == world.results
    await world.guard.leave_all()


@pytest.mark.parametrize(
    ("calls", "result", "times"),
    [
        pytest.param(1, "lost", 2, id="a call was under way: the scheduler was dealing with it"),
        pytest.param(0, "refused", 1, id="no call: in-tree filters left no node to ask us about"),
    ],
)
@virtual_time
async def test_a_nomination_that_is_cleared_without_a_word(calls: int, result: str, times: int) -> None:
    """The watch tells."""
    world = World("b1", pods=[late()])
    world.asked("late")
    await elapse(QUIET)
    for _ in range(calls):
        world.asked("late")
    world.clear("late")
    await elapse(0.4)

    assert ({result: 1}, times) == (world.results, len(world.nominated))
    await world.guard.leave_all()


@virtual_time
async def test_a_nomination_without_any_effect_counts_as_refused() -> None:
    world = World("b1", pods=[late()])
    world.asked("late")
    await elapse(QUIET + ANSWER_SECONDS)
    world.clear("late")
    assert {"unanswered": 1} == world.results
    await elapse(9)

    assert [("late", "b1")] == world.nominated
    await world.guard.leave_all()


@virtual_time
async def test_a_pod_that_found_a_node_by_itself_needs_no_guard() -> None:
    world = World("b1", "b2", pods=[late()])
    world.asked("late")
    await elapse(QUIET)
    world.asked("late", ["a1", "b1", "b2"], "feasible")
    await settle()

    assert ({"overtaken": 1}, {}) == (world.results, world.guard._cases)


@virtual_time
async def test_our_own_nomination_is_replaced_unless_somebody_is_evicted_there() -> None:
    """A scheduler whose preemption was vetoed leaves it; one that evicts has made it its own."""
    for terminating, expected in ((False, 2), (True, 1)):
        victim = make_pod("victim", node="b1", terminating=terminating)
        world = World("b1", pods=[late(), victim])
        world.asked("late")
        await elapse(QUIET)
        world.cluster.upsert_node(make_node("b2", zone="b"))
        world.asked("late", nominated="b1")
        await elapse(3)

        assert expected == len(world.written)
        await world.guard.leave_all()


@virtual_time
async def test_a_standing_refusal_is_looked_into_ever_more_rarely() -> None:
    """Every bind wakes every refused pod. Asked about 10 times a second for a minute, it is looked for 8 times."""
    world = World(pods=[late()])
    for _ in range(600):
        world.asked("late")
        await elapse(0.1)

    assert (8, []) == (world.looks, world.nominated)
    world.cluster.upsert_node(make_node("b1", zone="b"))
    world.asked("late")
    await elapse(15)
    assert [("late", "b1")] == world.nominated
    await world.guard.leave_all()


@virtual_time
async def test_once_forbidden_it_stays_off() -> None:
    world = World("b1", pods=[late("late-1"), late("late-2")])
    world.answers = ["forbidden"]
    world.asked("late-1")
    await elapse(60)
    world.asked("late-2")
    await elapse(60)

    assert ([("late-1", "b1")], {"forbidden": 1}, {}) == (world.nominated, world.results, world.guard._cases)


@pytest.mark.parametrize(("answer", "expected"), [("gone", 1), ("failed", 2)])
@virtual_time
async def test_a_patch_that_was_not_taken(answer: Nominated, expected: int) -> None:
    """A pod that is gone is forgotten; another failure is tried again after the back-off."""
    world = World("b1", pods=[late()])
    world.answers = [answer]
    world.asked("late")
    await elapse(1.5)

    assert expected == len(world.written)
    await world.guard.leave_all()


@virtual_time
async def test_a_deleted_pod_is_forgotten() -> None:
    world = World("b1", pods=[late()])
    world.asked("late")
    await elapse(QUIET)
    world.cluster.delete_pod(("default", "late"))
    await elapse(ANSWER_SECONDS + LOOK_SECONDS)

    assert ({"overtaken": 1}, {}) == (world.results, world.guard._cases)


@virtual_time
async def test_cancelled_it_leaves_all_pods_alone() -> None:
    """Also those that are doubted, and those whose nomination is on its way."""
    world = World("b1", pods=[late("late-1"), late("late-2")])
    running = asyncio.ensure_future(world.guard.run())
    world.asked("late-1")
    world.asked("late-2", [*CROWD, "closed", "b1"])
    await elapse(QUIET)
    assert ([("late-1", "b1")], ["uid-default-late-2"]) == (world.nominated, list(world.guard._doubted))

    running.cancel()
    await settle()
    await elapse(60)

    assert (1, {}, {}) == (len(world.written), world.guard._cases, world.guard._doubted)
