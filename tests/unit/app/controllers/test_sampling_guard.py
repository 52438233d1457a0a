"""A pod that was refused on a whole sample is nominated to a node outside of it, unless that would be in vain."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, ParamSpec

import pytest
from msgspec.structs import replace

from app.controllers.nominations import CountedNominations
from app.controllers.pacing import LOOK_SECONDS, NOMINATION_SECONDS
from app.controllers.sampling_guard import ANSWER_SECONDS, SamplingGuard
from app.framework.handle import NodeVerdict
from app.kube.core_v1 import Node, Pod, PodSpec
from app.telemetry.metrics import Metrics
from app.verbs.outcome import Outcome
from app.writes.nominator import Nominated
from tests.api.virtual import now, settle, virtual_time
from tests.builders import controller, make_node, make_pod, taint
from tests.fakes import RecordingRecorder, Told
from tests.unit.app.verbs.bench import SPREAD, WEB, Bench

CROWD = [f"a{number}" for number in range(1, 4)]
QUIET = 0.01
P = ParamSpec("P")


class InTree:
    """In-tree filters that refuse the nodes of ``refused``. ``asked``: the nodes that they judged, in order.

    ``specs``: what they read of a pod, by its name, where the picture's form does not tell pods apart. ``unknown``:
    pods cannot be read.
    """

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.asked: list[str] = []
        self.specs: dict[str, PodSpec] = {}
        self.unknown = False

    async def whole(self, pod: Pod) -> Pod | None:
        await asyncio.sleep(0)
        return None if self.unknown else replace(pod, spec=self.specs.get(pod.name, pod.spec))

    async def verdict(self, whole: Pod, node_name: str) -> NodeVerdict:
        await asyncio.sleep(0)
        self.asked.append(node_name)
        return NodeVerdict(("Insufficient cpu",) if node_name in self.refused else (), ("VolumeBinding",))


class World:
    """Zone a has three nodes and a pod, so that the next goes to zone b, in which ``closed`` is tainted.

    The test plays the scheduler. A request with fewer than ``smallest`` names is no sample.
    """

    made: ClassVar[list[World]] = []

    def __init__(self, *left: str, pods: Sequence[Pod] = (), smallest: int = 1) -> None:
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
        self.events = RecordingRecorder()
        self.in_tree = InTree()
        self.guard = SamplingGuard(
            self.bench.context,
            self,
            self.nominations,
            lambda _: self.in_tree,
            lambda names: smallest <= names < len(self.cluster.nodes),
            now,
            self.metrics,
            self.events,
        )
        self.started = now()
        self.made.append(self)

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


def guarded(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test in virtual time, after which the guards of its worlds leave all pods alone."""

    @functools.wraps(test)
    async def leaving(*args: P.args, **kwargs: P.kwargs) -> None:
        World.made.clear()
        await test(*args, **kwargs)
        for world in World.made:
            await world.guard.leave_all()

    return virtual_time(leaving)


def late(name: str = "late", **fields: Any) -> Pod:
    return make_pod(name, labels=WEB, spread=SPREAD, **fields)


async def elapse(seconds: float) -> None:
    await asyncio.sleep(seconds)
    await settle()


@guarded
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
@guarded
async def test_people_are_told_of_a_nomination_that_was_written(answer: Nominated, told: int) -> None:
    world = World("b1", pods=[late()])
    world.answers = [answer] * 9
    world.asked("late")
    await elapse(0.5)

    note = (
        f"Homeport refused all {len(CROWD)} nodes of the scheduler's request; nominated the pod to b1, which was "
        "not among them: the scheduler tries it next"
    )
    event = Told("Pod default/late", "Node b1", "Normal", "NominatedUnshown", "Nominating", note)
    assert [event] * told == world.events.told


@guarded
async def test_a_pod_that_is_asked_about_without_a_pause_is_nominated_all_the_same() -> None:
    world = World("b1", pods=[late()])
    for _ in range(40):
        world.asked("late")
        await elapse(0.003)

    ((at, *nominated),) = world.written
    assert ["late", "b1"] == nominated
    assert pytest.approx(0.1, abs=0.004) == at


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
@guarded
async def test_who_is_left_alone(names: list[str], outcome: Outcome, pod: Pod, nodes: list[str]) -> None:
    world = World(*nodes, pods=[pod])
    world.asked("late", names, outcome)
    await elapse(3600)

    assert ([], 0, {}) == (world.written, world.sampled_out, world.guard._cases)


@pytest.mark.parametrize(
    ("names", "nominated", "guarded"),
    [
        pytest.param(CROWD, "", True, id="as many names as a sample has"),
        pytest.param(CROWD[:2], "", False, id="fewer: in-tree filters refused the others"),
        pytest.param(["b2"], "b2", False, id="one that the pod is nominated to: a probe"),
    ],
)
@guarded
async def test_what_a_sample_is(names: list[str], nominated: str, guarded: bool) -> None:
    world = World("b1", "b2", pods=[late(nominated=nominated)], smallest=len(CROWD) if len(names) > 1 else 1)
    world.nominations.put("uid-default-late", nominated)
    world.asked("late", names, nominated=nominated)
    await elapse(1)

    assert guarded == bool(world.written)


@guarded
async def test_without_a_picture_nobody_is_nominated() -> None:
    world = World("b1", pods=[late()])
    world.bench.problem = "the watch is silent"
    world.asked("late")
    await elapse(60)

    assert [] == world.written


@guarded
async def test_a_pod_is_nominated_once_the_watch_has_shown_it() -> None:
    world = World("b1")
    world.asked("late")
    await elapse(0.1)
    assert [] == world.written
    world.bench.show(late())
    await elapse(0.3)

    assert [("late", "b1")] == world.nominated


@guarded
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
    (shape,) = world.guard._pacing._shapes
    assert ("late", True, honest.spec) == (name, node in {*CROWD, "b1"}, shape.spec)


@guarded
async def test_a_node_that_in_tree_filters_refuse_is_not_nominated_until_it_changes() -> None:
    """They are asked first; the next nodes are asked about at once, and nothing is tried in vain."""
    world = World("b1", "b2", pods=[late()])
    world.in_tree.refused |= {"b1", "b2"}
    for _ in range(40):
        world.asked("late")
        await elapse(0.1)
    assert ([], 0, {"b1", "b2"}, 2) == (
        world.written,
        world.sampled_out,
        set(world.in_tree.asked),
        len(world.in_tree.asked),
    )

    world.in_tree.refused.clear()
    world.cluster.upsert_node(make_node("b2", zone="b", resource_version="2"))
    await elapse(15)
    world.asked("late")
    await elapse(15)
    assert [("late", "b2")] == world.nominated


@guarded
async def test_pods_of_one_shape_share_what_in_tree_filters_refused() -> None:
    """Twenty pods cost two questions and no nomination, whoever owns them."""
    names = [f"late-{number}" for number in range(20)]
    pods = [late(it, owner=controller("Job", it)) for it in names]
    world = World("b1", "b2", pods=pods)
    world.in_tree.refused |= {"b1", "b2"}
    for pod in pods:
        world.guard.answered(pod, len(CROWD), "", "no_fit")
    await elapse(120)

    assert ([], 2) == (world.written, len(world.in_tree.asked))


@guarded
async def test_a_pod_that_asks_for_less_is_asked_about_anew() -> None:
    """The picture of this profile does not tell the two pods apart; what in-tree filters read of them does."""
    world = World("b1", pods=[late("large"), late("small-1")])
    world.in_tree.refused.add("b1")
    world.in_tree.specs = {name: make_pod(name, priority=len(name)).spec for name in ("large", "small-1")}
    world.asked("large")
    await elapse(1)
    world.in_tree.refused.clear()
    world.asked("small-1")
    await elapse(1)

    assert [("small-1", "b1")] == world.nominated


@guarded
async def test_an_unknown_verdict_allows_one_nomination() -> None:
    """In-tree filters that cannot be asked refuse the node: it is excluded for all pods alike until it changes."""
    world = World("b1", pods=[late("late-1"), late("late-2")])
    world.in_tree.unknown = True
    for number in range(600):
        world.asked(f"late-{number % 2 + 1}")
        await elapse(0.1)
        if number == 0:
            await world.refuse_in_tree("late-1", "b1")

    assert ([("late-1", "b1")], {"refused": 1}) == (world.nominated, world.results)
    world.cluster.upsert_node(make_node("b1", zone="b", resource_version="2"))
    for _ in range(30):
        world.asked("late-2")
        await elapse(1)
    assert ["b1", "b1"] == [node for _, node in world.nominated[:2]]


@guarded
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


@guarded
async def test_the_process_nominates_ten_pods_a_second() -> None:
    names = [f"late-{number}" for number in range(40)]
    world = World(*(f"b{number}" for number in range(40)), pods=[late(name) for name in names])
    for name in names:
        world.asked(name)
    await elapse(2)

    assert 20 <= len(world.written) <= 21


@guarded
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


@guarded
async def test_one_whose_turn_comes_too_late_is_nominated_elsewhere() -> None:
    """The first took the last place of the zone: for the second the node would break its constraint."""
    world = World("b1", pods=[late("late-1"), late("late-2")])
    for name in ("late-1", "late-2"):
        world.asked(name)
    await elapse(QUIET + LOOK_SECONDS)
    world.cluster.upsert_pod(late("late-1", node="b1"))
    world.cluster.upsert_pod(make_pod("web-2", labels=WEB, spread=SPREAD, node="b1"))
    world.asked("late-1", ["b1"], "feasible", nominated="b1")
    await elapse(NOMINATION_SECONDS)

    assert ("late-1", "b1") == world.nominated[0]
    assert world.nominated[1] in [("late-2", node) for node in CROWD]


@guarded
async def test_a_nomination_that_was_cleared_unseen_is_repeated() -> None:
    """Two calls without it: the second one came after the scheduler had cleared it."""
    world = World("b1", pods=[late()])
    world.asked("late")
    await elapse(QUIET)
    for _ in range(2):
        world.asked("late")
        await elapse(0.004)
    world.clear("late")
    await elapse(NOMINATION_SECONDS)

    assert [("late", "b1")] * 2 == world.nominated
    assert {"lost": 1} == world.results


@pytest.mark.parametrize(
    ("calls", "result", "times"),
    [
        pytest.param(1, "lost", 2, id="a call was under way: the scheduler was dealing with it"),
        pytest.param(0, "refused", 1, id="no call: in-tree filters left no node to ask us about"),
    ],
)
@guarded
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


@guarded
async def test_a_nomination_without_any_effect_counts_as_refused() -> None:
    world = World("b1", pods=[late()])
    world.asked("late")
    await elapse(QUIET + ANSWER_SECONDS)
    world.clear("late")
    assert {"unanswered": 1} == world.results
    await elapse(9)

    assert [("late", "b1")] == world.nominated


@guarded
async def test_a_pod_that_found_a_node_by_itself_needs_no_guard() -> None:
    world = World("b1", "b2", pods=[late()])
    world.asked("late")
    await elapse(QUIET)
    world.asked("late", ["a1", "b1", "b2"], "feasible")
    await settle()

    assert ({"overtaken": 1}, {}) == (world.results, world.guard._cases)


@guarded
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


@guarded
async def test_a_standing_refusal_is_looked_into_ever_more_rarely() -> None:
    """Every bind wakes every refused pod. Asked about 10 times a second for a minute, it is looked for 8 times."""
    world = World(pods=[late()])
    for _ in range(600):
        world.asked("late")
        await elapse(0.1)

    assert (8, []) == (world.bench.looks, world.nominated)
    world.cluster.upsert_node(make_node("b1", zone="b"))
    world.asked("late")
    await elapse(15)
    assert [("late", "b1")] == world.nominated


@guarded
async def test_once_forbidden_it_stays_off() -> None:
    world = World("b1", pods=[late("late-1"), late("late-2")])
    world.answers = ["forbidden"]
    world.asked("late-1")
    await elapse(60)
    world.asked("late-2")
    await elapse(60)

    assert ([("late-1", "b1")], {"forbidden": 1}, {}) == (world.nominated, world.results, world.guard._cases)


@pytest.mark.parametrize(("answer", "expected"), [("gone", 1), ("failed", 2)])
@guarded
async def test_a_patch_that_was_not_taken(answer: Nominated, expected: int) -> None:
    """A pod that is gone is forgotten; another failure is tried again after a pause."""
    world = World("b1", pods=[late()])
    world.answers = [answer]
    world.asked("late")
    await elapse(1.5)

    assert expected == len(world.written)


@guarded
async def test_a_deleted_pod_is_forgotten() -> None:
    world = World("b1", pods=[late()])
    world.asked("late")
    await elapse(QUIET)
    world.cluster.delete_pod(("default", "late"))
    await elapse(ANSWER_SECONDS + LOOK_SECONDS)

    assert ({"overtaken": 1}, {}) == (world.results, world.guard._cases)


@guarded
async def test_cancelled_it_leaves_all_pods_alone() -> None:
    """Also those whose nomination is on its way."""
    world = World("b1", pods=[late("late-1"), late("late-2")])
    running = asyncio.ensure_future(world.guard.run())
    world.asked("late-1")
    world.asked("late-2")
    await elapse(QUIET)
    assert ([("late-1", "b1")], 2) == (world.nominated, len(world.guard._cases))

    running.cancel()
    await settle()
    await elapse(60)

    assert (1, {}) == (len(world.written), world.guard._cases)
