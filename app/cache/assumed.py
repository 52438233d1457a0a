"""Assumed pods: pods that wait at Permit, pods that are being bound, and pods whose bind the watch has not shown yet.

    (none) --assume--> in flight --accept (the API server's Status)--> accepted
                       |  ^  |  |                                        |
               reserve |  |  |  +--doubt (ended, outcome unknown)--+     | doubt (the watch does
                       v  |  |                                     v     v  not show it in time)
                    reserved +--forget (bind failed)--> (none)     unclear
                                                          ^          |
                                                          +--forget--+--confirm--> (none, bound)
                                                     (read: not bound,   (read: bound there)
                                                      and fenced)

    reserved --proceed (no longer waits at Permit)--> in flight
    in any state: the watch shows the pod bound, or deleted --> (none)

A pod is *fenced* if a write has changed its resourceVersion, so that the API server rejects a late Binding.
The cluster cache places an assumed pod on its intended node and counts it there, so that filter and prioritize consider
it. kube-scheduler does the same with its own assumed pods. The binds of pods *in flight*, *unclear* and *reserved* can
still fail. So a bind of another pod must be valid both with and without each of these pods.

A bind can wait until another bind is no longer in flight or unclear. Pods do not stay in these states: the bind
transaction moves its pod out of *in flight*, and ``BindConfirmation`` moves a pod out of *unclear*. No bind waits for a
reserved pod, because the reserved pod might wait at Permit for exactly this bind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.kube.core_v1 import Pod


class AssumedPods:
    """Assumed pods by UID and state, each with ``node_name`` set to its intended node."""

    __slots__ = ("_accepted", "_in_flight", "_on_lost", "_on_settled", "_reserved", "_unclear")

    def __init__(self) -> None:
        self._in_flight: dict[str, Pod] = {}
        self._reserved: dict[str, Pod] = {}
        self._accepted: dict[str, Pod] = {}
        self._unclear: dict[str, Pod] = {}
        self._on_settled: list[Callable[[str], None]] = []
        self._on_lost: list[Callable[[str], None]] = []

    def on_settled(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the UID of a pod in flight that is accepted, reserved or removed.

        The listener is also called when an unclear pod is removed.
        """
        self._on_settled.append(listener)

    def on_lost(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the UID of a reserved pod that is removed, for example because it was deleted."""
        self._on_lost.append(listener)

    def __len__(self) -> int:
        return len(self._in_flight) + len(self._reserved) + len(self._accepted) + len(self._unclear)

    def get(self, uid: str) -> Pod | None:
        """Return the assumed pod in any state; ``None`` if the pod is not assumed."""
        tables = (self._in_flight, self._reserved, self._accepted, self._unclear)
        return next((table[uid] for table in tables if uid in table), None)

    def pods(self) -> Sequence[Pod]:
        """Return all assumed pods."""
        tables = (self._in_flight, self._reserved, self._accepted, self._unclear)
        return tuple(pod for table in tables for pod in table.values())

    def put(self, pod: Pod) -> None:
        """Replace an assumed pod by a newer version and keep its state, or add a new pod in flight."""
        known = (table for table in (self._reserved, self._accepted, self._unclear) if pod.uid in table)
        next(known, self._in_flight)[pod.uid] = pod

    def reserve(self, uid: str) -> None:
        """Move a pod from in flight to reserved, because it waits at Permit. The pod is still counted on its node."""
        pod = self._in_flight.pop(uid, None)
        if pod is not None:
            self._reserved[uid] = pod
            self._settled(uid)

    def proceed(self, uid: str) -> None:
        """Move a pod from reserved back to in flight, because it no longer waits at Permit."""
        pod = self._reserved.pop(uid, None)
        if pod is not None:
            self._in_flight[uid] = pod

    def accept(self, uid: str) -> None:
        """Move a pod from in flight to accepted: the API server accepted its Binding; no watch event shows it yet."""
        pod = self._in_flight.pop(uid, None)
        if pod is not None:
            self._accepted[uid] = pod
            self._settled(uid)

    def doubt(self, uid: str) -> bool:
        """Move a pod from in flight or accepted to unclear. Return true if the pod is unclear after this call."""
        pod = self._in_flight.pop(uid, None) or self._accepted.pop(uid, None)
        if pod is not None:
            self._unclear[uid] = pod
        return uid in self._unclear

    def remove(self, uid: str) -> Pod | None:
        """Remove a pod, because it is no longer assumed, and return it; ``None`` if it was not assumed."""
        pod = self._in_flight.pop(uid, None) or self._unclear.pop(uid, None)
        if pod is not None:
            self._settled(uid)
            return pod
        pod = self._reserved.pop(uid, None)
        if pod is None:
            return self._accepted.pop(uid, None)
        for listener in self._on_lost:
            listener(uid)
        return pod

    def _settled(self, uid: str) -> None:
        for listener in self._on_settled:
            listener(uid)

    def in_flight(self) -> Sequence[Pod]:
        """Return the pods in flight and the unclear pods. Their binds can still fail; the outcome is soon known."""
        return (*self._in_flight.values(), *self._unclear.values())

    def unconfirmed(self) -> Sequence[Pod]:
        """Return the accepted and the unclear pods: their bind transactions have ended; the watch shows no bind yet."""
        return (*self._accepted.values(), *self._unclear.values())

    def is_unclear(self, uid: str) -> bool:
        return uid in self._unclear

    def reserved(self) -> Sequence[Pod]:
        """Return the pods that wait at Permit. Some of them might never be bound."""
        return tuple(self._reserved.values())
