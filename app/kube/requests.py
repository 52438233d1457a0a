"""Resource requests of pods and allocatable resources of nodes: integers by resource name.

Requests of containers and sidecars are summed. If an init container needs more of a resource than this sum, its need is
used instead. Pod-level requests take precedence over both, and overhead is added. For a pod on a node, the maximum of
the resources in its spec and status is used.

Source of the rules: ``component-helpers/resource`` and ``pkg/scheduler/framework`` of Kubernetes 1.36 with default
feature gates. Tests compare this module with this source (``tests/conformance/resources.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from msgspec import Raw, Struct

from app.kube.decoding import Decoder
from app.kube.memo import MISSING, Memo
from app.kube.meta_v1 import Oversized, shared
from app.kube.names import is_subdomain
from app.kube.quantity import LONGEST, ZERO, OverlongQuantity, Quantity, quantity_of

ResourceList = Mapping[str, int]
"""Amounts by resource name: ``cpu`` in thousandths of a core, others in whole units. A missing resource means 0."""

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
"""Resource of a node: maximum number of its pods. Pods do not request this resource."""

RESOURCES: Final = "spec.containers.resources"
ALLOCATABLE: Final = "status.allocatable"

MOST_REQUESTED: Final = 64
"""Maximum number of resources that one pod requests. If a pod requests more, no request is read."""

LARGEST_REQUESTS: Final = 16 << 10
"""Maximum bytes of all requests in the spec and status of one pod. If there are more, no request is read."""

UNREAD_REQUESTS: Final = (
    f"node(s) can't be judged: the pod's {RESOURCES} is longer than {LARGEST_REQUESTS >> 10} KiB, names more than "
    f"{MOST_REQUESTED} resources, or has a quantity of more than {LONGEST} characters"
)
"""Message with which NodeResourcesFit rejects a pod as unresolvable if its requests were not read."""

DEFAULT_MILLI_CPU: Final = 100
"""Assumed cpu request, in thousandths of a core, of a container without one. Only scores use this default."""

DEFAULT_MEMORY: Final = 200 << 20
"""Assumed memory request, in bytes, of a container without one. Only scores use this default."""

_DEFAULTS: Final[Mapping[str, Quantity]] = {CPU: Quantity(DEFAULT_MILLI_CPU, -3), MEMORY: Quantity(DEFAULT_MEMORY)}
_NO_DEFAULTS: Final[Mapping[str, Quantity]] = {}
_NATIVE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_HUGE_PAGES_PREFIX: Final = "hugepages-"
_VOLUMES_PREFIX: Final = "attachable-volumes-"
_KUBERNETES_DOMAIN: Final = "kubernetes.io/"
_QUOTA_PREFIX: Final = "requests."
_LONGEST_NAME: Final = 317
"""Maximum characters of a resource name, including its domain. Resources with a longer name are omitted."""

_NAME: Final = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]")

_MEMO_BYTES: Final = 2 << 20
_MEMO_OVERHEAD: Final = 900

Amounts = dict[str, Quantity]


class PodResources(Struct, frozen=True, eq=False, weakref=True):
    """Resources of a pod. Pods with equal resources share one object. No amount is 0.

    ``requests``: amounts that must be free on a node for the pod. ``requested``: amounts that the pod uses on its node.
    ``overhead``: part of both that the pod's runtime class adds.

    The other two fields are for scores, and assume defaults for containers without a request. ``non_zero_requests``:
    requests of the containers, and overhead, without pod-level requests. ``non_zero_requested``: cpu and memory that
    the pod uses on its node.
    """

    requests: ResourceList
    requested: ResourceList
    non_zero_requests: ResourceList
    non_zero_requested: ResourceList
    overhead: ResourceList


class Requests(NamedTuple):
    """Raw JSON requests of a container, or pod-level requests of a pod.

    ``requests``: requests in the spec. ``actuated``: ``resources.requests`` in the status; ``None`` if the status has
    no ``resources``. ``allocated``: ``allocatedResources``. ``keeps_running`` is true for sidecars.
    """

    requests: bytes = b""
    actuated: bytes | None = None
    allocated: bytes = b""
    keeps_running: bool = False


class PodRequests(NamedTuple):
    """Undecoded resource fields of a pod. ``infeasible`` is true if the kubelet rejected its resize as infeasible."""

    containers: tuple[Requests, ...]
    init_containers: tuple[Requests, ...] = ()
    pod: Requests = Requests()
    overhead: bytes = b""
    infeasible: bool = False

    def size(self) -> int:
        """Return the number of bytes in all fields together."""
        size = sum(len(it.requests) + len(it.actuated or b"") + len(it.allocated) for it in self._each())
        return size + len(self.overhead)

    def has_status(self) -> bool:
        """Return whether the status reports resources of the pod or of one of its containers."""
        return any(it.actuated is not None for it in self._each())

    def _each(self) -> Iterable[Requests]:
        return (*self.containers, *self.init_containers, self.pod)


@lru_cache(maxsize=4096)
def _is_tracked(name: str) -> bool:
    """Return whether kube-scheduler tracks the resource ``name``."""
    return name in _NATIVE or is_scalar_resource(name)


def is_scalar_resource(name: str) -> bool:
    """Return whether ``name`` is a scalar resource: extended, huge pages, attachable volumes, or in kubernetes.io."""
    return (
        name.startswith((_HUGE_PAGES_PREFIX, _VOLUMES_PREFIX))
        or _KUBERNETES_DOMAIN in name
        or is_extended_resource(name)
    )


def is_extended_resource(name: str) -> bool:
    """Return whether ``name`` is an extended resource: a valid name with a domain that is not in kubernetes.io.

    Names that begin with ``requests.`` are excluded, because quotas use this prefix.
    """
    domain, slash, rest = name.partition("/")
    if not slash or _KUBERNETES_DOMAIN in name or name.startswith(_QUOTA_PREFIX):
        return False
    return is_subdomain(_QUOTA_PREFIX + domain) and bool(_NAME.fullmatch(rest))


def _listed(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    """Return ``amounts`` as integers in the units of ``ResourceList``.

    Omitted are resources with amount 0, resources that kube-scheduler does not track, and resources with a name of more
    than ``_LONGEST_NAME`` characters.
    """
    integers = {
        name: it.milli_value() if name == CPU else it.value()
        for name, it in amounts.items()
        if len(name) <= _LONGEST_NAME and _is_tracked(name)
    }
    return {name: amount for name, amount in sorted(integers.items()) if amount}


_LIST: Final[Decoder[dict[str, Raw] | None]] = Decoder(dict[str, Raw] | None)


def _amounts(field: str, data: bytes) -> Amounts:
    try:
        return {name: quantity_of(raw) for name, raw in (_LIST.decode(data) or {}).items()}
    except OverlongQuantity:
        raise Oversized(field) from None


def _parse_requests(data: bytes) -> Amounts:
    return _amounts(RESOURCES, data)


def _parse_allocatable(data: bytes) -> ResourceList:
    amounts = _amounts(ALLOCATABLE, data)
    resources = _listed(amounts)
    pods = amounts.get(PODS, ZERO).value()
    return {**resources, PODS: pods} if pods else resources


_requests_of: Final = shared(RESOURCES, _parse_requests)
allocatable_of: Final = shared(ALLOCATABLE, _parse_allocatable)
"""Return a node's resources from ``status.allocatable``. Raises ``Oversized`` or ``msgspec.ValidationError``."""

_MEMO: Final = Memo[PodRequests, PodResources](_MEMO_BYTES)
_SHARED: WeakValueDictionary[tuple[object, ...], PodResources] = WeakValueDictionary()


def resources_of(requests: PodRequests) -> PodResources:
    """Return the resources of a pod, cached by its raw fields. Raises ``Oversized`` or ``msgspec.ValidationError``."""
    resources = _MEMO.get(requests)
    if resources is MISSING:
        size = requests.size()
        if size > LARGEST_REQUESTS:
            raise Oversized(RESOURCES)
        resources = _compute(requests)
        _MEMO.put(requests, resources, size + _MEMO_OVERHEAD)
    return resources


def _compute(raw: PodRequests) -> PodResources:
    pod = _EffectiveRequests(raw, with_status=False)
    requests = pod.total(_NO_DEFAULTS)
    non_zero_requests = pod.total(_DEFAULTS, of_containers=True)
    if raw.has_status():
        pod = _EffectiveRequests(raw, with_status=True)
    requested = pod.total(_NO_DEFAULTS) if raw.has_status() else requests
    if len(requests.keys() | requested.keys()) > MOST_REQUESTED:
        raise Oversized(RESOURCES)
    defaults = {name: amount for name, amount in _DEFAULTS.items() if not pod.level or name not in requested}
    return _interned(
        {name: amount for name, amount in _listed(requests).items() if amount > 0},
        _listed(requested),
        _listed(non_zero_requests),
        _cpu_and_memory(pod.total(defaults)),
        _listed(pod.overhead),
    )


def _cpu_and_memory(amounts: Amounts) -> ResourceList:
    return _listed({name: amounts.get(name, ZERO) for name in _DEFAULTS})


def _interned(*lists: ResourceList) -> PodResources:
    key = tuple(tuple(it.items()) for it in lists)
    resources = _SHARED.get(key)
    if resources is None:
        unique = dict(zip(key, lists, strict=True))  # equal lists share one object
        resources = _SHARED[key] = PodResources(*(unique[it] for it in key))
    return resources


class _EffectiveRequests:
    """Decoded requests of a pod: those in its spec; if ``with_status``, the maximum of spec and status."""

    def __init__(self, requests: PodRequests, *, with_status: bool) -> None:
        self._infeasible = requests.infeasible
        self._with_status = with_status
        self._containers = [self._effective(it) for it in requests.containers]
        self._init_containers = [(it.keeps_running, self._of_init(it)) for it in requests.init_containers]
        self.overhead = _requests_of(Raw(requests.overhead))
        whole, effective = _requests_of(Raw(requests.pod.requests)), self._effective(requests.pod)
        self.level = {name: effective.get(name, ZERO) for name in whole if _can_be_pod_level(name)}
        """Pod-level requests by resource."""

    def _of_init(self, container: Requests) -> Amounts:
        """Return the requests of an init container. The status is used only for sidecars."""
        return self._effective(container) if container.keeps_running else _requests_of(Raw(container.requests))

    def _effective(self, container: Requests) -> Amounts:
        """Return the requests of a container or pod: those in its spec; if the status is used, the maximum of both.

        The maximum leaves out the spec if the kubelet has rejected the pod's resize as infeasible.
        """
        spec = _requests_of(Raw(container.requests))
        if not self._with_status or container.actuated is None:
            return spec
        effective = {} if self._infeasible else dict(spec)
        _raise_to(effective, _requests_of(Raw(container.actuated)))
        _raise_to(effective, _requests_of(Raw(container.allocated)))
        return effective

    def total(self, defaults: Mapping[str, Quantity], *, of_containers: bool = False) -> Amounts:
        """Return the requests of the whole pod, with overhead. If ``of_containers``, pod-level requests are ignored.

        ``defaults``: requests that are assumed for a container without a request.
        """
        total: Amounts = {}
        for amounts in self._containers:
            _add({**defaults, **amounts}, total)
        _raise_to(total, self._while_starting(total, defaults))
        if not of_containers:
            total.update(self.level)
        _add(self.overhead, total)
        return total

    def _while_starting(self, total: Amounts, defaults: Mapping[str, Quantity]) -> Amounts:
        """Return, by resource, the largest sum of the requests of an init container and of the sidecars before it.

        Also add the requests of the sidecars to ``total``.
        """
        most: Amounts = {}
        running: Amounts = {}
        for keeps_running, amounts in self._init_containers:
            needed = {**defaults, **amounts}
            if keeps_running:
                _add(needed, total)
                _add(needed, running)
                _raise_to(most, running)
            else:
                _add(running, needed)
                _raise_to(most, needed)
        return most


def _can_be_pod_level(name: str) -> bool:
    """Return whether kube-scheduler supports the resource in pod-level requests."""
    return name in (CPU, MEMORY) or name.startswith(_HUGE_PAGES_PREFIX)


def _add(amounts: Mapping[str, Quantity], to: Amounts) -> None:
    """Add ``amounts`` to the amounts in ``to``."""
    for name, amount in amounts.items():
        known = to.get(name)
        to[name] = amount if known is None else known + amount


def _raise_to(amounts: Amounts, others: Mapping[str, Quantity]) -> None:
    """Raise each of ``amounts`` to the amount in ``others`` if that is greater. Add missing resources."""
    for name, amount in others.items():
        known = amounts.get(name)
        if known is None or amount.exceeds(known):
            amounts[name] = amount


NO_REQUESTS: Final = _compute(PodRequests(()))
"""Resources of a pod without containers, also used for a pod whose requests are not read."""
