"""ResourceClaims, ResourceSlices and DeviceClasses of ``resource.k8s.io/v1``, reduced to what an allocation rests on.

Amounts are whole billionths, of which no quantity has less than one: they are added and compared exactly. What a driver
is configured with is left undecoded.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import (
    LARGEST_PART,
    MetadataObject,
    ObjectKey,
    Oversized,
    OwnerReference,
    controller_of,
    parse_map,
    required,
    shared,
)
from app.kube.node_affinity import NodeSelectorRequirement, NodeSelectorTerm, RequiredNodeAffinity
from app.kube.quantity import OverlongQuantity, quantity_of

CLAIM_SPEC: Final = "spec.devices"
SLICE_SPEC: Final = "spec"

_LONGEST_NAME: Final = 317
"""Of an extended resource, domain and all."""

MOST_REQUESTS: Final = 32
MOST_SELECTORS: Final = 32
MOST_RESULTS: Final = 32
"""Of one claim: the API server takes no more of either, nor do we read more."""

LARGEST_SLICE: Final = 1 << 20
"""Bytes of ``spec`` of a slice: of a longer one no device is read."""

BILLION: Final = 10**9
_NANO: Final = -9

EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
_EXTENDED_BYTES: Final = EXTENDED_RESOURCE_CLAIM.encode()

Amount: TypeAlias = int
"""Billionths."""

DeviceID: TypeAlias = tuple[str, str, str]
"""(driver, pool, device)"""

Amounts: TypeAlias = Mapping[str, Amount]


class Version(Struct, frozen=True, gc=False):
    """The value of a version attribute, as it is written."""

    text: str


AttributeValue: TypeAlias = bool | int | str | Version | None
"""``None`` for a value of a type that is not known here."""


class DeviceToleration(Struct, frozen=True, gc=False):
    """What taints of devices a request puts up with. Empty texts match all."""

    key: str
    operator: str
    value: str
    effect: str


class DeviceTaint(Struct, frozen=True, gc=False):
    """A reason not to use a device."""

    key: str
    value: str
    effect: str


class ExactRequest(Struct, frozen=True):
    """What is asked for: an ``exactly``, or one of several that would do, then with a name of its own.

    ``selectors`` are CEL expressions, ``None`` where there is none. ``admin_access`` is ``None`` where it is not said.
    ``capacity`` is ``None`` where no capacity is asked for.
    """

    name: str
    device_class: str
    mode: str
    count: int
    selectors: tuple[str | None, ...] = ()
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Amounts | None = None


class DeviceRequest(Struct, frozen=True):
    """One request of a claim: ``exactly``, or the first of ``first_available`` that can be had."""

    name: str
    exactly: ExactRequest | None = None
    first_available: tuple[ExactRequest, ...] = ()


class DeviceConstraint(Struct, frozen=True):
    """All devices of ``requests`` (all there are, if empty) have the same, or each another value of an attribute."""

    requests: tuple[str, ...]
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ClaimSpec(Struct, frozen=True):
    """``oversized``: it is longer than what is read, and empty here."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    oversized: bool = False


class AllocatedDevice(Struct, frozen=True):
    """A device that a claim has got. ``request`` is ``request`` or ``request/subrequest``.

    ``shared``: others may have part of it too; ``consumed`` is what this claim took, ``None`` where it is not said.
    """

    request: str
    device: DeviceID
    admin_access: bool = False
    shared: bool = False
    consumed: Amounts | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] = ()


class Allocation(Struct, frozen=True):
    """What a claim has got, on which nodes it can be used (``None``: all), and when it was given (RFC 3339)."""

    devices: tuple[AllocatedDevice, ...]
    node_selector: RequiredNodeAffinity | None = None
    timestamp: str = ""


class DeviceStatus(Struct, frozen=True):
    """What a driver says of an allocated device: its conditions that are true."""

    device: DeviceID
    true_conditions: frozenset[str]


class ResourceClaim(Struct, frozen=True):
    """A claim. ``extended_for``: the pods (name, UID) for whose extended resources a scheduler made it."""

    namespace: str
    name: str
    uid: str
    terminating: bool
    owner: OwnerReference | None
    spec: ClaimSpec
    allocation: Allocation | None = None
    reserved_for: frozenset[str] = frozenset()
    devices: tuple[DeviceStatus, ...] = ()
    extended_for: tuple[tuple[str, str], ...] = ()
    resource_version: str = ""

    @property
    def key(self) -> ObjectKey:
        return (self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class RequestPolicy(Struct, frozen=True):
    """What may be taken of a capacity that several share. ``valid_values`` is ``None`` where none are named."""

    default: Amount | None = None
    valid_values: tuple[Amount, ...] | None = None
    has_range: bool = False
    minimum: Amount | None = None
    maximum: Amount | None = None
    step: Amount | None = None


class DeviceCapacity(Struct, frozen=True):
    """How much of something a device has."""

    value: Amount
    policy: RequestPolicy | None = None


class CounterUse(Struct, frozen=True):
    """What a device takes of the counters of a set."""

    counter_set: str
    counters: Amounts


class Device(Struct, frozen=True):
    """A device of a slice. ``binding_conditions`` is ``None`` where it has none."""

    name: str
    attributes: Mapping[str, AttributeValue] = {}
    capacity: Mapping[str, DeviceCapacity] = {}
    consumes: tuple[CounterUse, ...] = ()
    node_name: str = ""
    all_nodes: bool = False
    node_selector: RequiredNodeAffinity | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binding_conditions: tuple[str, ...] | None = None
    shareable: bool = False


class ResourceSlice(Struct, frozen=True):
    """Some devices of a pool, or the counters that devices of a pool share. Cluster-scoped.

    ``count``: how many slices the pool has. ``oversized``: its devices are not read.
    """

    name: str
    uid: str
    driver: str
    pool: str
    generation: int = 0
    count: int = 0
    node_name: str = ""
    all_nodes: bool = False
    node_selector: RequiredNodeAffinity | None = None
    per_device: bool = False
    devices: tuple[Device, ...] = ()
    counter_sets: tuple[CounterUse, ...] = ()
    oversized: bool = False
    resource_version: str = ""

    @property
    def key(self) -> ObjectKey:
        return ("", self.name)

    @property
    def pool_id(self) -> tuple[str, str]:
        """Pools are told apart by driver and name."""
        return (self.driver, self.pool)


class DeviceClass(Struct, frozen=True):
    """A class of devices. Cluster-scoped. ``created`` is in UTC and of one length: earlier ones are smaller.

    ``oversized``: its selectors are not read.
    """

    name: str
    uid: str
    created: str = ""
    selectors: tuple[str | None, ...] = ()
    extended_resource: str = ""
    oversized: bool = False
    resource_version: str = ""

    @property
    def key(self) -> ObjectKey:
        return ("", self.name)


# The wire.


class _RequirementObject(Struct):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None

    def slim(self) -> NodeSelectorRequirement:
        return NodeSelectorRequirement(self.key or "", self.operator or "", tuple(self.values or ()))


class _TermObject(Struct, rename="camel"):
    match_expressions: list[_RequirementObject] | None = None
    match_fields: list[_RequirementObject] | None = None

    def slim(self) -> NodeSelectorTerm:
        expressions, fields = self.match_expressions or (), self.match_fields or ()
        return NodeSelectorTerm(tuple(it.slim() for it in expressions), tuple(it.slim() for it in fields))


class _NodeSelectorObject(Struct, rename="camel"):
    node_selector_terms: list[_TermObject] | None = None

    def slim(self) -> RequiredNodeAffinity:
        return RequiredNodeAffinity((), tuple(it.slim() for it in self.node_selector_terms or ()))


class _CELObject(Struct):
    expression: str | None = None


class _SelectorObject(Struct):
    cel: _CELObject | None = None

    def slim(self) -> str | None:
        return None if self.cel is None else self.cel.expression or ""


class _TolerationObject(Struct):
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
    selectors: list[_SelectorObject] | None = None
    tolerations: list[_TolerationObject] | None = None
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
            None if self.capacity is None else _amounts(self.capacity.requests),
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


class _ClaimSpecObject(Struct):
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
            _device_id(self.driver, self.pool, self.device),
            bool(self.admin_access),
            self.share_id is not None,
            None if self.consumed_capacity is None else _amounts(self.consumed_capacity),
            _texts(self.binding_conditions),
            tuple(self.binding_failure_conditions or ()),
        )


class _ResultsObject(Struct):
    results: list[_ResultObject] | None = None


class _AllocationObject(Struct, rename="camel"):
    devices: _ResultsObject | None = None
    node_selector: _NodeSelectorObject | None = None
    allocation_timestamp: str | None = None

    def slim(self) -> Allocation:
        results = (self.devices and self.devices.results) or ()
        return Allocation(
            tuple(it.slim() for it in results),
            None if self.node_selector is None else self.node_selector.slim(),
            self.allocation_timestamp or "",
        )


class _ConsumerObject(Struct):
    uid: str | None = None


class _ConditionObject(Struct):
    type: str | None = None
    status: str | None = None


class _DeviceStatusObject(Struct):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    conditions: list[_ConditionObject] | None = None

    def slim(self) -> DeviceStatus:
        first: dict[str, str] = {}
        for it in self.conditions or ():
            first.setdefault(it.type or "", it.status or "")
        true = frozenset(name for name, status in first.items() if status == "True")
        return DeviceStatus(_device_id(self.driver, self.pool, self.device), true)


class _ClaimStatusObject(Struct, rename="camel"):
    allocation: _AllocationObject | None = None
    reserved_for: list[_ConsumerObject] | None = None
    devices: list[_DeviceStatusObject] | None = None


class _ClaimObject(Struct):
    metadata: MetadataObject
    spec: _ClaimSpecObject | None = None
    status: _ClaimStatusObject | None = None


class _ReferenceObject(Struct):
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class _AttributeObject(Struct, rename={"whole": "int", "truth": "bool"}):
    whole: int | None = None
    truth: bool | None = None
    string: str | None = None
    version: str | None = None

    def slim(self) -> AttributeValue:
        if self.whole is not None:
            return self.whole
        if self.truth is not None:
            return self.truth
        if self.string is not None:
            return sys.intern(self.string)
        return None if self.version is None else Version(self.version)


class _RangeObject(Struct):
    min: Raw = Raw()
    max: Raw = Raw()
    step: Raw = Raw()


class _PolicyObject(Struct, rename="camel"):
    default: Raw = Raw()
    valid_values: list[Raw] | None = None
    valid_range: _RangeObject | None = None

    def slim(self) -> RequestPolicy:
        found = self.valid_range or _RangeObject()
        return RequestPolicy(
            _maybe_amount(self.default),
            None if self.valid_values is None else tuple(map(_amount, self.valid_values)),
            self.valid_range is not None,
            _maybe_amount(found.min),
            _maybe_amount(found.max),
            _maybe_amount(found.step),
        )


class _CapacityObject(Struct, rename="camel"):
    value: Raw = Raw(b"null")
    request_policy: _PolicyObject | None = None

    def slim(self) -> DeviceCapacity:
        return DeviceCapacity(_amount(self.value), None if self.request_policy is None else self.request_policy.slim())


class _CounterObject(Struct):
    value: Raw = Raw(b"null")


class _CounterUseObject(Struct, rename="camel"):
    counter_set: str | None = None
    name: str | None = None
    counters: dict[str, _CounterObject] | None = None

    def slim(self) -> CounterUse:
        counters = {sys.intern(name): _amount(it.value) for name, it in (self.counters or {}).items()}
        return CounterUse(sys.intern(self.counter_set or self.name or ""), counters)


class _TaintObject(Struct):
    key: str | None = None
    value: str | None = None
    effect: str | None = None

    def slim(self) -> DeviceTaint:
        return DeviceTaint(self.key or "", self.value or "", self.effect or "")


class _DeviceObject(Struct, rename="camel"):
    name: str | None = None
    attributes: dict[str, _AttributeObject] | None = None
    capacity: dict[str, _CapacityObject] | None = None
    consumes_counters: list[_CounterUseObject] | None = None
    node_name: str | None = None
    all_nodes: bool | None = None
    node_selector: _NodeSelectorObject | None = None
    taints: list[_TaintObject] | None = None
    binding_conditions: list[str] | None = None
    allow_multiple_allocations: bool | None = None

    def slim(self) -> Device:
        return Device(
            sys.intern(self.name or ""),
            {sys.intern(name): it.slim() for name, it in (self.attributes or {}).items()},
            {sys.intern(name): it.slim() for name, it in (self.capacity or {}).items()},
            tuple(it.slim() for it in self.consumes_counters or ()),
            sys.intern(self.node_name or ""),
            bool(self.all_nodes),
            None if self.node_selector is None else self.node_selector.slim(),
            tuple(it.slim() for it in self.taints or ()),
            _texts(self.binding_conditions),
            bool(self.allow_multiple_allocations),
        )


class _PoolObject(Struct, rename="camel"):
    name: str | None = None
    generation: int | None = None
    resource_slice_count: int | None = None


class _SliceSpecObject(Struct, rename="camel"):
    driver: str | None = None
    pool: _PoolObject | None = None
    node_name: str | None = None
    all_nodes: bool | None = None
    node_selector: _NodeSelectorObject | None = None
    per_device_node_selection: bool | None = None
    devices: Raw = Raw()
    shared_counters: Raw = Raw()


class _SliceObject(Struct):
    metadata: MetadataObject
    spec: _SliceSpecObject | None = None


class _ClassSpecObject(Struct, rename="camel"):
    selectors: Raw = Raw()
    extended_resource_name: str | None = None


class _ClassObject(Struct):
    metadata: MetadataObject
    spec: _ClassSpecObject | None = None


_CLAIM_DEVICES: Final[Decoder[_ClaimDevicesObject | None]] = Decoder(_ClaimDevicesObject | None)
_SELECTORS: Final[Decoder[list[_SelectorObject] | None]] = Decoder(list[_SelectorObject] | None)
_DEVICES: Final[Decoder[list[_DeviceObject] | None]] = Decoder(list[_DeviceObject] | None)
_COUNTERS: Final[Decoder[list[_CounterUseObject] | None]] = Decoder(list[_CounterUseObject] | None)
_REFERENCES: Final[Decoder[list[_ReferenceObject] | None]] = Decoder(list[_ReferenceObject] | None)
_CLAIM: Final = Decoder[_ClaimObject](_ClaimObject)
_SLICE: Final = Decoder[_SliceObject](_SliceObject)
_CLASS: Final = Decoder[_ClassObject](_ClassObject)


def _amount(raw: Raw) -> Amount:
    """Raises ``OverlongQuantity`` or ``msgspec.ValidationError``."""
    found = quantity_of(raw)
    power: int = 10 ** (found.scale - _NANO)
    return found.unscaled * power


def _maybe_amount(raw: Raw) -> Amount | None:
    return None if bytes(raw) in (b"", b"null") else _amount(raw)


def _amounts(found: Mapping[str, Raw] | None) -> dict[str, Amount]:
    return {sys.intern(name): _amount(raw) for name, raw in (found or {}).items()}


def _device_id(driver: str | None, pool: str | None, device: str | None) -> DeviceID:
    return (sys.intern(driver or ""), sys.intern(pool or ""), sys.intern(device or ""))


def _texts(found: list[str] | None) -> tuple[str, ...] | None:
    return None if found is None else tuple(found)


def _parse_claim_spec(data: bytes) -> ClaimSpec:
    found = _CLAIM_DEVICES.decode(data) or _ClaimDevicesObject()
    requests, constraints = found.requests or (), found.constraints or ()
    if max(len(requests), len(constraints)) > MOST_REQUESTS:
        raise Oversized(CLAIM_SPEC)
    try:
        return ClaimSpec(tuple(it.slim() for it in requests), tuple(it.slim() for it in constraints))
    except OverlongQuantity:
        raise Oversized(CLAIM_SPEC) from None


_claim_spec_of: Final = shared(CLAIM_SPEC, _parse_claim_spec)
_NOTHING_READ: Final = ClaimSpec(oversized=True)


def _claim_spec(found: _ClaimSpecObject | None) -> ClaimSpec:
    try:
        return _claim_spec_of(Raw() if found is None else found.devices)
    except Oversized:
        return _NOTHING_READ


def _extended_for(meta: MetadataObject) -> tuple[tuple[str, str], ...]:
    """The controllers of a claim that a scheduler made for extended resources: pods, by name and UID."""
    data = bytes(meta.annotations)
    if _EXTENDED_BYTES not in data or (parse_map(data) or {}).get(EXTENDED_RESOURCE_CLAIM) != "true":
        return ()
    references = _REFERENCES.decode(bytes(meta.owner_references) or b"null") or ()
    return tuple((it.name or "", it.uid or "") for it in references if it.controller)


def decode_resource_claim(raw: bytes | Raw) -> ResourceClaim:
    """Decode one ResourceClaim. Raises ``msgspec.DecodeError``."""
    found = _CLAIM.decode(raw)
    meta, status = found.metadata, found.status or _ClaimStatusObject()
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
        spec=_claim_spec(found.spec),
        allocation=allocation,
        reserved_for=frozenset(it.uid or "" for it in status.reserved_for or ()),
        devices=tuple(it.slim() for it in status.devices or ()),
        extended_for=_extended_for(meta),
        resource_version=meta.resource_version or "",
    )


def decode_slice(raw: bytes | Raw) -> ResourceSlice:
    """Decode one ResourceSlice. Raises ``msgspec.DecodeError``."""
    found = _SLICE.decode(raw)
    meta, spec = found.metadata, found.spec or _SliceSpecObject()
    pool = spec.pool or _PoolObject()
    devices, counter_sets, oversized = _slice_parts(spec)
    return ResourceSlice(
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        driver=sys.intern(spec.driver or ""),
        pool=sys.intern(pool.name or ""),
        generation=pool.generation or 0,
        count=pool.resource_slice_count or 0,
        node_name=sys.intern(spec.node_name or ""),
        all_nodes=bool(spec.all_nodes),
        node_selector=None if spec.node_selector is None else spec.node_selector.slim(),
        per_device=bool(spec.per_device_node_selection),
        devices=devices,
        counter_sets=counter_sets,
        oversized=oversized,
        resource_version=meta.resource_version or "",
    )


def _slice_parts(spec: _SliceSpecObject) -> tuple[tuple[Device, ...], tuple[CounterUse, ...], bool]:
    devices, counters = bytes(spec.devices) or b"null", bytes(spec.shared_counters) or b"null"
    if len(devices) + len(counters) > LARGEST_SLICE:
        return (), (), True
    try:
        found = tuple(it.slim() for it in _DEVICES.decode(devices) or ())
        return found, tuple(it.slim() for it in _COUNTERS.decode(counters) or ()), False
    except OverlongQuantity:
        return (), (), True
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"{SLICE_SPEC}: {error}") from None


def _resource_name(name: str) -> str:
    """An overlong one is none."""
    return sys.intern(name) if len(name) <= _LONGEST_NAME else ""


def decode_device_class(raw: bytes | Raw) -> DeviceClass:
    """Decode one DeviceClass. Raises ``msgspec.DecodeError``."""
    found = _CLASS.decode(raw)
    meta, spec = found.metadata, found.spec or _ClassSpecObject()
    data = bytes(spec.selectors) or b"null"
    oversized = len(data) > LARGEST_PART * MOST_SELECTORS
    selectors = () if oversized else tuple(it.slim() for it in _SELECTORS.decode(data) or ())
    return DeviceClass(
        name=sys.intern(required(meta.name, "metadata.name")),
        uid=meta.uid or "",
        created=meta.creation_timestamp or "",
        selectors=selectors,
        extended_resource=_resource_name(spec.extended_resource_name or ""),
        oversized=oversized,
        resource_version=meta.resource_version or "",
    )
