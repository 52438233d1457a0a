"""Rules of NodeResourcesFit."""

from typing import Any, Final

import pytest

from app.kube.requests import UNREAD_REQUESTS
from app.runtime.guard import PluginError
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
UNREAD: Final = (
    "UnschedulableAndUnresolvable",
    FIT,
    (UNREAD_REQUESTS,),
)


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


def answer(pod: JsonObject, *objects: JsonObject, **args: Any) -> Answer:
    world = World(*objects, profile=profile(**args))
    return world.filter(world.pod(pod))["n1"]


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


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param("2", "Success", id="one more"),
        pytest.param("1", lacks("Too many pods"), id="full"),
        pytest.param("0", lacks("Too many pods"), id="a node for none can be cured, as in kube-scheduler"),
    ],
)
def test_a_node_takes_so_many_pods(pods: str, expected: Answer) -> None:
    assert expected == answer(asking(), node(pods=pods), running())


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param({"ignoredResources": [GPU]}, "Success", id="by name"),
        pytest.param({"ignoredResourceGroups": ["example.com"]}, "Success", id="by group"),
        pytest.param({"ignoredResources": ["example.com/other"]}, lacks(f"Insufficient {GPU}", cured=False), id="none"),
    ],
)
def test_extended_resources_can_be_ignored(args: JsonObject, expected: Answer) -> None:
    pod = pod_object("pending", containers=[container(requests={GPU: "1"})])

    assert expected == answer(pod, node(), **args)


def test_only_extended_resources_can_be_ignored() -> None:
    assert lacks("Insufficient cpu", cured=False) == answer(asking(cpu="9"), node(), ignoredResources=["cpu"])


@pytest.mark.parametrize(
    ("resource", "there", "release", "expected"),
    [
        pytest.param(GPU, {}, "1.36", "Success", id="a node without any"),
        pytest.param(GPU, {GPU: "0"}, "1.36", "Success", id="a node with none"),
        pytest.param(GPU, {GPU: "1"}, "1.36", lacks(f"Insufficient {GPU}", cured=False), id="a node with its own"),
        pytest.param(GPU, {}, "1.35", lacks(f"Insufficient {GPU}", cured=False), id="before 1.36"),
        pytest.param("deviceclass.resource.kubernetes.io/fast", {}, "1.36", "Success", id="by the name of the class"),
        pytest.param("z.io/b", {}, "1.36", lacks("Insufficient z.io/b", cured=False), id="of no class"),
    ],
)
def test_what_stands_for_devices_is_left_to_dynamic_resources(
    resource: str, there: dict[str, str], release: str, expected: Answer
) -> None:
    world = World(node(**there), CLASS, profile=profile(release))
    pod = pod_object("pending", containers=[container(requests={resource: "2"})])

    assert expected == world.filter(world.pod(pod))["n1"]


def test_a_class_that_goes_stands_for_nothing_any_more() -> None:
    """Verdicts are kept: they rest on the DeviceClasses too."""
    world = World(node(), CLASS, profile=profile())
    pod = world.pod(pod_object("pending", containers=[container(requests={GPU: "2"})]))

    def passing() -> list[str]:
        return list(world.framework.search.find_nodes_that_fit(pod, world.candidates()).passed)

    before = passing()
    world.add({**CLASS, "spec": {}})

    assert [["n1"], []] == [before, passing()]


def test_amounts_beyond_64_bits_are_cut_off_as_in_go() -> None:
    most = str(2**63 - 1)

    assert lacks("Insufficient memory") == answer(asking(memory="1"), node(memory=most), running(memory=most))
    three = [running(f"r{it}", memory=most) for it in range(3)]
    assert "Success" == answer(asking(memory="1"), node(memory=most), *three)


def test_a_filter_without_its_pre_filter_says_so() -> None:
    found = profile()
    found["plugins"]["preFilter"] = {"disabled": [{"name": FIT}]}
    world = World(node(), profile=found)

    with pytest.raises(PluginError, match='error reading "PreFilterNodeResourcesFit" from cycleState: not found'):
        world.filter(world.pod(asking(cpu="1")))


class TestScores:
    def test_what_is_free_of_cpu_and_memory_with_something_for_who_does_not_say(self) -> None:
        world = World(node(), node("n2"), running(cpu="1", memory="2Gi"), profile=profile())

        assert {"n1": 58, "n2": 83} == world.score(world.pod(asking(cpu="1", memory="600Mi")))[FIT]
        assert {"n1": 72, "n2": 97} == world.score(world.pod(asking()))[FIT]

    def test_what_the_pod_asks_for_as_a_whole_is_not_compared(self) -> None:
        world = World(node(), profile=profile())
        pod = asking() | {"spec": asking()["spec"] | {"resources": {"requests": {"cpu": "4", "memory": "8Gi"}}}}

        assert {"n1": 97} == world.score(world.pod(pod))[FIT]

    def test_resources_that_the_pod_does_not_ask_for_count_only_if_every_node_has_them(self) -> None:
        resources = [{"name": it} for it in (GPU, "pods", "ephemeral-storage")]
        world = World(
            node(**{GPU: "4", "ephemeral_storage": "4Gi"}),
            profile=profile(scoringStrategy={"type": "LeastAllocated", "resources": resources}),
        )
        with_gpu = pod_object("pending", containers=[container(requests={GPU: "1"})])

        assert {"n1": 100} == world.score(world.pod(asking()))[FIT]
        assert {"n1": 87} == world.score(world.pod(with_gpu))[FIT]

    def test_nodes_are_not_compared_by_devices_of_a_class(self) -> None:
        args: JsonObject = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": GPU}]}}
        world = World(node(), CLASS, profile=profile(**args))
        with_gpu = pod_object("pending", containers=[container(requests={GPU: "1"})])

        assert {"n1": 0} == world.score(world.pod(asking()))[FIT]
        with pytest.raises(PluginError, match=f"nodes can't be compared by {GPU}: it stands for devices"):
            world.score(world.pod(with_gpu))

    def test_a_score_without_its_pre_score_is_the_same(self) -> None:
        found = profile()
        found["plugins"]["preScore"] = {"disabled": [{"name": FIT}]}
        world = World(node(), profile=found)

        assert {"n1": 97} == world.score(world.pod(asking()))[FIT]

    def test_of_requests_that_are_not_read_nothing_is_said(self) -> None:
        world = World(node(), profile=profile())

        assert {} == world.score(world.pod(asking(cpu="1e2000")))
