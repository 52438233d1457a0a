"""Index of the devices allocated to claims, by pool, updated claim by claim.

Devices have reference counts, so that a claim can be removed without reading the other claims, whose number has no
limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.kube.resource_v1 import AllocatedDevice, Amount, Amounts, ResourceClaim
from plugins.in_tree.dynamic_resources.allocator import NO_ALLOCATIONS, PoolAllocations
from plugins.in_tree.dynamic_resources.pools import PoolID

_NOTHING: Final[Amounts] = {}


class _SharedDevice:
    """Allocations of a shared device: the number of its shares, and the amount of each capacity that they consume."""

    __slots__ = ("_amounts", "_shares", "_specified", "_times")

    def __init__(self) -> None:
        self._shares = 0
        self._specified = 0
        self._amounts: dict[str, Amount] = {}
        self._times: dict[str, int] = {}

    def count(self, consumed: Amounts | None, sign: int) -> bool:
        """Add (``sign`` 1) or remove (-1) one share; return true if the device still has shares."""
        self._shares += sign
        self._specified += sign * (consumed is not None)
        for name, amount in (consumed or _NOTHING).items():
            times = self._times.get(name, 0) + sign
            if times:
                self._times[name] = times
                self._amounts[name] = self._amounts.get(name, 0) + sign * amount
            else:
                del self._times[name], self._amounts[name]
        return self._shares > 0

    def total(self) -> Amounts | None:
        """Return the consumed amounts by capacity; ``None`` if no share specifies consumed capacities."""
        return dict(self._amounts) if self._specified else None


class _PoolUsage:
    """Allocations of the devices of one pool, with reference counts."""

    __slots__ = ("shared", "taken", "use")

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}
        self.shared: dict[str, _SharedDevice] = {}
        self.use: PoolAllocations | None = None

    def count(self, device: AllocatedDevice, sign: int) -> None:
        self.use = None
        name = device.device[2]
        if device.shared:
            if not self.shared.setdefault(name, _SharedDevice()).count(device.consumed, sign):
                del self.shared[name]
            return
        times = self.taken.get(name, 0) + sign
        if times:
            self.taken[name] = times
        else:
            del self.taken[name]


class AllocatedDevices:
    """Allocated devices by pool. The caller must remove a claim in exactly the form in which it was added."""

    def __init__(self) -> None:
        self._pools: dict[PoolID, _PoolUsage] = {}

    def count(self, claim: ResourceClaim, sign: int) -> None:
        """Add (``sign`` 1) or remove (-1) the devices of a claim, except those with admin access, which remain free."""
        for device in () if claim.allocation is None else claim.allocation.devices:
            if device.admin_access:
                continue
            pool_id = device.device[:2]
            pool = self._pools.setdefault(pool_id, _PoolUsage())
            pool.count(device, sign)
            if not pool.taken and not pool.shared:
                del self._pools[pool_id]

    def of(self, pool: PoolID) -> PoolAllocations:
        """Return the allocated devices of a pool. Repeated calls return equal results until an allocation changes."""
        of_pool = self._pools.get(pool)
        if of_pool is None:
            return NO_ALLOCATIONS
        if of_pool.use is None:
            shared: Mapping[str, Amounts | None] = {name: it.total() for name, it in of_pool.shared.items()}
            of_pool.use = PoolAllocations(frozenset(of_pool.taken), shared)
        return of_pool.use
