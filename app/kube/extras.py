"""Parts of pods and nodes that are decoded only where a plugin asks for them: requests, host ports, images and more.

What they are read from is most of a pod, and differs between replicas in what nobody reads (the name of a token's
volume, when a container started). Of each container a few fields are taken, and what is made of these is shared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, unique
from functools import cache
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import msgspec
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
from app.kube.volumes import VOLUMES, PodVolume, VolumeSources, volumes_of, with_claims

PORTS: Final = "spec.containers.ports"
IMAGES: Final = "spec.containers.image"
MOST_PORTS: Final = 256
MOST_IMAGES: Final = 128
"""Of one pod: with more of them, none is read."""

ANY_IP: Final = "0.0.0.0"
_TCP: Final = "TCP"
_ALWAYS: Final = "Always"
_LATEST: Final = ":latest"
_RESIZE: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"
_HOST_PORT: Final = b'"hostPort"'
_CLAIM: Final = b'"persistentVolumeClaim"'
_EPHEMERAL: Final = b'"ephemeral"'


@unique
class Extra(Enum):
    """What can be asked for."""

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
    """Kept beside the spec, see ``app.kube.disruption``: it has no row in ``_OF_POD``."""

    NODE_STATE = "state"
    """Of nodes alone."""


OF_NODES_ALONE: Final = frozenset((Extra.NODE_STATE,))


class NotDecoded(LookupError):
    """A part is read that nobody declared: it was left undecoded."""

    def __init__(self, extra: Extra) -> None:
        super().__init__(f"{extra.value}: not decoded, since no enabled plugin declares Part.{extra.name}")


class HostPort(Struct, frozen=True, gc=False):
    """A port that a pod occupies on its node. ``ip`` is ``ANY_IP`` where it is not said."""

    ip: str
    protocol: str
    port: int


class PodImages(Struct, frozen=True):
    """``names``: images of the init containers, the containers and the volumes of a pod, each with its tag, in this
    order and as often as they occur. ``containers``: how many of both sorts there are.
    """

    names: tuple[str, ...]
    containers: int


class PodParts(Struct, frozen=True, eq=False, weakref=True):
    """What is decoded of a pod on demand; ``None`` for what nobody asked for. Interned."""

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
_NONE_PENDING: Final = PodParts(pending_volumes=())


class RequirementsObject(Struct):
    """``resources`` of a container or a pod."""

    requests: Raw = Raw()


class ContainerObject(Struct, rename="camel"):
    """A container on the wire, as far as it is read."""

    name: str | None = None
    image: str | None = None
    restart_policy: str | None = None
    restart_policy_rules: Raw = Raw()
    ports: Raw = Raw()
    resources: RequirementsObject | None = None


class _ImageVolumeObject(Struct):
    reference: str | None = None


class VolumeObject(VolumeSources):
    """A volume. Its image is looked at for itself: it is one more that a node needs."""

    image: _ImageVolumeObject | None = None


class PodSpecExtras(Protocol):
    """The fields of ``spec`` that are read on demand."""

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
    """What a container still holds."""

    name: str | None = None
    resources: RequirementsObject | None = None
    allocated_resources: Raw = Raw()


class PodStatusExtras(Protocol):
    """The fields of ``status`` that are read on demand."""

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
_VOLUMES: Final[Decoder[list[VolumeSources] | None]] = Decoder(list[VolumeSources] | None)


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
    """What is asked for of a pod, and the names of the parts that are oversized: these are empty.

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
    return _interned(*parts), tuple(dict.fromkeys(oversized))


def pending_parts(node_name: str | None, volumes: Raw) -> tuple[PodParts, tuple[str, ...]]:
    """The same where of pods ``PENDING_VOLUMES`` alone is asked for: nothing else is looked at."""
    data = b"" if node_name else bytes(volumes)
    if _CLAIM not in data and _EPHEMERAL not in data:
        return _NONE_PENDING, ()
    try:
        pending = with_claims(_VOLUMES.decode(data) or ())
    except Oversized as error:
        return _NONE_PENDING, (error.field,)
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"{VOLUMES}: {error}") from None
    return _interned(*(pending if extra is Extra.PENDING_VOLUMES else None for extra in _OF_POD)), ()


@cache
def _readers(extras: frozenset[Extra]) -> tuple[tuple[Callable[[Any, Any], Any] | None, Any], ...]:
    """By the order of ``PodParts``: how a part is read, if it is asked for, and what stands for an oversized one."""
    return tuple((read if extra in extras else None, empty) for extra, (read, empty) in _OF_POD.items())


def _interned(*key: Any) -> PodParts:
    parts = _SHARED.get(key)
    if parts is None:
        parts = _SHARED[key] = PodParts(*key)
    return parts


def _resources(spec: PodSpecExtras, status: PodStatusExtras) -> PodResources:
    return resources_of(_asked(spec, status))


def _asked(spec: PodSpecExtras, status: PodStatusExtras) -> PodRequests:
    reported = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    statuses = {it.name: it for it in reported if it.resources is not None}
    return PodRequests(
        tuple(_requests(it, statuses.get(it.name)) for it in spec.containers or ()),
        tuple(_requests(it, statuses.get(it.name)) for it in spec.init_containers or ()),
        Requests(
            _of(spec.resources),
            None if status.resources is None else _of(status.resources),
            bytes(status.allocated_resources),
        ),
        bytes(spec.overhead),
        _is_infeasible(status.conditions),
    )


def _requests(container: ContainerObject, status: ContainerStatusObject | None) -> Requests:
    keeps_running = container.restart_policy == _ALWAYS
    if status is None:
        return Requests(_of(container.resources), None, b"", keeps_running)
    return Requests(_of(container.resources), _of(status.resources), bytes(status.allocated_resources), keeps_running)


def _of(requirements: RequirementsObject | None) -> bytes:
    return bytes(requirements.requests) if requirements is not None else b""


def _is_infeasible(conditions: Raw) -> bool:
    return condition_of(conditions, _RESIZE).reason == _INFEASIBLE


def _host_ports(spec: PodSpecExtras, _status: PodStatusExtras) -> tuple[HostPort, ...]:
    """Of the containers, and of the init containers that keep running."""
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
    """By the names under which nodes have them."""
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


_OF_POD: Final[Mapping[Extra, tuple[Callable[[Any, Any], Any], Any]]] = {
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
"""How each is read of a pod, in the order of ``PodParts``; and what stands for one that is oversized."""
