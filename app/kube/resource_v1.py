"""ResourceClaims, ResourceSlices and DeviceClasses of ``resource.k8s.io/v1``, reduced to what an allocation rests on.

Amounts are whole billionths, of which no quantity has less than one: they are added and compared exactly. What a driver
is configured with is left undecoded.
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
"""Of one claim: the API server takes no more of either, nor do we read more."""

LARGEST_SLICE: Final = 1 << 20
"""Bytes of ``spec`` of a slice: of a longer one no device is read."""

BILLION: Final = 10**9

EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"

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
