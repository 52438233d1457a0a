"""Tools for tests of plugins: they hide nothing of pods and nodes, and run a plugin as Homeport does."""

from __future__ import annotations

from typing import Any, Final

import pytest

from homeport.plugin import (
    PERSISTENT_VOLUMES,
    SERVICES,
    SUCCESS,
    CycleState,
    FilterPlugin,
    Handle,
    Kind,
    Needs,
    NodeInfo,
    Part,
    PluginArgs,
    PluginSpec,
    Pod,
    PreFilterPlugin,
    QueueSortPlugin,
    Reads,
    ScorePlugin,
    Status,
    partial_kind,
    unresolvable,
    unschedulable,
)
from homeport.testing import PluginError, make_handle, make_node, make_pod, run_plugin

RACKS: Final = partial_kind("racks.example/v1", "Rack")
NO_RACK: Final = unresolvable("node(s) without a rack")
CLUSTER: Final = """
kind: Node
metadata: {name: n1, labels: {rack: r1}}
---
kind: Node
metadata: {name: n2, labels: {rack: r2}}
---
apiVersion: racks.example/v1
kind: Rack
metadata: {name: r1}
---
kind: Pod
metadata: {name: web-0, namespace: shop}
spec: {nodeName: n1}
---
kind: Pod
metadata: {name: web-1}
"""


class RacksArgs(PluginArgs):
    label: str = "rack"


class Racks(FilterPlugin, ScorePlugin):
    """A node needs a Rack object; the score is its number of pods."""

    def __init__(self, args: RacksArgs, handle: Handle) -> None:
        self._label = args.label
        self._objects = handle.objects

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        rack = self._objects.get(RACKS, "", node.node.labels.get(self._label, ""))
        return NO_RACK if rack is None else SUCCESS

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return len(node.pods)


def needs(args: RacksArgs) -> Needs:
    return Needs(kinds=(RACKS,) if args.label == "rack" else ())


SPEC: Final = PluginSpec("Racks", RacksArgs, Racks, reads=Reads.PODS_ON_NODE, needs=needs)


class Failing(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Does what the label ``does`` of the pod says."""

    def __init__(self, args: PluginArgs, handle: Handle) -> None:
        pass

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        return (unschedulable("not today") if pod.labels["does"] == "reject" else SUCCESS), None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        if pod.labels["does"] == "raise" and node.name == "n1":
            raise RuntimeError("no such thing")
        return SUCCESS

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return 101 if pod.labels["does"] == "exaggerate" else 7


FAILING: Final = PluginSpec("Failing", PluginArgs, Failing, reads=Reads.NODE, parts=[Part.LABELS])


def nodes_and_a_pod_that_does(what: str) -> str:
    nodes = "---\n".join(f"kind: Node\nmetadata: {{name: {name}}}\n" for name in ("n1", "n2"))
    return f"{nodes}---\nkind: Pod\nmetadata: {{name: web-1, labels: {{does: {what}}}}}\n"


class TestBuilders:
    def test_a_pod_keeps_the_parts_that_a_plugin_must_declare(self) -> None:
        container = {"name": "main", "ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": "2"}}}
        controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}

        pod = make_pod(
            "web-7",
            labels={"app": "web"},
            metadata={"ownerReferences": [controller]},
            spec={"containers": [container], "preemptionPolicy": "Never", "nodeName": "n1"},
        )

        assert ("default", "web-7", "default/web-7", "n1") == (pod.namespace, pod.name, pod.uid, pod.node_name)
        assert ({"app": "web"}, {"cpu": 2000}) == (pod.labels, pod.spec.resources.requests)
        assert [80] == [it.port for it in pod.spec.ports]
        assert pod.disruption.never_preempts
        assert pod.owner is not None
        assert "web" == pod.owner.name

    def test_a_node_keeps_every_annotation_and_part(self) -> None:
        node = make_node(
            "n7",
            labels={"zone": "a"},
            metadata={"annotations": {"example.com/any": "thing"}},
            spec={"unschedulable": True},
            status={"allocatable": {"cpu": "4"}},
        )

        assert ("n7", {"zone": "a"}, True) == (node.name, node.labels, node.unschedulable)
        assert ({"example.com/any": "thing"}, 4000) == (node.annotations, node.allocatable["cpu"])


class TestHandle:
    def test_it_holds_the_cluster_and_the_declared_kinds(self) -> None:
        handle = make_handle(SPEC, CLUSTER)

        assert ["n1", "n2"] == [it.name for it in handle.nodes.list()]
        assert {"n1": "r1", "n2": "r2"} == handle.counts.values("rack")
        assert ["r1"] == [it.name for it in handle.objects.every(RACKS)]

    @pytest.mark.parametrize(
        ("kind", "args"),
        [pytest.param(SERVICES, {}, id="never declared"), pytest.param(RACKS, {"label": "row"}, id="by these args")],
    )
    def test_a_kind_that_is_not_declared_cannot_be_read(self, kind: Kind[Any], args: dict[str, str]) -> None:
        with pytest.raises(LookupError, match="kinds="):
            make_handle(SPEC, CLUSTER, args).objects.get(kind, "", "r1")


class TestRun:
    def test_it_says_of_every_node_what_the_plugin_says(self) -> None:
        verdict = run_plugin(SPEC, CLUSTER)

        assert {"n1": SUCCESS, "n2": NO_RACK.by("Racks")} == verdict.filter
        assert (["n1"], {"n2": NO_RACK.reasons}, {"n1": 1}) == (verdict.passed, verdict.reasons, verdict.score)

    def test_the_arguments_are_those_of_a_profile(self) -> None:
        assert [] == run_plugin(SPEC, CLUSTER.replace("rack:", "row:"), args={"label": "rack"}).passed
        with pytest.raises(ValueError, match="labl: no such setting; did you mean label"):
            run_plugin(SPEC, CLUSTER, args={"labl": "rack"})

    def test_where_the_plugin_raises_is_an_error_with_its_words(self) -> None:
        verdict = run_plugin(FAILING, nodes_and_a_pod_that_does("raise"))

        assert (["n1"], ["n2"]) == (list(verdict.reasons), verdict.passed)
        assert "no such thing" in verdict.filter["n1"].message

    def test_a_rejection_of_pre_filter_is_all(self) -> None:
        verdict = run_plugin(FAILING, nodes_and_a_pod_that_does("reject"))

        assert (("not today",), {}, {}) == (verdict.pre_filter.reasons, verdict.filter, verdict.score)

    def test_a_score_beyond_its_range_is_an_error(self) -> None:
        with pytest.raises(PluginError, match="invalid score 101"):
            run_plugin(FAILING, nodes_and_a_pod_that_does("exaggerate"))

    def test_one_of_several_waiting_pods_is_named(self) -> None:
        two = f"{CLUSTER}---\nkind: Pod\nmetadata: {{name: web-2}}\n"

        assert ["n1"] == run_plugin(SPEC, two, pod="web-2").passed == run_plugin(SPEC, two, pod="default/web-1").passed
        for name in ("", "web-0", "web-3"):
            with pytest.raises(ValueError, match="waiting are: default/web-1, default/web-2"):
                run_plugin(SPEC, two, pod=name)

    @pytest.mark.parametrize("cluster", ["[", "kind: Node", "- 1"])
    def test_a_cluster_that_cannot_be_read_is_refused(self, cluster: str) -> None:
        with pytest.raises(ValueError, match=r"^cluster: "):
            run_plugin(SPEC, cluster)

    def test_a_plugin_that_homeport_would_not_start_with_is_refused(self) -> None:
        class Twice(Racks, QueueSortPlugin):  # names a base and lacks its method
            pass

        with pytest.raises(ValueError, match="less"):
            run_plugin(PluginSpec("Twice", RacksArgs, Twice), CLUSTER)

    def test_a_plugin_that_sorts_the_queue_runs_too(self) -> None:
        class Sorting(Racks, QueueSortPlugin):
            def less(self, pod: Pod, queued_at: float, other: Pod, other_queued_at: float) -> bool:
                return queued_at < other_queued_at

        spec = PluginSpec("Sorting", RacksArgs, Sorting, needs=lambda _: Needs(kinds=(RACKS, PERSISTENT_VOLUMES)))
        assert ["n1"] == run_plugin(spec, CLUSTER).passed
