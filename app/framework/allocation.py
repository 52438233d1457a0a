"""Allocatable and requested amounts of a node's resources, for the plugins that compare nodes by them.

kube-scheduler computes with Go's int64, which wraps around and divides toward zero. This module has functions for the
same arithmetic, because quantities from the API server can have any size.
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
"""Smallest integer that is too large for int64."""

_ALWAYS_COMPARED: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
"""Resources that, if configured, are compared for every pod. Any other is compared only if the pod requests it."""

_DRA_SINCE: Final = "1.36"
"""First Kubernetes release in which DeviceClasses can back extended resources by default (DRAExtendedResource)."""

_IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Prefix of implicit extended resources: a DeviceClass ``gpu`` backs the resource that is this prefix and ``gpu``."""


def int64(number: int) -> int:
    """Return the number wrapped to a signed 64-bit integer."""
    if LEAST_INT64 <= number < _BEYOND_INT64:
        return number
    return (number - LEAST_INT64) % 2**64 + LEAST_INT64


def quotient(number: int, divisor: int) -> int:
    """Return ``number`` / ``divisor``, truncated toward zero and wrapped to 64 bits. ``divisor`` must not be 0."""
    result = abs(number) // abs(divisor)
    return int64(result if (number < 0) == (divisor < 0) else -result)


class ResourceSpec(BaseModel):
    """Resource by which nodes are compared, and its weight in the comparison. A weight of 0 means 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    weight: int = 1

    @field_validator("weight", mode="after")
    @classmethod
    def _default_is_one(cls, weight: int) -> int:
        return weight or 1


CPU_AND_MEMORY: Final = (ResourceSpec(name=CPU), ResourceSpec(name=MEMORY))
"""Default resources for comparing nodes."""


class DeviceClassResources:
    """Set of the extended resources that DeviceClasses back; empty for a ``release`` before 1.36.

    A pod that requests such a resource can get devices of the DeviceClass instead. So if a node lacks the resource, the
    plugin DynamicResources decides whether the pod fits.
    """

    def __init__(self, objects: Objects, release: str) -> None:
        self._objects = objects if release >= _DRA_SINCE else None
        self._version = -1
        self._names: frozenset[str] = frozenset()

    def backs(self, name: str) -> bool:
        """Return True if a DeviceClass backs the resource."""
        if self._objects is None:
            return False
        version = self._objects.version(DEVICE_CLASSES)
        if version != self._version:
            classes = list(self._objects.every(DEVICE_CLASSES))
            self._names = frozenset(it for each in classes for it in (_IMPLICIT + each.name, each.extended_resource))
            self._version = version
        return name in self._names


def may_be_backed(name: str) -> bool:
    """Return True if a DeviceClass can back a resource of this name."""
    return is_extended_resource(name) or name.startswith(_IMPLICIT)


Use: TypeAlias = tuple[int, int, int, int]
"""Amounts and weight of one resource of a node.

The amounts are: allocatable (never 0), requested by the node's pods, and requested by the pod to schedule. They are not
wrapped to 64 bits.
"""


class Comparison:
    """Comparison of nodes for one pod, by the resources that the plugin's arguments name."""

    __slots__ = ("_each",)

    def __init__(
        self, resources: Sequence[ResourceSpec], requests: ResourceList, classes: DeviceClassResources | None
    ) -> None:
        """Create a comparison by ``resources`` for a pod with these ``requests``.

        ``classes`` can be ``None`` if no DeviceClass can back any of the resources.
        """
        self._each = tuple(
            (it.name, requests.get(it.name, 0), it.weight, classes is not None and classes.backs(it.name))
            for it in resources
            if it.name in _ALWAYS_COMPARED or (requests.get(it.name, 0) and is_scalar_resource(it.name))
        )

    @property
    def asks(self) -> bool:
        """True if the pod requests any of the compared resources."""
        return any(request for _, request, _, _ in self._each)

    def clone(self) -> Comparison:
        return self

    def uses(self, node: NodeInfo, *, non_zero: bool) -> list[Use]:
        """Return a ``Use`` for each compared resource, except resources that the node lacks.

        ``non_zero``: for cpu and memory, the node's pods count with default requests for containers that have none.
        Raises ``NotCounted`` if the node lacks a resource that a DeviceClass backs.
        """
        allocatable, requested_on_node = node.allocatable, node.requested
        for_cpu_and_memory = node.non_zero_requested if non_zero else requested_on_node
        uses = []
        for name, requested_by_pod, weight, backed in self._each:
            there = allocatable.get(name, 0)
            if there:
                taken = for_cpu_and_memory if name in (CPU, MEMORY) else requested_on_node
                uses.append((there, taken.get(name, 0), requested_by_pod, weight))
            elif backed:
                raise NotCounted(name)
        return uses


class NotCounted(Exception):
    """Error: nodes cannot be compared by a resource that a DeviceClass backs, because devices are not counted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"nodes can't be compared by {name}: it stands for devices of a DeviceClass")
