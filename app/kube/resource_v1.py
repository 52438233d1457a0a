"""ResourceClaims, ResourceSlices and DeviceClasses (``resource.k8s.io/v1``), reduced to what device allocation reads.

Amounts are integers in billionths, the smallest unit of a quantity, so that sums and comparisons are exact. The
configuration of drivers is not decoded.
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
"""Maximum number of requests, and of constraints, of one claim, as in the API server."""

MOST_SELECTORS: Final = 32
"""Maximum number of selectors of a request, as in the API server.

The selectors of a DeviceClass are limited only in bytes, to ``MOST_SELECTORS`` times ``LARGEST_PART``.
"""

MOST_RESULTS: Final = 32
"""Maximum number of devices allocated to a claim, as in the API server."""

LARGEST_SLICE: Final = 1 << 20
"""Maximum bytes of the devices and counters of a slice. If there are more, no device and no counter is read."""

BILLION: Final = 10**9

EXTENDED_RESOURCE_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"

Amount: TypeAlias = int
"""Amount in billionths."""

DeviceID: TypeAlias = tuple[str, str, str]
"""Identity of a device: (driver, pool, device)."""

Amounts: TypeAlias = Mapping[str, Amount]


class Version(Struct, frozen=True, gc=False):
    """Value of a device attribute of type version, as text that is not parsed."""

    text: str


AttributeValue: TypeAlias = bool | int | str | Version | None
"""Value of a device attribute; ``None`` if its type is unknown."""


class DeviceToleration(Struct, frozen=True, gc=False):
    """Entry of a request's ``tolerations``, for device taints. An empty key or effect matches every key or effect."""

    key: str
    operator: str
    value: str
    effect: str


class DeviceTaint(Struct, frozen=True, gc=False):
    """Taint of a device. If its effect is NoSchedule or NoExecute, only requests that tolerate it get the device."""

    key: str
    value: str
    effect: str


class ExactRequest(Struct, frozen=True):
    """Request for devices: the field ``exactly`` of a claim's request, or a named entry of ``firstAvailable``.

    ``mode`` is ``allocationMode``, empty if not set; ``count`` is 0 if not set. ``selectors`` are CEL expressions;
    ``None`` stands for a selector without ``cel``. ``admin_access`` and ``capacity`` are ``None`` if not set.
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
    """Request of a claim: either ``exactly``, or the first entry of ``first_available`` that can be allocated."""

    name: str
    exactly: ExactRequest | None = None
    first_available: tuple[ExactRequest, ...] = ()


class DeviceConstraint(Struct, frozen=True):
    """Constraint that devices have equal (``match_attribute``) or distinct values of an attribute.

    It applies to all devices of ``requests``; if ``requests`` is empty, to all devices of the claim.
    """

    requests: tuple[str, ...]
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class ClaimSpec(Struct, frozen=True):
    """Spec of a claim. If ``oversized``, it exceeds a limit of bytes, entries or quantities, and is empty here."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    oversized: bool = False


class AllocatedDevice(Struct, frozen=True):
    """Device allocated to a claim. ``request`` has the form ``request`` or ``request/subrequest``.

    If ``shared``, other claims can use the device too. ``consumed`` is the capacity that this claim uses; ``None`` if
    not set.
    """

    request: str
    device: DeviceID
    admin_access: bool = False
    shared: bool = False
    consumed: Amounts | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] = ()


class Allocation(Struct, frozen=True):
    """Devices allocated to a claim, nodes that can use them (``None``: all nodes), and allocation time (RFC 3339)."""

    devices: tuple[AllocatedDevice, ...]
    node_selector: RequiredNodeAffinity | None = None
    timestamp: str = ""


class DeviceStatus(Struct, frozen=True):
    """Allocated device, with the names of the conditions that its driver reports as True."""

    device: DeviceID
    true_conditions: frozenset[str]


class ResourceClaim(Struct, frozen=True):
    """ResourceClaim. ``reserved_for``: UIDs of the objects, usually pods, for which the claim is reserved.

    ``extended_for``: pods (name, UID) for which a scheduler created the claim because they request extended resources.
    """

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
    """Policy of a shared capacity: the amounts that a request can consume. ``None`` means not set.

    ``has_range`` is true if the policy has a ``validRange``: ``minimum``, ``maximum`` and ``step``.
    """

    default: Amount | None = None
    valid_values: tuple[Amount, ...] | None = None
    has_range: bool = False
    minimum: Amount | None = None
    maximum: Amount | None = None
    step: Amount | None = None


class DeviceCapacity(Struct, frozen=True):
    """Capacity of a device: its amount, and the policy for requests."""

    value: Amount
    policy: RequestPolicy | None = None


class CounterUse(Struct, frozen=True):
    """Amounts that a device uses from a counter set; in ``ResourceSlice.counter_sets``, the amounts of the set."""

    counter_set: str
    counters: Amounts


class Device(Struct, frozen=True):
    """Device of a slice. ``binding_conditions``: ``None`` if not set. Several claims can use a ``shareable`` device."""

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
    """ResourceSlice: some devices of a pool, or counters that the devices of the pool share.

    ``count`` is the number of slices of the pool. ``per_device`` is true if each device names its nodes itself
    (``perDeviceNodeSelection``). If ``oversized``, devices and counters are not read.
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
    """A DeviceClass. ``created`` is a UTC time of fixed length, so its text sorts by time.

    If ``oversized``, the selectors are not read.
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
