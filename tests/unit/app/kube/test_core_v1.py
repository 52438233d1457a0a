"""Rules of the slim models: what is read of a Pod, Node or Service, what stands for unset, and what is shared."""

import gc
from collections.abc import Callable
from typing import Any

import msgspec
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
    node_object,
    pod_object,
    required_affinity,
    taint,
    term,
    toleration,
)

decode_pod, decode_node = PLAIN.decode_pod, PLAIN.decode_node

LONG = "x" * LARGEST_PART

POD_NULLS = {
    "apiVersion": None,
    "metadata": {
        "name": "web-1",
        "namespace": None,
        "uid": None,
        "resourceVersion": None,
        "labels": None,
        "annotations": None,
        "ownerReferences": None,
        "deletionTimestamp": None,
    },
    "spec": {
        "nodeName": None,
        "schedulerName": None,
        "priority": None,
        "schedulingGates": None,
        "nodeSelector": None,
        "affinity": None,
        "tolerations": None,
        "topologySpreadConstraints": None,
        "containers": None,
    },
    "status": {"phase": None, "nominatedNodeName": None},
}
NODE_NULLS = {
    "metadata": {"name": "n1", "labels": None, "annotations": None, "uid": None, "resourceVersion": None},
    "spec": {"taints": None, "unschedulable": None},
    "status": None,
}


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


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"metadata": {"name": "web-1"}}, id="a name and nothing else"),
        pytest.param({"metadata": {"name": "web-1"}, "spec": None, "status": None}, id="null sections"),
        pytest.param(POD_NULLS, id="every field null"),
        pytest.param({"metadata": {"name": "web-1"}, "spec": {}, "status": {}, "extra": [1]}, id="unknown fields"),
    ],
)
def test_what_a_pod_leaves_out_has_its_default(given: JsonObject) -> None:
    pod = decode_pod(encoded(given))

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


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        pytest.param("Pending", False, id="a pending pod is not finished"),
        pytest.param("Running", False, id="a running pod is not finished"),
        pytest.param("Unknown", False, id="a lost pod is not finished"),
        pytest.param("Succeeded", True, id="a pod that succeeded is finished"),
        pytest.param("Failed", True, id="a pod that failed is finished"),
    ],
)
def test_a_pod_is_finished_by_its_phase(phase: str, expected: bool) -> None:
    assert expected is make_pod(phase=phase).finished


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
        pytest.param({}, TopologySpreadConstraint(0, "", ""), id="nothing said"),
        pytest.param(dict.fromkeys(constraint(), None), TopologySpreadConstraint(0, "", ""), id="nothing but nulls"),
    ],
)
def test_a_constraint_is_kept_as_it_was_given(given: JsonObject, expected: TopologySpreadConstraint) -> None:
    assert (expected,) == make_pod(spread=[given]).spec.spread


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        pytest.param([{}], (Toleration(),), id="an empty toleration"),
        pytest.param([{"key": None, "operator": None, "effect": None}], (Toleration(),), id="nulls"),
        pytest.param([{"tolerationSeconds": 5}], (Toleration(),), id="fields nobody reads"),
    ],
)
def test_a_toleration_may_leave_out_anything(tolerations: list[JsonObject], expected: tuple[Toleration, ...]) -> None:
    assert expected == make_pod(tolerations=tolerations).spec.tolerations


def test_only_the_controller_among_the_owners_counts() -> None:
    pod = pod_object()
    pod["metadata"]["ownerReferences"] = [
        controller("ReplicaSet", "bystander", controls=False),
        controller("ReplicaSet", "web"),
    ]

    assert OwnerReference("ReplicaSet", "web", "apps/v1", "uid-web", True) == decode_pod(encoded(pod)).owner


def test_owners_without_a_controller_are_no_owner() -> None:
    assert None is make_pod(owner=controller("Job", "web", controls=False)).owner


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({"kubectl.kubernetes.io/last-applied": "{…}"}, {}, id="others' annotations are dropped"),
        pytest.param({"homeport.dev/home": "n1"}, {"homeport.dev/home": "n1"}, id="our own are kept"),
        pytest.param({"homeport.dev/home": None}, {"homeport.dev/home": ""}, id="a null value is empty"),
        pytest.param({"note": "see homeport.dev/docs"}, {}, id="our domain in a value is not our domain"),
        pytest.param({"old.homeport.dev/home": "n1"}, {}, id="a domain below ours is not ours"),
    ],
)
def test_annotations_of_our_own_domain_are_kept(annotations: dict[str, str | None], expected: dict[str, str]) -> None:
    """The others are the bulk of a realistic pod, and nobody reads them."""
    assert expected == make_pod(annotations=annotations).annotations


def test_of_our_annotations_only_what_we_could_have_written_is_kept() -> None:
    """Nor do others crowd out those that we read."""
    long = {"homeport.dev/home": "n" * 1025, f"homeport.dev/{'x' * 250}": "1"}
    many = {f"homeport.dev/a{number:02}": "1" for number in range(40)} | {"homeport.dev/unclear-bind": "7"}
    found = make_pod(annotations=many).annotations

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


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"metadata": {"name": "n1"}}, id="a name and nothing else"),
        pytest.param({"metadata": {"name": "n1"}, "spec": None}, id="a null spec"),
        pytest.param(NODE_NULLS, id="every field null"),
    ],
)
def test_what_a_node_leaves_out_has_its_default(given: JsonObject) -> None:
    assert Node("n1", "", "", NO_LABELS, (), False) == decode_node(encoded(given))


def test_a_taint_may_leave_out_anything() -> None:
    assert (Taint(), Taint()) == make_node(taints=[{}, {"key": None, "value": None, "timeAdded": None}]).taints


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(None, None, id="a null selector selects nothing"),
        pytest.param({}, EVERYTHING, id="an empty selector selects everything"),
        pytest.param({"app": "web"}, of_labels({"app": "web"}), id="a map"),
    ],
)
def test_a_service_is_its_selector(selector: dict[str, str | None] | None, expected: object) -> None:
    assert Service("default", "web", "uid-default-web", expected) == make_service("web", selector)  # type: ignore[arg-type]  # the table holds selectors


def test_a_service_without_a_spec_has_no_selector() -> None:
    assert Service("default", "web", "", None) == decode_service(b'{"metadata": {"name": "web"}, "spec": null}')


def with_field(path: str, value: object) -> JsonObject:
    """An object named ``a`` with ``value`` at a path of two names."""
    section, _, name = path.partition(".")
    found: JsonObject = {"metadata": {"name": "a"}}
    found.setdefault(section, {})[name] = value
    return found


CONSTRAINTS = "spec.topologySpreadConstraints"


@pytest.mark.parametrize(
    ("decode", "field", "value"),
    [
        pytest.param(decode_pod, "metadata.name", "", id="a pod with an empty name"),
        pytest.param(decode_pod, "metadata.name", 1, id="a pod with a number for a name"),
        pytest.param(decode_pod, "metadata.labels", ["x"], id="labels in a list"),
        pytest.param(decode_pod, "metadata.labels", {"x": 1}, id="a number for a label"),
        pytest.param(decode_pod, "metadata.annotations", {"homeport.dev/home": 1}, id="a number for an annotation"),
        pytest.param(decode_pod, "metadata.ownerReferences", {}, id="one owner"),
        pytest.param(decode_pod, "spec.nodeName", 1, id="a numbered node"),
        pytest.param(decode_pod, "spec.priority", "1", id="a text priority"),
        pytest.param(decode_pod, "spec.affinity", [], id="affinity in a list"),
        pytest.param(decode_pod, "spec.nodeSelector", {"disk": 1}, id="a number in a node selector"),
        pytest.param(decode_pod, "spec.tolerations", [1], id="a number for a toleration"),
        pytest.param(decode_pod, CONSTRAINTS, [{"maxSkew": "1"}], id="a text for maxSkew"),
        pytest.param(decode_pod, CONSTRAINTS, [constraint(selector={"matchLabels": 1})], id="1 for matchLabels"),
        pytest.param(decode_pod, "spec.schedulingGates", True, id="a truth for gates"),
        pytest.param(decode_pod, "status.phase", 1, id="a numbered phase"),
        pytest.param(decode_node, "spec.taints", {}, id="taints in a map"),
        pytest.param(decode_node, "spec.unschedulable", 1, id="a 1"),
        pytest.param(decode_service, "spec.selector", [], id="a list"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(decode: Callable[[bytes], object], field: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        decode(encoded(with_field(field, value)))

    assert field in str(raised.value)


@pytest.mark.parametrize(
    ("decode", "given", "said"),
    [
        pytest.param(decode_pod, {}, "metadata", id="a pod without metadata"),
        pytest.param(decode_pod, {"metadata": {}}, "metadata.name", id="a pod without a name"),
        pytest.param(decode_node, {"metadata": {}}, "metadata.name", id="a node without a name"),
        pytest.param(
            decode_node,
            with_field("metadata.labels", {"a": LONG}),
            "metadata.labels: more than 65536 bytes",
            id="labels",
        ),
        pytest.param(
            decode_node,
            with_field("spec.taints", [{"key": LONG}]),
            "spec.taints: more than 65536 bytes",
            id="long taints",
        ),
    ],
)
def test_what_is_missing_or_too_long_is_named(decode: Callable[[bytes], object], given: JsonObject, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        decode(encoded(given))

    assert said in str(raised.value)


@pytest.mark.parametrize("decode", [decode_pod, decode_node, decode_service])
def test_what_is_no_json_is_a_decode_error(decode: Callable[[bytes], object]) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(b'{"metadata":')


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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(make_pod(priority=1), make_pod(priority=2), id="priority"),
        pytest.param(make_pod(gated=True), make_pod(), id="gates"),
        pytest.param(make_pod(scheduler="homeport"), make_pod(), id="scheduler"),
        pytest.param(make_pod(node_selector={"a": "b"}), make_pod(), id="node selector"),
        pytest.param(make_pod(affinity=required_affinity()), make_pod(), id="affinity"),
        pytest.param(make_pod(tolerations=[toleration()]), make_pod(), id="tolerations"),
        pytest.param(make_pod(spread=[constraint()]), make_pod(), id="constraints"),
    ],
)
def test_pods_that_differ_in_their_spec_do_not_share_it(one: Pod, other: Pod) -> None:
    assert one.spec is not other.spec


def test_a_spec_lives_only_as_long_as_a_pod_has_it() -> None:
    pod = make_pod(priority=123_456)
    assert 123_456 in [spec.priority for spec in pod_decoding._SPECS.values()]

    del pod
    gc.collect()

    assert 123_456 not in [spec.priority for spec in pod_decoding._SPECS.values()]


def test_a_part_too_large_to_remember_is_decoded_all_the_same() -> None:
    labels = {f"label-{number}": "x" * 60 for number in range(100)}

    assert labels == make_pod(labels=labels).labels


@pytest.mark.parametrize("found", [make_pod(), make_node(), make_service(), make_pod().spec])
def test_what_is_decoded_cannot_be_changed(found: Any) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        found.name = "other"


def test_a_node_object_is_complete() -> None:
    """The builders go through the decoders: what they make is what production would see."""
    assert make_node("n1", zone="a") == decode_node(encoded(node_object("n1", zone="a")))


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


def test_of_the_rest_everything_is_read() -> None:
    pod = make_pod("web-1", node_selector={"a": LONG}, spread=[constraint(app="web")], labels={"app": "web"})

    assert (1, {"app": "web"}) == (len(pod.spec.spread), pod.labels)


def test_a_service_with_an_endless_selector_selects_nothing() -> None:
    assert make_service("web", {"a": LONG}).selector is None
