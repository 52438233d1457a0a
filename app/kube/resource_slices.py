"""Decoders of ResourceSlices and DeviceClasses (``resource.k8s.io/v1``)."""

from __future__ import annotations

import sys
from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import LARGEST_PART, MetadataObject, required
from app.kube.node_selectors import NodeSelectorObject
from app.kube.quantity import OverlongQuantity
from app.kube.resource_claims import SelectorObject, amount, maybe_amount, required_affinity_of, texts
from app.kube.resource_v1 import (
    LARGEST_SLICE,
    MOST_SELECTORS,
    SLICE_SPEC,
    AttributeValue,
    CounterUse,
    Device,
    DeviceCapacity,
    DeviceClass,
    DeviceTaint,
    RequestPolicy,
    ResourceSlice,
    Version,
)

_LONGEST_NAME: Final = 317
"""Maximum characters of an extended resource's name, including its domain. A longer name is read as empty."""


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
        valid_range = self.valid_range or _RangeObject()
        return RequestPolicy(
            maybe_amount(self.default),
            None if self.valid_values is None else tuple(map(amount, self.valid_values)),
            self.valid_range is not None,
            maybe_amount(valid_range.min),
            maybe_amount(valid_range.max),
            maybe_amount(valid_range.step),
        )


class _DeviceCapacityObject(Struct, rename="camel"):
    value: Raw = Raw(b"null")
    request_policy: _PolicyObject | None = None

    def slim(self) -> DeviceCapacity:
        return DeviceCapacity(amount(self.value), None if self.request_policy is None else self.request_policy.slim())


class _CounterObject(Struct):
    value: Raw = Raw(b"null")


class _CounterUseObject(Struct, rename="camel"):
    counter_set: str | None = None
    name: str | None = None
    counters: dict[str, _CounterObject] | None = None

    def slim(self) -> CounterUse:
        counters = {sys.intern(name): amount(it.value) for name, it in (self.counters or {}).items()}
        return CounterUse(sys.intern(self.counter_set or self.name or ""), counters)


class _DeviceTaintObject(Struct):
    key: str | None = None
    value: str | None = None
    effect: str | None = None

    def slim(self) -> DeviceTaint:
        return DeviceTaint(self.key or "", self.value or "", self.effect or "")


class _DeviceObject(Struct, rename="camel"):
    name: str | None = None
    attributes: dict[str, _AttributeObject] | None = None
    capacity: dict[str, _DeviceCapacityObject] | None = None
    consumes_counters: list[_CounterUseObject] | None = None
    node_name: str | None = None
    all_nodes: bool | None = None
    node_selector: NodeSelectorObject | None = None
    taints: list[_DeviceTaintObject] | None = None
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
            required_affinity_of(self.node_selector),
            tuple(it.slim() for it in self.taints or ()),
            texts(self.binding_conditions),
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
    node_selector: NodeSelectorObject | None = None
    per_device_node_selection: bool | None = None
    devices: Raw = Raw()
    shared_counters: Raw = Raw()


class _SliceObject(Struct):
    metadata: MetadataObject
    spec: _SliceSpecObject | None = None


class _ClassSpecObject(Struct, rename="camel"):
    selectors: Raw = Raw()
    extended_resource_name: str | None = None


class _DeviceClassObject(Struct):
    metadata: MetadataObject
    spec: _ClassSpecObject | None = None


_SELECTORS: Final[Decoder[list[SelectorObject] | None]] = Decoder(list[SelectorObject] | None)
_DEVICES: Final[Decoder[list[_DeviceObject] | None]] = Decoder(list[_DeviceObject] | None)
_COUNTERS: Final[Decoder[list[_CounterUseObject] | None]] = Decoder(list[_CounterUseObject] | None)
_SLICE: Final = Decoder[_SliceObject](_SliceObject)
_CLASS: Final = Decoder[_DeviceClassObject](_DeviceClassObject)


def decode_slice(raw: bytes | Raw) -> ResourceSlice:
    """Decode one ResourceSlice. Raises ``msgspec.DecodeError``."""
    slice_object = _SLICE.decode(raw)
    meta, spec = slice_object.metadata, slice_object.spec or _SliceSpecObject()
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
        node_selector=required_affinity_of(spec.node_selector),
        per_device=bool(spec.per_device_node_selection),
        devices=devices,
        counter_sets=counter_sets,
        oversized=oversized,
        resource_version=meta.resource_version or "",
    )


def _slice_parts(spec: _SliceSpecObject) -> tuple[tuple[Device, ...], tuple[CounterUse, ...], bool]:
    """Return (devices, counter sets, false), or two empty tuples and true if the slice or a quantity is too long."""
    devices, counters = bytes(spec.devices) or b"null", bytes(spec.shared_counters) or b"null"
    if len(devices) + len(counters) > LARGEST_SLICE:
        return (), (), True
    try:
        slim_devices = tuple(it.slim() for it in _DEVICES.decode(devices) or ())
        return slim_devices, tuple(it.slim() for it in _COUNTERS.decode(counters) or ()), False
    except OverlongQuantity:
        return (), (), True
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"{SLICE_SPEC}: {error}") from None


def _resource_name(name: str) -> str:
    """Return the name of an extended resource; an empty string if the name is too long."""
    return sys.intern(name) if len(name) <= _LONGEST_NAME else ""


def decode_device_class(raw: bytes | Raw) -> DeviceClass:
    """Decode one DeviceClass. Raises ``msgspec.DecodeError``."""
    class_object = _CLASS.decode(raw)
    meta, spec = class_object.metadata, class_object.spec or _ClassSpecObject()
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
