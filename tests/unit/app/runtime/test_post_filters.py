"""Rules of PostFilter in steps, and of plugins that would have pods evicted. Who is asked: `test_framework.py`."""

from collections.abc import Callable, Mapping

import pytest

from app.framework.cycle_state import CycleState, StateKey
from app.framework.node_info import NodeInfo
from app.framework.points import PostFilterAnswer, PostFilterPlugin, PostFilterResult, PostFilterSteps, Victims
from app.framework.status import SUCCESS, Status, unschedulable
from app.kube.core_v1 import Pod
from app.runtime.guard import PluginError
from app.runtime.post_filters import NoPreemption
from tests.builders import make_node
from tests.fakes import Counted, FakePlugin, Helps
from tests.unit.app.runtime.engine import POD, framework

NUMBER: StateKey[Counted] = StateKey("number")
REJECTED = {"n1": unschedulable("no")}
NODE = NodeInfo(make_node("n1"))


def numbered(number: int) -> CycleState:
    state = CycleState()
    state.write(NUMBER, Counted(number))
    return state


class Walks(FakePlugin, PostFilterPlugin):
    """Takes three steps, and names the states that it saw."""

    answer: object = None

    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        seen = [state.read(NUMBER).count]
        for _ in range(2):
            state = yield
            seen.append(state.read(NUMBER).count)
        return self.answer or (PostFilterResult("n1"), unschedulable(f"saw {seen}"))  # type: ignore[return-value]  # may be wrong


class Stumbles(FakePlugin, PostFilterPlugin):
    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        yield
        raise ZeroDivisionError("a screw is loose")


def walked(*plugins: FakePlugin) -> tuple[PostFilterAnswer, int]:
    """The answer, and how often others had their turn."""
    steps, turns = framework(*plugins).post_filters.post_filter(numbered(0), POD, REJECTED), 0
    try:
        next(steps)
        while True:
            turns += 1
            steps.send(numbered(turns))
    except StopIteration as end:
        return end.value, turns


def test_each_step_has_the_state_of_its_own_prefilter() -> None:
    expected = (PostFilterResult("n1"), unschedulable("saw [0, 1, 2]").by("Walks"))

    assert (expected, 2) == walked(Walks("Walks"))


def test_the_next_plugin_begins_with_the_latest_state() -> None:
    both = unschedulable("saw [0, 1, 2]", "saw [2, 3, 4]").by("A")

    assert ((PostFilterResult("n1"), both), 4) == walked(Walks("A"), Walks("B"))


def test_one_that_does_not_walk_takes_no_step() -> None:
    assert ((PostFilterResult("n2"), SUCCESS.by("B")), 2) == walked(Walks("A"), Helps("B", SUCCESS, "n2"))


def test_a_fault_in_any_step_names_the_plugin() -> None:
    with pytest.raises(PluginError, match=r"Stumbles.*a screw is loose"):
        walked(Stumbles("Stumbles"))


def test_a_wrong_answer_at_the_end_names_the_plugin() -> None:
    plugin = Walks("Walks")
    plugin.answer = "n1"

    with pytest.raises(PluginError, match=r"Walks.*returned a str, not \(result, Status\)"):
        walked(plugin)


class Evicts(FakePlugin, PostFilterPlugin):
    """Answers what it was told to."""

    victims: object = Victims((POD,), 1)

    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        yield from ()
        return None, SUCCESS

    def pod_eligible_to_preempt_others(self, pod: Pod, nominated_node_status: Status) -> str:
        return nominated_node_status.message

    def select_victims_on_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> tuple[Victims, Status]:
        return self.victims, unschedulable(node.name)  # type: ignore[return-value]  # may be wrong

    def select_candidates(self, victims: Mapping[str, Victims]) -> tuple[str, ...]:
        return tuple(victims)

    def victims_for_spread(
        self, state: CycleState, pod: Pod, rejected: Mapping[str, Status], stays: Callable[[Pod], str]
    ) -> PostFilterSteps:
        yield from ()
        return None, unschedulable(stays(pod))


def test_the_parts_of_a_preemption_are_asked_by_themselves() -> None:
    engine = framework(Helps("Helps"), Evicts("Evicts"))

    assert "why" == engine.post_filters.not_eligible(POD, unschedulable("why"))
    assert (Victims((POD,), 1), unschedulable("n1")) == engine.post_filters.victims_on(CycleState(), POD, NODE)
    assert ("n1",) == engine.post_filters.pick({"n1": Victims((POD,))})


def test_a_profile_without_one_says_so() -> None:
    with pytest.raises(NoPreemption, match="the profile has no DefaultPreemption"):
        framework(Helps("Helps")).post_filters.pick({})


def test_victims_that_are_none_name_the_plugin() -> None:
    plugin = Evicts("Evicts")
    plugin.victims = [POD]

    with pytest.raises(PluginError, match=r"Evicts.*returned a list, not Victims"):
        framework(plugin).post_filters.victims_on(CycleState(), POD, NODE)
