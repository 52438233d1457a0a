"""Rules of hard constraints: which nodes a pod may not use (semantics §2.1-2.3)."""

from collections.abc import Sequence
from typing import Unpack

import pytest

from app.cache.counters import at_once
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.framework.status import SUCCESS, Status
from app.kube.core_v1 import Node, Pod
from app.runtime.filters import Recheck
from app.runtime.guard import PluginError
from plugins.in_tree.pod_topology_spread.filtering import CONSTRAINTS_NOT_MATCH, NODE_LABEL_NOT_MATCH
from tests.builders import (
    HOSTNAME,
    ZONE,
    JsonObject,
    PodFields,
    constraint,
    expression,
    make_node,
    make_pod,
    required_affinity,
    taint,
    term,
    toleration,
)
from tests.harness import SPREAD, World, answer_of, only

RACK = "example.com/rack"
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

    found = at_once(lambda: world.framework.search.find_nodes_that_fit(pod, asked))

    assert ["na"] * (max_skew > 1) == [*found.passed]


def test_the_reasons_are_kube_schedulers() -> None:
    text = "node(s) didn't match pod topology spread constraints"
    expected = {
        "na": ("Unschedulable", SPREAD, (text,)),
        "n1": ("UnschedulableAndUnresolvable", SPREAD, (f"{text} (missing required label)",)),
        "nb": "Success",
    }

    world = spread_world(*zoned(1), make_node("n1"), make_node("nb", zone="b"))

    assert expected == world.filter(pending(constraint(ZONE, app="web")))


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

    def test_a_pod_that_does_not_match_its_own_selector_adds_nothing(self) -> None:
        world = spread_world(*zoned(1, 0))

        assert "ok, ok" == verdict(world, pending(constraint(ZONE, app="web"), labels={"app": "db"}))

    def test_all_nodes_of_a_domain_share_its_count(self) -> None:
        world = spread_world(*zoned(1, 0), make_node("na2", zone="a"))

        assert "crowded, ok, crowded" == verdict(world, pending(constraint(ZONE, app="web")))

    @pytest.mark.parametrize(
        ("other", "expected"),
        [
            pytest.param(web("x", "na"), "crowded, ok", id="a running pod counts"),
            pytest.param(
                make_pod("x", node="na", labels=WEB, namespace="shop"), "ok, ok", id="not of another namespace"
            ),
            pytest.param(make_pod("x", node="na", labels=WEB, terminating=True), "ok, ok", id="not a terminating one"),
            pytest.param(make_pod("x", node="na", labels=WEB, phase="Failed"), "ok, ok", id="not a finished one"),
            pytest.param(make_pod("x", labels=WEB), "ok, ok", id="not a waiting one"),
            pytest.param(make_pod("x", node="gone", labels=WEB), "ok, ok", id="not one on a node that is gone"),
            pytest.param(make_pod("pending", node="na", labels=WEB), "ok, ok", id="not the pod itself"),
        ],
    )
    def test_which_pods_count(self, other: Pod, expected: str) -> None:
        assert expected == verdict(spread_world(*zoned(0, 0), other), pending(constraint(ZONE, app="web")))

    def test_an_assumed_pod_counts(self) -> None:
        world = spread_world(*zoned(0, 0))
        world.cluster.assume(make_pod("x", labels=WEB), "na")

        assert "crowded, ok" == verdict(world, pending(constraint(ZONE, app="web")))

    def test_a_pod_nominated_to_the_node_counts_there_and_nowhere_else(self) -> None:
        world = spread_world(*zoned(0, 0), make_node("na2", zone="a"), make_pod("x", labels=WEB, nominated="na"))

        assert "crowded, ok, ok" == verdict(world, pending(constraint(ZONE, app="web")))


class TestConstraints:
    @pytest.mark.parametrize(
        ("pod", "expected"),
        [
            pytest.param(pending(), "ok, ok", id="no constraints"),
            pytest.param(pending(constraint(ZONE, soft=True, app="web")), "ok, ok", id="soft ones filter nothing"),
            pytest.param(
                pending(constraint(ZONE, soft=True, app="web"), constraint(HOSTNAME, app="web")),
                "crowded, ok",
                id="hard ones beside soft ones",
            ),
            pytest.param(
                pending(constraint(ZONE, app="none"), constraint(HOSTNAME, app="web")),
                "crowded, ok",
                id="each must hold",
            ),
        ],
    )
    def test_which_apply(self, pod: Pod, expected: str) -> None:
        assert expected == verdict(spread_world(*zoned(1, 0)), pod)

    def test_a_node_counts_only_if_it_has_the_keys_of_all(self) -> None:
        """Zone b's only node has no rack: zone b is no domain, and zone a is level with itself."""
        world = spread_world(make_node("na", zone="a", labels={RACK: "1"}), make_node("nb", zone="b"), web("x", "na"))

        assert "crowded, ok" == verdict(world, pending(constraint(ZONE, app="web")))
        assert "ok, no label" == verdict(world, pending(constraint(ZONE, app="web"), constraint(RACK, app="web")))

    @pytest.mark.parametrize(
        ("keys", "expected"),
        [
            pytest.param((ZONE, RACK), CROWDED, id="crowded by the first, then without the second's label"),
            pytest.param((RACK, ZONE), NO_LABEL, id="without the first's label, then crowded by the second"),
        ],
    )
    def test_the_first_in_the_list_that_fails_gives_the_reason(self, keys: Sequence[str], expected: str) -> None:
        world = spread_world(
            make_node("na", zone="a", labels={RACK: "1"}),
            make_node("nb", zone="b", labels={RACK: "2"}),
            make_node("na2", zone="a"),
            web("x", "na"),
        )

        assert expected == WORDS[world.filter(pending(*(constraint(key, app="web") for key in keys)))["na2"]]

    def test_a_selector_that_cannot_be_parsed_is_an_error(self) -> None:
        pod = pending(constraint(ZONE, selector={"matchExpressions": [expression("app", "Is")]}))

        with pytest.raises(PluginError) as raised:
            spread_world(*zoned(0)).filter(pod)

        assert (
            'running PreFilter plugin "PodTopologySpread": get constraints from pod: obtaining pod\'s hard topology '
            'spread constraints: "Is" is not a valid label selector operator'
        ) == raised.value.status.message

    def test_a_soft_selector_that_cannot_be_parsed_does_not_matter_here(self) -> None:
        pod = pending(constraint(ZONE, soft=True, selector={"matchExpressions": [expression("app", "Is")]}))

        assert "ok" == verdict(spread_world(*zoned(0)), pod)


class TestSelectors:
    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            pytest.param({"matchLabels": WEB}, "crowded, ok", id="labels"),
            pytest.param({"matchExpressions": [expression("app", "In", "web", "db")]}, "crowded, ok", id="In"),
            pytest.param({"matchExpressions": [expression("app", "Exists")]}, "crowded, ok", id="Exists"),
            pytest.param({"matchExpressions": [expression("v", "DoesNotExist")]}, "crowded, ok", id="DoesNotExist"),
            pytest.param({"matchExpressions": [expression("app", "NotIn", "web")]}, "ok, ok", id="NotIn"),
            pytest.param(None, "ok, ok", id="null matches nothing"),
            pytest.param({}, "ok, ok", id="empty matches the pod and counts none: kubernetes#141339"),
        ],
    )
    def test_of_a_constraint(self, selector: JsonObject | None, expected: str) -> None:
        assert expected == verdict(spread_world(*zoned(2, 0)), pending(constraint(ZONE, selector=selector)))

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            pytest.param({}, CROWDED, id="an empty selector matches the pods a dry run adds"),
            pytest.param(None, OK, id="a null selector does not"),
        ],
    )
    def test_in_a_dry_run(self, selector: JsonObject | None, expected: str) -> None:
        world = spread_world(*zoned(0, 0), make_pod("x", labels=WEB, nominated="na"))

        assert f"{expected}, ok" == verdict(world, pending(constraint(ZONE, selector=selector)))


class TestMatchLabelKeys:
    """The value of the pod's own label is ANDed into the selector."""

    OLD, NEW = (web(f"{rev}-x", "na", rev=rev) for rev in ("1", "2"))

    @pytest.mark.parametrize(
        ("spread", "labels", "expected"),
        [
            pytest.param(constraint(app="web", match_label_keys=["rev"]), {"rev": "2"}, "ok, ok", id="another value"),
            pytest.param(
                constraint(app="web", match_label_keys=["rev"]), {"rev": "1"}, "crowded, ok", id="the same value"
            ),
            pytest.param(constraint(app="web", match_label_keys=["rev"]), {}, "crowded, ok", id="an absent key"),
            pytest.param(constraint(app="web", match_label_keys=[]), {"rev": "2"}, "crowded, ok", id="no keys"),
            pytest.param(
                constraint(
                    selector={"matchLabels": WEB, "matchExpressions": [expression("rev", "In", "1")]},
                    match_label_keys=["rev"],
                ),
                {"rev": "1"},
                "crowded, ok",
                id="merged by the API server already",
            ),
            pytest.param(
                constraint(
                    selector={"matchLabels": WEB, "matchExpressions": [expression("rev", "In", "1")]},
                    match_label_keys=["rev"],
                ),
                {"rev": "2"},
                "ok, ok",
                id="merged, and the label changed since: matches nothing, the pod neither",
            ),
            pytest.param(
                constraint(selector=None, match_label_keys=["rev"]), {"rev": "1"}, "ok, ok", id="null stays null"
            ),
            pytest.param(
                constraint(selector={}, match_label_keys=["rev"]),
                {"rev": "1"},
                "crowded, ok",
                id="an empty selector is no longer empty",
            ),
        ],
    )
    def test_they_narrow_the_selector(self, spread: JsonObject, labels: dict[str, str], expected: str) -> None:
        world = spread_world(*zoned(0, 0), self.OLD)

        assert expected == verdict(world, pending(spread, labels={**WEB, **labels}))

    def test_each_value_counts_for_itself(self) -> None:
        world = spread_world(*zoned(0, 0), self.OLD, self.NEW)
        spread = constraint(app="web", match_label_keys=["rev"])

        assert ["crowded, ok"] * 2 == [verdict(world, pending(spread, labels=WEB | {"rev": rev})) for rev in "12"]


class TestMinDomains:
    @pytest.mark.parametrize(
        ("min_domains", "expected"),
        [
            pytest.param(None, "ok, ok", id="null is 1"),
            pytest.param(1, "ok, ok", id="fewer than there are"),
            pytest.param(2, "ok, ok", id="as many as there are"),
            pytest.param(3, "crowded, crowded", id="more than there are: the minimum is 0"),
        ],
    )
    def test_too_few_domains_count_as_an_empty_one_more(self, min_domains: int | None, expected: str) -> None:
        pod = pending(constraint(ZONE, min_domains=min_domains, app="web"))

        assert expected == verdict(spread_world(*zoned(1, 1)), pod)

    def test_without_any_domain_the_minimum_is_0(self) -> None:
        assert "no label" == verdict(spread_world(make_node("n1")), pending(constraint(ZONE, app="web")))


class TestInclusion:
    """Which nodes count; a node that does not can still be asked about."""

    TAINTED = (
        make_node("na", zone="a"),
        make_node("nb", zone="b", taints=[taint("x")]),
        web("1", "na"),
    )
    ON_SSD = (make_node("na", zone="a", labels={"disk": "ssd"}), make_node("nb", zone="b"), web("1", "na"))

    @pytest.mark.parametrize(
        ("policy", "tolerations", "expected"),
        [
            pytest.param(None, [], "crowded, ok", id="null is Ignore"),
            pytest.param("Ignore", [], "crowded, ok", id="Ignore: zone b is an empty domain"),
            pytest.param("Honor", [], "ok, ok", id="Honor: zone b is none"),
            pytest.param("Honor", [toleration("x")], "crowded, ok", id="Honor: tolerated"),
            pytest.param("Honor", [toleration("y")], "ok, ok", id="Honor: another toleration"),
        ],
    )
    def test_node_taints_policy(self, policy: str | None, tolerations: list[JsonObject], expected: str) -> None:
        pod = pending(constraint(ZONE, taints_policy=policy, app="web"), tolerations=tolerations)

        assert expected == verdict(spread_world(*self.TAINTED), pod)

    @pytest.mark.parametrize("policy", [None, "Honor"], ids=["null", "Honor"])
    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            pytest.param({}, "crowded, ok", id="the pod may run anywhere"),
            pytest.param({"node_selector": {"disk": "ssd"}}, "ok, ok", id="nodeSelector: zone b is no domain"),
            pytest.param(
                {"affinity": required_affinity(term(expression("disk", "In", "ssd")))},
                "ok, ok",
                id="affinity: zone b is no domain",
            ),
            pytest.param(
                {"affinity": required_affinity(term(expression("disk", "Is", "ssd")))},
                "ok, ok",
                id="affinity that cannot be parsed: no domain at all",
            ),
        ],
    )
    def test_node_affinity_policy_honoured(self, policy: str | None, fields: PodFields, expected: str) -> None:
        pod = pending(constraint(ZONE, affinity_policy=policy, app="web"), **fields)

        assert expected == verdict(spread_world(*self.ON_SSD), pod)

    def test_node_affinity_policy_ignored(self) -> None:
        pod = pending(constraint(ZONE, affinity_policy="Ignore", app="web"), node_selector={"disk": "ssd"})

        assert "crowded, ok" == verdict(spread_world(*self.ON_SSD), pod)

    def test_policies_are_each_constraints_own(self) -> None:
        pod = pending(
            constraint(ZONE, taints_policy="Honor", app="web"), constraint(HOSTNAME, taints_policy="Ignore", app="web")
        )

        assert "crowded, ok" == verdict(spread_world(*self.TAINTED), pod)


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

    def test_without_pre_filter_there_is_nothing_to_judge_by(self) -> None:
        world = spread_world(*zoned(0))

        with pytest.raises(PluginError, match='reading "PreFilterPodTopologySpread" from cycleState: not found'):
            world.framework.filters.filter(CycleState(), pending(constraint(app="web")), world.candidates())


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
