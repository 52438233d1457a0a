"""Pods whose binding is under way or not yet shown by the watch.

    (none) --assume--> in flight --accept (201)--> accepted --watch shows it--> (none, bound)
                           |                           |
                           +--forget (bind failed)     +--watch shows it deleted--> (none)
                           |
                           +--watch shows it bound--> (none, bound)

The picture places an assumed pod on its node and counts it: filter and prioritize see it, as kube-scheduler sees its
own assumed pods. Only *in flight* pods are uncertain: their binding may yet fail, and bind has to hold either way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.kube.core_v1 import Pod


class AssumedPods:
    """Assumed pods by UID, each with ``node_name`` set to where it is meant to go."""

    __slots__ = ("_accepted", "_in_flight", "_on_settled")

    def __init__(self) -> None:
        self._in_flight: dict[str, Pod] = {}
        self._accepted: dict[str, Pod] = {}
        self._on_settled: list[Callable[[], None]] = []

    def on_settled(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever a bind in flight has become certain, one way or the other."""
        self._on_settled.append(listener)

    def __len__(self) -> int:
        return len(self._in_flight) + len(self._accepted)

    def get(self, uid: str) -> Pod | None:
        return self._in_flight.get(uid) or self._accepted.get(uid)

    def put(self, pod: Pod) -> None:
        """In flight from now on; or, if accepted already, its newest form."""
        (self._accepted if pod.uid in self._accepted else self._in_flight)[pod.uid] = pod

    def accept(self, uid: str) -> None:
        """The API server took the binding: certain, though not yet shown by the watch."""
        pod = self._in_flight.pop(uid, None)
        if pod is not None:
            self._accepted[uid] = pod
            self._settled()

    def remove(self, uid: str) -> Pod | None:
        """It is no longer assumed: shown bound, gone, or forgotten."""
        pod = self._in_flight.pop(uid, None)
        if pod is None:
            return self._accepted.pop(uid, None)
        self._settled()
        return pod

    def _settled(self) -> None:
        for listener in self._on_settled:
            listener()

    def in_flight(self) -> Sequence[Pod]:
        """Pods whose binding may yet fail."""
        return tuple(self._in_flight.values())
