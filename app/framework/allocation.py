"""How much of a node is taken, resource by resource: what plugins share that compare nodes by it.

Go counts in 64 bits and cuts off what does not fit, and divides toward zero. The API server stores quantities of any
size for anybody, so that the same is done here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from pydantic import BaseModel, ConfigDict, field_validator

from app.framework.node_info import NodeInfo
from app.framework.objects import Objects
from app.kube.kinds import DEVICE_CLASSES
from app.kube.requests import CPU, EPHEMERAL_STORAGE, MEMORY, ResourceList, is_extended_resource, is_scalar_resource

LEAST_INT64: Final = -(2**63)
_BEYOND_INT64: Final = 2**63

_OF_EVERY_NODE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
"""What is compared whether the pod asks for it or not; of all else, only what it asks for."""

_DRA_SINCE: Final = "1.36"
"""Since when extended resources can be backed by DeviceClasses with default feature gates (DRAExtendedResource)."""

_IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""With the name of a DeviceClass behind it: the resource that each stands for, whatever else it says."""


def int64(number: int) -> int:
    """What 64 bits hold of it."""
    if LEAST_INT64 <= number < _BEYOND_INT64:
        return number
    return (number - LEAST_INT64) % 2**64 + LEAST_INT64


def quotient(number: int, divisor: int) -> int:
    """Divided toward zero. ``divisor`` is not 0."""
    found = abs(number) // abs(divisor)
    return int64(found if (number < 0) == (divisor < 0) else -found)


class ResourceSpec(BaseModel):
    """A resource by which nodes are compared. A weight of 0 is 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    weight: int = 1

    @field_validator("weight", mode="after")
    @classmethod
    def _nothing_is_one(cls, found: int) -> int:
        return found or 1


CPU_AND_MEMORY: Final = (ResourceSpec(name=CPU), ResourceSpec(name=MEMORY))
"""By which nodes are compared unless arguments say otherwise."""


class DeviceClassResources:
    """The extended resources that devices of some DeviceClass stand for, hence DynamicResources judges them."""

    def __init__(self, objects: Objects, release: str) -> None:
        self._objects = objects if release >= _DRA_SINCE else None
        self._version = -1
        self._names: frozenset[str] = frozenset()

    def backs(self, name: str) -> bool:
        """Whether there is such a class."""
        if self._objects is None:
            return False
        version = self._objects.version(DEVICE_CLASSES)
        if version != self._version:
            classes = list(self._objects.every(DEVICE_CLASSES))
            self._names = frozenset(it for each in classes for it in (_IMPLICIT + each.name, each.extended_resource))
            self._version = version
        return name in self._names


def may_be_backed(name: str) -> bool:
    """Whether a DeviceClass can stand for a resource of this name."""
    return is_extended_resource(name) or name.startswith(_IMPLICIT)


Use: TypeAlias = tuple[int, int, int, int]
"""Of one resource of a node: what there is, never 0; what the pods on it take; what the pod asks for that is to come;
the weight of the resource. None of them is wrapped.
"""


class Comparison:
    """Reads of a node what a pod would make of the resources by which nodes are compared.

    ``resources``: of the arguments · ``asked``: what the pod asks for.
    """

    __slots__ = ("_each",)

    def __init__(
        self, resources: Sequence[ResourceSpec], asked: ResourceList, classes: DeviceClassResources | None
    ) -> None:
        """``classes``: where a resource that a DeviceClass stands for may be among them."""
        self._each = tuple(
            (it.name, asked.get(it.name, 0), it.weight, classes is not None and classes.backs(it.name))
            for it in resources
            if it.name in _OF_EVERY_NODE or (asked.get(it.name, 0) and is_scalar_resource(it.name))
        )

    @property
    def asks(self) -> bool:
        """Whether the pod asks for any of them."""
        return any(asked for _, asked, _, _ in self._each)

    def clone(self) -> Comparison:
        return self

    def uses(self, node: NodeInfo, *, non_zero: bool) -> list[Use]:
        """Those of the resources that the node has. ``non_zero``: with something for each container that does not say.

        Raises ``NotCounted``.
        """
        allocatable, requested = node.allocatable, node.requested
        for_cpu_and_memory = node.non_zero_requested if non_zero else requested
        found = []
        for name, asked, weight, backed in self._each:
            there = allocatable.get(name, 0)
            if there:
                taken = for_cpu_and_memory if name in (CPU, MEMORY) else requested
                found.append((there, taken.get(name, 0), asked, weight))
            elif backed:
                raise NotCounted(name)
        return found


class NotCounted(Exception):
    """Nodes are to be compared by devices of a DeviceClass: these are not counted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"nodes can't be compared by {name}: it stands for devices of a DeviceClass")
