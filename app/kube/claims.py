"""What a pod says of devices: the claims that it names, and containers that ask for extended resources.

A class of devices may stand behind an extended resource: then the scheduler makes a claim for what the containers ask
for, each by itself.
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
"""Of one pod: with more of them, none is read."""

DEVICE_CLASS_RESOURCE: Final = "deviceclass.resource.kubernetes.io/"
_ALWAYS: Final = "Always"
_SLASH: Final = b"/"
_QUOTA: Final = "requests."


class PodClaim(Struct, frozen=True, gc=False):
    """An entry of ``spec.resourceClaims``. ``name`` is that of the entry.

    ``claim`` or ``template`` is ``None`` where it is not said. ``generated`` is the claim that was made of the
    template, if one was needed; ``status``: whether the pod's status says anything of it yet.
    """

    name: str
    claim: str | None = None
    template: str | None = None
    status: bool = False
    generated: str | None = None


class ContainerRequests(Struct, frozen=True, gc=False):
    """Extended resources that a container asks for, each with its amount and its place among all of its requests."""

    index: int
    runs_on: bool
    """It is no init container, or one that keeps running."""
    resources: tuple[tuple[str, int, int], ...]


class PodClaims(Struct, frozen=True):
    """``containers``: those that ask for anything that could be an extended resource, init containers first."""

    claims: tuple[PodClaim, ...] = ()
    containers: tuple[ContainerRequests, ...] = ()

    @property
    def wants_devices(self) -> bool:
        return bool(self.claims or self.containers)


NO_CLAIMS: Final = PodClaims()


class ClaimStatusObject(Struct, rename="camel"):
    """An entry of ``status.resourceClaimStatuses``."""

    name: str | None = None
    resource_claim_name: str | None = None


class ClaimsOfSpec(Protocol):
    """The fields of ``spec`` that are read here; the containers by what the other parts on demand read of them."""

    resource_claims: Raw
    containers: list[Any] | None
    init_containers: list[Any] | None


class ClaimsOfStatus(Protocol):
    """The fields of ``status`` that are read here."""

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
    """(name, amount, place among all requests by name) of what could be an extended resource."""
    found = _LIST.decode(data) or {}
    try:
        amounts = [
            (name, _whole(found[name]), place) for place, name in enumerate(sorted(found)) if is_device_resource(name)
        ]
    except OverlongQuantity:
        raise Oversized(CLAIMS) from None
    return tuple((sys.intern(name), amount, place) for name, amount, place in amounts if amount)


_claims_of: Final = shared(CLAIMS, _parse_claims)
_extended_of: Final = shared("spec.containers.resources", _parse_extended)


def _whole(raw: Raw) -> int:
    """0 for what is no whole number of 64 bits, which counts as nothing."""
    found = quantity_of(raw)
    if found.wide or found.scale < 0:
        return 0
    whole = found.unscaled * 10**found.scale
    return whole if -(2**63) <= whole < 2**63 else 0


def is_device_resource(name: str) -> bool:
    """Whether a class of devices could stand behind a resource."""
    if name.startswith(DEVICE_CLASS_RESOURCE):
        return True
    return "/" in name and "kubernetes.io/" not in name and not name.startswith(_QUOTA)


def claims_of(spec: ClaimsOfSpec, status: ClaimsOfStatus) -> PodClaims:
    """What a pod says of devices. Raises ``Oversized`` or ``msgspec.ValidationError``."""
    named = _claims_of(spec.resource_claims)
    containers = tuple(_containers(spec))
    if not named and not containers:
        return NO_CLAIMS
    if len(named) > MOST_CLAIMS or len(containers) > LARGEST_PART >> 10:
        raise Oversized(CLAIMS)
    statuses: dict[str, str | None] = {}
    for it in status.resource_claim_statuses or ():
        statuses.setdefault(it.name or "", it.resource_claim_name)
    return PodClaims(tuple(_slim(it, statuses) for it in named), containers)


def _slim(it: _PodClaimObject, statuses: Mapping[str, str | None]) -> PodClaim:
    name = it.name or ""
    made = it.resource_claim_name is None and name in statuses
    return PodClaim(
        sys.intern(name),
        it.resource_claim_name,
        it.resource_claim_template_name,
        made,
        statuses[name] if made else None,
    )


def _containers(spec: ClaimsOfSpec) -> Iterator[ContainerRequests]:
    init = spec.init_containers or []
    for index, it in enumerate((*init, *(spec.containers or ()))):
        raw = b"" if it.resources is None else bytes(it.resources.requests)
        if _SLASH in raw:
            found = _extended_of(Raw(raw))
            if found:
                yield ContainerRequests(index, index >= len(init) or it.restart_policy == _ALWAYS, found)
