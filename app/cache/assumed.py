"""Assumed pods: pods whose bind is in progress, or is not shown by the watch yet.

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

The cluster cache places an assumed pod on its node and counts it. Filter and prioritize see it there, as kube-scheduler
sees its own assumed pods. Pods *in flight*, *unclear* and *reserved* are uncertain, because their bind can still fail.
A decision to bind another pod must be valid either way.

A bind can wait for binds that are in flight or unclear: a transaction ends the former, ``BindConfirmation`` the latter.
No bind waits for a reserved pod, because that pod may wait at Permit for this very bind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.kube.core_v1 import Pod


class AssumedPods:
    """Assumed pods by UID, each with ``node_name`` set to its intended node."""

    __slots__ = ("_accepted", "_in_flight", "_on_lost", "_on_settled", "_reserved", "_unclear")

    def __init__(self) -> None:
        self._in_flight: dict[str, Pod] = {}
        self._reserved: dict[str, Pod] = {}
        self._accepted: dict[str, Pod] = {}
        self._unclear: dict[str, Pod] = {}
        self._on_settled: list[Callable[[], None]] = []
        self._on_lost: list[Callable[[str], None]] = []

    def on_settled(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever a bind stops being in flight: it succeeded, failed, or the pod was reserved."""
        self._on_settled.append(listener)

    def on_lost(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the UID of a reserved pod that was deleted, or was bound by another client."""
        self._on_lost.append(listener)

    def __len__(self) -> int:
        return len(self._in_flight) + len(self._reserved) + len(self._accepted) + len(self._unclear)

    def get(self, uid: str) -> Pod | None:
        tables = (self._in_flight, self._reserved, self._accepted, self._unclear)
        return next((table[uid] for table in tables if uid in table), None)

    def put(self, pod: Pod) -> None:
        """Add a pod in flight, or replace the pod, in its current state, by a newer version."""
        known = (table for table in (self._reserved, self._accepted, self._unclear) if pod.uid in table)
        next(known, self._in_flight)[pod.uid] = pod

    def reserve(self, uid: str) -> None:
        """Move a pod from in flight to reserved: it waits at Permit and still counts on its node."""
        pod = self._in_flight.pop(uid, None)
        if pod is not None:
            self._reserved[uid] = pod
            self._settled()

    def proceed(self, uid: str) -> None:
        """Move a pod from reserved back to in flight: it no longer waits at Permit."""
        pod = self._reserved.pop(uid, None)
        if pod is not None:
            self._in_flight[uid] = pod

    def accept(self, uid: str) -> None:
        """Move a pod from in flight to accepted: the API server accepted the binding, the watch has not shown it."""
        pod = self._in_flight.pop(uid, None)
        if pod is not None:
            self._accepted[uid] = pod
            self._settled()

    def doubt(self, uid: str) -> bool:
        """Move a pod from in flight or accepted to unclear; return true if it is unclear now."""
        pod = self._in_flight.pop(uid, None) or self._accepted.pop(uid, None)
        if pod is not None:
            self._unclear[uid] = pod
        return uid in self._unclear

    def remove(self, uid: str) -> Pod | None:
        """Remove and return a pod that is no longer assumed; ``None`` if it was not."""
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
        """Return the pods whose bind can still fail and will be resolved soon: in flight or unclear."""
        return (*self._in_flight.values(), *self._unclear.values())

    def unconfirmed(self) -> Sequence[Pod]:
        """Return the pods that no transaction owns and that the watch has not shown: accepted or unclear."""
        return (*self._accepted.values(), *self._unclear.values())

    def is_unclear(self, uid: str) -> bool:
        return uid in self._unclear

    def reserved(self) -> Sequence[Pod]:
        """Return the pods that wait at Permit, some of which may never be bound."""
        return tuple(self._reserved.values())
