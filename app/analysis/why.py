"""In-tree filters asked about one pod and one node, whatever the profile runs.

``handle.profile.why`` asks to tell people, the sampling guard before it nominates; no verb decides by the answer. A
picture that holds all that these filters read is used as it is. Else the pod, the node and the pods on it are read from
the API server: one question at a time, ten nodes a second at most. A node that was read is reused until the picture
shows a change of it or of its pods, for ``KEPT_SECONDS`` at most. Pods that are only nominated to the node are not
counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
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
"""Time limit of one question, including the wait for those before it."""

MOST_WAITING: Final = 8
"""Maximum number of questions at a time. One more is answered at once: nothing is known."""

PAUSE_SECONDS: Final = 0.1
"""Time between two reads of nodes, because a read with all pods of a node costs milliseconds here and there."""

KEPT_SECONDS: Final = 5.0
MOST_KEPT: Final = 64
"""Maximum number of nodes kept, some 100 KB each."""

T = TypeVar("T")
_Key = tuple[frozenset[Extra], str]


class Reader(Protocol):
    """Reads past the picture, with whatever parts."""

    async def pod(self, core: CoreV1, namespace: str, name: str) -> Pod | None:
        """Return ``None`` if there is none. Raises ``OSError`` if that is not known."""
        ...

    async def node(self, core: CoreV1, name: str) -> NodeInfo | None:
        """Return the node with the pods on it, ``None`` if there is none. Raises ``OSError`` if that is not known."""
        ...


class Whys:
    """Questions of all profiles. ``reader`` is ``None`` where there is no API server to read from."""

    def __init__(self, cluster: Cluster, reader: Reader | None, clock: Clock, sleep: Sleep = asyncio.sleep) -> None:
        self._cluster = cluster
        self._reader = reader
        self._clock = clock
        self._sleep = sleep
        self._alone = asyncio.Lock()
        self._waiting = 0
        self._not_before = 0.0
        self._profiles: dict[str, InTreeVerdicts] = {}
        self._kept = Newest[_Key, tuple[Hashable, float, NodeInfo]](MOST_KEPT)

    def add(self, profile: str, filters: OneNodeFilters) -> InTreeVerdicts:
        """Take in the filters beside a profile; return them."""
        added = self._profiles[profile] = InTreeVerdicts(self, filters)
        return added

    def beside(self, profile: str) -> InTreeVerdicts:
        """Return the filters beside a profile that was added."""
        return self._profiles[profile]

    async def pod(self, core: CoreV1, pod: Pod) -> Pod | None:
        """Return the pod as ``core`` decodes it; ``None`` if that is not known, or it was replaced."""
        whole = pod if self._holds(core) else await self._ask(lambda reader: reader.pod(core, *pod.key))
        return whole if whole is not None and whole.uid == pod.uid else None

    async def node(self, core: CoreV1, name: str) -> NodeInfo | None:
        """Return the node as ``core`` decodes it; ``None`` if that is not known."""
        if not self._holds(core):
            return await self._ask(lambda reader: self._read(reader, core, name))
        try:
            self._cluster.left_out.require(NODES, "", name)
        except Unreadable:
            return None
        return self._cluster.nodes.get(name)

    def _holds(self, core: CoreV1) -> bool:
        return core.extras <= self._cluster.core.extras

    async def _ask(self, read: Callable[[Reader], Awaitable[T | None]]) -> T | None:
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

    async def _read(self, reader: Reader, core: CoreV1, name: str) -> NodeInfo | None:
        """Raises ``OSError``."""
        key, stamp = (core.extras, name), self._cluster.node_stamp(name)
        known = self._kept.pop(key, None)
        if known is not None and known[0] == stamp and self._clock() - known[1] < KEPT_SECONDS:
            self._kept[key] = known
            return known[2]
        pause = self._not_before - self._clock()
        if pause > 0:
            await self._sleep(pause)
        self._not_before = self._clock() + PAUSE_SECONDS
        stamp = self._cluster.node_stamp(name)
        node = await reader.node(core, name)
        if node is not None:
            self._kept.put(key, (stamp, self._clock(), node))
        return node


class InTreeVerdicts:
    """In-tree filters beside one profile. A call is a ``Why``."""

    def __init__(self, whys: Whys, filters: OneNodeFilters) -> None:
        self._whys = whys
        self._filters = filters

    async def __call__(self, pod: Pod, node_name: str) -> NodeVerdict:
        whole = await self.whole(pod)
        return self._filters.nothing if whole is None else await self.verdict(whole, node_name)

    async def whole(self, pod: Pod) -> Pod | None:
        """Return the pod with all that these filters read of it; ``None`` if that is not known."""
        return await self._whys.pod(self._filters.core, pod)

    async def verdict(self, whole: Pod, node_name: str) -> NodeVerdict:
        """Judge a pod that ``whole`` returned."""
        node = await self._whys.node(self._filters.core, node_name)
        if node is None:
            return self._filters.nothing
        return self._filters.verdict(replace(whole, node_name=""), node.without_pods((whole.uid,)))
