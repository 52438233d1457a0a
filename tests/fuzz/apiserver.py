"""A stand-in for kube-apiserver that sends whatever it is told to: any bytes as an object, an event, a page.

It lists page by page, watches from a version on, takes Bindings and patches, and answers 410 where it has forgotten. It
runs in the loop of whoever uses it, so that what it holds is changed by plain calls.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

Json = dict[str, Any]
Key = tuple[str, str]

BOOKMARK_SECONDS: Final = 1.0
_SNAPSHOTS: Final = 64
_MOST_HEAD: Final = 1 << 20


class Resource(Struct, frozen=True):
    """Where the objects of a kind are."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"


RESOURCES: Final = (
    Resource("v1", "Pod", "pods"),
    Resource("v1", "Node", "nodes", namespaced=False),
    Resource("v1", "Service", "services"),
    Resource("v1", "ReplicationController", "replicationcontrollers"),
    Resource("apps/v1", "ReplicaSet", "replicasets"),
    Resource("apps/v1", "StatefulSet", "statefulsets"),
    Resource("kubevirt.io/v1", "VirtualMachine", "virtualmachines"),
    Resource("kubevirt.io/v1", "VirtualMachineInstance", "virtualmachineinstances"),
)
_BY_PATH: Final = {f"{it.group}/{it.plural}": it for it in RESOURCES}


class Feed:
    """What is held of one kind, and who watches it. ``oldest``: from which version on a watch can be had."""

    def __init__(self, oldest: int) -> None:
        self.objects: dict[Key, bytes] = {}
        self.extra: list[bytes] = []
        self.log: list[tuple[int, bytes]] = []
        self.oldest = oldest
        self.watches: set[asyncio.Queue[bytes | None]] = set()


class ApiServer:
    """``port`` once it listens."""

    def __init__(self) -> None:
        self.version = 1000
        self.port = 0
        self._feeds = {str(it): Feed(self.version) for it in RESOURCES}
        self._snapshots: OrderedDict[str, list[bytes]] = OrderedDict()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=_MOST_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for feed in self._feeds.values():
            self._end(feed)

    # what tests do to it

    def keys(self, kind: str) -> list[Key]:
        return list(self._feeds[kind].objects)

    def put(self, found: Json) -> None:
        """Somebody writes an object."""
        kind = f"{found['apiVersion']} {found['kind']}"
        metadata = found["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        known = key in self._feeds[kind].objects
        metadata["resourceVersion"] = str(self.version + 1)
        raw = json.dumps(found).encode()
        self._feeds[kind].objects[key] = raw
        self.send(kind, event("MODIFIED" if known else "ADDED", raw))

    def delete(self, kind: str, key: Key) -> None:
        raw = self._feeds[kind].objects.pop(key)
        self.send(kind, event("DELETED", raw))

    def send(self, kind: str, line: bytes, *, once: bool = False) -> None:
        """These bytes to everybody who watches the kind, as one event of a version of its own.

        ``once``: who watches again from an earlier version does not get them, as with the end of a watch.
        """
        self.version += 1
        feed = self._feeds[kind]
        if not once:
            feed.log.append((self.version, line))
        for queue in feed.watches:
            queue.put_nowait(line)

    def list_also(self, kind: str, items: list[bytes]) -> None:
        """What lists hold from now on beside the objects that are known by a key. Must be JSON."""
        self._feeds[kind].extra = items

    def forget(self, kind: str, *, in_words: bool = True) -> None:
        """No watch from before now can be had: those that run are told so, or just end."""
        feed = self._feeds[kind]
        self.version += 1
        feed.oldest = self.version
        feed.log.clear()
        if in_words:
            for queue in feed.watches:
                queue.put_nowait(event("ERROR", _status(410, "Expired")))
        self._end(feed)

    @staticmethod
    def _end(feed: Feed) -> None:
        for queue in feed.watches:
            queue.put_nowait(None)
        feed.watches.clear()

    # what is asked of it

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
                body = await reader.readexactly(int(length or 0))
                method, target, _ = head.decode("latin-1").split(" ", 2)
                url = urlsplit(target)
                query = {key: values[0] for key, values in parse_qs(url.query).items()}
                if method == "GET" and query.get("watch") == "true":
                    await self._watch(self._feeds[str(_BY_PATH[url.path])], query, writer)
                else:
                    status, answer = self._answered(method, url.path, query, body)
                    await _send(writer, status, answer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answered(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        if path in _BY_PATH and method == "GET":
            return 200, self._list(_BY_PATH[path], query)
        if any(path == it.group for it in RESOURCES):
            return 200, _discovery(path)
        if path.endswith("/selfsubjectaccessreviews"):
            return 201, json.dumps({**json.loads(body), "status": {"allowed": True}}).encode()
        found = self._find(path)
        if found is None:
            return 404, _status(404, "NotFound")
        kind, key, subresource = found
        raw = self._feeds[kind].objects[key]
        if method == "GET":
            return 200, raw
        return self._bind(raw, body) if subresource == "binding" else self._patch(raw, body)

    def _find(self, path: str) -> tuple[str, Key, str] | None:
        """Kind, key and subresource of the object at a path."""
        for resource in RESOURCES:
            rest = path.removeprefix(f"{resource.group}/").split("/")
            if resource.namespaced and rest[0] == "namespaces" and rest[2:3] == [resource.plural]:
                key, last = (unquote(rest[1]), unquote("".join(rest[3:4]))), rest[4:]
            elif not resource.namespaced and rest[0] == resource.plural:
                key, last = ("", unquote("".join(rest[1:2]))), rest[2:]
            else:
                continue
            if key in self._feeds[str(resource)].objects:
                return str(resource), key, "".join(last[:1])
        return None

    def _bind(self, raw: bytes, body: bytes) -> tuple[int, bytes]:
        found, asked = json.loads(raw), json.loads(body)
        if asked["metadata"].get("uid") not in (None, found["metadata"]["uid"]) or found["spec"].get("nodeName"):
            return 409, _status(409, "Conflict")
        found["spec"]["nodeName"] = asked["target"]["name"]
        found["metadata"]["annotations"] = _merged(found, asked)
        self.put(found)
        return 201, b'{"kind":"Status","apiVersion":"v1","status":"Success"}'

    def _patch(self, raw: bytes, body: bytes) -> tuple[int, bytes]:
        found, asked = json.loads(raw), json.loads(body)
        if asked.get("metadata", {}).get("resourceVersion") not in (None, found["metadata"]["resourceVersion"]):
            return 409, _status(409, "Conflict")
        found["metadata"]["annotations"] = _merged(found, asked)
        found["status"] = {**found.get("status", {}), **asked.get("status", {})}
        self.put(found)
        return 200, json.dumps(found).encode()

    def _list(self, resource: Resource, query: Mapping[str, str]) -> bytes:
        token, limit = query.get("continue", ""), int(query.get("limit") or 1 << 30)
        name, _, start = token.partition(".")
        if not token:
            name = str(self.version)
            feed = self._feeds[str(resource)]
            self._snapshots[f"{resource}{name}"] = _mixed(list(feed.objects.values()), feed.extra)
            while len(self._snapshots) > _SNAPSHOTS:
                self._snapshots.popitem(last=False)
        items = self._snapshots[f"{resource}{name}"]
        end = int(start or 0) + limit
        more = f"{name}.{end}" if end < len(items) else ""
        metadata = json.dumps({"resourceVersion": name, "continue": more}).encode()
        page = b",".join(items[int(start or 0) : end])
        return b'{"kind":"List","apiVersion":"v1","metadata":' + metadata + b',"items":[' + page + b"]}"

    async def _watch(self, feed: Feed, query: Mapping[str, str], writer: asyncio.StreamWriter) -> None:
        asked = query.get("resourceVersion", "")
        seen = int(asked) if asked.isdecimal() else -1
        if not feed.oldest <= seen <= self.version:
            await _send(writer, 410, _status(410, "Expired"))
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + int(query.get("timeoutSeconds") or 300)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        for version, line in feed.log:
            if version > seen:
                queue.put_nowait(line)
        feed.watches.add(queue)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            await self._stream(queue, until, writer)
        finally:
            feed.watches.discard(queue)
        if not writer.is_closing():
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    async def _stream(self, queue: asyncio.Queue[bytes | None], until: float, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < until:
            try:
                line = await asyncio.wait_for(queue.get(), min(BOOKMARK_SECONDS, max(0.0, until - loop.time())))
            except TimeoutError:
                line = event("BOOKMARK", json.dumps({"metadata": {"resourceVersion": str(self.version)}}).encode())
            if line is None or writer.is_closing():
                return
            writer.write(b"%x\r\n" % (len(line) + 1) + line + b"\n\r\n")
            await writer.drain()


def event(kind: str, raw: bytes) -> bytes:
    """One line of a watch."""
    return b'{"type":"%s","object":%s}' % (kind.encode(), raw)


def _mixed(good: list[bytes], extra: list[bytes]) -> list[bytes]:
    """One of each in turn: a bad one has good neighbours."""
    pairs = zip(good, extra, strict=False)
    shorter = min(len(good), len(extra))
    return [it for pair in pairs for it in pair] + good[shorter:] + extra[shorter:]


def _merged(found: Json, asked: Json) -> Json:
    annotations = {
        **(found["metadata"].get("annotations") or {}),
        **(asked.get("metadata", {}).get("annotations") or {}),
    }
    return {key: value for key, value in annotations.items() if value is not None}


def _discovery(group: str) -> bytes:
    found = [{"name": it.plural, "kind": it.kind, "namespaced": it.namespaced} for it in RESOURCES if it.group == group]
    return json.dumps({"kind": "APIResourceList", "groupVersion": group, "resources": found}).encode()


def _status(code: int, reason: str) -> bytes:
    return json.dumps({"kind": "Status", "status": "Failure", "code": code, "reason": reason}).encode()


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    head = f"HTTP/1.1 {status} Told\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
