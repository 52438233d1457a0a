"""Rules of what is decoded on demand: it is read where somebody asks for it, shared, and bounded."""

import gc
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from app.kube import extras
from app.kube.core_decoding import PLAIN, CoreV1, core_v1
from app.kube.core_v1 import Node, Pod, PodSpec
from app.kube.extras import MOST_IMAGES, MOST_PORTS, NODE_ONLY, Extra, HostPort, NotDecoded, PodImages
from app.kube.meta_v1 import LARGEST_PART
from app.kube.node_decoding import OversizedNode
from app.kube.requests import NO_REQUESTS
from tests.builders import JsonObject, PodFields, constraint, container, encoded, node_object, pod_object, toleration

EVERYTHING = core_v1(list(Extra))
LONG = "x" * (LARGEST_PART + 1)


def make(core: CoreV1 = EVERYTHING, **fields: Any) -> Pod:
    return core.decode_pod(encoded(pod_object(**fields)))


def node(core: CoreV1 = EVERYTHING, **status: Any) -> Node:
    return core.decode_node(encoded(node_object(status=status)))


def read(found: Pod | PodSpec | Node, name: str) -> Any:
    try:
        return getattr(found, name)
    except NotDecoded as error:
        return str(error)


def test_what_nobody_asks_for_is_not_decoded() -> None:
    """Not even looked at: nothing that is wrong with it keeps a pod from being read."""
    pod = make(PLAIN, containers=[{"resources": 7}], status={"containerStatuses": "none"})

    assert pod.spec is make(PLAIN).spec
    assert [
        "resources: not decoded, since no enabled plugin declares Part.RESOURCES",
        "ports: not decoded, since no enabled plugin declares Part.PORTS",
        "images: not decoded, since no enabled plugin declares Part.IMAGES",
    ] == [read(pod.spec, name) for name in ("resources", "ports", "images")]
    assert core_v1(()) is PLAIN


@pytest.mark.parametrize("extra", Extra)
def test_what_somebody_asks_for_is_all_that_is_decoded(extra: Extra) -> None:
    pod, found = make(core_v1([extra])), node(core_v1([extra]))

    said = [str(read(found if it in NODE_ONLY else _holder(pod, it), it.value)) for it in Extra]
    assert [it != extra for it in Extra] == ["not decoded" in it for it in said]
    assert extra != Extra.RESOURCES or {} == found.allocatable
    assert extra != Extra.IMAGES or {} == found.images


def _holder(pod: Pod, extra: Extra) -> Pod | PodSpec:
    return pod.spec if hasattr(PodSpec, extra.value) else pod


def test_the_rest_of_a_pod_and_of_a_node_is_what_it_is_without() -> None:
    fields: PodFields = {"labels": {"a": "b"}, "spread": [constraint()], "tolerations": [toleration()], "priority": 7}
    plain, pod = make(PLAIN, **fields), make(**fields)
    bare = node(PLAIN)

    assert plain == replace(pod, spec=plain.spec, lifecycle=None)
    assert {**asdict(plain.spec), "parts": pod.spec.parts} == asdict(pod.spec)
    assert bare == replace(node(), parts=bare.parts)


def test_requests_of_all_containers_are_read() -> None:
    pod = make(
        containers=[container("a", requests={"cpu": "1"}), container("b", requests={"memory": "1Ki"}), container("c")],
        more={
            "initContainers": [container("d", requests={"cpu": "2"}), container("e", restartPolicy="Always")],
            "overhead": {"cpu": "1m"},
            "resources": {"requests": {"memory": "2Ki"}, "limits": {"memory": "9Ki"}},
        },
    )

    assert {"cpu": 2001, "memory": 2048} == pod.spec.resources.requests


def test_what_a_running_pod_holds_is_read_of_its_status() -> None:
    status = {
        "containerStatuses": [{"name": "b"}, {"name": "a", "resources": {"requests": {"cpu": "2"}}}],
        "conditions": [{"type": "Ready"}],
    }
    pod = make(containers=[container("a", requests={"cpu": "1"}), container("b")], status=status)

    assert ({"cpu": 1000}, {"cpu": 2000}) == (pod.spec.resources.requests, pod.spec.resources.requested)


@pytest.mark.parametrize(
    ("conditions", "requested"),
    [
        pytest.param([{"type": "PodResizePending", "reason": "Infeasible"}], {}, id="infeasible"),
        pytest.param([{"type": "PodResizePending", "reason": "Deferred"}], {"cpu": 1000}, id="deferred"),
    ],
)
def test_a_resize_that_was_refused_does_not_count(conditions: list[JsonObject], requested: dict[str, int]) -> None:
    status = {"containerStatuses": [{"name": "main", "resources": {}}], "conditions": conditions}
    pod = make(containers=[container(requests={"cpu": "1"})], status=status)

    assert requested == pod.spec.resources.requested


def test_host_ports_are_those_of_what_keeps_running() -> None:
    pod = make(
        containers=[
            container("a", ports=[{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]),
            container("b", ports=[{"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}, {"hostPort": 0}]),
            container("c"),
        ],
        more={
            "initContainers": [
                container("d", ports=[{"hostPort": 1}]),
                container("e", ports=[{"hostPort": 2, "hostIP": "", "protocol": ""}], restartPolicy="Always"),
            ]
        },
    )

    assert (
        HostPort("0.0.0.0", "TCP", 2),
        HostPort("0.0.0.0", "TCP", 8080),
        HostPort("10.0.0.1", "UDP", 53),
    ) == pod.spec.ports


def test_images_are_named_as_nodes_name_them() -> None:
    pod = make(
        containers=[
            container("a", image="web"),
            container("b", image="registry:5000/web"),
            container("c", image="web:1"),
        ],
        more={
            "initContainers": [container("d", image="web@sha256:0")],
            "volumes": [{"name": "x", "emptyDir": {}}, {"name": "y", "image": {"reference": "data"}}],
        },
    )

    assert (
        PodImages(("web@sha256:0", "web:latest", "registry:5000/web:latest", "web:1", "data:latest"), 4)
        == pod.spec.images
    )


def test_a_node_has_an_image_under_all_of_its_names() -> None:
    images = [
        {"names": ["a:1", "a@sha256:0"], "sizeBytes": 7},
        {"names": ["a:1", "b:1"], "sizeBytes": 8},
        {"names": None},
    ]
    found = node(images=images, allocatable={"cpu": "2"})

    assert ({"a:1": 7, "a@sha256:0": 7, "b:1": 8}, {"cpu": 2000}) == (found.images, found.allocatable)


def test_replicas_share_what_is_read_of_them() -> None:
    """Though a volume of each has a name of its own, as that of its token does."""

    def replica(name: str) -> Pod:
        mount = {"name": f"kube-api-access-{name}", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
        one = container(requests={"cpu": "1"}, ports=[{"hostPort": 80}], volumeMounts=[mount])
        started = {"name": "main", "containerID": name, "resources": {"requests": {"cpu": "1"}}}
        return make(name=name, containers=[one], status={"containerStatuses": [started]})

    assert replica("web-1").spec is replica("web-2").spec


def test_parts_live_only_as_long_as_a_pod_has_them() -> None:
    pod = make(containers=[container(image="only-here")])
    assert [pod.spec.parts] == [it for it in extras._SHARED.values() if "only-here:latest" in (it.images or NONE).names]

    del pod
    gc.collect()

    assert [] == [it for it in extras._SHARED.values() if "only-here:latest" in (it.images or NONE).names]


NONE = PodImages((), 0)


@pytest.mark.parametrize(
    ("containers", "oversized"),
    [
        pytest.param([container(ports=[{"name": LONG, "hostPort": 1}])], ("spec.containers.ports",), id="ports"),
        pytest.param(
            [container(ports=[{"hostPort": number} for number in range(1, MOST_PORTS + 2)])],
            ("spec.containers.ports",),
            id="one port too many",
        ),
        pytest.param([container()] * (MOST_IMAGES + 1), ("spec.containers.image",), id="one container too many"),
        pytest.param(
            [container(requests={"cpu": "1e1000"}, image=LONG, ports=[{"hostPort": 1, "x": LONG}])],
            ("spec.containers.resources", "spec.containers.ports", "spec.containers.image"),
            id="all of them",
        ),
        pytest.param([container(env=[{"value": LONG}], command=[LONG])], (), id="what is not read anyway"),
    ],
)
def test_a_part_that_is_too_long_is_named_and_not_read(
    containers: list[JsonObject], oversized: tuple[str, ...]
) -> None:
    spec = make(containers=containers).spec

    assert oversized == spec.oversized
    assert ("spec.containers.resources" in oversized) == (spec.resources is NO_REQUESTS)
    assert not ("spec.containers.ports" in oversized and spec.ports)
    assert not ("spec.containers.image" in oversized and spec.images.names)


def test_it_is_named_beside_the_others() -> None:
    spec = make(containers=[container(image=LONG)], labels={"a": LONG}).spec

    assert ("metadata.labels", "spec.containers.image") == spec.oversized


def test_a_node_is_read_as_a_whole_or_not_at_all() -> None:
    with pytest.raises(OversizedNode, match="allocatable"):
        node(allocatable={"cpu": "1" * 65})


def test_a_node_with_endless_images_is_taken_to_have_none() -> None:
    assert {} == node(images=[{"names": [LONG], "sizeBytes": 1}] * 17).images
