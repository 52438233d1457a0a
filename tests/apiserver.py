"""The one fake API server: objects of any kind, versions over all of them, watches, and a network that misbehaves.

``ApiServer`` is called with an ``httpx.Request``, as ``httpx.MockTransport`` does it, in the loop of whoever uses it:
what it holds is changed by plain calls, and it keeps virtual time. ``answer`` and ``watch`` are the same without HTTP,
for who puts a socket before it. tests/integration/test_apiserver.py holds what it answers against kube-apiserver.

What it does not do: field selectors, validation, namespaces as objects. A watch from a version that is still to come is
refused as one from too long ago is; kube-apiserver waits for it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote

import httpx
import yaml
from msgspec import Struct

from app.kube.client import KubeClient
from app.kube.credential_sources import Kubeconfig
from app.kube.credentials import Access, Credentials
from tests.builders import JsonObject

Key: TypeAlias = tuple[str, str]
"""Namespace, empty for what has none, and name."""

Fault: TypeAlias = Literal["lost", "unanswered", "late", "unreachable", "another"] | int | httpx.Response | Exception
"""``lost``: never arrived · ``unanswered``: carried out · ``late``: carried out when the test says so; none of these is
answered · ``unreachable``: no connection · ``another``: carried out, and answered with an object of another name · a
number: that status · an answer or an exception: just that."""

Network: TypeAlias = Literal["up", "silent", "refused"]

_SNAPSHOTS: Final = 64
_WATCH_SECONDS: Final = 1800
_TICK: Final = 0.95
"""Bookmarks are handed out in rounds of about a second."""

_BEFORE_END: Final = 2.0
_REASONS: Final = {404: "NotFound", 409: "Conflict"}
_TLS: Final = ssl.create_default_context()


class Resource(Struct, frozen=True):
    """Where the objects of a kind are. ``made_by_put``: a replacement of one that is not there makes it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True
    made_by_put: bool = False

    @property
    def group(self) -> str:
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"

    def path(self, namespace: str = "", name: str = "") -> str:
        """That of the collection, or of an object."""
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.group}{scope}/{self.plural}" + (f"/{name}" if name else "")

    def __str__(self) -> str:
        return f"{self.api_version} {self.kind}"


RESOURCES: Final = (
    Resource("v1", "Pod", "pods"),
    Resource("v1", "Node", "nodes", namespaced=False),
    Resource("v1", "Service", "services"),
    Resource("v1", "ReplicationController", "replicationcontrollers"),
    Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    Resource("v1", "PersistentVolume", "persistentvolumes", namespaced=False),
    Resource("apps/v1", "ReplicaSet", "replicasets"),
    Resource("apps/v1", "StatefulSet", "statefulsets"),
    Resource("kubevirt.io/v1", "VirtualMachine", "virtualmachines"),
    Resource("kubevirt.io/v1", "VirtualMachineInstance", "virtualmachineinstances"),
    Resource("homeport.dev/v1alpha1", "Home", "homes"),
)
"""What Homeport watches."""

MORE_RESOURCES: Final = (
    Resource("v1", "Namespace", "namespaces", namespaced=False),
    Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Resource("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False),
    Resource("storage.k8s.io/v1", "CSINode", "csinodes", namespaced=False),
    Resource("storage.k8s.io/v1", "CSIDriver", "csidrivers", namespaced=False),
    Resource("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", namespaced=False),
    Resource("storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities"),
    Resource("resource.k8s.io/v1", "ResourceClaim", "resourceclaims"),
    Resource("resource.k8s.io/v1", "ResourceSlice", "resourceslices", namespaced=False),
    Resource("resource.k8s.io/v1", "DeviceClass", "deviceclasses", namespaced=False),
)
"""Kinds that ``preset: complete`` watches beside the others."""

SERVED: Final = (
    *RESOURCES,
    *MORE_RESOURCES,
    Resource("coordination.k8s.io/v1", "Lease", "leases", made_by_put=True),
    Resource("events.k8s.io/v1", "Event", "events"),
)


class Answer(Struct, frozen=True):
    """A status and a body of JSON."""

    status: int
    body: bytes


class Watch:
    """The lines of one watch. Over once it iterates no more; raises what httpx raises where the network is gone."""

    def __init__(self, feed: Feed, seen: int, seconds: float, *, silence: float, bookmarks: float, pace: float) -> None:
        """``silence``: for how long the client takes one. ``bookmarks``, ``pace``: seconds between them, and lines."""
        self.feed = feed
        self.seen = seen
        self.cut = False
        self.reset = False
        self.closed = False
        self.queue: deque[tuple[int, bytes]] = deque()
        self._silence = silence
        self._pace = pace
        self._every = bookmarks
        self._last = _now()
        self._until = self._last + seconds
        self._bookmark = min(self._until - _BEFORE_END + _TICK, self._last + bookmarks)
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    def tell(self, version: int, line: bytes) -> None:
        if not self.cut:
            self.queue.append((version, line))
            self.wake()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while (line := await self._next()) is not None:
                yield line + b"\n"
                await asyncio.sleep(self._pace)
        finally:
            self.feed.watches.discard(self)

    async def _next(self) -> bytes | None:
        while True:
            line = None if self.cut else self._due()
            if line is not None:
                self._last = _now()
                return line
            if self.reset:
                raise httpx.ReadError("reset")
            if self.closed or (not self.cut and _now() >= self._until):
                return None
            if self.cut and _now() >= self._last + self._silence:
                raise httpx.ReadTimeout("silent")
            wakes = self._last + self._silence if self.cut else min(self._until, self._bookmark)
            await self._wait(wakes - _now())

    def _due(self) -> bytes | None:
        if self.queue:
            self.seen, line = self.queue.popleft()
            return line
        if _now() >= self._bookmark:
            self._bookmark = _now() + self._every
            if self.feed.known > self.seen:
                self.seen = self.feed.known
                return event("BOOKMARK", _raw({"metadata": {"resourceVersion": str(self.seen)}}))
        return None

    async def _wait(self, seconds: float) -> None:
        self._woken.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass


class Feed:
    """What is held of one kind, and who watches it.

    ``oldest``: from which version on a watch can be had. ``known``: how far the watch cache is known to have come.
    """

    def __init__(self, oldest: int) -> None:
        self.objects: dict[Key, bytes] = {}
        self.extra: list[bytes] = []
        self.log: list[tuple[int, bytes]] = []
        self.oldest = oldest
        self.known = 0
        self.watches: set[Watch] = set()


class ApiServer:
    """Holds objects, and answers for them.

    ``requests`` is every one that arrived, ``log`` the same in words. Seconds: ``round_trip`` of every
    request, ``answers_after`` from carrying out a replacement to its answer, ``bookmark_seconds`` between bookmarks,
    ``pace`` between the lines of a watch. ``spoil`` is done to every object that is answered.
    """

    def __init__(self, *objects: JsonObject, served: tuple[Resource, ...] = SERVED) -> None:
        self.version = 1000
        self.requests: list[httpx.Request] = []
        self.held: list[httpx.Request] = []
        self.down: Fault | None = None
        self.down_at: dict[str, Fault] = {}
        self.network: Network = "up"
        self.missing_namespaces: set[str] = set()
        self.round_trip = 0.0
        self.answers_after = 0.0
        self.bookmark_seconds = 60.0
        self.pace = 0.0
        self.spoil: Callable[[bytes], bytes] = bytes
        self._served = served
        self._kinds = {it.kind: it for it in served}
        self._by_plural = {(it.api_version, it.plural): it for it in served}
        self._feeds = {str(it): Feed(self.version) for it in served}
        self._snapshots: OrderedDict[str, list[bytes]] = OrderedDict()
        self._faults: dict[str, list[Fault]] = {}
        self._before: dict[str, list[Callable[[], object]]] = {}
        for found in objects:
            self.put(found)

    # what it holds

    def put(self, found: JsonObject) -> None:
        """Somebody writes an object: it gets a new version."""
        self._put(self._resource_of(found), found)

    def get(self, kind: str, name: str, namespace: str = "default") -> JsonObject | None:
        """A copy. ``kind`` as in ``Pod``."""
        resource = self._kinds[kind]
        raw = self._feeds[str(resource)].objects.get((namespace if resource.namespaced else "", name))
        return None if raw is None else json.loads(raw)

    def all(self, kind: str) -> list[JsonObject]:
        """Copies of what there is of it."""
        return [json.loads(raw) for raw in self._feeds[str(self._kinds[kind])].objects.values()]

    def keys(self, kind: str) -> list[Key]:
        """``kind`` as in ``v1 Pod``."""
        return list(self._feeds[kind].objects)

    def delete(self, kind: str, key: Key) -> None:
        """Somebody deletes an object. ``kind`` as in ``v1 Pod``."""
        found = json.loads(self._feeds[kind].objects.pop(key))
        found["metadata"]["resourceVersion"] = str(self.version + 1)
        self.send(kind, event("DELETED", _raw(found)))

    def clear(self) -> None:
        """Somebody deletes everything."""
        for kind, feed in self._feeds.items():
            for key in list(feed.objects):
                self.delete(kind, key)

    def write_another_kind(self) -> None:
        """Versions are counted over all kinds, also those that nobody here asks for."""
        self.version += 1

    def restore(self, version: int) -> None:
        """etcd is as it was in a backup: every object is of this version, and who watches hears nothing of it."""
        self.version = version
        for feed in self._feeds.values():
            feed.log.clear()
            feed.oldest = feed.known = 0
            for key, raw in feed.objects.items():
                found = json.loads(raw)
                feed.objects[key] = _raw({**found, "metadata": {**found["metadata"], "resourceVersion": str(version)}})

    def send(self, kind: str, line: bytes, *, once: bool = False) -> None:
        """These bytes to everybody who watches the kind, as one event of a version of its own.

        ``once``: who watches again from an earlier version does not get them, as with the end of a watch.
        """
        self.version += 1
        feed = self._feeds[kind]
        if not once:
            feed.log.append((self.version, line))
        for watch in feed.watches:
            watch.tell(self.version, line)

    def list_also(self, kind: str, items: list[bytes]) -> None:
        """What lists hold from now on beside the objects that are known by a key. Must be JSON."""
        self._feeds[kind].extra = items

    def forget(self, kind: str, *, in_words: bool = True) -> None:
        """No watch from before now can be had: those that run are told so, or just end."""
        feed = self._feeds[kind]
        self.version += 1
        feed.oldest = self.version
        feed.log.clear()
        for watch in feed.watches:
            if in_words:
                watch.tell(self.version, event("ERROR", _failure(410, "Expired", "too old resource version")))
            watch.closed = True
            watch.wake()

    def restart(self) -> None:
        """The watch cache of a new process knows nothing of before: watches from there are refused."""
        for feed in self._feeds.values():
            feed.oldest = self.version
            feed.log.clear()
        self.lose("refused")

    def close(self) -> None:
        """Every watch ends."""
        for watch in self._watches():
            watch.closed = True
            watch.wake()

    # what goes wrong

    def lose(self, how: Network) -> None:
        """From now on; every connection made before is dead for good."""
        self.network = how
        self.cut()

    def cut(self) -> None:
        """Every connection made before is dead for good, new ones work. In silence, unless connections are refused."""
        for watch in self._watches():
            watch.cut, watch.reset = True, self.network == "refused"
            watch.wake()

    def heal(self) -> None:
        self.network = "up"

    def fail(self, method: str, *faults: Fault) -> None:
        """What goes wrong with the next requests of a method. ``WATCH`` is one."""
        self._faults.setdefault(method, []).extend(faults)

    def meanwhile(self, method: str, do: Callable[[], object]) -> None:
        """Something happens just before the next request of a method arrives."""
        self._before.setdefault(method, []).append(do)

    def arrive(self) -> list[int]:
        """The requests that were late arrive now; returns what they are answered."""
        held, self.held = self.held, []
        return [self._carry_out(request).status_code for request in held]

    # what was asked

    @property
    def log(self) -> list[str]:
        return [f"{_method(it)} {it.url.path}" for it in self.requests]

    def count(self, method: str) -> int:
        """How many requests of a method arrived."""
        return sum(_method(it) == method for it in self.requests)

    @property
    def accepts(self) -> list[str]:
        """The media types asked for."""
        return [it.headers["Accept"] for it in self.requests]

    # over httpx

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.round_trip:
            await asyncio.sleep(self.round_trip)
        if self.network == "refused":
            raise httpx.ConnectError("refused")
        if self.network == "silent":
            await asyncio.sleep(request.extensions["timeout"]["connect"])
            raise httpx.ConnectTimeout("silent")
        self.requests.append(request)
        answer = self._met(request)
        if request.method == "PUT" and self.answers_after:
            await asyncio.sleep(self.answers_after)
        return answer

    def _met(self, request: httpx.Request) -> httpx.Response:
        """Carried out, unless a fault comes in between."""
        method = _method(request)
        for do in _first(self._before, method):
            do()
        fault = self.down or self.down_at.get(request.url.path) or next(iter(_first(self._faults, method)), None)
        match fault:
            case None:
                return self._carry_out(request)
            case "lost":
                raise httpx.ReadTimeout("no answer")
            case "unanswered":
                self._carry_out(request)
                raise httpx.ReadTimeout("no answer")
            case "late":
                self.held.append(request)
                raise httpx.ReadTimeout("no answer")
            case "unreachable":
                raise httpx.ConnectError("no route")
            case "another":
                answer = self._carry_out(request).json()
                return httpx.Response(200, json={**answer, "metadata": {**answer["metadata"], "name": "another"}})
            case Exception():
                raise fault
            case httpx.Response():
                return fault
        return httpx.Response(fault, content=_failure(fault, _REASONS.get(fault, ""), "told to"))

    def _carry_out(self, request: httpx.Request) -> httpx.Response:
        path, query = request.url.raw_path.decode().partition("?")[0], request.url.params
        if _method(request) == "WATCH":
            silence = (request.extensions.get("timeout") or {}).get("read") or _WATCH_SECONDS
            found = self.watch(path, query, silence=silence)
        else:
            found = self.answer(request.method, path, query, request.content)
        if isinstance(found, Watch):
            return httpx.Response(200, content=found)
        return httpx.Response(found.status, content=found.body)

    # without HTTP

    def watch(self, path: str, query: Mapping[str, str], *, silence: float = _WATCH_SECONDS) -> Watch | Answer:
        """Everything after a version. ``silence``: for how long the client takes one, in seconds."""
        where = self._where(path)
        if where is None:
            return _not_found(path)
        asked = query.get("resourceVersion", "")
        if not asked.isdecimal():
            return _refusal(500, "", f'"{asked}" is no version')
        feed, seen = self._feeds[str(where.resource)], int(asked)
        seconds = float(query.get("timeoutSeconds") or _WATCH_SECONDS)
        bookmarks = self.bookmark_seconds if query.get("allowWatchBookmarks") == "true" else seconds + _BEFORE_END
        found = Watch(feed, seen, seconds, silence=silence, bookmarks=bookmarks, pace=self.pace)
        if feed.oldest <= seen <= self.version:
            found.queue.extend((version, line) for version, line in feed.log if version > seen)
        else:
            found.tell(seen, event("ERROR", _failure(410, "Expired", f"too old resource version: {seen}")))
            found.closed = True
        feed.watches.add(found)
        return found

    def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Answer:
        """To whatever is no watch. ``path`` as it was sent, with its escapes."""
        if path.endswith("/selfsubjectaccessreviews"):
            return Answer(201, _raw({**json.loads(body), "status": {"allowed": True}}))
        where = self._where(path)
        if where is None:
            return self._discovered(path)
        if not where.key[1]:
            return Answer(200, self._list(where.resource, query)) if method == "GET" else self._create(where, body)
        raw = self._feeds[str(where.resource)].objects.get(where.key)
        if raw is None and method == "PUT" and where.resource.made_by_put:
            return self._create(where, body)
        if raw is None:
            return _refusal(404, "NotFound", f'{where.resource.plural} "{where.key[1]}" not found')
        if method == "GET":
            return self._object(raw)
        refused = _precondition(method, where, raw, body)
        if refused is not None:
            return refused
        if where.subresource == "binding":
            return self._bind(where.resource, raw, body)
        if method == "DELETE":
            self.delete(str(where.resource), where.key)
            return Answer(200, _raw({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}))
        return self._object(
            self._change(where, raw, json.loads(body) if method == "PUT" else _patched(where, raw, body))
        )

    def _change(self, where: Where, raw: bytes, wanted: JsonObject) -> bytes:
        """A write that changes nothing leaves the version as it is."""
        found = json.loads(raw)
        version = found["metadata"]["resourceVersion"]
        if found == {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": version}}:
            return raw
        return self._put(where.resource, wanted)

    def _create(self, where: Where, body: bytes) -> Answer:
        found = json.loads(body)
        name = found["metadata"]["name"]
        if where.key[0] in self.missing_namespaces:
            return _refusal(404, "NotFound", f'namespaces "{where.key[0]}" not found')
        if (where.key[0], name) in self._feeds[str(where.resource)].objects:
            return _refusal(409, "AlreadyExists", f'{where.resource.plural} "{name}" already exists')
        found["metadata"]["uid"] = f"uid-{self.version}"
        return Answer(201, self.spoil(self._put(where.resource, found)))

    def _bind(self, resource: Resource, raw: bytes, body: bytes) -> Answer:
        found, asked = json.loads(raw), json.loads(body)
        name, node = found["metadata"]["name"], found["spec"].get("nodeName")
        if node:
            return _refusal(409, "Conflict", f'pod {name} is already assigned to node "{node}"')
        found["spec"]["nodeName"] = asked["target"]["name"]
        annotations = asked["metadata"].get("annotations") or {}
        self._put(resource, _merged(found, {"metadata": {"annotations": annotations}}))
        return Answer(201, b'{"kind":"Status","apiVersion":"v1","status":"Success"}')

    def _put(self, resource: Resource, found: JsonObject) -> bytes:
        kind, metadata = str(resource), found["metadata"]
        key = (metadata.get("namespace", "") if resource.namespaced else "", metadata["name"])
        known = key in self._feeds[kind].objects
        raw = _raw({**found, "metadata": {**metadata, "resourceVersion": str(self.version + 1)}})
        self._feeds[kind].objects[key] = raw
        self.send(kind, event("MODIFIED" if known else "ADDED", raw))
        return raw

    def _object(self, raw: bytes) -> Answer:
        return Answer(200, self.spoil(raw))

    def _list(self, resource: Resource, query: Mapping[str, str]) -> bytes:
        """One page of what there was when the first one was asked for."""
        token, limit = query.get("continue", ""), int(query.get("limit") or 1 << 30)
        name, _, start = token.partition(".")
        feed = self._feeds[str(resource)]
        if not token:
            name = str(self.version)
            feed.known = self.version
            self._snapshots[f"{resource}{name}"] = _mixed(list(feed.objects.values()), feed.extra)
            while len(self._snapshots) > _SNAPSHOTS:
                self._snapshots.popitem(last=False)
        items = self._snapshots[f"{resource}{name}"]
        end = int(start or 0) + limit
        metadata = _raw({"resourceVersion": name, "continue": f"{name}.{end}" if end < len(items) else ""})
        page = b",".join(items[int(start or 0) : end])
        return b'{"kind":"List","apiVersion":"v1","metadata":' + metadata + b',"items":[' + page + b"]}"

    def _discovered(self, path: str) -> Answer:
        found = [
            {"name": it.plural, "kind": it.kind, "namespaced": it.namespaced} for it in self._served if it.group == path
        ]
        if not found:
            return _not_found(path)
        return Answer(200, _raw({"kind": "APIResourceList", "groupVersion": path, "resources": found}))

    def _where(self, path: str) -> Where | None:
        """What a path speaks of, if it is served."""
        root, *rest = path.strip("/").split("/")
        version = "/".join(rest[: 1 if root == "api" else 2])
        rest = [unquote(it) for it in rest[1 if root == "api" else 2 :]]
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2:  # what is in a namespace
            namespace, rest = rest[1], rest[2:]
        resource = self._by_plural.get((version, rest[0])) if rest else None
        if resource is None:
            return None
        return Where(resource, (namespace, "".join(rest[1:2])), "".join(rest[2:3]))

    def _resource_of(self, found: JsonObject) -> Resource:
        return next(it for it in self._served if (it.api_version, it.kind) == (found["apiVersion"], found["kind"]))

    def _watches(self) -> list[Watch]:
        return [watch for feed in self._feeds.values() for watch in feed.watches]


class Where(Struct, frozen=True):
    """What a path speaks of; without a name a collection."""

    resource: Resource
    key: Key
    subresource: str


def event(kind: str, raw: bytes) -> bytes:
    """One line of a watch."""
    return b'{"type":"%s","object":%s}' % (kind.encode(), raw)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _raw(found: Any) -> bytes:
    return json.dumps(found).encode()


def _method(request: httpx.Request) -> str:
    return "WATCH" if request.url.params.get("watch") == "true" else request.method


def _first(queues: dict[str, list[Any]], method: str) -> list[Any]:
    """The first of a queue, taken out of it."""
    waiting = queues.get(method, [])
    return [waiting.pop(0)] if waiting else []


def _precondition(method: str, where: Where, raw: bytes, body: bytes) -> Answer | None:
    """A version and a UID that are sent must be those of the object; a patch may not even want another UID."""
    sent = "preconditions" if method == "DELETE" else "metadata"
    found, wanted = json.loads(raw)["metadata"], json.loads(body).get(sent, {})
    if wanted.get("resourceVersion") not in (None, found["resourceVersion"]):
        return _refusal(409, "Conflict", "Precondition failed: resourceVersion")
    if wanted.get("uid") in (None, found.get("uid")):
        return None
    if method == "PATCH":
        cause = f'metadata.uid: Invalid value: "{wanted["uid"]}": field is immutable'
        return _refusal(422, "Invalid", f'{where.resource.kind} "{where.key[1]}" is invalid: {cause}')
    return _refusal(409, "Conflict", "Precondition failed: uid")


def _patched(where: Where, raw: bytes, body: bytes) -> JsonObject:
    """Of a subresource only status and metadata are taken, of the object itself all but its status."""
    asked = json.loads(body)
    asked.pop("spec" if where.subresource == "status" else "status", None)
    found: JsonObject = _merged(json.loads(raw), asked)
    return found


def _merged(found: Any, patch: Any) -> Any:
    """A merge patch of JSON, RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    kept = dict(found) if isinstance(found, dict) else {}
    for key, value in patch.items():
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = _merged(kept.get(key), value)
    return kept


def _mixed(good: list[bytes], extra: list[bytes]) -> list[bytes]:
    """One of each in turn: a bad one has good neighbours."""
    pairs = zip(good, extra, strict=False)
    shorter = min(len(good), len(extra))
    return [it for pair in pairs for it in pair] + good[shorter:] + extra[shorter:]


def _not_found(path: str) -> Answer:
    return _refusal(404, "NotFound", f"the server could not find the requested resource {path}")


def _refusal(code: int, reason: str, message: str) -> Answer:
    return Answer(code, _failure(code, reason, message))


def _failure(code: int, reason: str, message: str) -> bytes:
    return _raw({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message})


# clients of it


class Given(Credentials):
    """Credentials that are not read from anywhere: reading takes a thread, which virtual time does not wait for."""

    def __init__(self) -> None:
        super().__init__(Kubeconfig(""))

    async def access(self) -> Access:
        return Access("http://api", "", _TLS, "", "")


def client_of(
    server: Callable[[httpx.Request], httpx.Response]
    | Callable[[httpx.Request], Coroutine[None, None, httpx.Response]],
) -> KubeClient:
    """The client of production on top of ``server``, which need not be an ``ApiServer``."""
    return KubeClient(Given(), transport=httpx.MockTransport(server))


def kubeconfig(folder: Path, server: str = "http://api") -> Path:
    """A kubeconfig for a server that asks for nothing."""
    config: dict[str, Any] = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
