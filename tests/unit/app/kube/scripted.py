"""A client whose API server answers as it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import yaml

from app.kube.api_requests import Resource
from app.kube.client import KubeClient
from app.kube.credential_sources import Kubeconfig
from app.kube.credentials import Credentials

PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)

Answer: TypeAlias = httpx.Response | Exception
Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def status(code: int, reason: str, message: str, **details: Any) -> httpx.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details or None}
    return httpx.Response(code, json=body)


class Script:
    """Answers in turn, the last one for ever, and keeps what it was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def credentials(
    folder: Path, server: str = "http://api", token_file: str = "token", authority: str = ""
) -> Credentials:
    (folder / "token").write_text("first\n")
    trust = {"certificate-authority": authority} if authority else {}
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": server, **trust}}],
        "users": [{"name": "me", "user": {"tokenFile": token_file}}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return Credentials(Kubeconfig(str(file)))


def client_of(folder: Path, script: Script) -> KubeClient:
    return KubeClient(credentials(folder), transport=httpx.MockTransport(script))
