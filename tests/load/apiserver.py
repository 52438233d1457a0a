"""A stand-in for kube-apiserver that only lists and watches: enough to fill a picture with 150,000 pods.

Run as ``python -m tests.load.apiserver PORT NODES PODS [EVENTS_PER_SECOND]``. Pages are made beforehand, so that
serving them costs little.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from itertools import count
from typing import Final
from urllib.parse import parse_qs, urlsplit

from tests.load import cluster

_PAGE: Final = 500
_RESOURCES: Final = {
    "/api/v1": [
        ("pods", "Pod", True),
        ("nodes", "Node", False),
        ("services", "Service", True),
        ("replicationcontrollers", "ReplicationController", True),
    ],
    "/apis/apps/v1": [("replicasets", "ReplicaSet", True), ("statefulsets", "StatefulSet", True)],
}
_VERSION: Final = 1_000_000


class Server:
    """Lists pods and nodes from prepared pages; every other resource is empty."""

    def __init__(self, nodes: int, pods: int, rate: float) -> None:
        self._nodes, self._pods, self._rate = nodes, pods, rate
        self._pages = {
            "nodes": [self._page(cluster.node(i) for i in part) for part in _parts(nodes)],
            "pods": [self._page(cluster.pod(i, nodes) for i in part) for part in _parts(pods)],
        }

    @staticmethod
    def _page(items: object) -> bytes:
        return cluster.encoded(items)  # type: ignore[arg-type]  # an iterator of objects

    async def serve(self, port: int) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", port, limit=1 << 20)
        print("listening", flush=True)
        await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await self._answer(head.split(b" ", 2)[1].decode(), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, target: str, writer: asyncio.StreamWriter) -> None:
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if url.path in _RESOURCES:
            await _send(writer, self._discovery(url.path))
        elif query.get("watch") in ("1", "true"):
            await self._watch(url.path.rpartition("/")[2], writer)
        elif any(url.path == f"{group}/{name}" for group, found in _RESOURCES.items() for name, _, _ in found):
            await _send(writer, self._list(url.path.rpartition("/")[2], int(query.get("continue") or 0)))
        else:
            await _send(
                writer, json.dumps({"kind": "Status", "status": "Failure", "code": 404}).encode(), "404 Not Found"
            )

    def _discovery(self, path: str) -> bytes:
        found = [{"name": name, "kind": kind, "namespaced": spaced} for name, kind, spaced in _RESOURCES[path]]
        return json.dumps({"kind": "APIResourceList", "groupVersion": path, "resources": found}).encode()

    def _list(self, name: str, page: int) -> bytes:
        pages = self._pages.get(name, [b""])
        more = str(page + 1) if page + 1 < len(pages) else ""
        metadata = json.dumps({"resourceVersion": str(_VERSION), "continue": more}).encode()
        return b'{"kind":"List","metadata":' + metadata + b',"items":[' + pages[page] + b"]}"

    async def _watch(self, name: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        async for line in self._events(name):
            writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            await writer.drain()

    async def _events(self, name: str) -> AsyncIterator[bytes]:
        """Pods come and go at the rate asked for; other kinds are quiet but for bookmarks."""
        if name != "pods" or not self._rate:
            while True:
                await asyncio.sleep(5)
                yield _event("BOOKMARK", {"metadata": {"resourceVersion": str(_VERSION)}})
        for number in count():
            await asyncio.sleep(1 / self._rate)
            made = cluster.pod(number % self._pods, self._nodes)
            made["metadata"]["resourceVersion"] = str(_VERSION + number)
            yield _event("DELETED" if number // self._pods % 2 == 0 else "ADDED", made)


def _event(kind: str, obj: object) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def _parts(size: int) -> list[range]:
    return [range(start, min(start + _PAGE, size)) for start in range(0, size, _PAGE)]


async def _send(writer: asyncio.StreamWriter, body: bytes, status: str = "200 OK") -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


if __name__ == "__main__":
    port, nodes, pods = (int(it) for it in sys.argv[1:4])
    asyncio.run(Server(nodes, pods, float(sys.argv[4]) if len(sys.argv) > 4 else 0.0).serve(port))
