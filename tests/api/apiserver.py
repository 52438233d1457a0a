"""A small API server behind ``httpx.MockTransport``: versions, preconditions, a network that misbehaves on demand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import httpx
import yaml

from app.kube.client import KubeClient
from app.kube.credentials import Credentials, Kubeconfig
from tests.builders import JsonObject

Fault = Literal["lost", "unanswered", "late", "unreachable", "another"] | int
"""``lost``: never arrived · ``unanswered``: carried out · ``late``: carried out when the test says so; none of these is
answered · ``unreachable``: no connection · ``another``: carried out, and answered with an object of another name · a
number: that status."""

_PLURALS: Final = {
    "Pod": "/api/v1/namespaces/{}/pods/{}",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets/{}",
    "VirtualMachine": "/apis/kubevirt.io/v1/namespaces/{}/virtualmachines/{}",
}


class ApiServer:
    """Holds objects by path. ``log`` is every request in words; ``faults`` are used up, one a request of the method.

    ``accepts`` are the media types asked for; ``spoil`` is done to every object that is answered.
    """

    def __init__(self, *objects: JsonObject) -> None:
        self.objects: dict[str, JsonObject] = {}
        self.version = 100
        self.log: list[str] = []
        self.faults: dict[str, list[Fault]] = {}
        self.held: list[httpx.Request] = []
        self.before: dict[str, list[Callable[[], object]]] = {}
        self.accepts: list[str] = []
        self.spoil: Callable[[bytes], bytes] = bytes
        for found in objects:
            self.put(found)

    def put(self, found: JsonObject) -> None:
        """Somebody writes an object: it gets a new version."""
        metadata = found["metadata"]
        self.version += 1
        copy = json.loads(json.dumps(found))
        copy["metadata"]["resourceVersion"] = str(self.version)
        self.objects[_PLURALS[found["kind"]].format(metadata["namespace"], metadata["name"])] = copy

    def get(self, kind: str, name: str, namespace: str = "default") -> JsonObject | None:
        return self.objects.get(_PLURALS[kind].format(namespace, name))

    def fail(self, method: str, *faults: Fault) -> None:
        """What goes wrong with the next requests of a method."""
        self.faults.setdefault(method, []).extend(faults)

    def meanwhile(self, method: str, do: Callable[[], object]) -> None:
        """Something happens just before the next request of a method arrives."""
        self.before.setdefault(method, []).append(do)

    def arrive(self) -> list[int]:
        """The requests that were late arrive now; returns what they are answered."""
        held, self.held = self.held, []
        return [self._carry_out(request).status_code for request in held]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.log.append(f"{request.method} {request.url.path}")
        for do in self.before.pop(request.method, [])[:1]:
            do()
        faults = self.faults.get(request.method, [])
        fault = faults.pop(0) if faults else None
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
        return _status(fault, "told to")

    def _carry_out(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removesuffix("/binding").removesuffix("/status")
        found = self.objects.get(path)
        if found is None:
            return _status(404, f'pods "{path.rpartition("/")[2]}" not found')
        self.accepts.append(request.headers["Accept"])
        if request.method == "GET":
            return self._answer(found)
        body = json.loads(request.content)
        return self._bind(found, body) if request.method == "POST" else self._patch(found, body)

    def _bind(self, found: JsonObject, body: JsonObject) -> httpx.Response:
        refused = _precondition(found, body)
        if refused is not None:
            return refused
        if found["spec"].get("nodeName"):
            return _status(
                409, f'pod {body["metadata"]["name"]} is already assigned to node "{found["spec"]["nodeName"]}"'
            )
        found["spec"]["nodeName"] = body["target"]["name"]
        self._annotate(found, body["metadata"].get("annotations") or {})
        return httpx.Response(201, json={"kind": "Status", "status": "Success"})

    def _patch(self, found: JsonObject, body: JsonObject) -> httpx.Response:
        refused = _precondition(found, body)
        if refused is not None:
            return refused
        found["status"] = {**found["status"], **body["status"]} if "status" in body else found.get("status", {})
        self._annotate(found, body["metadata"].get("annotations") or {})
        return self._answer(found)

    def _answer(self, found: JsonObject) -> httpx.Response:
        return httpx.Response(200, content=self.spoil(json.dumps(found).encode()))

    def _annotate(self, found: JsonObject, annotations: dict[str, str | None]) -> None:
        merged = {**(found["metadata"].get("annotations") or {}), **annotations}
        found["metadata"]["annotations"] = {key: value for key, value in merged.items() if value is not None}
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)


def _precondition(found: JsonObject, body: JsonObject) -> httpx.Response | None:
    for field in ("uid", "resourceVersion"):
        wanted = body["metadata"].get(field)
        if wanted not in (None, found["metadata"][field]):
            return _status(409, f"Precondition failed: {field}")
    return None


def _status(code: int, message: str) -> httpx.Response:
    reason = {404: "NotFound", 409: "Conflict"}.get(code, "")
    return httpx.Response(code, json={"kind": "Status", "code": code, "reason": reason, "message": message})


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


def client_of(folder: Path, server: Callable[[httpx.Request], httpx.Response]) -> KubeClient:
    """The client of production on top of ``server``."""
    return KubeClient(Credentials(Kubeconfig(str(kubeconfig(folder)))), transport=httpx.MockTransport(server))
