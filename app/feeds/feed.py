"""Feeds: sources that fill the snapshot from a live API server or a saved file, and provide the writers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Literal, Protocol

import structlog
from msgspec import Struct

from app.cache.cluster import Cluster
from app.feeds.saved import MemoryBinder, MemoryNominator, MemoryWriter, NullReader
from app.framework.activation import activate_nothing
from app.kube.kinds import NODES, PODS, Kind
from app.writes.bind_guard import BindGuard
from app.writes.writes import ClusterWrites, MayWrite

_LOG: Final = structlog.get_logger(__name__)


class FeedState(Struct, frozen=True):
    """State of one kind in a feed.

    ``state``: state of its ``Reflector``; ``saved`` for a file; ``listed`` for a cluster that a command listed once.
    ``objects``: number of objects in the snapshot. ``age``: seconds since ``Reflector.last_contact``; 0 before the
    initial list. ``synced``: true once the initial list has been applied, or the kind is not served. ``events``,
    ``relists``, ``undecodable``: counters that only increase. ``cause``: explanation of ``state`` for users; empty if
    the state is normal. ``left_out``: names of the ``Reflector.unreadable`` objects, as ``namespace/name``.
    """

    state: str
    objects: int
    age: float
    synced: bool
    events: int = 0
    relists: int = 0
    undecodable: int = 0
    cause: str = ""
    left_out: Sequence[str] = ()


class Feed(Protocol):
    """Source that fills the snapshot from a cluster, and provides the writers for this cluster."""

    def writes(self, leadership: MayWrite) -> ClusterWrites:
        """Create the writers. Each checks ``leadership`` before it sends a request. Call this once."""
        ...

    async def start(self) -> None:
        """Begin to fill the snapshot, and return without waiting until it is complete."""
        ...

    async def stop(self) -> None: ...

    async def complete(self) -> None:
        """Wait until the snapshot is complete for the first time."""
        ...

    async def fetch(self, kind: Kind[Any], namespace: str, name: str) -> None:
        """Read an object that is not a pod from the API server into the snapshot, without waiting for the watch.

        An object that does not exist is not an error. Raises ``Unreadable`` if the object cannot be decoded. For a
        node, it is also raised if the read fails with another status than 403 or 404, or gets no answer. Other failed
        reads are ignored.
        """
        ...

    async def fetch_pod(self, namespace: str, name: str) -> None:
        """Read a pod from the API server into the snapshot, without waiting for the watch.

        A pod that does not exist is not an error. Raises ``OSError`` if the pod cannot be read.
        """
        ...

    def problem(self) -> str:
        """Return the reason why the snapshot must not be used for decisions; empty if it can be used."""
        ...

    def states(self) -> Mapping[str, FeedState]:
        """Return the state of each kind. The keys are ``repr(kind)``."""
        ...


Loader = Callable[[Cluster, Collection[Kind[Any]], Collection[Kind[Any]]], int]
"""Function that loads nodes, pods and two collections of other kinds, and returns the number of objects.

Decisions are possible without the kinds of the second collection.
"""


class SavedFeed(NullReader):
    """Feed that is loaded once, by the constructor. The snapshot is complete and never too old."""

    def __init__(
        self,
        load: Loader,
        cluster: Cluster,
        kinds: Iterable[Kind[Any]],
        optional: Collection[Kind[Any]] = (),
        *,
        state: Literal["saved", "listed"] = "saved",
    ) -> None:
        """``optional``: kinds that decisions do not need; ``states`` omits them. Raises what ``load`` raises."""
        self._cluster = cluster
        self._state = state
        self._kinds: tuple[Kind[Any], ...] = (NODES, PODS, *kinds)
        began = monotonic()
        load(cluster, self._kinds[2:], optional)
        self._seconds = round(monotonic() - began, 3)

    def writes(self, leadership: MayWrite) -> ClusterWrites:
        bind_guard = BindGuard(leadership)
        return ClusterWrites(
            MemoryBinder(self._cluster, bind_guard),
            MemoryWriter(self._cluster),
            MemoryNominator(self._cluster),
            activate_nothing,
            bind_guard,
        )

    async def start(self) -> None:
        objects = {kind: it.objects for kind, it in self.states().items()}
        _LOG.info("snapshot complete", objects=objects, seconds=self._seconds)

    async def stop(self) -> None:
        return

    async def complete(self) -> None:
        return

    def problem(self) -> str:
        return ""

    def states(self) -> Mapping[str, FeedState]:
        return {repr(kind): FeedState(self._state, self._cluster.count_of(kind), 0.0, True) for kind in self._kinds}
