"""An HTTP proxy on loopback that lies on command about single requests, between Homeport and a real API server.

    with LyingProxy(plane) as proxy:
        kubeconfig = proxy.kubeconfig(tmp_path / "kubeconfig")
        proxy.lies = {BINDING: Lie(WELCOME)}           # nothing arrives
        proxy.lies = {BINDING: Lie(WELCOME, forwards=True)}    # the Binding takes effect, its answer is replaced
        proxy.before = {BINDING: change}                       # somebody is quicker

All else passes untouched, watches included. It runs in a thread with an event loop of its own.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import httpx
import uvicorn
import yaml

from tests.chaos.proxy import LOOPBACK, PATIENCE_SECONDS
from tests.controlplane.controlplane import ControlPlane

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]

_PASSED_ON: Final = ("accept", "authorization", "content-type")
"""Request headers that the API server gets."""


@dataclass(frozen=True, slots=True)
class Request:
    """The requests of a method whose path ends so."""

    method: str
    ends: str

    def matches(self, method: str, path: str) -> bool:
        return method == self.method and path.endswith(self.ends)


@dataclass(frozen=True, slots=True)
class Lie:
    """What is answered. ``forwards``: the request arrives first. ``later``: it arrives so many seconds afterwards."""

    body: bytes
    content_type: str = "text/html"
    status: int = 200
    forwards: bool = False
    later: float = 0.0


BINDING: Final = Request("POST", "/binding")
WELCOME: Final = b"<html><body>Welcome to the airport</body></html>"
_SUCCESS: Final = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
FORGED: Final = Lie(_SUCCESS, "application/json")
"""The API server's own words, in somebody else's mouth: nothing has arrived."""


class LyingProxy:
    """Passes what comes on to the API server of ``plane``, but for what ``lies`` says. A context manager.

    ``before`` is called before such a request arrives. ``told``: the lies that were told so far, as method and path.
    ``late``: the status codes that requests met which arrived later.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.lies: Mapping[Request, Lie] = {}
        self.before: Mapping[Request, Callable[[], object]] = {}
        self.told: list[str] = []
        self.late: list[int] = []
        self._plane = plane
        self._tasks: set[asyncio.Task[None]] = set()
        config = uvicorn.Config(
            self._serve, LOOPBACK, 0, log_config=None, log_level="critical", lifespan="off", interface="asgi3"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="lying-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._plane.client.wait_for(lambda: self._server.started, what="the lying proxy")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(PATIENCE_SECONDS)

    def kubeconfig(self, to: Path) -> Path:
        """Write a kubeconfig whose cluster is reached through the proxy; returns ``to``."""
        config = yaml.safe_load(self._plane.kubeconfig.read_text())
        port = self._server.servers[0].sockets[0].getsockname()[1]
        for entry in config["clusters"]:
            entry["cluster"] = {"server": f"http://{LOOPBACK}:{port}"}
        to.write_text(json.dumps(config))
        return to

    async def _serve(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        request = await self._received(scope, receive)
        lie = next((lie for about, lie in self.lies.items() if about.matches(method, path)), None)
        for act in [act for about, act in self.before.items() if about.matches(method, path)]:
            await asyncio.to_thread(act)
        async with self._client() as client:
            if lie is None:
                await self._pass(client, request, send)
                return
            self.told.append(f"{method} {path}")
            if lie.forwards:
                await client.send(request)
        if lie.later:
            task = asyncio.create_task(self._arrive(request, lie.later))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await _answer(send, lie.status, lie.content_type, lie.body)

    async def _received(self, scope: Mapping[str, Any], receive: Receive) -> httpx.Request:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        query = scope["query_string"].decode()
        url = f"{self._plane.server}{scope['raw_path'].decode()}{f'?{query}' if query else ''}"
        passed_on = {name: value for name, value in headers.items() if name in _PASSED_ON}
        return httpx.Request(scope["method"], url, headers=passed_on, content=body)

    def _client(self) -> httpx.AsyncClient:
        tls = ssl.create_default_context(cafile=str(self._plane.ca_file))
        return httpx.AsyncClient(verify=tls, timeout=None, trust_env=False)  # watches go on

    async def _pass(self, client: httpx.AsyncClient, request: httpx.Request, send: Send) -> None:
        answer = await client.send(request, stream=True)
        content_type = answer.headers.get("content-type", "")
        await send(_start(answer.status_code, content_type))
        async for piece in answer.aiter_bytes():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _arrive(self, request: httpx.Request, seconds: float) -> None:
        await asyncio.sleep(seconds)
        async with self._client() as client:
            self.late.append((await client.send(request)).status_code)


def _start(status: int, content_type: str) -> Message:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", content_type.encode())]}


async def _answer(send: Send, status: int, content_type: str, body: bytes) -> None:
    await send(_start(status, content_type))
    await send({"type": "http.response.body", "body": body})
