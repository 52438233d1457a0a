"""Why would in-tree filters refuse a pod on one node? For people, off every path on which something is decided.

A picture that holds all that these filters read is asked. Of another one the pod, the node and the pods on it are read
from the API server: one at a time, a node once a second at most, and the last few are remembered for some seconds.
Pods that are only nominated to the node are not counted.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, Protocol

from msgspec.structs import replace

from app.cache.cluster import Cluster
from app.framework.interface import Clock, NodeVerdict, Sleep, Unreadable, Why
from app.framework.node_info import NodeInfo
from app.kube.core_v1 import CoreV1, Pod
from app.kube.extras import Extra
from app.kube.kinds import NODES
from app.runtime.one_node import OneNodeFilters

LONGEST_SECONDS: Final = 5.0
"""For an answer, with waiting for those of others."""

MOST_WAITING: Final = 8
"""Who comes later is told that nothing is known."""

PAUSE_SECONDS: Final = 1.0
"""Between two reads of nodes."""

KEPT_SECONDS: Final = 5.0
MOST_KEPT: Final = 4

_Key = tuple[frozenset[Extra], str]


class Reader(Protocol):
    """Reads past the picture, with whatever parts."""

    async def pod(self, core: CoreV1, namespace: str, name: str) -> Pod | None:
        """``None`` if there is none. Raises ``OSError`` if it cannot be said."""
        ...

    async def node(self, core: CoreV1, name: str) -> NodeInfo | None:
        """The same of a node, with the pods on it."""
        ...


class Whys:
    """Answers the profiles of a process. ``reader``: ``None`` where there is no API server to ask."""

    def __init__(self, cluster: Cluster, reader: Reader | None, clock: Clock, sleep: Sleep = asyncio.sleep) -> None:
        self._cluster = cluster
        self._reader = reader
        self._clock = clock
        self._sleep = sleep
        self._alone = asyncio.Lock()
        self._waiting = 0
        self._not_before = 0.0
        self._kept: OrderedDict[_Key, tuple[float, NodeInfo]] = OrderedDict()

    def of(self, filters: OneNodeFilters) -> Why:
        """For one profile."""

        async def why(pod: Pod, node_name: str) -> NodeVerdict:
            return await self._why(filters, pod, node_name)

        return why

    async def _why(self, filters: OneNodeFilters, pod: Pod, node_name: str) -> NodeVerdict:
        if self._waiting >= MOST_WAITING:
            return filters.nothing
        self._waiting += 1
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                found = await self._found(filters.core, pod, node_name)
        except (OSError, Unreadable):
            found = None
        finally:
            self._waiting -= 1
        if found is None:
            return filters.nothing
        whole, node = found
        return filters.verdict(replace(whole, node_name=""), node.without_pods((pod.uid,)))

    async def _found(self, core: CoreV1, pod: Pod, node_name: str) -> tuple[Pod, NodeInfo] | None:
        """Raises ``OSError`` or ``Unreadable``."""
        if core.extras <= self._cluster.core.extras:
            self._cluster.left_out.require(NODES, "", node_name)
            known = self._cluster.nodes.get(node_name)
            return None if known is None else (pod, known)
        if self._reader is None:
            return None
        async with self._alone:
            node = await self._node(self._reader, core, node_name)
            whole = None if node is None else await self._reader.pod(core, *pod.key)
        if node is None or whole is None or whole.uid != pod.uid:
            return None
        return whole, node

    async def _node(self, reader: Reader, core: CoreV1, name: str) -> NodeInfo | None:
        """Raises ``OSError``."""
        key = (core.extras, name)
        at, node = self._kept.get(key, (0.0, None))
        if node is not None and self._clock() - at < KEPT_SECONDS:
            return node
        self._kept.pop(key, None)
        pause = self._not_before - self._clock()
        if pause > 0:
            await self._sleep(pause)
        self._not_before = self._clock() + PAUSE_SECONDS
        node = await reader.node(core, name)
        if node is not None:
            self._kept[key] = (self._clock(), node)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return node
