"""What fills the picture and carries decisions out: a live API server, or a saved cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol

import structlog
from msgspec import Struct

from app.cache.cluster import Cluster
from app.feeds.saved import MemoryBinder, MemoryNominator, MemoryWriter, NothingToRead, load_saved
from app.framework.activation import activate_nothing
from app.kube.kinds import NODES, PODS, Kind
from app.writes.bind_guard import BindGuard
from app.writes.writes import ClusterWrites, MayWrite

_LOG: Final = structlog.get_logger(__name__)


class FeedState(Struct, frozen=True):
    """How far along one kind is. ``age`` is the time in seconds since its watch was last heard of.

    ``cause``: why ``state`` is what it is, for a person; empty while all is well. ``left_out``: the objects that cannot
    be read, as ``namespace/name``.
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
    """A source of the picture, which also knows how to write back to where it came from."""

    def writes(self, leadership: MayWrite) -> ClusterWrites:
        """Whatever is written asks ``leadership`` before it leaves. To be made once."""
        ...

    async def start(self) -> None:
        """Begin to fill the picture. Returns at once; ``problem`` tells when it is complete."""
        ...

    async def stop(self) -> None: ...

    async def complete(self) -> None:
        """Wait until the picture is complete for the first time."""
        ...

    async def fetch(self, kind: Kind[Any], namespace: str, name: str) -> None: ...
    async def fetch_pod(self, namespace: str, name: str) -> None: ...

    def problem(self) -> str:
        """Why the picture cannot be decided on, in a sentence; empty if it can."""
        ...

    def states(self) -> Mapping[str, FeedState]:
        """By kind."""
        ...


class SavedFeed(NothingToRead):
    """A cluster from a file. Complete from the start, and never too old."""

    def __init__(self, path: Path, cluster: Cluster, kinds: Iterable[Kind[Any]]) -> None:
        self._cluster = cluster
        self._kinds: tuple[Kind[Any], ...] = (NODES, PODS, *kinds)
        began = monotonic()
        load_saved(path, cluster, kinds)
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
        return {repr(kind): FeedState("saved", self._cluster.count_of(kind), 0.0, True) for kind in self._kinds}
