"""Which objects of a request make pods, how many, and which mistakes are refused."""

from __future__ import annotations

from typing import Any

import pytest

from app.whatif.simulated import TemplateError
from app.whatif.templates import pods_of, scaled
from tests.builders import JsonObject, controller, pod_object
from tests.unit.app.whatif.manifests import MOST, NOW, WEB, cluster_of, machine, made, manifest

HASHED = {**WEB, "pod-template-hash": "abc12"}


def pod_manifest(name: str = "alone", **spec: Any) -> JsonObject:
    containers = [{"name": "main", "image": "x"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def other(kind: str, version: str = "v1", **fields: Any) -> JsonObject:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": "shop"}, **fields}


def running(number: int, *, created: str = "2026-11-01T08:00:00Z", node: str = "n1", **fields: Any) -> JsonObject:
    """A pod of the Deployment ``web``."""
    owner = controller("ReplicaSet", "web-abc12")
    return pod_object(
        f"web-abc12-{number}", namespace="shop", labels=HASHED, owner=owner, node=node, created=created, **fields
    )


@pytest.mark.parametrize(
    ("obj", "pods"),
    [
        (pod_manifest(), 1),
        (manifest(), 1),
        (manifest(more={"replicas": None}), 1),
        (manifest(more={"replicas": 3}), 3),
        (manifest("ReplicaSet", more={"replicas": 0}), 0),
        (manifest("ReplicationController", more={"replicas": 2, "selector": WEB}), 2),
        (manifest("StatefulSet", more={"replicas": 3}), 3),
        (manifest("Job"), 1),
        (manifest("Job", more={"parallelism": 4, "completions": 2}), 2),
        (manifest("Job", more={"parallelism": 2, "completions": 9}), 2),
        (manifest("Job", more={"suspend": True}), 0),
        (manifest("CronJob", more={"parallelism": 2}), 2),
        (machine(), 1),
        (machine(more={"running": False}), 0),
        (machine(more={"runStrategy": "Halted"}), 0),
        (machine("VirtualMachineInstance"), 1),
        ({"kind": "List", "items": [manifest(), {"kind": "List", "items": [pod_manifest()]}]}, 2),
        ({"apiVersion": "v1", "kind": "PodList", "items": [{**pod_manifest(), "kind": "Pod"}]}, 1),
    ],
)
def test_the_number_of_pods(obj: JsonObject, pods: int) -> None:
    assert pods == len({it.pod.name for it in made(obj).added})


def test_a_list_gives_its_items_their_kind() -> None:
    item = {key: value for key, value in pod_manifest().items() if key in ("metadata", "spec")}

    assert ["alone"] == [it.pod.name for it in made({"apiVersion": "v1", "kind": "PodList", "items": [item]}).added]


def test_an_object_without_a_namespace_is_in_that_of_the_request() -> None:
    found = pods_of([pod_manifest()], cluster_of(), "team", MOST, NOW)

    assert [("team", "", "")] == [(it.pod.namespace, it.workload, it.approximate) for it in found.added]


def test_objects_that_make_no_pods_are_named() -> None:
    custom = other("Widget", "example.com/v1", spec={"size": 3})

    assert ["ConfigMap/shop/web", "Widget/shop/web"] == made(other("ConfigMap"), manifest(), custom).ignored


def test_a_workload_that_starts_no_pods_is_named() -> None:
    assert ["VirtualMachine/shop/vm is not running, so it has no pods"] == made(machine(more={"running": False})).notes


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        (other("DaemonSet", "apps/v1"), "kind", "a DaemonSet makes a pod for each node"),
        (
            other("Rollout", "example.com/v1", spec={"template": {"spec": {"containers": []}}}),
            "kind",
            "Rollout makes pods that cannot be simulated",
        ),
        (other("Deployment", "apps/v1beta1"), "apiVersion", "must be apps/v1"),
        ({**manifest(), "kind": 3}, "kind", "must be a string"),
        ({"metadata": {}}, "kind", "is missing"),
        ({**manifest(), "metadata": {}}, "metadata.name", "is missing"),
        ({**manifest(), "metadata": {"name": "Web"}}, "metadata.name", "is not a valid name"),
        ({**manifest(), "metadata": {"name": "web", "namespace": "a.b"}}, "metadata.namespace", "is not a valid name"),
        (manifest(more={"replicas": "3"}), "spec.replicas", "must be a whole number"),
        (manifest(more={"replicas": -1}), "spec.replicas", "must be a whole number"),
        (manifest(more={"replicas": True}), "spec.replicas", "must be a whole number"),
        (manifest(more={"replicas": 2**31}), "spec.replicas", "must be 2147483647 at most"),
        (manifest(more={"replicas": MOST + 1}), "spec", "the request has more than 100 pods"),
        (manifest(more={"template": None}), "spec.template.spec", "is missing"),
        (manifest(more={"template": []}), "spec.template", "must be a mapping"),
        (manifest(more={"selector": None}), "spec.selector", "is missing"),
        (
            manifest(more={"selector": {"matchLabels": {"app": "db"}}}),
            "spec.template.metadata.labels",
            "the selector of the object does not match the labels",
        ),
        (
            manifest("ReplicationController", more={"selector": {"app": "db"}}),
            "spec.selector",
            "does not match the labels of the template",
        ),
        ({"kind": "List", "items": [3]}, "items[0]", "must be a mapping"),
        ({"kind": "List", "items": [pod_manifest(containers=[])]}, "items[0].spec.containers", "must be a list"),
    ],
)
def test_a_mistake_is_refused_with_its_field(obj: JsonObject, field: str, message: str) -> None:
    with pytest.raises(TemplateError) as error:
        made(other("Service"), obj)

    assert (1, field) == (error.value.index, error.value.field)
    assert message in error.value.message


def test_the_pods_of_all_objects_together_are_limited_before_any_is_built() -> None:
    """The second object has a mistake that only building would find."""
    broken = {**manifest(more={"replicas": 51, "template": None}), "metadata": {"name": "other"}}
    with pytest.raises(TemplateError, match="more than 100 pods"):
        made(manifest(more={"replicas": 50}), broken)


def nested(levels: int) -> JsonObject:
    obj: JsonObject = {"kind": "List", "items": [pod_manifest()]}
    for _ in range(levels):
        obj = {"kind": "List", "items": [obj]}
    return obj


def test_lists_and_objects_are_limited_in_depth() -> None:
    deep: Any = 1
    for _ in range(70):
        deep = [deep]

    assert 1 == len(made(nested(2)).added)
    for obj, message in ((nested(3), "too many Lists"), (pod_manifest(affinity=deep), "more than 64 levels")):
        with pytest.raises(TemplateError, match=message):
            made(obj)


def test_the_text_of_an_error_has_no_unprintable_characters() -> None:
    with pytest.raises(TemplateError) as error:
        made(manifest(nodeSelector={"\x1b[31m": 3}))

    assert str(error.value).isprintable()
    assert r"\x1b[31m" in error.value.field


@pytest.mark.parametrize(
    "objects",
    [
        (manifest(), manifest()),
        (
            manifest("StatefulSet"),
            {**pod_manifest("web-0"), "metadata": {"name": "web-0", "namespace": "shop"}},
        ),
    ],
)
def test_two_objects_of_one_name_are_refused(objects: tuple[JsonObject, ...]) -> None:
    with pytest.raises(TemplateError) as error:
        made(*objects)

    assert (1, "metadata.name") == (error.value.index, error.value.field)


def test_a_pod_of_another_owner_has_the_name() -> None:
    with pytest.raises(TemplateError, match="a pod web-0 exists in namespace shop"):
        made(manifest("StatefulSet"), cluster=cluster_of(pod_object("web-0", namespace="shop")))


def test_a_workload_of_the_cluster_is_only_scaled() -> None:
    cluster = cluster_of(running(0), running(1))
    more = made(manifest(more={"replicas": 3}), cluster=cluster)
    fewer = made(manifest(more={"replicas": 1}), cluster=cluster)

    assert (1, 0, 0, 1) == (len(more.added), len(more.removed), len(fewer.added), len(fewer.removed))
    assert more.notes[0].startswith("Deployment/shop/web exists with 2 pods; the manifest has 3")


def test_the_manifest_of_a_workload_of_the_cluster_is_checked_too() -> None:
    with pytest.raises(TemplateError, match="containers"):
        made(manifest(containers=[]), cluster=cluster_of(running(0)))


def test_a_pod_of_the_cluster_is_not_made_again() -> None:
    found = made(pod_manifest(), cluster=cluster_of(pod_object("alone")))

    assert [] == found.added
    assert found.notes[0].startswith("Pod/default/alone exists")


def test_scaling_without_a_pod_uses_the_manifest() -> None:
    result = scaled(cluster_of(), "shop", "Deployment", "web", 2, [manifest(more={"replicas": 0})], NOW)

    assert ["from the manifest, because the workload has no pod"] * 2 == [it.approximate for it in result.added]
    assert ["ReplicaSet"] == [kind.kind for kind, _ in result.objects]


@pytest.mark.parametrize(
    ("kind", "replicas", "message"),
    [
        ("Deployment", 1, "Deployment shop/web has no pod that could be copied: give its manifest too"),
        ("DaemonSet", 1, "the number of pods of a DaemonSet cannot be changed"),
        ("VirtualMachine", 1, "the number of pods of a VirtualMachine cannot be changed"),
        ("Deployment", -1, "must be 0 or more"),
        ("Deployment", 5001, "more than 5,000 pods"),
    ],
)
def test_what_cannot_be_scaled(kind: str, replicas: int, message: str) -> None:
    with pytest.raises(TemplateError, match=message) as error:
        scaled(cluster_of(), "shop", kind, "web", replicas)

    assert -1 == error.value.index
