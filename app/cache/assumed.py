"""Pods whose binding is under way or not yet shown by the watch.

    (none) --assume--> in flight --accept (the API server's Status)--> accepted
                       |  ^  |  |                                        |
               reserve |  |  |  +--doubt (ended, outcome unknown)--+     | doubt (the watch does
                       v  |  |                                     v     v  not show it in time)
                    reserved +--forget (bind failed)--> (none)     unclear
                                                          ^          |
                                                          +--forget--+--confirm--> (none, bound)
                                                     (read: not bound,   (read: bound there)
                                                      and fenced)

    in any state: the watch shows it bound, or deleted --> (none)

The cache places an assumed pod on its node and counts it: filter and prioritize see it, as kube-scheduler sees its own
assumed pods. Pods *in flight*, *unclear* and *reserved* are uncertain: their binding may yet fail, and bind has to hold
either way. Binds in flight or unclear may be waited for: a transaction settles the former, ``BindConfirmation`` the
latter. A reserved pod waits at Permit, perhaps for the very bind that would wait for it: so no bind waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.kube.core_v1 import Pod


class AssumedPods:
    """Assumed pods by UID, each with ``node_name`` set to where it is meant to go."""

    __slots__ = ("_accepted", "_in_flight", "_on_lost", "_on_settled", "_reserved", "_unclear")

    def __init__(self) -> None:
        self._in_flight: dict[str, Pod] = {}
        self._reserved: dict[str, Pod] = {}
        self._accepted: dict[str, Pod] = {}
        self._unclear: dict[str, Pod] = {}
        self._on_settled: list[Callable[[], None]] = []
        self._on_lost: list[Callable[[str], None]] = []

    def on_settled(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever a bind is no longer in flight: certain, one way or the other, or reserved."""
        self._on_settled.append(listener)

    def on_lost(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the UID of a reserved pod that is gone, or was bound by somebody else."""
        self._on_lost.append(listener)

    def __len__(self) -> int:
        return len(self._in_flight) + len(self._reserved) + len(self._accepted) + len(self._unclear)

    def get(self, uid: str) -> Pod | None:
        tables = (self._in_flight, self._reserved, self._accepted, self._unclear)
        return next((table[uid] for table in tables if uid in table), None)

    def put(self, pod: Pod) -> None:
        """Take in a pod that is in flight from now on, or the newest form of one that is in another state."""
        known = (table for table in (self._reserved, self._accepted, self._unclear) if pod.uid in table)
        next(known, self._in_flight)[pod.uid] = pod

    def reserve(self, uid: str) -> None:
        """It waits at Permit: it keeps its place, and nobody waits for it."""
        pod = self._in_flight.pop(uid, None)
        if pod is not None:
            self._reserved[uid] = pod
            self._settled()

    def proceed(self, uid: str) -> None:
        """It no longer waits at Permit: it will be bound, or given up, in a moment."""
        pod = self._reserved.pop(uid, None)
        if pod is not None:
            self._in_flight[uid] = pod

    def accept(self, uid: str) -> None:
        """The API server took the binding: certain, though not yet shown by the watch."""
        pod = self._in_flight.pop(uid, None)
        if pod is not None:
            self._accepted[uid] = pod
            self._settled()

    def doubt(self, uid: str) -> bool:
        """Mark the outcome of a bind in flight or accepted as unclear; return whether it is now."""
        pod = self._in_flight.pop(uid, None) or self._accepted.pop(uid, None)
        if pod is not None:
            self._unclear[uid] = pod
        return uid in self._unclear

    def remove(self, uid: str) -> Pod | None:
        """It is no longer assumed: shown bound, gone, or forgotten."""
        pod = self._in_flight.pop(uid, None) or self._unclear.pop(uid, None)
        if pod is not None:
            self._settled()
            return pod
        pod = self._reserved.pop(uid, None)
        if pod is None:
            return self._accepted.pop(uid, None)
        for listener in self._on_lost:
            listener(uid)
        return pod

    def _settled(self) -> None:
        for listener in self._on_settled:
            listener()

    def in_flight(self) -> Sequence[Pod]:
        """Pods whose binding may yet fail, and whose outcome is being found out: in flight or unclear."""
        return (*self._in_flight.values(), *self._unclear.values())

    def unconfirmed(self) -> Sequence[Pod]:
        """Pods that no transaction owns any more and that the watch has not shown: accepted or unclear."""
        return (*self._accepted.values(), *self._unclear.values())

    def is_unclear(self, uid: str) -> bool:
        """Return whether the outcome of the pod's bind is unclear."""
        return uid in self._unclear

    def reserved(self) -> Sequence[Pod]:
        """Pods that wait at Permit, and may never be bound."""
        return tuple(self._reserved.values())
