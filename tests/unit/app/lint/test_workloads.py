"""Decoding of objects with a pod template, and the places of fields that cannot be decoded."""

from __future__ import annotations

from typing import Any

import pytest

from app.config.manifest_fields import BadField
from app.lint.workloads import has_template, workload_of
from tests.builders import JsonObject, constraint
from tests.unit.app.lint.examples import workload

SPREAD = [constraint(app="web")]
CRON: JsonObject = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "web"},
    "spec": {"jobTemplate": {"spec": {"parallelism": 4, "template": {"spec": {"topologySpreadConstraints": SPREAD}}}}},
}


def job(**spec: int) -> JsonObject:
    return {**workload(*SPREAD, replicas=None, more=spec), "apiVersion": "batch/v1", "kind": "Job"}


@pytest.mark.parametrize(
    ("obj", "replicas", "place"),
    [
        (workload(*SPREAD), 3, "spec.template"),
        (workload(*SPREAD, kind="StatefulSet", replicas=None), 1, "spec.template"),
        (workload(*SPREAD, kind="DaemonSet"), None, "spec.template"),
        (job(parallelism=4), 4, "spec.template"),
        (job(parallelism=4, completions=2), 2, "spec.template"),
        (job(parallelism=2, completions=4), 2, "spec.template"),
        (CRON, 4, "spec.jobTemplate.spec.template"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {}}, 1, ""),
    ],
)
def test_kinds(obj: JsonObject, replicas: int | None, place: str) -> None:
    decoded = workload_of(obj)

    assert has_template(obj)
    assert (replicas, "web", place) == (decoded.replicas, decoded.name, ".".join(map(str, decoded.template)))
    assert len(decoded.constraints) == (0 if obj["kind"] == "Pod" else 1)


def test_an_object_without_a_template_is_known() -> None:
    """Like a ReplicaSet of a dump, which has its selector alone."""
    obj = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": {"selector": {}}}

    assert workload_of(obj).pod is None
    assert not has_template({"apiVersion": "v1", "kind": "Service"})


def test_volumes_of_a_virtual_machine() -> None:
    obj = workload(volumes=[{"name": "d", "dataVolume": {"name": "disk"}}, {"name": "c", "cloudInitNoCloud": {}}])
    decoded = workload_of({**obj, "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"})

    assert decoded.pod is not None
    assert ["disk"] == [it.claim for it in decoded.pod.spec.volumes]


T = "spec.template"


@pytest.mark.parametrize(
    ("obj", "place", "message"),
    [
        (workload(labels={"a": "x", "b": 1}), f"{T}.metadata.labels.b", "expected str, got int"),
        (workload(schedulerName=3), f"{T}.spec.schedulerName", "expected str, got int"),
        (
            workload(constraint(app="web"), {**constraint(app="web"), "maxSkew": "1"}),
            f"{T}.spec.topologySpreadConstraints.1.maxSkew",
            "expected int, got str",
        ),
        (
            workload(constraint(selector={"matchLabels": {"a": "x", "b": 2}})),
            f"{T}.spec.topologySpreadConstraints.0.labelSelector.matchLabels.b",
            "expected str, got int",
        ),
        (
            workload(constraint(selector={"matchLabels": {"a": "b c"}})),
            f"{T}.spec.topologySpreadConstraints.0.labelSelector",
            "values: Invalid value: 'b c': not a valid label value",
        ),
        (workload(nodeSelector={"disk": True}), f"{T}.spec.nodeSelector.disk", "expected str, got bool"),
        (workload(tolerations={}), f"{T}.spec.tolerations", "expected array, got object"),
        (workload(more={"replicas": "3"}), "spec.replicas", "must be a whole number, 0 or more"),
        (workload(more={"replicas": 2**31}), "spec.replicas", "must be 2147483647 at most"),
        (
            workload(*2000 * [constraint(app="web")]),
            f"{T}.spec.topologySpreadConstraints",
            "is longer than Homeport reads",
        ),
        (workload(more={"template": []}), T, "must be a mapping"),
        (
            {**workload(volumes=3), "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"},
            f"{T}.spec.volumes",
            "must be a list",
        ),
        ({**workload(), "metadata": {"name": 3}}, "metadata.name", "must be a string"),
        ({**workload(), "metadata": {}}, "metadata.name", "is missing"),
        ({**workload(), "metadata": "web"}, "metadata", "must be a mapping"),
        ({**workload(), "metadata": {"name": "web", "namespace": 1}}, "metadata.namespace", "must be a string"),
        (
            workload(kind="StatefulSet", more={"volumeClaimTemplates": [{"metadata": {"name": 1}}]}),
            "spec.volumeClaimTemplates.0.metadata.name",
            "must be a string",
        ),
    ],
)
def test_a_field_that_cannot_be_decoded(obj: JsonObject, place: str, message: str) -> None:
    with pytest.raises(BadField) as error:
        workload_of(obj)

    assert (place, message) == (".".join(map(str, error.value.place)), str(error.value))


def test_ignored_rules_in_annotations() -> None:
    obj: dict[str, Any] = workload(annotations={"homeport.dev/ignore": "a, b"})
    obj["spec"]["template"]["metadata"]["annotations"] = {"homeport.dev/ignore": "c"}

    assert {"a", "b", "c"} <= workload_of(obj).ignored
