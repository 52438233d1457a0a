"""What topics ``resources`` and ``device-classes`` of ``tests/conformance`` do not ask."""

from typing import Final

import pytest

from app.kube.requests import UNREAD_REQUESTS
from tests.builders import JsonObject, container, node_object, pod_object
from tests.harness import World, only

FIT: Final = "NodeResourcesFit"
GPU: Final = "example.com/gpu"
CLASS: Final[JsonObject] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "fast"},
    "spec": {"extendedResourceName": GPU},
}


def node() -> JsonObject:
    return node_object("n1", status={"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}})


def asking(**requests: str) -> JsonObject:
    return pod_object("pending", containers=[container(requests=requests)])


def test_a_class_that_goes_stands_for_nothing_any_more() -> None:
    """Verdicts are kept: they rest on the DeviceClasses too."""
    world = World(node(), CLASS, profile=only(FIT))
    pod = world.pod(asking(**{GPU: "2"}))

    def passing() -> list[str]:
        return list(world.framework.search.find_nodes_that_fit(pod, world.candidates()).passed)

    before = passing()
    world.add({**CLASS, "spec": {}})

    assert [["n1"], []] == [before, passing()]


@pytest.mark.parametrize("requests", [{f"a.io/{it}": "1" for it in range(65)}, {"cpu": "1e2000"}])
def test_requests_that_are_not_read(requests: dict[str, str]) -> None:
    world = World(node(), profile=only(FIT))
    pod = world.pod(asking(**requests))

    assert {"n1": ("UnschedulableAndUnresolvable", FIT, (UNREAD_REQUESTS,))} == world.filter(pod)
    assert {} == world.score(pod)
