"""Device requests of a pod: its resource claims, and the containers that request extended resources.

A DeviceClass can provide the devices of an extended resource. The scheduler then creates one claim for the pod, with
the requests of all containers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import LARGEST_PART, Oversized, shared
from app.kube.quantity import OverlongQuantity, quantity_of

CLAIMS: Final = "spec.resourceClaims"

MOST_CLAIMS: Final = 32
"""Maximum number of resource claims of one pod. If a pod has more, none of its device requests is read."""

DEVICE_CLASS_RESOURCE: Final = "deviceclass.resource.kubernetes.io/"
_ALWAYS: Final = "Always"
_SLASH: Final = b"/"
_QUOTA_PREFIX: Final = "requests."


class PodClaim(Struct, frozen=True, gc=False):
    """Entry of ``spec.resourceClaims``. ``name`` is the name of the entry.

    ``claim`` is the name of a ResourceClaim, and ``template`` that of a ResourceClaimTemplate; each is ``None`` if
    unset. ``status`` is true if the pod's status has an entry for the claim that was created from the template.
    ``generated`` is the name of that claim; ``None`` if there is no such entry, or if no claim was needed.
    """

    name: str
    claim: str | None = None
    template: str | None = None
    status: bool = False
    generated: str | None = None


class ContainerRequests(Struct, frozen=True, gc=False):
    """Resources that a container requests and that might be devices. ``resources``: (name, amount, index) of each.

    The index in ``resources`` is the position among all requests of the container, sorted by name. The field ``index``
    is the position of the container: init containers come first, then regular containers.
    """

    index: int
    is_long_running: bool
    """True for regular containers and sidecars (init containers that keep running)."""
    resources: tuple[tuple[str, int, int], ...]


class PodClaims(Struct, frozen=True):
    """Device requests of a pod. ``containers``: those whose requests might be for devices, init containers first."""

    claims: tuple[PodClaim, ...] = ()
    containers: tuple[ContainerRequests, ...] = ()

    @property
    def wants_devices(self) -> bool:
        return bool(self.claims or self.containers)


NO_CLAIMS: Final = PodClaims()


class ClaimStatusObject(Struct, rename="camel"):
    """Entry of ``status.resourceClaimStatuses``."""

    name: str | None = None
    resource_claim_name: str | None = None


class ClaimsOfSpec(Protocol):
    """Fields of ``spec`` that ``claims_of`` reads. Containers have the type ``app.kube.extras.ContainerObject``."""

    resource_claims: Raw
    containers: list[Any] | None
    init_containers: list[Any] | None


class ClaimsOfStatus(Protocol):
    """Fields of ``status`` that ``claims_of`` reads."""

    resource_claim_statuses: list[ClaimStatusObject] | None


class _PodClaimObject(Struct, rename="camel"):
    name: str | None = None
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


_CLAIMS: Final[Decoder[list[_PodClaimObject] | None]] = Decoder(list[_PodClaimObject] | None)
_LIST: Final[Decoder[dict[str, Raw] | None]] = Decoder(dict[str, Raw] | None)


def _parse_claims(data: bytes) -> tuple[_PodClaimObject, ...]:
    return tuple(_CLAIMS.decode(data) or ())


def _parse_extended(data: bytes) -> tuple[tuple[str, int, int], ...]:
    """Return (name, amount, index) of each resource that might be a device and whose amount is not 0.

    See ``ContainerRequests``. Raises ``Oversized`` if a quantity is too long.
    """
    requests = _LIST.decode(data) or {}
    try:
        amounts = [
            (name, _whole(requests[name]), index)
            for index, name in enumerate(sorted(requests))
            if is_device_resource(name)
        ]
    except OverlongQuantity:
        raise Oversized(CLAIMS) from None
    return tuple((sys.intern(name), amount, index) for name, amount, index in amounts if amount)


_claims_of: Final = shared(CLAIMS, _parse_claims)
_extended_of: Final = shared("spec.containers.resources", _parse_extended)


def _whole(raw: Raw) -> int:
    """Return the amount, or 0 to ignore the request, like Go's ``AsInt64``.

    A request is ignored if its amount exceeds 64 bits, or if Go stores the amount as if it did, for example ``1Pi``. It
    is also ignored if Go stores a fraction, for example for ``1.0`` or ``1000m``, but not for ``1.5k``.
    """
    quantity = quantity_of(raw)
    if quantity.wide or quantity.scale < 0:
        return 0
    whole = quantity.unscaled * 10**quantity.scale
    return whole if -(2**63) <= whole < 2**63 else 0


def is_device_resource(name: str) -> bool:
    """Return whether a DeviceClass can provide a resource of this name."""
    if name.startswith(DEVICE_CLASS_RESOURCE):
        return True
    return "/" in name and "kubernetes.io/" not in name and not name.startswith(_QUOTA_PREFIX)


def claims_of(spec: ClaimsOfSpec, status: ClaimsOfStatus) -> PodClaims:
    """Return the device requests of a pod. Raises ``Oversized`` or ``msgspec.ValidationError``."""
    named = _claims_of(spec.resource_claims)
    containers = tuple(_containers(spec))
    if not named and not containers:
        return NO_CLAIMS
    if len(named) > MOST_CLAIMS or len(containers) > LARGEST_PART >> 10:
        raise Oversized(CLAIMS)
    statuses: dict[str, str | None] = {}
    for entry in status.resource_claim_statuses or ():
        statuses.setdefault(entry.name or "", entry.resource_claim_name)
    return PodClaims(tuple(_slim(it, statuses) for it in named), containers)


def _slim(entry: _PodClaimObject, statuses: Mapping[str, str | None]) -> PodClaim:
    name = entry.name or ""
    is_generated = entry.resource_claim_name is None and name in statuses
    return PodClaim(
        sys.intern(name),
        entry.resource_claim_name,
        entry.resource_claim_template_name,
        is_generated,
        statuses[name] if is_generated else None,
    )


def _containers(spec: ClaimsOfSpec) -> Iterator[ContainerRequests]:
    init = spec.init_containers or []
    for index, container in enumerate((*init, *(spec.containers or ()))):
        raw = b"" if container.resources is None else bytes(container.resources.requests)
        if _SLASH in raw:
            resources = _extended_of(Raw(raw))
            if resources:
                yield ContainerRequests(index, index >= len(init) or container.restart_policy == _ALWAYS, resources)
