"""Workloads of a snapshot: which objects and pods are judged."""

from __future__ import annotations

import json

from app.lint.facts import ClusterFacts
from app.lint.linting import Linter
from app.lint.live import CONFIG_MAPS, configurations_of, workloads_in
from tests.builders import JsonObject, constraint, controller, node_object, pod_object
from tests.unit.app.lint.examples import REGISTRY, WEB, cluster_of, workload

NODE = node_object("n1")
HASHED = {**WEB, "pod-template-hash": "1"}


def names(*objects: JsonObject, namespace: str = "") -> list[str]:
    return [f"{it.kind} {it.name} {it.replicas}" for it in workloads_in(cluster_of(NODE, *objects), namespace)]


def owned(obj: JsonObject, kind: str, name: str) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [controller(kind, name)]}}


SET = owned(workload(kind="ReplicaSet"), "Deployment", "web")
PODS = [pod_object(f"web-{it}", owner=controller("ReplicaSet", "web"), labels=HASHED, node="n1") for it in "ab"]


def test_an_object_stands_for_its_parts() -> None:
    assert ["Deployment web 3"] == names(workload(), SET, *PODS)
    assert ["ReplicaSet web 3"] == names(SET, *PODS)


def test_pods_stand_for_an_owner_that_is_not_listed() -> None:
    """A dump has no Deployments, and no templates of ReplicaSets."""
    bare = {**SET, "spec": {"selector": {}}}
    cluster = cluster_of(NODE, bare, *PODS)
    one, *more = workloads_in(cluster, "")

    assert [] == more
    assert ("ReplicaSet", "web", 2, True) == (one.kind, one.name, one.replicas, one.rolls)
    assert ["Job import 1"] == names(pod_object("import-x", owner=controller("Job", "import", api_version="batch/v1")))


def test_what_is_left_out() -> None:
    old = {**workload(kind="ReplicaSet", replicas=0)}
    static = pod_object("etcd", owner=controller("Node", "n1", api_version="v1"))
    done = pod_object("done", phase="Succeeded")
    machine = {**workload(), "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}
    launcher = pod_object("v", owner=controller("VirtualMachineInstance", "web", api_version="kubevirt.io/v1"))

    assert ["Pod alone 1"] == names(old, static, done, pod_object("alone"))
    assert ["VirtualMachine web 1"] == names(machine, launcher)
    assert [] == names(workload(), pod_object("alone"), namespace="shop")


def test_a_pod_keeps_its_policy_and_what_it_ignores() -> None:
    annotations = {"homeport.dev/policy": "of", "homeport.dev/ignore": "unknown-key"}
    pod = pod_object("alone", annotations=annotations, spread=[constraint(app="x")])
    one, *_ = workloads_in(cluster_of(NODE, pod), "default")

    assert ["of"] == list(one.policies.values())
    assert {"unknown-key"} == one.ignored
    assert 1 == len(one.constraints)


def test_an_owner_without_a_template_keeps_its_policy() -> None:
    bare = {**SET, "spec": {"selector": {}}}
    annotated = {**bare, "metadata": {**bare["metadata"], "annotations": {"homeport.dev/policy": "of"}}}
    one, pods = workloads_in(cluster_of(NODE, annotated, *PODS), "")

    assert (None, ["of"]) == (one.pod, list(one.policies.values()))
    assert (2, {}) == (pods.replicas, pods.policies)


def test_pods_with_constraints_that_were_not_read_are_broken() -> None:
    cluster = cluster_of(NODE, pod_object("alone", spread=2000 * [constraint(app="x")]))
    linter = Linter(REGISTRY, ClusterFacts(cluster))
    linter.add_workloads(workloads_in(cluster, ""), "saved.json")

    assert ["saved.json: Pod default/alone: spec.topologySpreadConstraints: is longer than Homeport reads"] == [
        str(it) for it in linter.report().broken
    ]


def config_map(name: str, text: str, namespace: str = "default", **annotations: str) -> JsonObject:
    metadata = {"name": name, "namespace": namespace, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a.yaml": text, "other": "x: 1"}}


SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration # homeport.dev/ignore: spread-twice
"""


def test_config_maps_have_configurations() -> None:
    named = config_map("a", SCHEDULER, "kube-system", **{"homeport.dev/ignore": "short-grace"})
    cluster = cluster_of(NODE, named, config_map("b", "kind: HomeportConfiguration\na: ["), config_map("c", "x: 1"))
    everywhere = configurations_of(cluster, "", "the cluster", "saved.json")
    (one,) = everywhere.objects

    assert ("KubeSchedulerConfiguration", "saved.json", 0) == (one.value["kind"], one.file, one.line_of(("profiles",)))
    assert one.within is not None
    assert {"name": "a", "namespace": "kube-system"} == one.within.value["metadata"]
    assert {"spread-twice", "short-grace"} == one.ignored - {""}
    assert ["the cluster: ConfigMap default/b: data.a.yaml: is not YAML: did not find expected node content"] == [
        str(it) for it in everywhere.broken
    ]
    assert [] == configurations_of(cluster, "default", "the cluster", "").objects


def test_other_data_of_a_config_map_is_dropped() -> None:
    cluster = cluster_of(NODE, config_map("c", "password: secret"))

    assert "secret" not in json.dumps([str(cluster.others.get(CONFIG_MAPS, "default", "c"))])
