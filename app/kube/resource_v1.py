"""ResourceClaims, ResourceSlices and DeviceClasses of ``resource.k8s.io/v1``, reduced to what allocation reads.

Amounts are whole billionths, the smallest unit of a quantity, so sums and comparisons are exact. Driver configuration
is not decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from app.kube.meta_v1 import (
    ObjectKey,
    OwnerReference,
)
from app.kube.node_affinity import RequiredNodeAffinity

CLAIM_SPEC: Final = "spec.devices"
SLICE_SPEC: Final = "spec"

MOST_REQUESTS: Final = 32
MOST_SELECTORS: Final = 32
MOST_RESULTS: Final = 32
"""Maximum requests, selectors and results of one claim; the API server accepts no more. More are not read."""

LARGEST_SLICE: Final = 1 << 20
"""Maximum bytes of a slice's devices and counters. Of a larger slice, no device is read."""

BILLION: Final = 10**9

EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"

Amount: TypeAlias = int
"""Amount in billionths."""

DeviceID: TypeAlias = tuple[str, str, str]
"""(driver, pool, device)"""

Amounts: TypeAlias = Mapping[str, Amount]


class Version(Struct, frozen=True, gc=False):
    """Value of a version attribute, unparsed."""

    text: str


AttributeValue: TypeAlias = bool | int | str | Version | None
"""Value of a device attribute; ``None`` for one of an unknown type."""


class DeviceToleration(Struct, frozen=True, gc=False):
    """Toleration of device taints by a request. Empty fields match everything."""

    key: str
    operator: str
    value: str
    effect: str


class DeviceTaint(Struct, frozen=True, gc=False):
    """Taint of a device, which keeps away claims that do not tolerate it."""

    key: str
    value: str
    effect: str


class ExactRequest(Struct, frozen=True):
    """Request for devices: an ``exactly``, or an alternative of ``firstAvailable``, which has a name of its own.

    ``selectors`` are CEL expressions, ``None`` for a selector without one. ``admin_access`` is ``None`` if not set,
    ``capacity`` if no capacity is requested.
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
    """Request of a claim: ``exactly``, or the first of ``first_available`` that can be allocated."""

    name: str
    exactly: ExactRequest | None = None
    first_available: tuple[ExactRequest, ...] = ()


class DeviceConstraint(Struct, frozen=True):
    """Requires equal or distinct values of an attribute for all devices of ``requests`` (of all requests if empty)."""

    requests: tuple[str, ...]
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ClaimSpec(Struct, frozen=True):
    """Spec of a claim. ``oversized``: it exceeds the maximum that is read, and is empty here."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    oversized: bool = False


class AllocatedDevice(Struct, frozen=True):
    """Device allocated to a claim. ``request`` has the form ``request`` or ``request/subrequest``.

    ``shared``: other claims can use the device too; ``consumed``: capacity that this claim uses, ``None`` if not set.
    """

    request: str
    device: DeviceID
    admin_access: bool = False
    shared: bool = False
    consumed: Amounts | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] = ()


class Allocation(Struct, frozen=True):
    """Allocation of a claim: devices, nodes that can use them (``None``: all), and time of allocation (RFC 3339)."""

    devices: tuple[AllocatedDevice, ...]
    node_selector: RequiredNodeAffinity | None = None
    timestamp: str = ""


class DeviceStatus(Struct, frozen=True):
    """Conditions of an allocated device that its driver reports as true."""

    device: DeviceID
    true_conditions: frozenset[str]


class ResourceClaim(Struct, frozen=True):
    """Claim. ``extended_for``: pods (name, UID) for whose extended resources a scheduler created it."""

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
    """Amounts of a shared capacity that a request can consume. ``valid_values`` is ``None`` if not set."""

    default: Amount | None = None
    valid_values: tuple[Amount, ...] | None = None
    has_range: bool = False
    minimum: Amount | None = None
    maximum: Amount | None = None
    step: Amount | None = None


class DeviceCapacity(Struct, frozen=True):
    """Amount of a device's capacity, and the policy for requests of it."""

    value: Amount
    policy: RequestPolicy | None = None


class CounterUse(Struct, frozen=True):
    """Amounts that a device consumes of a counter set, or, in a slice's counter sets, that the set provides."""

    counter_set: str
    counters: Amounts


class Device(Struct, frozen=True):
    """Device of a slice. ``binding_conditions`` is ``None`` if not set."""

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
    """Part of a pool's devices, or the counters that they share. Cluster-scoped.

    ``count``: number of slices of the pool. ``oversized``: the devices are not read.
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
        """Identity of the pool: (driver, pool name)."""
        return (self.driver, self.pool)


class DeviceClass(Struct, frozen=True):
    """Class of devices. Cluster-scoped. ``created`` is a UTC time of fixed length, so texts compare as times.

    ``oversized``: the selectors are not read.
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
