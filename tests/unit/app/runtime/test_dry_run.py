"""Rules of dry runs: what plugins are told, what they see, and that nobody else sees anything of it."""

import pytest

from app.framework.cycle_state import CycleState, StateKey
from app.framework.node_info import NodeInfo
from app.framework.points import FilterPlugin, PreFilterPlugin
from app.framework.status import SUCCESS, Code, Status, unschedulable
from app.kube.core_decoding import core_v1
from app.kube.core_v1 import Pod
from app.kube.extras import Extra
from app.runtime.dry_run import DryRuns, FilterDryRun
from app.runtime.guard import PluginError
from tests.builders import make_node, make_pod
from tests.fakes import FakePlugin
from tests.unit.app.runtime.engine import POD, framework

A, B = make_pod("a", node="n1"), make_pod("b", node="n1")
CORE = core_v1([Extra.RESOURCES])


class Names(set[str]):
    def clone(self) -> "Names":
        return Names(self)


TOLD: StateKey[Names] = StateKey("told")


class Sees(FakePlugin, PreFilterPlugin, FilterPlugin):
    """Rejects with the pods that it sees on the node, and those that it was told of."""

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, None]:
        state.write(TOLD, Names("ab"))
        return SUCCESS, None

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status:
        state.read(TOLD).add(added.name)
        return unschedulable("no room") if added.name == "heavy" else SUCCESS

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeInfo) -> Status:
        state.read(TOLD).remove(removed.name)
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        if not node.pods:
            raise ZeroDivisionError("a screw is loose")
        seen = " ".join(it.name for it in node.pods.values())
        return unschedulable(f"{seen}, told {' '.join(sorted(state.read(TOLD)))}")


def test_both_kinds_of_filters_see_who_came_and_who_is_gone() -> None:
    engine, node, state = (
        framework(Sees("Sees")),
        NodeInfo(make_node("n1"), {it.uid: it for it in (A, B)}),
        CycleState(),
    )
    engine.filters.pre_filter(state, POD)
    trial = FilterDryRun(engine.filters, state, POD, node)

    said = [trial.filter().message]
    trial.remove_pod(A)
    said.append(trial.filter().message)
    trial.add_pod(A)
    said.append(trial.filter().message)

    assert ["a b, told a b", "b, told b", "b a, told a b"] == said
    assert "a b, told a b" == engine.filters.filter_node(state, POD, node).message
    assert [A, B] == list(node.pods.values())


def test_nominated_pods_are_tried_too() -> None:
    higher = make_pod("c", priority=9)
    engine, node, state = framework(Sees("Sees"), nominated={"n1": [higher]}), NodeInfo(make_node("n1")), CycleState()
    engine.filters.pre_filter(state, POD)

    assert "c, told a b c" == FilterDryRun(engine.filters, state, POD, node).filter().message


def test_a_filter_that_fails_is_an_error_and_an_extension_that_fails_a_fault() -> None:
    engine, state = framework(Sees("Sees")), CycleState()
    engine.filters.pre_filter(state, POD)
    trial = FilterDryRun(engine.filters, state, POD, NodeInfo(make_node("n1")))

    assert (Code.ERROR, "Sees") == ((status := trial.filter()).code, status.plugin)
    with pytest.raises(PluginError, match="no room"):
        trial.add_pod(make_pod("heavy"))
    with pytest.raises(KeyError):
        trial.remove_pod(A)


def test_there_is_none_while_a_profile_is_made() -> None:
    dry_runs, node = DryRuns(), NodeInfo(make_node("n1"))

    with pytest.raises(LookupError, match="before all of its plugins are created"):
        dry_runs(CycleState(), POD, node)
    dry_runs.filters = framework().filters
    assert SUCCESS == dry_runs(CycleState(), POD, node).filter()
