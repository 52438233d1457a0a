"""Extended resources that a class of devices stands behind: what is to be allocated for them on a node.

Source of the rules: ``extendeddynamicresources.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from app.kube.claims import ContainerRequests, is_device_resource
from app.kube.core_v1 import Pod
from app.kube.resource_v1 import DeviceClass, DeviceRequest, ExactRequest
from plugins.in_tree.dynamic_resources.allocator import EXACT_COUNT

ClassOf: TypeAlias = Callable[[str], DeviceClass | None]

_Asked: TypeAlias = tuple[ContainerRequests, int, int]
"""A container, with how much of one resource it asks for, and the place of that among all of its requests."""


def requested(pod: Pod) -> Mapping[str, int]:
    """What the pod asks for of resources that a class could stand behind."""
    return {name: it for name, it in pod.spec.resources.requests.items() if is_device_resource(name)}


def from_devices(resources: Mapping[str, int], allocatable: Mapping[str, int], class_of: ClassOf) -> list[str] | None:
    """The resources that a node has no device plugin for, and a class; ``None`` if there is neither for one of them."""
    found: list[str] = []
    for name in resources:
        if not allocatable.get(name):
            if class_of(name) is None:
                return None
            found.append(name)
    return sorted(found)


def device_requests(
    containers: Sequence[ContainerRequests], resources: Sequence[str], class_of: ClassOf
) -> tuple[DeviceRequest, ...]:
    """The requests of the claim for ``resources``, by name: one for each container that asks for one of them.

    An init container that ends before others start uses what those have that start after it; of what init containers
    need beyond that, the largest request is enough.
    """
    asked: dict[str, list[_Asked]] = {name: [] for name in resources}
    for it in containers:
        for name, amount, place in it.resources:
            if name in asked and amount:
                asked[name].append((it, amount, place))
    found: list[DeviceRequest] = []
    for resource, of_resource in asked.items():
        device_class = class_of(resource)
        if device_class is not None:
            found += _of_resource(of_resource, device_class.name)
    return tuple(sorted(found, key=lambda it: it.name))


def _of_resource(asked: Sequence[_Asked], device_class: str) -> list[DeviceRequest]:
    """``asked``: for one resource, by the containers that ask for it."""
    lasting: list[DeviceRequest] = []
    largest: DeviceRequest | None = None
    later = 0
    for it, amount, place in reversed(asked):
        if it.is_long_running:
            later += amount
            lasting.append(_request(it.index, place, device_class, amount))
        elif amount > later:
            request = _request(it.index, place, device_class, amount - later)
            if largest is None or _count(largest) <= _count(request):
                largest = request
    return [*([] if largest is None else [largest]), *reversed(lasting)]


def _request(index: int, place: int, device_class: str, count: int) -> DeviceRequest:
    name = f"container-{index}-request-{place}"
    return DeviceRequest(name, ExactRequest(name, device_class, EXACT_COUNT, count))


def _count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0
