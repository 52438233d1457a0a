"""Verdict on one pod and one node, of the in-tree filters that read only the node and its pods, for any profile.

Plugins call it as ``handle.profile.why``, for messages, and the sampling guard calls it before it nominates a pod. No
extender verb depends on it. If the snapshot has all fields that these filters read, the filters use the snapshot. Else
the pod, the node and the pods on it are read from the API server: one pod or node at a time, at most ten nodes a
second. A node that was read is cached for at most ``CACHE_SECONDS``. It is read again earlier if the snapshot shows a
change of the node or its pods. Pods that are only nominated to the node are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.framework.handle import Clock, NodeVerdict, Sleep
from app.framework.node_info import NodeInfo
from app.framework.objects import Unreadable
from app.kube.core_decoding import CoreV1
from app.kube.core_v1 import Pod
from app.kube.extras import Extra
from app.kube.kinds import NODES
from app.kube.memo import Newest
from app.runtime.one_node import OneNodeFilters

LONGEST_SECONDS: Final = 5.0
"""Maximum seconds for one read of a pod or a node, including the wait for earlier reads."""

MOST_WAITING: Final = 8
"""Maximum number of reads that run or wait. A further read is skipped, and the verdict that needs it is unknown."""

PAUSE_SECONDS: Final = 0.1
"""Minimum seconds between two reads of nodes, because each costs Homeport and the API server milliseconds."""

CACHE_SECONDS: Final = 5.0
"""Maximum seconds for which a node that was read is used again."""

MOST_CACHED: Final = 64
"""Maximum number of cached nodes, which take some 100 KB each with their pods."""

T = TypeVar("T")
_Key = tuple[frozenset[Extra], str]


class UncachedReader(Protocol):
    """Reads pods and nodes from the API server, with all fields that ``core`` decodes."""

    async def pod(self, core: CoreV1, namespace: str, name: str) -> Pod | None:
        """Return the pod; ``None`` if it does not exist. Raises ``OSError`` if it cannot be read."""
        ...

    async def node(self, core: CoreV1, name: str) -> NodeInfo | None:
        """Return the node with its pods; ``None`` if it does not exist. Raises ``OSError`` if they cannot be read."""
        ...


class InTreeVerdictReader:
    """Gets the pods and nodes for the in-tree filters of all profiles, from the snapshot or the API server.

    ``reader``: reads from the API server; ``None`` if there is no API server, so that only the snapshot is used.
    ``extras``: optional fields of the snapshot that are used; ``None`` for all. They must not include fields that only
    explain needs, because a nomination must not depend on explain.
    """

    def __init__(
        self,
        cluster: Cluster,
        reader: UncachedReader | None,
        clock: Clock,
        sleep: Sleep = asyncio.sleep,
        *,
        extras: Collection[Extra] | None = None,
    ) -> None:
        self._cluster = cluster
        self._extras = cluster.core.extras if extras is None else frozenset(extras)
        self._reader = reader
        self._clock = clock
        self._sleep = sleep
        self._alone = asyncio.Lock()
        self._waiting = 0
        self._not_before = 0.0
        self._profiles: dict[str, InTreeVerdicts] = {}
        self._cache = Newest[_Key, tuple[Hashable, float, NodeInfo]](MOST_CACHED)

    def add(self, profile: str, filters: OneNodeFilters) -> InTreeVerdicts:
        """Add a profile with its in-tree ``filters``, and return an object that gives their verdicts."""
        added = self._profiles[profile] = InTreeVerdicts(self, filters)
        return added

    def for_profile(self, profile: str) -> InTreeVerdicts:
        """Return the object that ``add`` created for a profile."""
        return self._profiles[profile]

    async def pod(self, core: CoreV1, pod: Pod) -> Pod | None:
        """Return the pod with all fields that ``core`` decodes.

        ``None``: the pod cannot be read, does not exist, or has another UID.
        """
        whole = (
            pod
            if self._snapshot_has_fields(core)
            else await self._read_alone(lambda reader: reader.pod(core, *pod.key))
        )
        return whole if whole is not None and whole.uid == pod.uid else None

    async def node(self, core: CoreV1, name: str) -> NodeInfo | None:
        """Return the node with all fields that ``core`` decodes; ``None`` if it cannot be read or does not exist."""
        if not self._snapshot_has_fields(core):
            return await self._read_alone(lambda reader: self._read(reader, core, name))
        try:
            self._cluster.unreadable.require(NODES, "", name)
        except Unreadable:
            return None
        return self._cluster.nodes.get(name)

    def _snapshot_has_fields(self, core: CoreV1) -> bool:
        """Return True if ``core`` decodes only fields of the snapshot that are used, see ``extras``."""
        return core.extras <= self._extras

    async def _read_alone(self, read: Callable[[UncachedReader], Awaitable[T | None]]) -> T | None:
        """Return the result of ``read``, after all earlier reads.

        Return ``None`` if it fails, if too many reads wait, or if there is no API server.
        """
        if self._reader is None or self._waiting >= MOST_WAITING:
            return None
        self._waiting += 1
        try:
            async with asyncio.timeout(LONGEST_SECONDS), self._alone:
                return await read(self._reader)
        except OSError:
            return None
        finally:
            self._waiting -= 1

    async def _read(self, reader: UncachedReader, core: CoreV1, name: str) -> NodeInfo | None:
        """Return the node from the cache or the API server; ``None`` if it does not exist. Raises ``OSError``."""
        key, stamp = (core.extras, name), self._cluster.node_stamp(name)
        known = self._cache.pop(key, None)
        if known is not None and known[0] == stamp and self._clock() - known[1] < CACHE_SECONDS:
            self._cache[key] = known
            return known[2]
        pause = self._not_before - self._clock()
        if pause > 0:
            await self._sleep(pause)
        self._not_before = self._clock() + PAUSE_SECONDS
        stamp = self._cluster.node_stamp(name)
        node = await reader.node(core, name)
        if node is not None:
            self._cache.put(key, (stamp, self._clock(), node))
        return node


class InTreeVerdicts:
    """Gives the verdicts of the in-tree filters of one profile. Implements ``Why``."""

    def __init__(self, reader: InTreeVerdictReader, filters: OneNodeFilters) -> None:
        self._in_tree_verdicts = reader
        self._filters = filters

    async def __call__(self, pod: Pod, node_name: str) -> NodeVerdict:
        whole = await self.whole(pod)
        return self._filters.nothing if whole is None else await self.verdict(whole, node_name)

    async def whole(self, pod: Pod) -> Pod | None:
        """Return the pod with all fields for these filters; ``None`` if it is gone or replaced, or cannot be read."""
        return await self._in_tree_verdicts.pod(self._filters.core, pod)

    async def verdict(self, whole: Pod, node_name: str) -> NodeVerdict:
        """Return the verdict on one node, for a pod that ``whole`` returned. Unknown if the node cannot be read."""
        node = await self._in_tree_verdicts.node(self._filters.core, node_name)
        if node is None:
            return self._filters.nothing
        return self._filters.verdict(replace(whole, node_name=""), node.without_pods((whole.uid,)))
