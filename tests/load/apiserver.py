"""A stand-in for kube-apiserver that lists, watches and binds: enough to fill a picture with 150,000 pods.

Run as ``python -m tests.load.apiserver PORT NODES PODS [PENDING [FURNISHED]]``, the last one 1 for pods and nodes with
what all plugins of kube-scheduler read. Objects are encoded beforehand, so that serving them costs little.
``POST /bench/rate/<events per second>`` makes pods come and go, ``POST /bench/gone`` ends the watch of pods as an API
server does that has forgotten their versions: they are listed anew.

It is no second fake of the one in tests/apiserver.py but a generator of load: it holds no objects, only their bytes,
and must cost little beside what is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping
from itertools import count, cycle
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.load import cluster

_RESOURCES: Final = {
    "/api/v1": [
        ("pods", "Pod", True),
        ("nodes", "Node", False),
        ("services", "Service", True),
        ("replicationcontrollers", "ReplicationController", True),
        ("namespaces", "Namespace", False),
        ("persistentvolumes", "PersistentVolume", False),
        ("persistentvolumeclaims", "PersistentVolumeClaim", True),
    ],
    "/apis/apps/v1": [("replicasets", "ReplicaSet", True), ("statefulsets", "StatefulSet", True)],
    "/apis/policy/v1": [("poddisruptionbudgets", "PodDisruptionBudget", True)],
    "/apis/storage.k8s.io/v1": [
        ("storageclasses", "StorageClass", False),
        ("csinodes", "CSINode", False),
        ("csidrivers", "CSIDriver", False),
        ("csistoragecapacities", "CSIStorageCapacity", True),
        ("volumeattachments", "VolumeAttachment", False),
        ("volumeattributesclasses", "VolumeAttributesClass", False),
    ],
    "/apis/resource.k8s.io/v1": [
        ("resourceclaims", "ResourceClaim", True),
        ("resourceslices", "ResourceSlice", False),
        ("deviceclasses", "DeviceClass", False),
    ],
}
_VERSION: Final = 1_000_000
_VERSION_MARK: Final = b"@version@"
_TICK: Final = 0.005
_BOOKMARK_SECONDS: Final = 5.0
_CHURNED: Final = 1000
"""Pods that come and go; each is deleted and created again in turn, so that the cluster stays as large as it is."""

_GONE: Final = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired"}


class Server:
    """Lists pods and nodes from prepared pages; every other resource is empty."""

    def __init__(
        self, nodes: int, pods: int, pending: int, *, furnished: bool = False, workloads: int = cluster.WORKLOADS
    ) -> None:
        """``workloads``: how many the waiting pods are of."""
        furnish = cluster.furnish if furnished else _plain
        node = cluster.furnished_node if furnished else cluster.node
        waiting = [furnish(cluster.waiting_pod(number, workloads)) for number in range(pending)]
        self._pending = {(it["metadata"]["namespace"], it["metadata"]["name"]): it for it in waiting}
        self._versions = count(_VERSION + 1)
        self._rate = 0.0
        self._watching: list[asyncio.Queue[bytes]] = []
        self._objects = {
            "nodes": [_encoded(node(i)) for i in range(nodes)],
            "pods": [*(_encoded(furnish(cluster.pod(i, nodes))) for i in range(pods)), *map(_encoded, waiting)],
        }
        self._churn = [
            _event(kind, cluster.versioned(furnish(cluster.pod(number, nodes)), _VERSION_MARK.decode()))
            for number in range(min(pods, _CHURNED))
            for kind in ("DELETED", "ADDED")
        ]

    async def serve(self, port: int) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", port, limit=1 << 20)
        churning = asyncio.create_task(self._churn_forever())
        print("listening", flush=True)
        try:
            await server.serve_forever()
        finally:
            churning.cancel()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
                body = await reader.readexactly(int(length or 0))
                method, target, _ = head.decode().split(" ", 2)
                if method == "POST":
                    await self._posted(target, body, writer)
                else:
                    await self._answer(target, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _posted(self, target: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        parts = target.strip("/").split("/")
        if parts[:2] == ["bench", "rate"]:
            self._rate = float(parts[2])
        elif parts == ["bench", "gone"]:
            self._tell(_event("ERROR", _GONE))
        elif parts[-1] == "binding":
            self._bind((parts[3], parts[5]), json.loads(body)["target"]["name"])
        await _send(writer, b'{"kind":"Status","apiVersion":"v1","status":"Success"}', "201 Created")

    def _bind(self, key: tuple[str, str], node: str) -> None:
        pod = self._pending.pop(key)
        pod["spec"]["nodeName"] = node
        self._tell(_event("MODIFIED", cluster.versioned(pod, str(next(self._versions)))))

    async def _answer(self, target: str, writer: asyncio.StreamWriter) -> None:
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if url.path in _RESOURCES:
            await _send(writer, self._discovery(url.path))
        elif query.get("watch") in ("1", "true"):
            await self._watch(url.path.rpartition("/")[2], writer)
        elif any(url.path == f"{group}/{name}" for group, found in _RESOURCES.items() for name, _, _ in found):
            await _send(writer, self._list(url.path.rpartition("/")[2], query))
        else:
            await _send(
                writer, json.dumps({"kind": "Status", "status": "Failure", "code": 404}).encode(), "404 Not Found"
            )

    def _discovery(self, path: str) -> bytes:
        found = [{"name": name, "kind": kind, "namespaced": spaced} for name, kind, spaced in _RESOURCES[path]]
        return json.dumps({"kind": "APIResourceList", "groupVersion": path, "resources": found}).encode()

    def _list(self, name: str, query: Mapping[str, str]) -> bytes:
        objects = self._objects.get(name, [])
        start = int(query.get("continue") or 0)
        end = min(start + int(query.get("limit") or len(objects)), len(objects))
        more = str(end) if end < len(objects) else ""
        metadata = json.dumps({"resourceVersion": str(_VERSION), "continue": more}).encode()
        return b'{"kind":"List","metadata":' + metadata + b',"items":[' + b",".join(objects[start:end]) + b"]}"

    async def _watch(self, name: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        async for lines in self._events(name):
            writer.write(f"{len(lines):x}\r\n".encode() + lines + b"\r\n")
            await writer.drain()
            if lines.startswith(b'{"type": "ERROR"'):
                writer.write(b"0\r\n\r\n")
                return

    async def _events(self, name: str) -> AsyncIterator[bytes]:
        """What happens to pods; other kinds are quiet but for bookmarks."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        if name == "pods":
            self._watching.append(queue)
        try:
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), _BOOKMARK_SECONDS)
                except TimeoutError:
                    yield _event("BOOKMARK", {"metadata": {"resourceVersion": str(_VERSION)}})
        finally:
            if name == "pods":
                self._watching.remove(queue)

    def _tell(self, lines: bytes) -> None:
        for queue in self._watching:
            queue.put_nowait(lines)

    async def _churn_forever(self) -> None:
        """As many events as are due by now, a few milliseconds' worth at once."""
        events, due, last = cycle(self._churn or [b""]), 0.0, time.monotonic()
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            due, last = due + self._rate * (now - last), now
            for _ in range(int(due)):
                self._tell(next(events).replace(_VERSION_MARK, str(next(self._versions)).encode()))
            due %= 1


def _plain(made: dict[str, Any]) -> dict[str, Any]:
    return made


def _event(kind: str, obj: Any) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def _encoded(made: dict[str, Any]) -> bytes:
    return json.dumps(made, separators=(",", ":")).encode()


async def _send(writer: asyncio.StreamWriter, body: bytes, status: str = "200 OK") -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


if __name__ == "__main__":
    port, nodes, pods, *more = (int(it) for it in sys.argv[1:])
    pending, furnished, workloads, *_ = (*more, *(0, 0, cluster.WORKLOADS)[len(more) :])
    asyncio.run(Server(nodes, pods, pending, furnished=bool(furnished), workloads=workloads).serve(port))
