"""What the API server adds to a new pod, and which pod templates are refused."""

from __future__ import annotations

from typing import Any

import pytest

from app.kube.core_v1 import Pod
from app.whatif.simulated import TemplateError
from tests.builders import ZONE, JsonObject, constraint, container, expression, toleration
from tests.unit.app.whatif.manifests import WEB, cluster_of, made, manifest


def pod_of(*also: JsonObject, **spec: Any) -> Pod:
    return made(manifest(**spec), *also).added[0].pod


def requested(**spec: Any) -> dict[str, int]:
    return dict(pod_of(**spec).spec.resources.requests)


def test_limits_are_requests_where_there_are_none() -> None:
    limits = {"cpu": "2", "memory": "1Gi"}
    both = container(resources={"limits": limits, "requests": {"cpu": "1"}})

    assert {"cpu": 1000, "memory": 1 << 30} == requested(containers=[both])
    assert {"cpu": 2000, "memory": 1 << 30} == requested(
        containers=[container()], initContainers=[container("init", resources={"limits": limits})]
    )


def test_limits_of_a_pod_are_requests_unless_a_container_requests() -> None:
    limits = {"cpu": "4", "memory": "2Gi"}

    assert {"cpu": 1000, "memory": 2 << 30} == requested(
        containers=[container(requests={"cpu": "1"})], resources={"limits": limits}
    )


def test_ports_in_the_network_of_the_node_are_host_ports() -> None:
    containers = [container(ports=[{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}])]

    assert [80, 8081] == [it.port for it in pod_of(containers=containers, hostNetwork=True).spec.ports]
    assert [8081] == [it.port for it in pod_of(containers=containers).spec.ports]


NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ([], [NOT_READY, UNREACHABLE]),
        ([toleration("gpu")], [NOT_READY, UNREACHABLE]),
        ([toleration(NOT_READY)], [UNREACHABLE]),
        ([toleration(NOT_READY, effect="NoSchedule")], [NOT_READY, UNREACHABLE]),
        ([toleration(effect="NoExecute")], []),
        ([toleration()], []),
    ],
)
def test_pods_tolerate_lost_nodes_for_some_time(own: list[JsonObject], added: list[str]) -> None:
    tolerations = pod_of(tolerations=own).spec.tolerations[len(own) :]

    assert [(key, "Exists", "NoExecute") for key in added] == [(it.key, it.operator, it.effect) for it in tolerations]


def priority_class(name: str, value: int, **fields: Any) -> JsonObject:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **fields,
    }


def test_the_priority_is_that_of_the_class() -> None:
    cluster = cluster_of(priority_class("high", 7), priority_class("low", 1, globalDefault=True))
    of_cluster = made(manifest(priorityClassName="high"), manifest("Job"), cluster=cluster)
    of_request = made(priority_class("high", 9), manifest(priorityClassName="high"), cluster=cluster)

    assert [7, 1] == [it.pod.spec.priority for it in of_cluster.added]
    assert [9] == [it.pod.spec.priority for it in of_request.added]
    assert {""} == {it.approximate for it in (*of_cluster.added, *of_request.added)}


def test_the_priority_of_an_unknown_class_is_approximate() -> None:
    system, unknown, given = (
        made(manifest(**spec)).added[0]
        for spec in (
            {"priorityClassName": "system-node-critical"},
            {"priorityClassName": "mine"},
            {"priorityClassName": "mine", "priority": 5},
        )
    )

    assert [2_000_001_000, 0, 5] == [it.pod.spec.priority for it in (system, unknown, given)]
    assert ["", "PriorityClass mine is not known, so the priority is 0", ""] == [
        it.approximate for it in (system, unknown, given)
    ]


def test_a_class_can_forbid_preemption() -> None:
    obj = priority_class("quiet", 3, preemptionPolicy="Never")

    assert pod_of(obj, priorityClassName="quiet").disruption.never_preempts
    assert not pod_of().disruption.never_preempts


def test_an_unknown_overhead_is_approximate() -> None:
    unknown = made(manifest(runtimeClassName="kata")).added[0]

    assert "the overhead of the RuntimeClass is not known" == unknown.approximate
    assert "" == made(manifest(runtimeClassName="kata", overhead={"cpu": "1"})).added[0].approximate


def test_a_node_in_the_template_is_ignored() -> None:
    assert "" == pod_of(nodeName="n1").node_name


def test_label_keys_are_merged_into_the_selectors_of_affinity_terms() -> None:
    """Keys of labels that the pod lacks are left out, as the API server does."""
    term = {
        "topologyKey": ZONE,
        "labelSelector": {"matchLabels": WEB},
        "matchLabelKeys": ["pod-template-hash", "absent"],
    }
    other = {"topologyKey": ZONE, "labelSelector": {}, "mismatchLabelKeys": ["app"]}
    affinity = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": other}]
        },
    }
    pod = pod_of(affinity=affinity)
    (required,), (preferred,) = pod.spec.pod_affinity.required, pod.spec.pod_affinity.preferred

    assert required.selector is not None
    assert required.selector.matches(pod.labels)
    assert not required.selector.matches({**pod.labels, "pod-template-hash": "other"})
    assert preferred.term.selector is not None
    assert not preferred.term.selector.matches(pod.labels)
    assert preferred.term.selector.matches({"app": "db"})


T = "spec.template"


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"containers": None}, f"{T}.spec.containers", "must be a list of at least one container"),
        ({"containers": "x"}, f"{T}.spec.containers", "expected array, got str"),
        ({"containers": [3]}, f"{T}.spec.containers[0]", "expected object, got int"),
        ({"containers": [{"image": "x"}]}, f"{T}.spec.containers[0].name", "is missing"),
        ({"containers": [container(), container()]}, f"{T}.spec.containers[1].name", "is the name of another"),
        (
            {"containers": [container(resources={"requests": {"cpu": "-1"}})]},
            f"{T}.spec.containers[0].resources.requests.cpu",
            "must not be negative",
        ),
        (
            {"containers": [container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1500m"}})]},
            f"{T}.spec.containers[0].resources.requests.cpu",
            "is more than the limit, 1500m",
        ),
        (
            {"containers": [container(resources={"limits": 3})]},
            f"{T}.spec.containers[0].resources.limits",
            "must be a mapping",
        ),
        ({"containers": [container(requests={"cpu": "x"})]}, f"{T}.spec.containers.resources", "not a quantity"),
        (
            {
                "affinity": {
                    "podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}, "matchLabelKeys": 3}]
                    }
                }
            },
            f"{T}.spec.affinity.podAffinity",
            "matchLabelKeys must be a list of strings",
        ),
        ({"schedulerName": 3}, f"{T}.spec.schedulerName", "expected str, got int"),
        ({"priorityClassName": 3}, f"{T}.spec.priorityClassName", "must be a string"),
        ({"priority": 2**64}, f"{T}.spec.priority", "expected int <= 2147483647"),
        ({"schedulerName": "\ud800"}, T, "surrogates not allowed"),
        ({"nodeSelector": {"a" * 70_000: "x"}}, f"{T}.spec.nodeSelector", "has more than 64 KiB"),
        (
            {"topologySpreadConstraints": [constraint(skew=0)]},
            f"{T}.spec.topologySpreadConstraints[0].maxSkew",
            "must be at least 1",
        ),
        (
            {"topologySpreadConstraints": [constraint("")]},
            f"{T}.spec.topologySpreadConstraints[0].topologyKey",
            "is not a valid label key",
        ),
        (
            {"topologySpreadConstraints": [{**constraint(), "whenUnsatisfiable": "Never"}]},
            f"{T}.spec.topologySpreadConstraints[0].whenUnsatisfiable",
            "must be DoNotSchedule or ScheduleAnyway",
        ),
        (
            {
                "topologySpreadConstraints": [
                    constraint(selector={"matchExpressions": [expression("a", "Like")], "matchLabels": {}})
                ]
            },
            f"{T}.spec.topologySpreadConstraints[0].labelSelector",
            '"Like" is not a valid label selector operator',
        ),
    ],
)
def test_a_template_that_the_api_server_rejects(spec: JsonObject, field: str, message: str) -> None:
    with pytest.raises(TemplateError) as error:
        made(manifest(**spec))

    assert field in error.value.field
    assert message in error.value.message


@pytest.mark.parametrize(
    ("labels", "key", "message"),
    [
        ({"app": 3}, "app", "must be a string"),
        ({"app": "w" * 64}, "app", "is not a valid label value"),
        ({"a b": "x"}, "a b", "is not a valid label key"),
    ],
)
def test_labels_that_the_api_server_rejects(labels: JsonObject, key: str, message: str) -> None:
    obj = manifest()
    obj["spec"]["template"]["metadata"]["labels"] = labels
    with pytest.raises(TemplateError) as error:
        made(obj)

    assert (f"{T}.metadata.labels.{key}", message) == (error.value.field, error.value.message)
