"""Optional parts of pods and nodes, decoded only if a plugin declares them: requests, host ports, images and more.

Most parts of a pod are read from its largest fields. In these fields, the pods of a workload usually differ only in
values that are not read, for example the name of a token volume. Pods with equal values share the decoded parts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, unique
from functools import cache
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from msgspec import Raw, Struct

from app.kube.claims import NO_CLAIMS, PodClaims, claims_of
from app.kube.conditions import condition_of
from app.kube.declared_features import NO_FEATURES, needed_features
from app.kube.decoding import Decoder
from app.kube.meta_v1 import LARGEST_PART, Oversized, shared
from app.kube.node_affinity import PreferredNodeAffinity
from app.kube.node_selectors import preferred_affinity_of
from app.kube.pod_affinity import NO_TERMS, PodAffinity, pod_affinity_of
from app.kube.requests import NO_REQUESTS, PodRequests, PodResources, Requests, resources_of
from app.kube.scheduling_gates import gate_names_of
from app.kube.volumes import PodVolume, VolumeSources, volumes_of, with_claims

PORTS: Final = "spec.containers.ports"
IMAGES: Final = "spec.containers.image"
MOST_PORTS: Final = 256
"""Maximum number of host ports of one pod. If a pod has more, none is read."""

MOST_IMAGES: Final = 128
"""Maximum number of images of one pod. If a pod has more, none is read."""

ANY_IP: Final = "0.0.0.0"
_TCP: Final = "TCP"
_ALWAYS: Final = "Always"
_LATEST: Final = ":latest"
_RESIZE: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"
_HOST_PORT: Final = b'"hostPort"'


@unique
class Extra(Enum):
    """Optional part of a pod or node. The value names the pod's attribute; for ``NODE_STATE``, the node's."""

    RESOURCES = "resources"
    PORTS = "ports"
    IMAGES = "images"
    PREFERRED_AFFINITY = "preferred_affinity"
    SCHEDULING_GATES = "scheduling_gates"
    FEATURES = "features"
    POD_AFFINITY = "pod_affinity"
    VOLUMES = "volumes"
    CLAIMS = "claims"
    PENDING_VOLUMES = "pending_volumes"
    DISRUPTION = "disruption"
    """Stored outside the shared spec (see ``app.kube.disruption``), so it is not in ``_PARTS_OF_POD``."""

    DELETION_COST = "deletion_cost"
    """Stored outside the shared spec, because it differs between the pods of a workload."""

    NODE_STATE = "state"
    """Optional part that only nodes have."""


NODE_ONLY: Final = frozenset((Extra.NODE_STATE,))
"""Optional parts that only nodes have."""


class NotDecoded(LookupError):
    """Raised if a plugin reads a part that is not decoded, because no enabled plugin declares it."""

    def __init__(self, extra: Extra) -> None:
        super().__init__(f"{extra.value}: not decoded, since no enabled plugin declares Part.{extra.name}")


class HostPort(Struct, frozen=True, gc=False):
    """Port that a pod occupies on its node. ``ip`` is ``ANY_IP`` if the pod does not set an address."""

    ip: str
    protocol: str
    port: int


class PodImages(Struct, frozen=True):
    """Images of a pod, with tag or digest: of init containers, then of containers, then of image volumes.

    Duplicates are included. ``containers`` is the total number of init containers and containers.
    """

    names: tuple[str, ...]
    containers: int


class PodParts(Struct, frozen=True, eq=False, weakref=True):
    """Optional parts of a pod; a part that no plugin declares is ``None``. Pods with equal parts share one object."""

    resources: PodResources | None = None
    ports: tuple[HostPort, ...] | None = None
    images: PodImages | None = None
    preferred_affinity: PreferredNodeAffinity | None = None
    scheduling_gates: tuple[str, ...] | None = None
    features: frozenset[str] | None = None
    pod_affinity: PodAffinity | None = None
    volumes: tuple[PodVolume, ...] | None = None
    claims: PodClaims | None = None
    pending_volumes: tuple[PodVolume, ...] | None = None


NOTHING_OF_POD: Final = PodParts()


class RequirementsObject(Struct):
    """``resources`` of a container or a pod in JSON, reduced to the requests."""

    requests: Raw = Raw()


class ContainerObject(Struct, rename="camel"):
    """Container in JSON, reduced to the fields that are read."""

    name: str | None = None
    image: str | None = None
    restart_policy: str | None = None
    restart_policy_rules: Raw = Raw()
    ports: Raw = Raw()
    resources: RequirementsObject | None = None


class _ImageVolumeObject(Struct):
    reference: str | None = None


class VolumeObject(VolumeSources):
    """Volume of a pod in JSON. The image of an image volume is read too, because it is one of the pod's images."""

    image: _ImageVolumeObject | None = None


class PodSpecExtras(Protocol):
    """Fields of ``spec`` from which optional parts are decoded."""

    node_name: str | None
    containers: list[ContainerObject] | None
    init_containers: list[ContainerObject] | None
    volumes: list[VolumeObject] | None
    resources: RequirementsObject | None
    overhead: Raw
    affinity: Raw
    scheduling_gates: Raw
    host_network: bool | None
    host_users: bool | None


class ContainerStatusObject(Struct, rename="camel"):
    """Status of a container in JSON, reduced to its name, and its actual and allocated resources."""

    name: str | None = None
    resources: RequirementsObject | None = None
    allocated_resources: Raw = Raw()


class PodStatusExtras(Protocol):
    """Fields of ``status`` from which optional parts are decoded."""

    container_statuses: list[ContainerStatusObject] | None
    init_container_statuses: list[ContainerStatusObject] | None
    conditions: Raw
    resources: RequirementsObject | None
    allocated_resources: Raw


class _PortObject(Struct, rename={"host_port": "hostPort", "host_ip": "hostIP"}):
    host_port: int | None = None
    host_ip: str | None = None
    protocol: str | None = None


_PORTS: Final[Decoder[list[_PortObject] | None]] = Decoder(list[_PortObject] | None)


def _parse_ports(data: bytes) -> tuple[HostPort, ...]:
    return tuple(
        HostPort(sys.intern(it.host_ip or ANY_IP), sys.intern(it.protocol or _TCP), it.host_port)
        for it in _PORTS.decode(data) or ()
        if it.host_port is not None and it.host_port > 0
    )


_ports_of: Final = shared(PORTS, _parse_ports)

_SHARED: WeakValueDictionary[tuple[object, ...], PodParts] = WeakValueDictionary()


def pod_parts(
    extras: frozenset[Extra], spec: PodSpecExtras, status: PodStatusExtras
) -> tuple[PodParts, tuple[str, ...]]:
    """Return the parts in ``extras``, and the names of oversized fields. A part read from an oversized field is empty.

    Raises ``msgspec.ValidationError``.
    """
    oversized: list[str] = []
    parts: list[Any] = []
    for read, empty in _readers(extras):
        part = None
        if read is not None:
            try:
                part = read(spec, status)
            except Oversized as error:
                part = empty
                oversized.append(error.field)
        parts.append(part)
    return interned_parts(*parts), tuple(dict.fromkeys(oversized))


@cache
def _readers(extras: frozenset[Extra]) -> tuple[tuple[Callable[[Any, Any], Any] | None, Any], ...]:
    """Return (reader, empty value) for each field of ``PodParts``. Parts not in ``extras`` have the reader ``None``."""
    return tuple((read if extra in extras else None, empty) for extra, (read, empty) in _PARTS_OF_POD.items())


def interned_parts(*key: Any) -> PodParts:
    """Return the shared ``PodParts`` with the field values ``key``, in the order of the fields."""
    parts = _SHARED.get(key)
    if parts is None:
        parts = _SHARED[key] = PodParts(*key)
    return parts


def _resources(spec: PodSpecExtras, status: PodStatusExtras) -> PodResources:
    return resources_of(_pod_requests(spec, status))


def _pod_requests(spec: PodSpecExtras, status: PodStatusExtras) -> PodRequests:
    reported = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    statuses = {it.name: it for it in reported if it.resources is not None}
    return PodRequests(
        tuple(_requests(it, statuses.get(it.name)) for it in spec.containers or ()),
        tuple(_requests(it, statuses.get(it.name)) for it in spec.init_containers or ()),
        Requests(
            _requests_json(spec.resources),
            None if status.resources is None else _requests_json(status.resources),
            bytes(status.allocated_resources),
        ),
        bytes(spec.overhead),
        _is_infeasible(status.conditions),
    )


def _requests(container: ContainerObject, status: ContainerStatusObject | None) -> Requests:
    keeps_running = container.restart_policy == _ALWAYS
    if status is None:
        return Requests(_requests_json(container.resources), None, b"", keeps_running)
    return Requests(
        _requests_json(container.resources),
        _requests_json(status.resources),
        bytes(status.allocated_resources),
        keeps_running,
    )


def _requests_json(requirements: RequirementsObject | None) -> bytes:
    return bytes(requirements.requests) if requirements is not None else b""


def _is_infeasible(conditions: Raw) -> bool:
    return condition_of(conditions, _RESIZE).reason == _INFEASIBLE


def _host_ports(spec: PodSpecExtras, _status: PodStatusExtras) -> tuple[HostPort, ...]:
    """Return the host ports of sidecars (init containers that keep running), then of containers."""
    running = (it for it in spec.init_containers or () if it.restart_policy == _ALWAYS)
    containers = (*running, *(spec.containers or ()))
    ports = tuple(port for it in containers if _HOST_PORT in bytes(it.ports) for port in _ports_of(it.ports))
    if len(ports) > MOST_PORTS:
        raise Oversized(PORTS)
    return ports


def _images(spec: PodSpecExtras, _status: PodStatusExtras) -> PodImages:
    init_containers, containers = spec.init_containers or (), spec.containers or ()
    names = (it.image for it in (*init_containers, *containers))
    volumes = (it.image.reference for it in spec.volumes or () if it.image is not None)
    tagged = tuple(_tagged((*names, *volumes)))
    if len(tagged) > MOST_IMAGES or sum(map(len, tagged)) > LARGEST_PART:
        raise Oversized(IMAGES)
    return PodImages(tagged, len(init_containers) + len(containers))


def _volumes(spec: PodSpecExtras, _status: PodStatusExtras) -> tuple[PodVolume, ...]:
    return volumes_of(spec.volumes or ())


def _pending_volumes(spec: PodSpecExtras, _status: PodStatusExtras) -> tuple[PodVolume, ...]:
    return () if spec.node_name else with_claims(spec.volumes or ())


def _tagged(images: Iterable[str | None]) -> Iterator[str]:
    """Yield the image names. Like kube-scheduler, add the tag ``latest`` to an image without tag and digest."""
    for image in images:
        name = image or ""
        yield sys.intern(name if name.rfind(":") > name.rfind("/") else name + _LATEST)


def _preferred_affinity(spec: PodSpecExtras, _status: PodStatusExtras) -> PreferredNodeAffinity:
    return preferred_affinity_of(spec.affinity)


def _scheduling_gates(spec: PodSpecExtras, _status: PodStatusExtras) -> tuple[str, ...]:
    return gate_names_of(spec.scheduling_gates)


def _features(spec: PodSpecExtras, _status: PodStatusExtras) -> frozenset[str]:
    return needed_features(
        (it.restart_policy_rules for it in (*(spec.init_containers or ()), *(spec.containers or ()))),
        host_network=spec.host_network is True,
        host_users=spec.host_users is not False,
    )


def _pod_affinity(spec: PodSpecExtras, _status: PodStatusExtras) -> PodAffinity:
    return pod_affinity_of(spec.affinity)


_PARTS_OF_POD: Final[Mapping[Extra, tuple[Callable[[Any, Any], Any], Any]]] = {
    Extra.RESOURCES: (_resources, NO_REQUESTS),
    Extra.PORTS: (_host_ports, ()),
    Extra.IMAGES: (_images, PodImages((), 0)),
    Extra.PREFERRED_AFFINITY: (_preferred_affinity, PreferredNodeAffinity()),
    Extra.SCHEDULING_GATES: (_scheduling_gates, ()),
    Extra.FEATURES: (_features, NO_FEATURES),
    Extra.POD_AFFINITY: (_pod_affinity, NO_TERMS),
    Extra.VOLUMES: (_volumes, ()),
    Extra.CLAIMS: (claims_of, NO_CLAIMS),
    Extra.PENDING_VOLUMES: (_pending_volumes, ()),
}
"""Reader of each field of ``PodParts``, in the order of the fields, with the value that replaces an oversized part."""
