"""Arithmetic of 64 bits, and what is compared of a node."""

from typing import Final

import pytest

from app.framework.allocation import (
    CPU_AND_MEMORY,
    Comparison,
    DeviceClassResources,
    NotCounted,
    ResourceSpec,
    Use,
    int64,
    may_be_backed,
    quotient,
)
from app.framework.node_info import NodeInfo
from app.kube.core_decoding import core_v1
from app.kube.extras import Extra
from app.kube.kinds import DEVICE_CLASSES
from app.kube.resource_v1 import DeviceClass
from tests.builders import container, encoded, node_object, pod_object
from tests.harness import World

CORE: Final = core_v1([Extra.RESOURCES])
GPU: Final = "example.com/gpu"


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, 0), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (-(2**63), -(2**63)), (-(2**63) - 1, 2**63 - 1), (2**64, 0)],
)
def test_64_bits_hold_the_lowest_ones(number: int, expected: int) -> None:
    assert expected == int64(number)


@pytest.mark.parametrize(
    ("number", "divisor", "expected"),
    [(7, 2, 3), (-7, 2, -3), (7, -2, -3), (-7, -2, 3), (0, -2, 0), (-(2**63), -1, -(2**63))],
)
def test_a_quotient_goes_toward_zero(number: int, divisor: int, expected: int) -> None:
    assert expected == quotient(number, divisor)


@pytest.mark.parametrize(
    ("name", "expected"),
    [(GPU, True), ("deviceclass.resource.kubernetes.io/a", True), ("cpu", False), ("hugepages-2Mi", False)],
)
def test_a_device_class_stands_for_resources_of_some_names(name: str, *, expected: bool) -> None:
    assert expected == may_be_backed(name)


def test_classes_are_known_as_they_come_and_go() -> None:
    world = World()
    classes, before_1_36 = (DeviceClassResources(world.cluster, it) for it in ("1.36", "1.35"))
    names = (GPU, "deviceclass.resource.kubernetes.io/fast")

    told = [[classes.backs(it) for it in names]]
    world.cluster.others.upsert(DEVICE_CLASSES, DeviceClass("fast", "u1", extended_resource=GPU))
    told.append([classes.backs(it) for it in names])
    world.cluster.others.upsert(DEVICE_CLASSES, DeviceClass("fast", "u1"))
    told.append([classes.backs(it) for it in names])

    assert [[False, False], [True, True], [False, True]] == told
    assert [False, False] == [before_1_36.backs(it) for it in names]


class TestComparison:
    NODE: Final = CORE.decode_node(
        encoded(node_object(status={"allocatable": {"cpu": "4", "memory": "0", GPU: "2", "pods": "7"}}))
    )
    POD: Final = CORE.decode_pod(
        encoded(pod_object("p", containers=[container(requests={"cpu": "1", GPU: "1"}), container()]))
    )

    def uses(self, *names: str, non_zero: bool = False, gpus: int = 0) -> list[Use]:
        comparison = Comparison([ResourceSpec(name=it) for it in names], {"cpu": 500, GPU: gpus}, None)
        return comparison.uses(NodeInfo(self.NODE, {self.POD.uid: self.POD}), non_zero=non_zero)

    def test_what_is_there_what_is_taken_and_what_is_asked_for(self) -> None:
        assert [(4000, 1000, 500, 1)] == self.uses("cpu", "memory", "unknown", "pods", "ephemeral-storage")

    def test_with_something_for_who_does_not_say(self) -> None:
        assert [(4000, 1100, 500, 1)] == self.uses("cpu", non_zero=True)

    def test_what_not_every_node_has_counts_only_if_it_is_asked_for(self) -> None:
        assert [] == self.uses(GPU)
        assert [(2, 1, 1, 1)] == self.uses(GPU, gpus=1)

    def test_whether_anything_is_asked_for(self) -> None:
        assert [False, True] == [Comparison(CPU_AND_MEMORY, it, None).asks for it in ({GPU: 1}, {"memory": 1})]

    def test_devices_are_not_counted(self) -> None:
        world = World()
        world.cluster.others.upsert(DEVICE_CLASSES, DeviceClass("fast", "u1", extended_resource="z.io/b"))
        classes = DeviceClassResources(world.cluster, "1.36")
        comparison = Comparison([ResourceSpec(name="z.io/b")], {"z.io/b": 1}, classes)

        assert comparison is comparison.clone()
        with pytest.raises(NotCounted, match=r"nodes can't be compared by z\.io/b"):
            comparison.uses(NodeInfo(self.NODE), non_zero=False)
