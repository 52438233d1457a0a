"""Finds the extended resources of a pod that DeviceClasses provide, and creates the device requests for them.

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

_ContainerRequest: TypeAlias = tuple[ContainerRequests, int, int]
"""(container, requested amount of one resource, position of the resource among the container's requests)"""


def requested_resources(pod: Pod) -> Mapping[str, int]:
    """Return the amounts that the pod requests of resources that a DeviceClass could provide, by resource."""
    return {name: it for name, it in pod.spec.resources.requests.items() if is_device_resource(name)}


def resources_from_devices(
    resources: Mapping[str, int], allocatable: Mapping[str, int], class_of: ClassOf
) -> list[str] | None:
    """Return the sorted resources that DeviceClasses must provide, because the node has no device plugin for them.

    The result is ``None`` if there is a resource that neither a device plugin of the node nor a DeviceClass provides.
    """
    names: list[str] = []
    for name in resources:
        if not allocatable.get(name):
            if class_of(name) is None:
                return None
            names.append(name)
    return sorted(names)


def device_requests(
    containers: Sequence[ContainerRequests], resources: Sequence[str], class_of: ClassOf
) -> tuple[DeviceRequest, ...]:
    """Return the device requests for ``resources``, sorted by name.

    For each resource, there is one for each long-running container that requests it. An init container that ends before
    others start can use the devices of the containers that start after it. Only the largest number of devices that such
    a container needs in addition is returned as one more request.
    """
    by_resource: dict[str, list[_ContainerRequest]] = {name: [] for name in resources}
    for container in containers:
        for name, amount, position in container.resources:
            if name in by_resource and amount:
                by_resource[name].append((container, amount, position))
    requests: list[DeviceRequest] = []
    for resource, of_resource in by_resource.items():
        device_class = class_of(resource)
        if device_class is not None:
            requests += _of_resource(of_resource, device_class.name)
    return tuple(sorted(requests, key=lambda container: container.name))


def _of_resource(of_containers: Sequence[_ContainerRequest], device_class: str) -> list[DeviceRequest]:
    """Return the device requests for one resource. ``of_containers``: containers that request it, in start order."""
    lasting: list[DeviceRequest] = []
    largest: DeviceRequest | None = None
    later = 0
    for container, amount, position in reversed(of_containers):
        if container.is_long_running:
            later += amount
            lasting.append(_request(container.index, position, device_class, amount))
        elif amount > later:
            request = _request(container.index, position, device_class, amount - later)
            if largest is None or _count(largest) <= _count(request):
                largest = request
    return [*([] if largest is None else [largest]), *reversed(lasting)]


def _request(index: int, position: int, device_class: str, count: int) -> DeviceRequest:
    name = f"container-{index}-request-{position}"
    return DeviceRequest(name, ExactRequest(name, device_class, EXACT_COUNT, count))


def _count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0
