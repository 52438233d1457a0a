"""Pods whose binding is under way or not yet shown by the watch.

    (none) --assume--> in flight --accept (201)--> accepted --watch shows it--> (none, bound)
                        |  ^  |                       |
                reserve |  |  +--forget (bind failed) +--watch shows it deleted--> (none)
                        v  | proceed
                      reserved

    in flight or reserved: the watch shows it bound, or deleted --> (none)

The picture places an assumed pod on its node and counts it: filter and prioritize see it, as kube-scheduler sees its
own assumed pods. Those *in flight* and those *reserved* are uncertain: their binding may yet fail, and bind has to hold
either way. What is in flight is settled in a moment, and may be waited for. What is reserved waits at Permit for
whatever a plugin waits for, perhaps for the very bind that would wait for it: nobody does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.kube.core_v1 import Pod


class AssumedPods:
    """Assumed pods by UID, each with ``node_name`` set to where it is meant to go."""

    __slots__ = ("_accepted", "_in_flight", "_on_lost", "_on_settled", "_reserved")

    def __init__(self) -> None:
        self._in_flight: dict[str, Pod] = {}
        self._reserved: dict[str, Pod] = {}
        self._accepted: dict[str, Pod] = {}
        self._on_settled: list[Callable[[], None]] = []
        self._on_lost: list[Callable[[str], None]] = []

    def on_settled(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever a bind is no longer in flight: certain, one way or the other, or reserved."""
        self._on_settled.append(listener)

    def on_lost(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the UID of a reserved pod that is gone, or was bound by somebody else."""
        self._on_lost.append(listener)

    def __len__(self) -> int:
        return len(self._in_flight) + len(self._reserved) + len(self._accepted)

    def get(self, uid: str) -> Pod | None:
        return self._in_flight.get(uid) or self._reserved.get(uid) or self._accepted.get(uid)

    def put(self, pod: Pod) -> None:
        """In flight from now on; or, if reserved or accepted already, its newest form."""
        known = (table for table in (self._reserved, self._accepted) if pod.uid in table)
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

    def remove(self, uid: str) -> Pod | None:
        """It is no longer assumed: shown bound, gone, or forgotten."""
        pod = self._in_flight.pop(uid, None)
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
        """Pods whose binding may yet fail, which is known in a moment."""
        return tuple(self._in_flight.values())

    def reserved(self) -> Sequence[Pod]:
        """Pods that wait at Permit, and may never be bound."""
        return tuple(self._reserved.values())
