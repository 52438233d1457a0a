"""The checker is fed violations, and histories that look like some and are none."""

from typing import Any

import pytest

from tests.chaos import checker
from tests.chaos.checker import Json
from tests.controlplane import objects
from tests.unit.chaos.history import History

WEB = {"app": "web"}
ZONES = ("a", "b", "c")


class Story(History):
    """Writes a history, a revision a line."""

    def __init__(self, nodes: dict[str, str] | None = None) -> None:
        super().__init__()
        self._pods: dict[str, Json] = {}
        for name, zone in (nodes or {f"node-{zone}": zone for zone in ZONES}).items():
            self.tell("Node", "ADDED", objects.node(name, zone=zone))

    def waits(self, name: str, *constraints: Json, **fields: Any) -> None:
        spread = constraints or (objects.spread(WEB),)
        pod = objects.pod(name, labels=WEB, spread_constraints=spread, **fields)
        self._pods[name] = self.tell("Pod", "ADDED", pod)

    def binds(self, name: str, node: str) -> None:
        pod = self._pods[name]
        self._pods[name] = self.tell("Pod", "MODIFIED", {**pod, "spec": {**pod["spec"], "nodeName": node}})

    def runs(self, name: str, node: str, *constraints: Json, **fields: Any) -> None:
        self.waits(name, *constraints, **fields)
        self.binds(name, node)

    def goes(self, name: str) -> None:
        self.tell("Pod", "DELETED", self._pods.pop(name))

    def is_fenced(self, name: str) -> float:
        """Fence a pod off; returns when."""
        pod = self._pods[name]
        annotations = {checker.FENCE: pod["metadata"]["resourceVersion"]}
        self._pods[name] = self.tell("Pod", "MODIFIED", pod, annotations=annotations)
        return self.events[-1].received

    def changes(self, name: str, metadata: Json | None = None, phase: str = "Running") -> None:
        pod = {**self._pods[name], "status": {"phase": phase}}
        self._pods[name] = self.tell("Pod", "MODIFIED", pod, **(metadata or {}))

    def violators(self) -> list[str]:
        return [it.pod for it in checker.judge_order(self.events).violations]


def test_pods_that_take_turns_are_in_order() -> None:
    story = Story()
    for number in range(6):
        story.runs(f"web-{number}", f"node-{ZONES[number % 3]}")

    assert checker.judge_order(story.events) == checker.OrderJudgement(binds=6)
    assert checker.judge_rest(story.events) == []


def test_two_binders_that_do_not_see_each_other_are_found() -> None:
    """The second of two bindings to one zone is the violation, also when the third zone evens it out later."""
    story = Story()
    for name in ("one", "two", "three"):
        story.waits(name)
    story.binds("one", "node-a")
    story.binds("two", "node-a")
    story.binds("three", "node-b")
    story.runs("four", "node-c")

    (found,) = checker.judge_order(story.events).violations
    assert (found.pod, found.node, found.counts) == ("default/two", "node-a", {"a": 1, "b": 0, "c": 0})
    assert checker.judge_rest(story.events) == []


def test_excess_that_stays_is_found_at_rest() -> None:
    story = Story()
    story.runs("one", "node-a")
    story.runs("two", "node-a")

    (found,) = checker.judge_rest(story.events)
    assert found.counts == {"a": 2, "b": 0, "c": 0}


@pytest.mark.parametrize(
    ("steps", "violators", "excused"),
    [
        pytest.param(
            "run a, run b, run c, wait, delete c, bind", 0, 1, id="the minimum may have been 1 when it was decided"
        ),
        pytest.param("run a, run b, run c, delete c, wait, bind", 1, 0, id="deleted before the pod was created"),
        pytest.param(
            "run a, run b, wait, delete b, bind", 1, 0, id="deleted elsewhere: put back it makes it no better"
        ),
        pytest.param("run a, run b, wait, run c, delete c, bind", 0, 1, id="bound and deleted while the pod waited"),
        pytest.param("run a, run b, run c, wait, end c, bind", 0, 1, id="terminating is as good as deleted"),
    ],
)
def test_a_deletion_excuses_if_it_came_after_the_pod(steps: str, violators: int, excused: int) -> None:
    """The pod ``late`` waits, and is bound in zone a; in the other steps a pod of a zone runs, ends or is deleted."""
    story = Story()
    for step in steps.split(", "):
        match step.split():
            case ["wait"]:
                story.waits("late")
            case ["bind"]:
                story.binds("late", "node-a")
            case ["run", zone]:
                story.runs(f"web-{zone}", f"node-{zone}")
            case ["end", zone]:
                story.changes(f"web-{zone}", {"deletionTimestamp": "2026-01-01T00:00:00Z"})
            case ["delete", zone]:
                story.goes(f"web-{zone}")

    judged = checker.judge_order(story.events)
    assert (["default/late"] * violators, ["default/late"] * excused) == (
        [it.pod for it in judged.violations],
        [it.pod for it in judged.excused],
    )


@pytest.mark.parametrize(
    ("metadata", "phase"),
    [
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Running", id="terminating"),
        pytest.param({}, "Succeeded", id="succeeded"),
        pytest.param({}, "Failed", id="failed"),
    ],
)
def test_pods_on_their_way_out_do_not_count(metadata: Json, phase: str) -> None:
    story = Story()
    story.runs("old", "node-a")
    story.changes("old", metadata, phase)
    story.runs("new", "node-a")

    assert (story.violators(), checker.judge_rest(story.events)) == ([], [])


def test_other_apps_and_namespaces_do_not_count() -> None:
    story = Story()
    story.runs("other", "node-a", namespace="elsewhere")
    story.tell("Pod", "ADDED", objects.pod("db", labels={"app": "db"}, node_name="node-a"))
    story.runs("web", "node-a")

    assert story.violators() == []


@pytest.mark.parametrize(
    ("constraint", "fields", "violators"),
    [
        pytest.param(objects.spread(WEB, max_skew=2), {}, [], id="maxSkew 2"),
        pytest.param(objects.spread(WEB, when="ScheduleAnyway"), {}, [], id="soft constraints are nobody's business"),
        pytest.param(
            objects.spread(WEB), {"node_selector": {objects.ZONE_LABEL: "a"}}, [], id="only eligible nodes have domains"
        ),
        pytest.param(
            objects.spread(WEB, nodeAffinityPolicy="Ignore"),
            {"node_selector": {objects.ZONE_LABEL: "a"}},
            ["default/two"],
            id="nodeAffinityPolicy Ignore",
        ),
        pytest.param(
            objects.spread(WEB, minDomains=2),
            {"node_selector": {objects.ZONE_LABEL: "a"}},
            ["default/two"],
            id="too few domains make the minimum 0",
        ),
        pytest.param(objects.spread({"app": "db"}), {}, [], id="a pod that its own selector does not match"),
        pytest.param(objects.spread(WEB, topology_key="rack"), {}, ["default/one", "default/two"], id="no such domain"),
    ],
)
def test_the_rule_is_kube_schedulers(constraint: Json, fields: Json, violators: list[str]) -> None:
    story = Story()
    story.runs("one", "node-a", constraint, **fields)
    story.runs("two", "node-a", constraint, **fields)

    assert story.violators() == violators


def test_revisions_are_counted_apart_with_match_label_keys() -> None:
    story = Story()
    constraint = objects.spread(WEB, matchLabelKeys=["revision"])
    for name, revision in (("old", "1"), ("new", "2")):
        pod = objects.pod(name, labels={**WEB, "revision": revision}, spread_constraints=[constraint])
        waiting = story.tell("Pod", "ADDED", pod)
        story.tell("Pod", "MODIFIED", {**waiting, "spec": {**waiting["spec"], "nodeName": "node-a"}})

    assert story.violators() == []


def test_tainted_nodes_are_no_domains_where_taints_are_honored() -> None:
    story = Story({"node-a": "a"})
    story.tell("Node", "ADDED", objects.node("node-b", zone="b", taints=[objects.taint("spot")]))
    constraint = objects.spread(WEB, nodeTaintsPolicy="Honor")
    story.runs("one", "node-a", constraint)
    story.runs("two", "node-a", constraint)
    story.runs("tolerant", "node-a", constraint, tolerations=[objects.toleration("spot")])

    assert story.violators() == ["default/tolerant"]


def test_both_constraints_of_a_pod_are_judged() -> None:
    """Evenly over zones, twice on one host."""
    story = Story({"node-1": "a", "node-2": "a"})
    both = (objects.spread(WEB), objects.spread(WEB, topology_key=objects.HOSTNAME_LABEL))
    story.runs("one", "node-1", *both)
    story.runs("two", "node-1", *both)

    (found,) = checker.judge_order(story.events).violations
    assert found.constraint.startswith(objects.HOSTNAME_LABEL)
    assert [it.counts for it in checker.judge_rest(story.events)] == [{"node-1": 2, "node-2": 0}]


def test_what_is_not_judged_is_refused() -> None:
    story = Story()
    story.runs("one", "node-a")
    story.tell("Node", "MODIFIED", objects.node("node-a", zone="b"))

    with pytest.raises(checker.UnsupportedHistory, match="node node-a changed while pods were bound"):
        checker.judge_order(story.events)


def test_labels_that_come_with_a_binding_are_taken_and_later_ones_refused() -> None:
    """The API server copies the topology of the node onto the pod."""
    story = Story()
    story.waits("one")
    story.changes("one", {"labels": {**WEB, objects.ZONE_LABEL: "a"}}, phase="Pending")
    story.binds("one", "node-a")
    assert story.violators() == []
    story.changes("one", {"labels": {}})

    with pytest.raises(checker.UnsupportedHistory, match="default/one was relabelled"):
        checker.judge_order(story.events)


def test_a_pod_that_moves_is_found() -> None:
    story = Story()
    story.runs("one", "node-a")
    story.binds("one", "node-b")
    story.runs("two", "node-c")

    assert checker.bound_twice(story.events) == ["default/one on node-a, node-b"]


def test_a_binding_of_who_no_longer_leads_is_late() -> None:
    """Who holds the Lease is told by its address; a released one is held by nobody."""
    story = Story()

    def held(identity: str, address: str) -> None:
        lease = {"metadata": {"name": "homeport"}, "spec": {"holderIdentity": identity}}
        story.tell("Lease", "MODIFIED", lease, annotations={checker.ADDRESS: address})

    held("one_1", "host:1")
    story.runs("early", "node-a")
    story.waits("late")
    held("two_1", "host:2")
    story.tell("Lease", "MODIFIED", {"metadata": {"name": "apiserver"}, "spec": {"holderIdentity": "apiserver"}})
    story.binds("late", "node-b")
    story.runs("right", "node-c")
    held("", "host:2")
    story.runs("unfounded", "node-a")

    bound_by = {"default/early": "one", "default/late": "one", "default/right": "two", "default/unfounded": "two"}
    assert checker.late_bindings(story.events, "default/homeport", bound_by, {"host:1": "one", "host:2": "two"}) == [
        "default/late bound by one while two held the lease",
        "default/unfounded bound by two while nobody held the lease",
    ]


def test_pods_without_a_node_are_waiting() -> None:
    story = Story()
    story.waits("stuck")
    story.waits("gone")
    story.goes("gone")
    story.runs("bound", "node-a")

    assert checker.waiting_pods(story.events) == ["default/stuck"]


@pytest.mark.parametrize(
    ("sender", "ended", "late"),
    [
        pytest.param("old", -0.5, ["default/web bound by old after it was fenced"], id="it had ended before the fence"),
        pytest.param("old", 0.5, [], id="it ended after the fence, which may be its own"),
        pytest.param("new", -0.5, [], id="another bound it"),
    ],
)
def test_a_binding_of_an_ended_process_after_the_fence_is_found(sender: str, ended: float, late: list[str]) -> None:
    story = Story()
    story.waits("web")
    story.waits("before")
    story.binds("before", "node-a")
    fenced = story.is_fenced("web")
    story.binds("web", "node-b")

    bound_by = {"default/web": sender, "default/before": "old"}
    assert late == checker.bound_after_fence(story.events, bound_by, {"old": fenced + ended})


@pytest.mark.parametrize(
    ("steps", "beyond", "violators"),
    [
        pytest.param("a a b c", {}, ["default/2"], id="in-tree: the second in one zone"),
        pytest.param("a a b c", {"untoleratedDomains": "Ignore"}, ["default/2"], id="all zones are open"),
        pytest.param("b a a", {"untoleratedDomains": "Ignore"}, ["default/3"], id="minimum 0 in an open zone"),
        pytest.param("a a b", {"onViolation": "AllowNotWorse"}, ["default/2"], id="it raises the skew"),
        pytest.param("a a b b", {"onViolation": "AllowNotWorse"}, ["default/2"], id="it grows to the largest zone"),
        pytest.param("a a b b", {}, ["default/2", "default/4"], id="in-tree: also the second in another zone"),
    ],
)
def test_the_rule_with_options(steps: str, beyond: Json, violators: list[str]) -> None:
    story = Story()
    for number, zone in enumerate(steps.split(), 1):
        story.runs(str(number), f"node-{zone}")

    assert [it.pod for it in checker.judge_order(story.events, beyond).violations] == violators
