"""The fake API server behind a socket, in a thread of its own, for commands that open their own connections."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from tests.apiserver import Answer, ApiServer


class Asked(Struct, frozen=True):
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    headers: dict[str, str]


Instead: TypeAlias = Callable[[Asked], Answer | None]
"""What is answered in the place of the fake API server; ``None`` leaves the answer to it."""


class KubeServer(Struct):
    """``url`` of the server, and what it was asked."""

    url: str
    asked: list[Asked]

    def paths(self, method: str = "GET") -> list[str]:
        return [it.path for it in self.asked if it.method == method]


class _Server(ThreadingHTTPServer):
    """Its tests compare standard error, so a client that resets its connection leaves no traceback there."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def kube_server(api: ApiServer, instead: Instead = lambda _: None) -> Iterator[KubeServer]:
    asked: list[Asked] = []
    lock = threading.Lock()

    def answered(request: Asked) -> Answer:
        with lock:
            asked.append(request)
            return instead(request) or api.answer(request.method, request.path, request.query, request.body)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = answered(Asked(self.command, url.path, dict(parse_qsl(url.query)), body, dict(self.headers)))
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def __getattr__(self, name: str) -> Callable[[], None]:
            if name.startswith("do_"):
                return self._answer
            raise AttributeError(name)

        def log_message(self, *_: object) -> None:
            pass

    with _Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield KubeServer(f"http://127.0.0.1:{server.server_port}", asked)
        finally:
            server.shutdown()
            thread.join()


def refusal(code: int, message: str, reason: str = "") -> Answer:
    """A Status that says why not."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return answer({**status, "message": message, "reason": reason, "code": code}, code)


def answer(found: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(found).encode())


OPERATOR: Final = "/api/v1/namespaces/homeport/services/http:homeport-operator:http/proxy"
"""The way to the pages of ``operator_service`` through the API server."""


def operator_service(**port: str) -> dict[str, Any]:
    """The Service of the operator listener, as the chart makes it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "homeport-operator",
            "namespace": "homeport",
            "uid": "service",
            "labels": {"homeport.dev/pages": "operator"},
        },
        "spec": {"ports": [{"port": 8889, "name": "http", **port}]},
    }


def pages_at(prefix: str, pages: Mapping[str, Any]) -> Instead:
    """Homeport's pages below a path: an answer of JSON for each, or what a request is answered with."""

    def instead(request: Asked) -> Answer | None:
        if not request.path.startswith(f"{prefix}/"):
            return None
        page = pages.get(
            request.path.removeprefix(prefix), refusal(404, "homeport: this listener does not serve the path")
        )
        return page if isinstance(page, Answer) else answer(page)

    return instead
