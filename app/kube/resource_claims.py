"""Decoder of ResourceClaims, and JSON types that are shared with other kinds of ``resource.k8s.io/v1``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import MetadataObject, Oversized, controller_of, parse_map, required, shared
from app.kube.node_affinity import RequiredNodeAffinity
from app.kube.node_selectors import NodeSelectorObject
from app.kube.quantity import OverlongQuantity, quantity_of
from app.kube.resource_v1 import (
    CLAIM_SPEC,
    EXTENDED_RESOURCE_CLAIM,
    MOST_REQUESTS,
    MOST_SELECTORS,
    AllocatedDevice,
    Allocation,
    Amount,
    ClaimSpec,
    DeviceConstraint,
    DeviceID,
    DeviceRequest,
    DeviceStatus,
    DeviceToleration,
    ExactRequest,
    ResourceClaim,
)

_NANO: Final = -9
_EXTENDED_BYTES: Final = EXTENDED_RESOURCE_CLAIM.encode()


class _CELObject(Struct):
    expression: str | None = None


class SelectorObject(Struct):
    """Selector of devices in JSON."""

    cel: _CELObject | None = None

    def slim(self) -> str | None:
        """Return the CEL expression; ``None`` if the selector has no field ``cel``."""
        return None if self.cel is None else self.cel.expression or ""


class TolerationObject(Struct):
    """Toleration of device taints in JSON."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None

    def slim(self) -> DeviceToleration:
        return DeviceToleration(self.key or "", self.operator or "", self.value or "", self.effect or "")


class _CapacityRequestsObject(Struct):
    requests: dict[str, Raw] | None = None


class _ExactObject(Struct, rename="camel"):
    name: str | None = None
    device_class_name: str | None = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None
    selectors: list[SelectorObject] | None = None
    tolerations: list[TolerationObject] | None = None
    capacity: _CapacityRequestsObject | None = None

    def slim(self, name: str) -> ExactRequest:
        selectors = tuple(it.slim() for it in self.selectors or ())
        if len(selectors) > MOST_SELECTORS:
            raise Oversized(CLAIM_SPEC)
        return ExactRequest(
            name,
            self.device_class_name or "",
            self.allocation_mode or "",
            self.count or 0,
            selectors,
            self.admin_access,
            tuple(it.slim() for it in self.tolerations or ()),
            None if self.capacity is None else amounts(self.capacity.requests),
        )


class _RequestObject(Struct, rename="camel"):
    name: str | None = None
    exactly: _ExactObject | None = None
    first_available: list[_ExactObject] | None = None

    def slim(self) -> DeviceRequest:
        name = self.name or ""
        exactly = None if self.exactly is None else self.exactly.slim(name)
        return DeviceRequest(name, exactly, tuple(it.slim(it.name or "") for it in self.first_available or ()))


class _ConstraintObject(Struct, rename="camel"):
    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None

    def slim(self) -> DeviceConstraint:
        return DeviceConstraint(tuple(self.requests or ()), self.match_attribute, self.distinct_attribute)


class _ClaimDevicesObject(Struct):
    requests: list[_RequestObject] | None = None
    constraints: list[_ConstraintObject] | None = None


class _ResourceClaimSpecObject(Struct):
    devices: Raw = Raw()


class _ResultObject(
    Struct,
    rename={"admin_access": "adminAccess", "share_id": "shareID"}
    | {
        "consumed_capacity": "consumedCapacity",
        "binding_conditions": "bindingConditions",
        "binding_failure_conditions": "bindingFailureConditions",
    },
):
    request: str | None = None
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    admin_access: bool | None = None
    share_id: str | None = None
    consumed_capacity: dict[str, Raw] | None = None
    binding_conditions: list[str] | None = None
    binding_failure_conditions: list[str] | None = None

    def slim(self) -> AllocatedDevice:
        return AllocatedDevice(
            sys.intern(self.request or ""),
            device_id(self.driver, self.pool, self.device),
            bool(self.admin_access),
            self.share_id is not None,
            None if self.consumed_capacity is None else amounts(self.consumed_capacity),
            texts(self.binding_conditions),
            tuple(self.binding_failure_conditions or ()),
        )


class _ResultsObject(Struct):
    results: list[_ResultObject] | None = None


class _AllocationObject(Struct, rename="camel"):
    devices: _ResultsObject | None = None
    node_selector: NodeSelectorObject | None = None
    allocation_timestamp: str | None = None

    def slim(self) -> Allocation:
        results = (self.devices and self.devices.results) or ()
        return Allocation(
            tuple(it.slim() for it in results),
            required_affinity_of(self.node_selector),
            self.allocation_timestamp or "",
        )


class _ConsumerObject(Struct):
    uid: str | None = None


class _DeviceConditionObject(Struct):
    type: str | None = None
    status: str | None = None


class _DeviceStatusObject(Struct):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    conditions: list[_DeviceConditionObject] | None = None

    def slim(self) -> DeviceStatus:
        first: dict[str, str] = {}
        for condition in self.conditions or ():
            first.setdefault(condition.type or "", condition.status or "")
        true = frozenset(name for name, status in first.items() if status == "True")
        return DeviceStatus(device_id(self.driver, self.pool, self.device), true)


class _ClaimStatusObject(Struct, rename="camel"):
    allocation: _AllocationObject | None = None
    reserved_for: list[_ConsumerObject] | None = None
    devices: list[_DeviceStatusObject] | None = None


class _ResourceClaimObject(Struct):
    metadata: MetadataObject
    spec: _ResourceClaimSpecObject | None = None
    status: _ClaimStatusObject | None = None


class _ClaimOwnerObject(Struct):
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


_CLAIM_DEVICES: Final[Decoder[_ClaimDevicesObject | None]] = Decoder(_ClaimDevicesObject | None)
_REFERENCES: Final[Decoder[list[_ClaimOwnerObject] | None]] = Decoder(list[_ClaimOwnerObject] | None)
_CLAIM: Final = Decoder[_ResourceClaimObject](_ResourceClaimObject)


def amount(raw: Raw) -> Amount:
    """Return a quantity in billionths. Raises ``OverlongQuantity`` or ``msgspec.ValidationError``."""
    quantity = quantity_of(raw)
    power: int = 10 ** max(0, quantity.scale - _NANO)  # only a zero, such as 0e-12, has a smaller scale
    return quantity.unscaled * power


def maybe_amount(raw: Raw) -> Amount | None:
    """Like ``amount``, but return ``None`` if the quantity is absent or null."""
    return None if bytes(raw) in (b"", b"null") else amount(raw)


def amounts(quantities: Mapping[str, Raw] | None) -> dict[str, Amount]:
    """Return quantities in billionths, by name; empty for ``None``. Errors are those of ``amount``."""
    return {sys.intern(name): amount(raw) for name, raw in (quantities or {}).items()}


def required_affinity_of(node_selector: NodeSelectorObject | None) -> RequiredNodeAffinity | None:
    """Convert a NodeSelector; ``None`` stays ``None``."""
    return None if node_selector is None else RequiredNodeAffinity(terms=node_selector.slim())


def device_id(driver: str | None, pool: str | None, device: str | None) -> DeviceID:
    """Return the identity of a device. ``None`` becomes an empty string."""
    return (sys.intern(driver or ""), sys.intern(pool or ""), sys.intern(device or ""))


def texts(values: list[str] | None) -> tuple[str, ...] | None:
    """Convert a list to a tuple; ``None`` stays ``None``."""
    return None if values is None else tuple(values)


def _parse_claim_spec(data: bytes) -> ClaimSpec:
    devices = _CLAIM_DEVICES.decode(data) or _ClaimDevicesObject()
    requests, constraints = devices.requests or (), devices.constraints or ()
    if max(len(requests), len(constraints)) > MOST_REQUESTS:
        raise Oversized(CLAIM_SPEC)
    try:
        return ClaimSpec(tuple(it.slim() for it in requests), tuple(it.slim() for it in constraints))
    except OverlongQuantity:
        raise Oversized(CLAIM_SPEC) from None


_claim_spec_of: Final = shared(CLAIM_SPEC, _parse_claim_spec)
_NOTHING_READ: Final = ClaimSpec(oversized=True)


def _claim_spec(spec: _ResourceClaimSpecObject | None) -> ClaimSpec:
    try:
        return _claim_spec_of(Raw() if spec is None else spec.devices)
    except Oversized:
        return _NOTHING_READ


def _extended_for(meta: MetadataObject) -> tuple[tuple[str, str], ...]:
    """Return the pods (name, UID) for which a scheduler created this claim because they request extended resources.

    The result is empty for all other claims.
    """
    data = bytes(meta.annotations)
    if _EXTENDED_BYTES not in data or (parse_map(data) or {}).get(EXTENDED_RESOURCE_CLAIM) != "true":
        return ()
    references = _REFERENCES.decode(bytes(meta.owner_references) or b"null") or ()
    return tuple((it.name or "", it.uid or "") for it in references if it.controller)


def decode_resource_claim(raw: bytes | Raw) -> ResourceClaim:
    """Decode one ResourceClaim. Raises ``msgspec.DecodeError``."""
    claim = _CLAIM.decode(raw)
    meta, status = claim.metadata, claim.status or _ClaimStatusObject()
    try:
        allocation = None if status.allocation is None else status.allocation.slim()
    except OverlongQuantity:
        raise msgspec.ValidationError("status.allocation: a quantity is longer than what is read") from None
    return ResourceClaim(
        namespace=sys.intern(meta.namespace or "default"),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        terminating=bool(meta.deletion_timestamp),
        owner=controller_of(meta.owner_references),
        spec=_claim_spec(claim.spec),
        allocation=allocation,
        reserved_for=frozenset(it.uid or "" for it in status.reserved_for or ()),
        devices=tuple(it.slim() for it in status.devices or ()),
        extended_for=_extended_for(meta),
        resource_version=meta.resource_version or "",
    )
