"""Rules of NodeResourcesFit."""

from typing import Any, Final

import pytest

from app.kube.requests import UNREAD_REQUESTS
from plugins.in_tree.node_resources_fit.plugin import NodeResourcesFit
from tests.builders import JsonObject, container, node_object, pod_object
from tests.harness import Answer, World, only

FIT: Final = "NodeResourcesFit"
GPU: Final = "example.com/gpu"
CLASS: Final[JsonObject] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "fast"},
    "spec": {"extendedResourceName": GPU},
}
UNREAD: Final = ("UnschedulableAndUnresolvable", FIT, (UNREAD_REQUESTS,))


def lacks(*reasons: str, cured: bool = True) -> Answer:
    return ("Unschedulable" if cured else "UnschedulableAndUnresolvable", FIT, reasons)


def node(name: str = "n1", **there: str) -> JsonObject:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10", **there}
    return node_object(name, status={"allocatable": {key.replace("_", "-"): it for key, it in amounts.items()}})


def running(name: str = "running", **requests: str) -> JsonObject:
    return pod_object(name, node="n1", containers=[container(requests=requests)])


def asking(**requests: str) -> JsonObject:
    return pod_object("pending", containers=[container(requests={k.replace("_", "-"): v for k, v in requests.items()})])


def profile(release: str = "1.36", **args: Any) -> JsonObject:
    return {**only(FIT, **{FIT: args}), "release": release}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(asking(cpu="3"), "Success", id="just enough"),
        pytest.param(asking(cpu="3001m"), lacks("Insufficient cpu"), id="too little is left"),
        pytest.param(asking(cpu="5"), lacks("Insufficient cpu", cured=False), id="there never is so much"),
        pytest.param(
            asking(cpu="4", memory="9Gi"),
            lacks("Insufficient cpu", "Insufficient memory", cured=False),
            id="all that is lacking is told, the worst decides",
        ),
        pytest.param(asking(cpu="0"), "Success", id="nothing"),
        pytest.param(asking(ephemeral_storage="1"), lacks("Insufficient ephemeral-storage", cured=False), id="disk"),
        pytest.param(
            pod_object("pending", containers=[container(requests={"z.io/b": "1", GPU: "1", "hugepages-2Mi": "2Mi"})]),
            lacks(f"Insufficient {GPU}", "Insufficient hugepages-2Mi", "Insufficient z.io/b", cured=False),
            id="by name where kube-scheduler has no order",
        ),
        pytest.param(
            pod_object("pending", containers=[container(requests={f"a.io/{it}": "1" for it in range(65)})]),
            UNREAD,
            id="more than is read",
        ),
    ],
)
def test_a_pod_fits_where_enough_is_left(pod: JsonObject, expected: Answer) -> None:
    world = World(node(), running(cpu="1", memory="1Gi"), profile=profile())

    assert isinstance(world.framework.plugins[FIT], NodeResourcesFit)
    assert {"n1": expected} == world.filter(world.pod(pod))


def test_a_class_that_goes_stands_for_nothing_any_more() -> None:
    """Verdicts are kept: they rest on the DeviceClasses too."""
    world = World(node(), CLASS, profile=profile())
    pod = world.pod(pod_object("pending", containers=[container(requests={GPU: "2"})]))

    def passing() -> list[str]:
        return list(world.framework.search.find_nodes_that_fit(pod, world.candidates()).passed)

    before = passing()
    world.add({**CLASS, "spec": {}})

    assert [["n1"], []] == [before, passing()]


class TestScores:
    def test_of_requests_that_are_not_read_nothing_is_said(self) -> None:
        world = World(node(), profile=profile())

        assert {} == world.score(world.pod(asking(cpu="1e2000")))
