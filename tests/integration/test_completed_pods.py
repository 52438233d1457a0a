"""What-if completes the pods of manifests as kube-apiserver does, and refuses what it refuses."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest

from app.kube.core_v1 import is_same_spec
from app.kube.kinds import PODS
from app.whatif.simulated import TemplateError
from tests.builders import ZONE, JsonObject, constraint, container, encoded, toleration
from tests.controlplane.client import ApiError
from tests.controlplane.controlplane import ControlPlane
from tests.unit.app.whatif.manifests import made, manifest

LABELS: Final = {"app": "web", "rev": "1"}
TERM: Final = {
    "topologyKey": ZONE,
    "labelSelector": {"matchLabels": {"app": "web"}},
    "matchLabelKeys": ["rev", "absent"],
    "mismatchLabelKeys": ["app"],
}
HIGH: Final = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "whatif-high"},
    "value": 7,
    "preemptionPolicy": "Never",
}
LIMITS: Final = {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "1Gi"}
RIGHT: Final[dict[str, JsonObject]] = {
    "plain": {},
    "limits": {
        "containers": [container(resources={"limits": LIMITS, "requests": {"cpu": "1"}})],
        "initContainers": [container("init", resources={"limits": LIMITS})],
    },
    "limits of the pod": {
        "containers": [container(requests={"cpu": "1"}), container("b")],
        "resources": {"limits": {"cpu": "4", "memory": "2Gi"}},
    },
    "host network": {"hostNetwork": True, "containers": [container(ports=[{"containerPort": 80}])]},
    "tolerations": {"tolerations": [toleration("node.kubernetes.io/not-ready", effect="NoExecute")]},
    "priority": {"priorityClassName": "whatif-high"},
    "system priority": {"priorityClassName": "system-cluster-critical"},
    "label keys of constraints": {
        "topologySpreadConstraints": [constraint(app="web", match_label_keys=["rev", "absent"])]
    },
    "label keys of terms": {
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]},
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": TERM}]
            },
        }
    },
}
WRONG: Final[dict[str, JsonObject]] = {
    "no containers": {"containers": []},
    "a name twice": {"containers": [container(), container()]},
    "a container without a name": {"containers": [{"image": "x"}]},
    "a quantity": {"containers": [container(requests={"cpu": "x"})]},
    "maxSkew": {"topologySpreadConstraints": [constraint(skew=0, app="web")]},
    "topologyKey": {"topologySpreadConstraints": [constraint("", app="web")]},
    "whenUnsatisfiable": {"topologySpreadConstraints": [{**constraint(app="web"), "whenUnsatisfiable": "Never"}]},
    "a selector": {"topologySpreadConstraints": [constraint(app="a b")]},
    "a type": {"schedulerName": 3},
}


WRONG_WORKLOADS: Final[dict[str, JsonObject]] = {
    "another selector": manifest(more={"selector": {"matchLabels": {"app": "db"}}}),
    "no selector": manifest("StatefulSet", more={"selector": {}}),
    "a selector of no labels": manifest("ReplicaSet", more={"selector": {"matchLabels": {"app": "a b"}}}),
    "no template": manifest(more={"template": None}),
    "negative replicas": manifest(more={"replicas": -1}),
    "replicas as text": manifest(more={"replicas": "3"}),
    "a name": {**manifest(), "metadata": {"name": "Web"}},
    "a long name of a Job": {**manifest("Job", restartPolicy="Never"), "metadata": {"name": "w" * 64}},
}


def pod(**spec: Any) -> JsonObject:
    metadata = {"name": "whatif", "namespace": "default", "labels": LABELS}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container()], **spec}}


def created(plane: ControlPlane, obj: JsonObject) -> JsonObject:
    """The pod that the API server makes of `obj`, once its admission has seen the PriorityClass."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return plane.client.create(obj)
        except ApiError as error:
            if "no PriorityClass" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


@pytest.mark.parametrize("name", RIGHT)
def test_a_pod_is_completed_like_that_of_the_api_server(plane: ControlPlane, name: str) -> None:
    if "priorityClassName" in RIGHT[name]:
        plane.client.create(HIGH)
    obj = pod(**RIGHT[name])
    real = PODS.decode(encoded(created(plane, obj)))
    ours = made(HIGH, obj).added[0].pod

    assert is_same_spec(real.spec, ours.spec), (real.spec, ours.spec)
    assert (real.labels, real.annotations, real.lifecycle) == (ours.labels, ours.annotations, ours.lifecycle)
    assert (real.node_name, real.owner, len(real.created)) == (ours.node_name, ours.owner, len(ours.created))


@pytest.mark.parametrize("name", WRONG)
def test_a_pod_that_the_api_server_rejects_is_refused(plane: ControlPlane, name: str) -> None:
    obj = pod(**WRONG[name])
    with pytest.raises(ApiError):
        plane.client.create(obj)
    with pytest.raises(TemplateError):
        made(obj)


@pytest.mark.parametrize("name", WRONG_WORKLOADS)
def test_a_workload_that_the_api_server_rejects_is_refused(plane: ControlPlane, name: str) -> None:
    wrong = WRONG_WORKLOADS[name]
    obj = {**wrong, "metadata": {**wrong["metadata"], "namespace": "default"}}
    with pytest.raises(ApiError):
        plane.client.create(obj)
    with pytest.raises(TemplateError):
        made(obj)
