"""A cycle asks the points that no verb of kube-scheduler has: PreEnqueue first, PostFilter where no node will do.

What it decides and how it is answered: tests/api/test_cycle_explain.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import ClassVar, Final

import pytest
from msgspec.structs import replace

from app.feeds.saved import NullReader
from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState, StateKey
from app.framework.node_info import NodeInfo
from app.framework.points import (
    FilterPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PostFilterSteps,
    PreEnqueuePlugin,
    PreFilterPlugin,
    Victims,
)
from app.framework.spec import Reads
from app.framework.status import SUCCESS, Status, error, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.memory.expected_binds import ExpectedBinds
from app.runtime import cache_entries
from app.runtime.framework import Framework
from app.verbs.candidates import UNKNOWN_NODE
from app.verbs.context import VerbContext
from app.verbs.cycle import Cycle, CycleVerb, _Unfinished
from app.verbs.outcome import VerbFailure
from plugins.in_tree.priority_sort import PrioritySort
from tests.builders import make_node, make_pod
from tests.fakes import Counted, FromSpec, spec_of
from tests.harness import World, only

POD = make_pod("web-1")
ANSWERED: Final = partial(Cycle, profile="default-scheduler", preset="delegated")
SEEN: StateKey[Counted] = StateKey("seen")
NO = unschedulable("no")


class Full(FromSpec, PreFilterPlugin, FilterPlugin):
    """Lets no node pass but n3, and writes into the state that it was asked."""

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        state.write(SEEN, Counted(1))
        return SUCCESS, None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS if node.name == "n3" else NO


class Small(FromSpec, FilterPlugin):
    """Reads the node alone; ``names``: the nodes that it judged."""

    names: ClassVar[list[str]] = []

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        self.names.append(node.name)
        return NO


class Prepares(FromSpec, PreEnqueuePlugin):
    """Has to make something first, in some steps, and says no once it is there."""

    done = 0

    def pre_enqueue(self, pod: Pod) -> Status:
        if self.done < 3:
            raise Unprepared(self._steps())
        return unresolvable(f"made in {self.done} steps")

    def _steps(self) -> Iterator[None]:
        while self.done < 3:
            self.done += 1
            yield


class Helps(FromSpec, PostFilterPlugin):
    """Names what it was told, and the first of the nodes."""

    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        yield from ()
        told = [f"{name}: {status.message}" for name, status in rejected.items()]
        return PostFilterResult("n1"), unschedulable(*told, f"prepared {state.read(SEEN).count} time")


class Fails(FromSpec, PostFilterPlugin):
    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        yield from ()
        return None, error("a screw is loose")


class Walks(FromSpec, PostFilterPlugin):
    """Takes as many steps as it is told, and says how many pods were on the node at each; others act between them."""

    between: ClassVar[list[Callable[[], object]]] = []

    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        seen = [self._pods(state)]
        for act in tuple(self.between):
            act()
            state = yield
            seen.append(self._pods(state))
        return PostFilterResult("n1", Victims((POD,))), unschedulable(f"saw {seen}")

    def _pods(self, state: CycleState) -> int:
        node = self.handle.nodes.get("n1")
        return state.read(SEEN).count * len(node.pods if node else ())


class NeedsMore(FromSpec, PostFilterPlugin):
    """After a step it finds that something is to be made first."""

    made = 0

    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        yield
        if not self.made:
            raise Unprepared(self._steps())
        return None, unschedulable(f"made {self.made}")

    def _steps(self) -> Iterator[None]:
        self.made += 1
        yield


class Leaves(FromSpec, PreFilterPlugin):
    """Rejects the pod for good once n2 is gone."""

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        return (SUCCESS if self.handle.nodes.get("n2") else unresolvable("n2 is gone")), None


def verb(*plugins: type[FromSpec]) -> CycleVerb:
    """Of two full nodes and one with room; ``Full`` and these plugins judge."""
    judges: tuple[type[FromSpec], ...] = (Full, *plugins)
    world = World(
        *(make_node(name) for name in ("n1", "n2", "n3")),
        profile=only(*(it.__name__ for it in judges)),
        specs=[spec_of(it, reads=Reads.NODE if it is Small else Reads.CLUSTER) for it in judges],
    )
    due = ExpectedBinds(world.clock, wait_seconds=0, observe=lambda _: None)
    profiles = {world.framework.scheduler_name: world.framework}
    return CycleVerb(VerbContext(world.cluster, profiles, NullReader(), str, due), lambda _: "")


def framework_of(found: CycleVerb) -> Framework:
    return found._context.require_framework(POD)


class TestTheNextOne:
    async def test_a_fault_names_the_plugin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: object) -> bool:
            raise ZeroDivisionError("a screw is loose")

        found = verb()
        monkeypatch.setattr(PrioritySort, "less", broken)

        assert POD is found.next_of([(POD, 1.0)])  # nobody has to be asked
        with pytest.raises(VerbFailure, match="PrioritySort") as failed:
            found.next_of([(POD, 1.0), (make_pod("web-2"), 2.0)])
        assert "fault" == failed.value.outcome


class TestPreEnqueue:
    async def test_what_it_rests_on_is_made_first(self) -> None:
        expected = ANSWERED(pre_enqueue=unresolvable("made in 3 steps").by("Prepares"))

        assert expected == await verb(Prepares).run(POD)


class TestSteps:
    """What one decision takes is spread over several turns."""

    async def test_postfilter_is_asked_in_a_turn_of_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Fails, "post_filter", lambda *_: pytest.fail("asked with the search"))
        found = verb(Fails)

        assert _Unfinished(Cycle(statuses={"n1": NO.by("Full")})) == found._cycle(framework_of(found), POD, ["n1"])

    async def test_nodes_are_judged_some_at_a_time_and_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Small, "names", [])
        monkeypatch.setattr(cache_entries, "_MOST_AT_ONCE", 1)
        found = verb(Small, Helps)

        with pytest.raises(Unprepared) as missing:
            found._cycle(framework_of(found), POD, None)
        judged = [len(Small.names) for _ in missing.value.steps]
        answers = [await found.run(POD) for _ in range(2)]

        assert ([1, 2, 3], ["n1", "n2", "n3"]) == (judged, Small.names)
        assert {"n1": NO.by("Full"), "n2": NO.by("Full"), "n3": NO.by("Small")} == answers[0].statuses
        assert answers[0] == answers[1]


class TestPostFilter:
    async def test_it_is_asked_where_prefilter_rejects_for_good(self) -> None:
        found = verb(Leaves, Helps)
        found._context.cluster.delete_node("n2")

        answer = await found.run(POD, ["n1"])

        assert (unresolvable("n2 is gone").by("Leaves"), "n1") == (answer.pre_filter, answer.nominated)

    async def test_it_is_asked_where_no_node_will_do_with_the_state_that_prefilter_wrote(self) -> None:
        full = NO.by("Full")
        reasons = ("n1: no", "n9: " + UNKNOWN_NODE.message, "prepared 1 time")

        assert ANSWERED(
            statuses={"n1": full, "n9": UNKNOWN_NODE},
            post_filter=unschedulable(*reasons).by("Helps"),
            nominated="n1",
        ) == await verb(Helps).run(POD, ["n1", "n9"])

    async def test_in_steps_each_is_on_the_picture_as_it_is_then_without_the_pod(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = verb(Walks)
        cluster = found._context.cluster
        cluster.upsert_pod(replace(POD, node_name="n1"))
        come = [partial(cluster.upsert_pod, make_pod(name, node="n1")) for name in ("a", "b")]
        monkeypatch.setattr(Walks, "between", come)

        assert ANSWERED(
            statuses={"n1": NO.by("Full")},
            post_filter=unschedulable("saw [0, 1, 2]").by("Walks"),
            nominated="n1",
            victims=Victims((POD,)),
        ) == await found.run(POD, ["n1"])

    async def test_where_prefilter_rejects_by_then_nothing_would_help(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = verb(Leaves, Walks)
        monkeypatch.setattr(Walks, "between", [partial(found._context.cluster.delete_node, "n2")])

        assert ANSWERED(
            statuses={"n1": NO.by("Full")}, post_filter=unresolvable("n2 is gone").by("Leaves")
        ) == await found.run(POD, ["n1"])

    async def test_what_a_step_rests_on_is_made_and_all_done_anew(self) -> None:
        found = await verb(NeedsMore).run(POD, ["n1"])

        assert unschedulable("made 1").by("NeedsMore") == found.post_filter

    @pytest.mark.parametrize(
        ("plugins", "names"),
        [
            pytest.param([Helps], None, id="where a node will do"),
            pytest.param([Helps], [], id="where there is no node"),
            pytest.param([], ["n1"], id="where no plugin has it"),
        ],
    )
    async def test_it_is_not_asked(self, plugins: list[type[FromSpec]], names: list[str] | None) -> None:
        found = await verb(*plugins).run(POD, names)

        assert (None, None) == (found.post_filter, found.nominated)
