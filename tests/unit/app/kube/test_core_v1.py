"""Rules of the slim models: what is read of a Pod, Node or Service, what stands for unset, and what is shared."""

import gc
from typing import Any

import pytest
from msgspec.structs import replace

from app.kube import pod_decoding
from app.kube.core_decoding import PLAIN
from app.kube.core_v1 import NOT_WAITING, Node, Pod, PodSpec, TopologySpreadConstraint, Waiting
from app.kube.extras import NOTHING_OF_POD
from app.kube.labels import NO_LABELS, label_set
from app.kube.meta_v1 import LARGEST_PART, OwnerReference
from app.kube.node_affinity import ANY_NODE, NodeSelectorRequirement, NodeSelectorTerm, RequiredNodeAffinity
from app.kube.pod_decoding import MOST_CONSTRAINTS
from app.kube.selectors import EVERYTHING, of_labels
from app.kube.services import Service, decode_service
from app.kube.taints import Taint, Toleration
from tests.builders import (
    HOSTNAME,
    ZONE,
    JsonObject,
    PodFields,
    constraint,
    controller,
    encoded,
    expression,
    make_node,
    make_pod,
    make_service,
    pod_object,
    required_affinity,
    taint,
    term,
    toleration,
)

decode_pod, decode_node = PLAIN.decode_pod, PLAIN.decode_node

LONG = "x" * LARGEST_PART


def spec_of(pod: Pod) -> dict[str, Any]:
    return {field: getattr(pod.spec, field) for field in PodSpec.__struct_fields__}


def test_a_pod_is_reduced_to_what_a_decision_reads() -> None:
    pod = make_pod(
        "web-1",
        namespace="shop",
        uid="u-1",
        resource_version="42",
        labels={"app": "web"},
        annotations={"homeport.dev/home": "n1", "example.com/note": "long"},
        owner=controller("ReplicaSet", "web"),
        node="n1",
        nominated="n2",
        terminating=True,
        created="2026-11-21T09:00:00Z",
        scheduler="homeport",
        priority=7,
        gated=True,
        node_selector={"disk": "ssd"},
        affinity=required_affinity(term(expression("gpu", "Exists"), fields=[expression("metadata.name", "In", "n1")])),
        tolerations=[toleration("dedicated", "Equal", "db", "NoSchedule")],
        spread=[constraint(ZONE, app="web")],
    )

    assert {
        "namespace": "shop",
        "name": "web-1",
        "uid": "u-1",
        "resource_version": "42",
        "labels": label_set({"app": "web"}),
        "annotations": {"homeport.dev/home": "n1"},
        "owner": OwnerReference("ReplicaSet", "web", "apps/v1", "uid-web", True),
        "spec": pod.spec,
        "node_name": "n1",
        "waiting": Waiting("n2"),
        "terminating": True,
        "finished": False,
        "created": "2026-11-21T09:00:00Z",
        "lifecycle": None,
    } == {field: getattr(pod, field) for field in Pod.__struct_fields__}
    assert {
        "scheduler_name": "homeport",
        "priority": 7,
        "gated": True,
        "affinity": RequiredNodeAffinity(
            (("disk", "ssd"),),
            (
                NodeSelectorTerm(
                    (NodeSelectorRequirement("gpu", "Exists"),),
                    (NodeSelectorRequirement("metadata.name", "In", ("n1",)),),
                ),
            ),
        ),
        "tolerations": (Toleration("dedicated", "Equal", "db", "NoSchedule"),),
        "spread": (TopologySpreadConstraint(1, ZONE, "DoNotSchedule", of_labels({"app": "web"})),),
        "oversized": (),
        "parts": NOTHING_OF_POD,
    } == spec_of(pod)


def test_what_a_pod_leaves_out_has_its_default() -> None:
    pod = decode_pod(encoded({"metadata": {"name": "web-1"}, "spec": {}, "extra": [1]}))

    expected = Pod("default", "web-1", "", "", NO_LABELS, {}, None, pod.spec, "", NOT_WAITING, False, False)
    assert expected == pod
    assert {
        "scheduler_name": "default-scheduler",
        "priority": 0,
        "gated": False,
        "affinity": ANY_NODE,
        "tolerations": (),
        "spread": (),
        "oversized": (),
        "parts": NOTHING_OF_POD,
    } == spec_of(pod)


def test_a_pod_is_finished_by_its_phase() -> None:
    phases = ("Pending", "Running", "Unknown", "Succeeded", "Failed")

    assert ["Succeeded", "Failed"] == [it for it in phases if make_pod(phase=it).finished]


def test_an_empty_list_of_gates_gates_nothing() -> None:
    assert not decode_pod(encoded({"metadata": {"name": "a"}, "spec": {"schedulingGates": []}})).spec.gated


def test_pod_names_read_as_people_write_them() -> None:
    assert ("shop/web-1", ("shop", "web-1")) == (str(make_pod(namespace="shop")), make_pod(namespace="shop").key)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            constraint(HOSTNAME, soft=True, skew=3, selector=None),
            TopologySpreadConstraint(3, HOSTNAME, "ScheduleAnyway"),
            id="a null selector stays null",
        ),
        pytest.param(
            constraint(ZONE, selector={}),
            TopologySpreadConstraint(1, ZONE, "DoNotSchedule", EVERYTHING),
            id="an empty selector is everything",
        ),
        pytest.param(
            constraint(
                ZONE,
                min_domains=3,
                affinity_policy="Ignore",
                taints_policy="Honor",
                match_label_keys=["hash", "rev"],
                app="web",
            ),
            TopologySpreadConstraint(
                1, ZONE, "DoNotSchedule", of_labels({"app": "web"}), 3, "Ignore", "Honor", ("hash", "rev")
            ),
            id="all fields",
        ),
        pytest.param(
            constraint(ZONE, selector={"matchExpressions": [expression("app", "Is")]}),
            TopologySpreadConstraint(1, ZONE, "DoNotSchedule", invalid='"Is" is not a valid label selector operator'),
            id="a selector that cannot be parsed is kept as the error it is",
        ),
        pytest.param(dict.fromkeys(constraint(), None), TopologySpreadConstraint(0, "", ""), id="nothing but nulls"),
    ],
)
def test_a_constraint_is_kept_as_it_was_given(given: JsonObject, expected: TopologySpreadConstraint) -> None:
    assert (expected,) == make_pod(spread=[given]).spec.spread


def test_only_the_controller_among_the_owners_counts() -> None:
    pod, bystander = pod_object(), controller("ReplicaSet", "bystander", controls=False)
    pod["metadata"]["ownerReferences"] = [bystander, controller("ReplicaSet", "web")]

    assert OwnerReference("ReplicaSet", "web", "apps/v1", "uid-web", True) == decode_pod(encoded(pod)).owner
    assert None is make_pod(owner=bystander).owner


def test_of_our_annotations_only_what_we_could_have_written_is_kept() -> None:
    """The others are the bulk of a realistic pod, and nobody reads them. Nor do they crowd out those that we read."""
    others = {"kubectl.kubernetes.io/last-applied": "{…}", "note": "homeport.dev/docs", "old.homeport.dev/home": "n1"}
    long = {"homeport.dev/home": "n" * 1025, f"homeport.dev/{'x' * 250}": "1"}
    many = {f"homeport.dev/a{number:02}": "1" for number in range(40)} | {"homeport.dev/unclear-bind": "7"}
    found = make_pod(annotations=many).annotations

    assert {"homeport.dev/home": ""} == make_pod(annotations={**others, "homeport.dev/home": None}).annotations
    assert {} == make_pod(annotations=long).annotations
    assert (16, "7", "1") == (len(found), found["homeport.dev/unclear-bind"], found["homeport.dev/a14"])


def test_a_node_is_reduced_to_what_a_decision_reads() -> None:
    node = make_node(
        "n1",
        uid="u-1",
        resource_version="7",
        zone="a",
        taints=[taint("dedicated", "NoExecute", "db")],
        unschedulable=True,
    )

    expected = Node(
        "n1", "u-1", "7", label_set({HOSTNAME: "n1", ZONE: "a"}), (Taint("dedicated", "NoExecute", "db"),), True
    )
    assert expected == node
    assert ("", "n1") == node.key


def test_what_a_node_leaves_out_has_its_default() -> None:
    assert Node("n1", "", "", NO_LABELS, (), False) == decode_node(b'{"metadata": {"name": "n1"}}')


def test_a_service_is_its_selector() -> None:
    """One without a selector, or with an endless one, selects nothing."""
    found = make_service("web", {"app": "web"})

    assert Service("default", "web", "uid-default-web", of_labels({"app": "web"})) == found
    assert ("default", "web") == found.key
    assert [None, None] == [make_service("web", it).selector for it in (None, {"a": LONG})]
    assert Service("default", "web", "", None) == decode_service(b'{"metadata": {"name": "web"}, "spec": null}')


def test_replicas_share_their_spec_their_labels_and_their_names() -> None:
    """150,000 pods of some hundred workloads fit into memory because of this."""
    fields: PodFields = {
        "labels": {"app": "web"},
        "node": "n1",
        "tolerations": [toleration("a")],
        "spread": [constraint(ZONE, app="web")],
        "affinity": required_affinity(term(expression("gpu", "Exists"))),
    }
    one, other = (decode_pod(encoded(pod_object(name, **fields))) for name in ("web-1", "web-2"))

    assert one.name != other.name
    for field in ("spec", "labels", "namespace", "node_name"):
        assert getattr(one, field) is getattr(other, field)


def test_a_spec_lives_only_as_long_as_a_pod_has_it() -> None:
    pod = make_pod(priority=123_456)
    assert 123_456 in [spec.priority for spec in pod_decoding._SPECS.values()]

    del pod
    gc.collect()

    assert 123_456 not in [spec.priority for spec in pod_decoding._SPECS.values()]


@pytest.mark.parametrize("found", [make_pod(), make_node(), make_service(), make_pod().spec])
def test_what_is_decoded_cannot_be_changed(found: Any) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        found.name = "other"


@pytest.mark.parametrize(
    ("fields", "oversized"),
    [
        pytest.param({"labels": {"a": LONG}}, ("metadata.labels",), id="labels"),
        pytest.param({"node_selector": {"a": LONG}}, ("spec.nodeSelector",), id="node selector"),
        pytest.param({"affinity": {"podAffinity": {"a": LONG}}}, ("spec.affinity",), id="affinity, any part of it"),
        pytest.param({"tolerations": [toleration(LONG)]}, ("spec.tolerations",), id="tolerations"),
        pytest.param({"spread": [constraint(app=LONG)]}, ("spec.topologySpreadConstraints",), id="constraints"),
        pytest.param(
            {"spread": [constraint(f"k{number}") for number in range(MOST_CONSTRAINTS + 1)]},
            ("spec.topologySpreadConstraints",),
            id="one constraint too many",
        ),
        pytest.param(
            {"labels": {"a": LONG}, "tolerations": [toleration(LONG)]},
            ("metadata.labels", "spec.tolerations"),
            id="two of them",
        ),
        pytest.param({"annotations": {"example.com/a": LONG}}, (), id="what is not read anyway"),
    ],
)
def test_a_part_that_is_too_long_is_named_and_not_read(fields: Any, oversized: tuple[str, ...]) -> None:
    plain, pod = make_pod("web-1", priority=7), make_pod("web-1", priority=7, **fields)

    assert oversized == pod.spec.oversized
    assert pod == replace(plain, spec=pod.spec, uid=pod.uid)
    assert {**spec_of(plain), "oversized": oversized} == spec_of(pod)
