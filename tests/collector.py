"""A collector for OTLP over HTTP on loopback: reads what it is sent, as the protocol says."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from app.telemetry.tracing import Attributes


class Seen(Struct, frozen=True):
    """A span as it was sent. ``parent`` is empty for the root of a trace."""

    name: str
    kind: str
    trace: str
    span: str
    parent: str
    failed: str
    attributes: Attributes
    resource: Attributes


class Collector:
    """As a context manager it serves. ``status`` is what it answers, ``seconds`` how long it takes for it."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.paths: set[str] = set()
        self.status = 200
        self.released = threading.Event()
        self.released.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.released.wait()
                if collector.status == 200:
                    collector._take(self.path, body)
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        return Handler

    def _take(self, path: str, body: bytes) -> None:
        self.paths.add(path)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(group.resource.attributes)
            self.spans += [_seen(span, resource) for scope in group.scope_spans for span in scope.spans]

    def wait_for(self, count: int, seconds: float = 30) -> list[Seen]:
        """So many spans, at least. Raises ``TimeoutError``."""
        until = time.monotonic() + seconds
        while len(self.spans) < count:
            if time.monotonic() > until:
                raise TimeoutError(f"{len(self.spans)} spans instead of {count}")
            time.sleep(0.01)
        return list(self.spans)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _seen(span: Any, resource: Attributes) -> Seen:
    return Seen(
        name=span.name,
        kind={2: "server", 3: "client"}.get(span.kind, "other"),
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        failed=span.status.message if span.status.code == 2 else "",
        attributes=_attributes(span.attributes),
        resource=resource,
    )


def _attributes(found: Any) -> Attributes:
    return {it.key: getattr(it.value, it.value.WhichOneof("value")) for it in found}
