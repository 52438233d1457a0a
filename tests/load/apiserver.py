"""The fake API server of tests/apiserver.py behind a socket, filled with a large cluster, for services under load.

Run as ``python -m tests.load.apiserver PORT NODES PODS [PENDING [FURNISHED [WORKLOADS]]]``. PENDING: number of waiting
pods, of so many WORKLOADS. FURNISHED: 1 for pods and nodes with what all plugins of kube-scheduler read.

``POST /bench/rate/<events per second>`` makes pods come and go, ``POST /bench/gone`` ends the watch of pods as an API
server does that has forgotten their versions: they are listed anew.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from itertools import cycle
from typing import Any, Final

from tests.apiserver import Answer, event
from tests.fuzz.listening import ListeningApiServer
from tests.load import cluster

_PODS: Final = "v1 Pod"
_VERSION_MARK: Final = "@version@"
_VERSION: Final = 1_000_000
"""Version of the first list; all objects are older."""

_TICK: Final = 0.005
_BOOKMARK_SECONDS: Final = 5.0
_CHURNED: Final = 1000
"""Pods that come and go; each is deleted and created again in turn, so that the cluster stays as large as it is."""


class Server(ListeningApiServer):
    """Holds nodes and pods as bytes only: serving them must cost little beside what is measured."""

    def __init__(self, nodes: int, pods: int, pending: int, *, furnished: bool, workloads: int) -> None:
        super().__init__()
        self.bookmark_seconds, self.version = _BOOKMARK_SECONDS, _VERSION
        furnish = cluster.furnish if furnished else _plain
        node = cluster.furnished_node if furnished else cluster.node
        waiting = (furnish(cluster.waiting_pod(number, workloads)) for number in range(pending))
        running = (furnish(cluster.pod(number, nodes)) for number in range(pods))
        self._rate = 0.0
        self._feeds["v1 Node"].objects = {("", it["metadata"]["name"]): _encoded(it) for it in map(node, range(nodes))}
        self._feeds[_PODS].objects = {
            (it["metadata"]["namespace"], it["metadata"]["name"]): _encoded(it)
            for source in (running, waiting)
            for it in source
        }
        churned = [
            cluster.versioned(furnish(cluster.pod(it, nodes)), _VERSION_MARK) for it in range(min(pods, _CHURNED))
        ]
        self._churn = [event(kind, _encoded(pod)) for pod in churned for kind in ("DELETED", "ADDED")]

    def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Answer:
        parts = path.strip("/").split("/")
        if parts[0] != "bench":
            return super().answer(method, path, query, body)
        if parts[1] == "rate":
            self._rate = float(parts[2])
        else:
            self.forget(_PODS)
        return Answer(201, b"{}")

    async def serve(self, port: int) -> None:
        await self.start(port)
        events, due, last = cycle(self._churn or [b""]), 0.0, time.monotonic()
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            due, last = due + self._rate * (now - last), now
            for _ in range(int(due)):
                self.send(
                    _PODS, next(events).replace(_VERSION_MARK.encode(), str(self.version + 1).encode()), once=True
                )
            due %= 1


def _plain(made: dict[str, Any]) -> dict[str, Any]:
    return made


def _encoded(made: dict[str, Any]) -> bytes:
    return json.dumps(made, separators=(",", ":")).encode()


if __name__ == "__main__":
    port, nodes, pods, *more = (int(it) for it in sys.argv[1:])
    pending, furnished, workloads, *_ = (*more, *(0, 0, cluster.WORKLOADS)[len(more) :])
    asyncio.run(Server(nodes, pods, pending, furnished=bool(furnished), workloads=workloads).serve(port))
