"""Rules of hard constraints: which nodes a pod may not use (semantics §2.1-2.3)."""

from collections.abc import Sequence
from typing import Unpack

import pytest

from app.cache.counters import run_prepared
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.framework.status import SUCCESS, Status
from app.kube.core_v1 import Node, Pod
from app.runtime.filters import Recheck
from app.runtime.guard import PluginError
from plugins.in_tree.pod_topology_spread.filtering import CONSTRAINTS_NOT_MATCH, NODE_LABEL_NOT_MATCH
from tests.builders import ZONE, JsonObject, PodFields, constraint, expression, make_node, make_pod
from tests.harness import SPREAD, World, answer_of, only

WEB = {"app": "web"}
CROWDED = "crowded"
NO_LABEL = "no label"
OK = "ok"
WORDS = {
    "Success": OK,
    answer_of(CONSTRAINTS_NOT_MATCH.by(SPREAD)): CROWDED,
    answer_of(NODE_LABEL_NOT_MATCH.by(SPREAD)): NO_LABEL,
}


def spread_world(*objects: Node | Pod | JsonObject) -> World:
    return World(*objects, profile=only(SPREAD))


def web(name: str, node: str, **labels: str) -> Pod:
    return make_pod(name, node=node, labels={**WEB, **labels})


def zoned(*counts: int) -> list[Node | Pod]:
    """Nodes ``na``, ``nb``, … in zones ``a``, ``b``, …, with so many pods of the app each."""
    found: list[Node | Pod] = []
    for zone, count in zip("abcdef", counts, strict=False):
        found.append(make_node(f"n{zone}", zone=zone))
        found.extend(web(f"{zone}-{number}", f"n{zone}") for number in range(count))
    return found


def pending(*constraints: JsonObject, **fields: Unpack[PodFields]) -> Pod:
    """A pod of the app with these constraints of its own."""
    given: PodFields = {"labels": WEB, "spread": constraints, **fields}
    return make_pod("pending", **given)


def verdict(world: World, pod: Pod) -> str:
    """A word for each node, in the order of the nodes."""
    return ", ".join(WORDS[answer] for answer in world.filter(pod).values())


@pytest.mark.parametrize("max_skew", [2, 0, -3])
def test_a_name_of_no_node_does_not_pass(max_skew: int) -> None:
    """No API server stores a ``maxSkew`` below 1; a client may send it."""
    world = spread_world(*zoned(1, 0))
    pod = pending(constraint(ZONE, app="web", skew=max_skew))
    asked = Candidates(["na", "gone", ""], world.cluster.nodes.__getitem__)

    found = run_prepared(lambda: world.framework.search.find_nodes_that_fit(pod, asked))

    assert ["na"] * (max_skew > 1) == [*found.passed]


class TestSkew:
    @pytest.mark.parametrize(
        ("counts", "skew", "expected"),
        [
            pytest.param((0, 0), 1, "ok, ok", id="an empty cluster"),
            pytest.param((1, 0), 1, "crowded, ok", id="one more than the emptiest is the most with maxSkew 1"),
            pytest.param((1, 1), 1, "ok, ok", id="level"),
            pytest.param((2, 1, 0), 1, "crowded, crowded, ok", id="the emptiest decides for all"),
            pytest.param((2, 1, 0), 2, "crowded, ok, ok", id="maxSkew 2"),
            pytest.param((2, 1, 0), 3, "ok, ok, ok", id="maxSkew 3"),
            pytest.param((5, 3, 3), 2, "crowded, ok, ok", id="the emptiest need not be empty"),
            pytest.param((3,), 1, "ok", id="one domain alone is level with itself"),
        ],
    )
    def test_count_plus_self_less_the_minimum(self, counts: Sequence[int], skew: int, expected: str) -> None:
        assert expected == verdict(spread_world(*zoned(*counts)), pending(constraint(ZONE, skew=skew, app="web")))

    def test_an_assumed_pod_counts(self) -> None:
        world = spread_world(*zoned(0, 0))
        world.cluster.assume(make_pod("x", labels=WEB), "na")

        assert "crowded, ok" == verdict(world, pending(constraint(ZONE, app="web")))


class TestConstraints:
    def test_a_selector_that_cannot_be_parsed_is_an_error(self) -> None:
        pod = pending(constraint(ZONE, selector={"matchExpressions": [expression("app", "Is")]}))

        with pytest.raises(PluginError) as raised:
            spread_world(*zoned(0)).filter(pod)

        assert (
            'running PreFilter plugin "PodTopologySpread": get constraints from pod: obtaining pod\'s hard topology '
            'spread constraints: "Is" is not a valid label selector operator'
        ) == raised.value.status.message


class TestDryRun:
    """Preemption asks what would be if some pods were gone."""

    def judge(self, world: World, pod: Pod, *removed: Pod) -> list[Status]:
        framework, state = world.framework, CycleState()
        framework.filters.pre_filter(state, pod)
        for other in removed:
            framework.filters.remove_pods(state, pod, [other], world.cluster.nodes[other.node_name])
        statuses = {info.name: framework.filters.filter_node(state, pod, info) for info in world.candidates()}
        rejected = {name: status for name, status in statuses.items() if not status.is_success}
        assert rejected == framework.filters.filter(state, pod, world.candidates())
        return list(statuses.values())

    def test_a_pod_that_is_removed_no_longer_counts(self) -> None:
        world = spread_world(*zoned(1, 0))

        assert [SUCCESS, SUCCESS] == self.judge(world, pending(constraint(app="web")), web("a-0", "na"))

    def test_removing_a_terminating_pod_subtracts_what_was_never_added(self) -> None:
        """As in-tree: a count of -1, which makes every other domain one too full."""
        dying = make_pod("dying", node="na", labels=WEB, terminating=True)
        world = spread_world(*zoned(0, 0), dying)

        assert [SUCCESS, CONSTRAINTS_NOT_MATCH.by(SPREAD)] == self.judge(world, pending(constraint(app="web")), dying)

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(make_pod("x", node="na", labels=WEB, namespace="shop"), id="of another namespace"),
            pytest.param(make_pod("x", node="na", labels={"app": "db"}), id="that the selector does not match"),
            pytest.param(make_pod("x", node="nx", labels=WEB), id="on a node that does not count"),
        ],
    )
    def test_a_pod_that_did_not_count_changes_nothing(self, other: Pod) -> None:
        world = spread_world(*zoned(1, 0), make_node("nx"), other)
        pod = pending(constraint(app="web"))

        assert self.judge(world, pod) == self.judge(world, pod, other)


class TestCertainty:
    """A bind must hold whichever of the binds in flight succeed; proved for all subsets in ``tests/property``."""

    def recheck(self, counts: Sequence[int], in_flight: str, node: str) -> Recheck:
        world = spread_world(*zoned(*counts))
        for number, target in enumerate(in_flight.split()):
            world.cluster.assume(make_pod(f"in-flight-{number}", labels=WEB), target)
        return world.recheck(pending(constraint(app="web")), node)

    @pytest.mark.parametrize(
        ("counts", "in_flight", "node", "certain"),
        [
            pytest.param((1, 1, 0), "nc", "na", False, id="level only if the bind to the third zone succeeds"),
            pytest.param((1, 1, 0), "nc", "nc", True, id="level or emptiest, as the bind under way turns out"),
            pytest.param((1, 1, 0), "nc nc", "nc", None, id="too full on the optimistic view: not asked further"),
            pytest.param((1, 1, 1), "na", "nb", True, id="a bind elsewhere that only makes room"),
            pytest.param((1, 1, 1), "na", "na", None, id="a bind to the same zone counts"),
            pytest.param((2, 1, 1), "nb nc", "na", False, id="level only if both succeed"),
            pytest.param((0, 1, 1), "nb nc", "na", True, id="the emptiest is never too full"),
        ],
    )
    def test_of_a_success(self, counts: Sequence[int], in_flight: str, node: str, certain: bool | None) -> None:
        expected = Recheck(CONSTRAINTS_NOT_MATCH.by(SPREAD)) if certain is None else Recheck(SUCCESS, certain)

        assert expected == self.recheck(counts, in_flight, node)

    @pytest.mark.parametrize(
        "fields",
        [
            pytest.param({"namespace": "shop"}, id="of another namespace"),
            pytest.param({"labels": {"app": "db"}}, id="that the selector does not match"),
            pytest.param({"terminating": True}, id="terminating"),
        ],
    )
    def test_binds_of_pods_that_do_not_count_do_not_matter(self, fields: PodFields) -> None:
        world = spread_world(*zoned(1, 1, 1))
        given: PodFields = {"labels": WEB, **fields}
        world.cluster.assume(make_pod("x", **given), "nc")

        assert Recheck(SUCCESS) == world.recheck(pending(constraint(app="web")), "na")

    def test_an_accepted_bind_is_certain(self) -> None:
        world = spread_world(*zoned(1, 1, 0))
        other = make_pod("x", labels=WEB)
        world.cluster.assume(other, "nc")
        world.cluster.accept(other.uid)

        assert Recheck(SUCCESS) == world.recheck(pending(constraint(app="web")), "na")
