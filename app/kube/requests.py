"""What a pod asks of a node, and what a node has to give: whole numbers by the name of the resource.

Requests of containers are summed, init containers count where one of them needs more than what runs later, those that
keep running are summed too, requests of the pod as a whole take the place of the sum, overhead is added. On a node a
pod takes what its status says that it still holds, if that is more. Source: ``component-helpers/resource`` and
``pkg/scheduler/framework`` of Kubernetes 1.36 with its default feature gates; tests hold this to what they say
(``tests/conformance/resources.py``).
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
"""Amounts by name: thousandths of a core of ``cpu``, whole units of all else. What is not in it is 0."""

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
"""How many pods a node takes; no pod asks for any."""

RESOURCES: Final = "spec.containers.resources"
ALLOCATABLE: Final = "status.allocatable"

MOST_REQUESTED: Final = 64
"""Resources that one pod asks for: of one with more, none is read."""

LARGEST_REQUESTS: Final = 16 << 10
"""Bytes of all requests of one pod, its status included."""

UNREAD_REQUESTS: Final = (
    f"node(s) can't be judged: the pod's {RESOURCES} is longer than {LARGEST_REQUESTS >> 10} KiB, names more than "
    f"{MOST_REQUESTED} resources, or has a quantity of more than {LONGEST} characters"
)
"""Reason of whoever has to judge by requests that are not read: an unresolvable rejection."""

DEFAULT_MILLI_CPU: Final = 100
DEFAULT_MEMORY: Final = 200 << 20
"""What a container that does not say is taken to use, where nodes are compared by what is used."""

_DEFAULTS: Final[Mapping[str, Quantity]] = {CPU: Quantity(DEFAULT_MILLI_CPU, -3), MEMORY: Quantity(DEFAULT_MEMORY)}
_NO_DEFAULTS: Final[Mapping[str, Quantity]] = {}
_OF_ITSELF: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_HUGE_PAGES: Final = "hugepages-"
_VOLUMES: Final = "attachable-volumes-"
_OURS: Final = "kubernetes.io/"
_QUOTA: Final = "requests."
_LONGEST_NAME: Final = 317
_NAME: Final = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]")

_MEMO_BYTES: Final = 2 << 20
_MEMO_OVERHEAD: Final = 900

Amounts = dict[str, Quantity]


class PodResources(Struct, frozen=True, eq=False, weakref=True):
    """What a pod asks for; pods that ask for the same share one object. No amount in it is 0.

    ``requests`` is what it needs of a node that it is to run on, ``requested`` what it takes of the one it runs on. The
    other two serve to compare nodes, with the defaults of cpu and memory for containers that do not say.
    ``non_zero_requests``: what its containers need, whatever the pod asks for as a whole. ``non_zero_requested``: what
    it takes of the one it runs on, cpu and memory alone.
    """

    requests: ResourceList
    requested: ResourceList
    non_zero_requests: ResourceList
    non_zero_requested: ResourceList


class Requests(NamedTuple):
    """What JSON says of a container, or of the pod as a whole: in its spec and, where there is one, in its status."""

    requests: bytes = b""
    actuated: bytes | None = None
    allocated: bytes = b""
    keeps_running: bool = False


class Asked(NamedTuple):
    """All that the requests of a pod rest on. ``infeasible``: a resize of it was refused."""

    containers: tuple[Requests, ...]
    init_containers: tuple[Requests, ...] = ()
    pod: Requests = Requests()
    overhead: bytes = b""
    infeasible: bool = False

    def size(self) -> int:
        """Bytes to be read."""
        found = sum(len(it.requests) + len(it.actuated or b"") + len(it.allocated) for it in self._each())
        return found + len(self.overhead)

    def has_status(self) -> bool:
        return any(it.actuated is not None for it in self._each())

    def _each(self) -> Iterable[Requests]:
        return (*self.containers, *self.init_containers, self.pod)


@lru_cache(maxsize=4096)
def _counts(name: str) -> bool:
    """Whether the scheduler keeps count of a resource."""
    return name in _OF_ITSELF or is_scalar_resource(name)


def is_scalar_resource(name: str) -> bool:
    """Whether a name is one of the resources that are not on every node: extended ones, huge pages, volumes."""
    return name.startswith((_HUGE_PAGES, _VOLUMES)) or _OURS in name or is_extended_resource(name)


def is_extended_resource(name: str) -> bool:
    """Whether a name is that of an extended resource: with a domain, which is not Kubernetes' own."""
    domain, slash, rest = name.partition("/")
    if not slash or _OURS in name or name.startswith(_QUOTA):
        return False
    return is_subdomain(_QUOTA + domain) and bool(_NAME.fullmatch(rest))


def _listed(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    """In whole numbers, without what nobody counts."""
    found = {
        name: it.milli_value() if name == CPU else it.value()
        for name, it in amounts.items()
        if len(name) <= _LONGEST_NAME and _counts(name)
    }
    return {name: amount for name, amount in sorted(found.items()) if amount}


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
    found = _listed(amounts)
    pods = amounts.get(PODS, ZERO).value()
    return {**found, PODS: pods} if pods else found


_requests_of: Final = shared(RESOURCES, _parse_requests)
allocatable_of: Final = shared(ALLOCATABLE, _parse_allocatable)
"""What a node has to give, of ``status.allocatable``. Raises ``Oversized`` or ``msgspec.ValidationError``."""

_MEMO: Final = Memo[Asked, PodResources](_MEMO_BYTES)
_SHARED: WeakValueDictionary[tuple[object, ...], PodResources] = WeakValueDictionary()


def resources_of(asked: Asked) -> PodResources:
    """What a pod asks for. Raises ``Oversized`` or ``msgspec.ValidationError``."""
    found = _MEMO.get(asked)
    if found is MISSING:
        size = asked.size()
        if size > LARGEST_REQUESTS:
            raise Oversized(RESOURCES)
        found = _worked_out(asked)
        _MEMO.put(asked, found, size + _MEMO_OVERHEAD)
    return found


def _worked_out(asked: Asked) -> PodResources:
    pod = _Pod(asked, with_status=False)
    requests = pod.total(_NO_DEFAULTS)
    compared = pod.total(_DEFAULTS, of_containers=True)
    if asked.has_status():
        pod = _Pod(asked, with_status=True)
    requested = pod.total(_NO_DEFAULTS) if asked.has_status() else requests
    if len(requests.keys() | requested.keys()) > MOST_REQUESTED:
        raise Oversized(RESOURCES)
    missing = {name: it for name, it in _DEFAULTS.items() if not pod.level or name not in requested}
    return _interned(
        {name: amount for name, amount in _listed(requests).items() if amount > 0},
        _listed(requested),
        _listed(compared),
        _cpu_and_memory(pod.total(missing)),
    )


def _cpu_and_memory(amounts: Amounts) -> ResourceList:
    return _listed({name: amounts.get(name, ZERO) for name in _DEFAULTS})


def _interned(*lists: ResourceList) -> PodResources:
    key = tuple(tuple(it.items()) for it in lists)
    found = _SHARED.get(key)
    if found is None:
        alike = dict(zip(key, lists, strict=True))  # most often all four, or two and two
        found = _SHARED[key] = PodResources(*(alike[it] for it in key))
    return found


class _Pod:
    """A pod's requests as amounts, so far that they can be summed."""

    def __init__(self, asked: Asked, *, with_status: bool) -> None:
        self._infeasible = asked.infeasible
        self._with_status = with_status
        self._containers = [self._effective(it) for it in asked.containers]
        self._init_containers = [(it.keeps_running, self._of_init(it)) for it in asked.init_containers]
        self._overhead = _requests_of(Raw(asked.overhead))
        whole, effective = _requests_of(Raw(asked.pod.requests)), self._effective(asked.pod)
        self.level = {name: effective.get(name, ZERO) for name in whole if _is_of_pods(name)}
        """Requests of the pod as a whole."""

    def _of_init(self, it: Requests) -> Amounts:
        return self._effective(it) if it.keeps_running else _requests_of(Raw(it.requests))

    def _effective(self, it: Requests) -> Amounts:
        """Of the spec; on a node at least what the status says, and that alone if the spec cannot be met there."""
        spec = _requests_of(Raw(it.requests))
        if not self._with_status or it.actuated is None:
            return spec
        found = {} if self._infeasible else dict(spec)
        _raise_to(found, _requests_of(Raw(it.actuated)))
        _raise_to(found, _requests_of(Raw(it.allocated)))
        return found

    def total(self, missing: Mapping[str, Quantity], *, of_containers: bool = False) -> Amounts:
        """Of all of the pod; ``missing`` is what each container is taken to ask for that does not say.

        ``of_containers``: without what it asks for as a whole.
        """
        total: Amounts = {}
        for amounts in self._containers:
            _add({**missing, **amounts}, total)
        _raise_to(total, self._while_starting(total, missing))
        if not of_containers:
            total.update(self.level)
        _add(self._overhead, total)
        return total

    def _while_starting(self, total: Amounts, missing: Mapping[str, Quantity]) -> Amounts:
        """The most that is needed before the containers start. What keeps running is added to ``total`` too."""
        most: Amounts = {}
        running: Amounts = {}
        for keeps_running, amounts in self._init_containers:
            asked = {**missing, **amounts}
            if keeps_running:
                _add(asked, total)
                _add(asked, running)
                _raise_to(most, running)
            else:
                _add(running, asked)
                _raise_to(most, asked)
        return most


def _is_of_pods(name: str) -> bool:
    """Whether a pod as a whole can ask for it."""
    return name in (CPU, MEMORY) or name.startswith(_HUGE_PAGES)


def _add(amounts: Mapping[str, Quantity], to: Amounts) -> None:
    for name, amount in amounts.items():
        known = to.get(name)
        to[name] = amount if known is None else known + amount


def _raise_to(amounts: Amounts, others: Mapping[str, Quantity]) -> None:
    for name, amount in others.items():
        known = amounts.get(name)
        if known is None or amount.exceeds(known):
            amounts[name] = amount


NO_REQUESTS: Final = _worked_out(Asked(()))
"""Of a pod whose requests are not read."""
