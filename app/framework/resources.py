"""Totals of the pods on a node: requests, host ports and volumes."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NoReturn

from msgspec import Struct

from app.kube.core_v1 import Pod
from app.kube.extras import ANY_IP, Extra, HostPort, NotDecoded
from app.kube.requests import ResourceList
from app.kube.volumes import PodVolume

_NONE_TAKEN: Final[dict[str, int]] = {}
"""Number of pods by address, for a port that no pod uses."""

_STAMPS: Final = itertools.count(1)
"""Source of the values of ``Totals.mounts_stamp``. No value is used twice."""


def add(amounts: ResourceList, to: dict[str, int], times: int = 1) -> None:
    """Change ``to`` by ``amounts``, multiplied by ``times`` (-1 subtracts). An amount that becomes 0 is removed."""
    for name, amount in amounts.items():
        total = to.get(name, 0) + times * amount
        if total:
            to[name] = total
        else:
            to.pop(name, None)


class HostPorts:
    """Host ports that are in use on a node, with the number of pods that use each; iterable.

    Two pods can use the same port if another scheduler or a user assigned one of them to the node. The port then stays
    in use until both pods are gone. (kube-scheduler's ``HostPortInfo`` frees it when the first is gone.)
    """

    __slots__ = ("_taken",)

    def __init__(self, ports: Iterable[HostPort] = ()) -> None:
        self._taken: dict[tuple[str, int], dict[str, int]] = {}
        self.add(ports)

    def add(self, ports: Iterable[HostPort], times: int = 1) -> None:
        """Add the ``ports`` of one pod (``times`` 1) or remove them (-1)."""
        for port in ports:
            ips = self._taken.setdefault((port.protocol, port.port), {})
            add({port.ip: 1}, ips, times)
            if not ips:
                del self._taken[port.protocol, port.port]

    def conflicts(self, ports: Iterable[HostPort]) -> bool:
        """Return True if one of ``ports`` is in use on its own address. ``ANY_IP`` conflicts with every address."""
        return bool(self._taken) and any(map(self._is_taken, ports))

    def _is_taken(self, port: HostPort) -> bool:
        ips = self._taken.get((port.protocol, port.port), _NONE_TAKEN)
        return bool(ips) and (port.ip == ANY_IP or ANY_IP in ips or port.ip in ips)

    def copy(self) -> HostPorts:
        copied = HostPorts()
        copied._taken = {port: dict(ips) for port, ips in self._taken.items()}
        return copied

    def __iter__(self) -> Iterator[HostPort]:
        return (HostPort(ip, protocol, port) for (protocol, port), ips in self._taken.items() for ip in ips)

    def __len__(self) -> int:
        return sum(map(len, self._taken.values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostPorts) and self._taken == other._taken

    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable

    def __repr__(self) -> str:
        return f"HostPorts({list(self)})"


class Mounts(Struct, frozen=True, gc=False):
    """Volumes of a pod that have a claim or name a disk, with the pod's identity, which is needed to look up its
    claims.
    """

    namespace: str
    name: str
    uid: str
    volumes: tuple[PodVolume, ...]

    @classmethod
    def of(cls, pod: Pod) -> Mounts:
        return cls(pod.namespace, pod.name, pod.uid, pod.spec.volumes)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Totals:
    """Totals of all pods on a node, terminating ones included, for the declared parts.

    Reading the total of an undeclared part raises ``NotDecoded``. A resource whose total is 0 is absent.
    """

    __slots__ = ("_extras", "_mounts", "_mounts_stamp", "_non_zero_requested", "_ports", "_requested")

    def __init__(self, extras: Collection[Extra], pods: Iterable[Pod] = ()) -> None:
        self._extras = extras
        self._requested: dict[str, int] = {}
        self._non_zero_requested: dict[str, int] = {}
        self._ports = HostPorts()
        self._mounts: dict[str, Mounts] = {}
        self._mounts_stamp = 0
        for pod in pods:
            self.add(pod)

    def add(self, pod: Pod, times: int = 1) -> None:
        """Add a pod (``times`` 1) or remove it (-1)."""
        if Extra.RESOURCES in self._extras:
            resources = pod.spec.resources
            add(resources.requested, self._requested, times)
            add(resources.non_zero_requested, self._non_zero_requested, times)
        if Extra.PORTS in self._extras and pod.spec.ports:
            self._ports.add(pod.spec.ports, times)
        if Extra.VOLUMES in self._extras and pod.spec.volumes:
            self._mounts_stamp = next(_STAMPS)
            if times > 0:
                self._mounts[pod.uid] = Mounts.of(pod)
            else:
                self._mounts.pop(pod.uid, None)

    @property
    def requested(self) -> ResourceList:
        return self._requested if Extra.RESOURCES in self._extras else _missing(Extra.RESOURCES)

    @property
    def non_zero_requested(self) -> ResourceList:
        return self._non_zero_requested if Extra.RESOURCES in self._extras else _missing(Extra.RESOURCES)

    @property
    def ports(self) -> HostPorts:
        return self._ports if Extra.PORTS in self._extras else _missing(Extra.PORTS)

    @property
    def mounts(self) -> Mapping[str, Mounts]:
        return self._mounts if Extra.VOLUMES in self._extras else _missing(Extra.VOLUMES)

    @property
    def mounts_stamp(self) -> int:
        """Stamp that changes with ``mounts``. None is used twice, so a copy with an equal stamp has equal mounts."""
        return self._mounts_stamp if Extra.VOLUMES in self._extras else _missing(Extra.VOLUMES)

    def copy(self) -> Totals:
        copied = Totals(self._extras)
        copied._requested = dict(self._requested)
        copied._non_zero_requested = dict(self._non_zero_requested)
        copied._ports = self._ports.copy()
        copied._mounts, copied._mounts_stamp = dict(self._mounts), self._mounts_stamp
        return copied

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Totals) and self._parts() == other._parts()

    __hash__ = None  # type: ignore[assignment]  # mutable, so not hashable

    def _parts(self) -> tuple[object, ...]:
        return self._extras, self._requested, self._non_zero_requested, self._ports, self._mounts


def _missing(extra: Extra) -> NoReturn:
    raise NotDecoded(extra)
