"""An API server that keeps one Lease: versions as preconditions, a watch, and answers that fail on demand."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Literal

import httpx

from app.kube.client import KubeClient
from app.kube.credentials import Access, Credentials, Kubeconfig
from tests.builders import JsonObject

Fault = Literal["lost", "unanswered", "unreachable"]
"""``lost``: never arrived · ``unanswered``: carried out; both are not answered · ``unreachable``: no connection."""

_TLS = ssl.create_default_context()


class LeaseServer:
    """``lease`` is what it keeps; ``down``: what happens to every request; ``faults``: to the next writes.

    ``answers_after``: seconds from carrying out a replacement to its answer, where the caller heeds them.
    """

    def __init__(self) -> None:
        self.lease: JsonObject | None = None
        self.version = 10
        self.down: Fault | None = None
        self.faults: list[Fault] = []
        self.watches = True
        self.answers_after = 0.0
        self.namespace = True
        self.log: list[str] = []
        self._watchers: list[asyncio.Queue[bytes]] = []

    @property
    def holder(self) -> str | None:
        return None if self.lease is None else self.lease["spec"]["holderIdentity"]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.params.get("watch"):
            return self._watch(request)
        self.log.append(request.method)
        fault = self.down or (self.faults.pop(0) if self.faults and request.method != "GET" else None)
        if fault == "unreachable":
            raise httpx.ConnectError("no route")
        answer = None if fault == "lost" else self._carry_out(request)
        if fault is not None or answer is None:
            raise httpx.ReadTimeout("no answer")
        return answer

    def _carry_out(self, request: httpx.Request) -> httpx.Response:
        if not self.namespace:
            return _status(404)
        if request.method == "POST":
            return self._create(json.loads(request.content)) if self.lease is None else _status(409)
        if self.lease is None:
            return _status(404)
        if request.method == "GET":
            return httpx.Response(200, json=self.lease)
        body = json.loads(request.content)
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return _status(409)
        self.put(body, "MODIFIED")
        return httpx.Response(200, json=self.lease)

    def _create(self, body: JsonObject) -> httpx.Response:
        self.put(body, "ADDED")
        return httpx.Response(201, json=self.lease)

    def put(self, body: JsonObject, event: str = "MODIFIED") -> None:
        """Somebody writes the Lease."""
        self.version += 1
        self.lease = json.loads(json.dumps(body))
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        self._tell(event, self.lease)

    def delete(self) -> None:
        assert self.lease is not None
        gone, self.lease = self.lease, None
        self.version += 1
        self._tell("DELETED", {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}})

    def _tell(self, event: str, found: Any) -> None:
        line = json.dumps({"type": event, "object": found}).encode() + b"\n"
        for watcher in self._watchers:
            watcher.put_nowait(line)

    def _watch(self, request: httpx.Request) -> httpx.Response:
        if not self.watches or self.down is not None:
            return _status(403)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._watchers.append(queue)
        if self.lease is not None and int(self.lease["metadata"]["resourceVersion"]) > int(
            request.url.params["resourceVersion"]
        ):
            queue.put_nowait(json.dumps({"type": "MODIFIED", "object": self.lease}).encode() + b"\n")
        return httpx.Response(200, content=_lines(queue))


class _Given(Credentials):
    """Credentials that are not read from anywhere: reading takes a thread, which virtual time does not wait for."""

    def __init__(self) -> None:
        super().__init__(Kubeconfig(""))

    async def access(self) -> Access:
        return Access("http://api", "", _TLS, "", "")


def client_of(
    server: Callable[[httpx.Request], httpx.Response]
    | Callable[[httpx.Request], Coroutine[None, None, httpx.Response]],
) -> KubeClient:
    """The client of production on top of ``server``."""
    return KubeClient(_Given(), transport=httpx.MockTransport(server))


async def _lines(queue: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
    while True:
        yield await queue.get()


def _status(code: int) -> httpx.Response:
    return httpx.Response(code, json={"kind": "Status", "code": code, "message": "told to"})
