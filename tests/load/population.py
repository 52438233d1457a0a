"""Fills a real API server fast, and watches pods being bound, at little cost to the machine that is measured."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, urlsplit

from tests.controlplane.controlplane import ControlPlane

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/namespaces/default/pods"
_WORKERS: Final = 8
_NAMES_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_LIST_OF_NAMES: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PATIENCE: Final = 30.0
"""Seconds without any pod bound after which the rest counts as not placed."""


class ApiRefused(Exception):
    """The API server did not take a request."""


class Population:
    """Creates and deletes by the thousand over a few kept connections."""

    def __init__(self, plane: ControlPlane) -> None:
        self._port = urlsplit(plane.server).port
        self._tls = ssl.create_default_context(cafile=str(plane.ca_file))
        self._headers = {"Authorization": f"Bearer {plane.token}", "Content-Type": "application/json"}

    def connect(self, timeout: float = 120) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._port, timeout=timeout, context=self._tls)

    def create(self, path: str, objects: Iterable[dict[str, Any]]) -> None:
        """POST every object to a collection. Raises ``ApiRefused`` for the first that is not taken."""
        local, opened = threading.local(), list[http.client.HTTPSConnection]()

        def create(body: bytes) -> None:
            if not hasattr(local, "connection"):
                local.connection = self.connect()
                opened.append(local.connection)
            self.request(local.connection, "POST", path, body)

        try:
            with ThreadPoolExecutor(_WORKERS) as pool:
                list(pool.map(create, (json.dumps(it).encode() for it in objects)))
        finally:
            for connection in opened:
                connection.close()

    def delete(self, path: str, selector: str) -> None:
        """Delete what carries these labels, at once, and return when it is gone."""
        options = json.dumps({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}).encode()
        connection = self.connect(timeout=600)
        query = f"{path}?labelSelector={quote(selector)}"
        self.request(connection, "DELETE", query, options)
        while self.names(connection, query):
            time.sleep(0.1)
        connection.close()

    def names(self, connection: http.client.HTTPSConnection, query: str) -> list[str]:
        """The names of what a list query finds."""
        found = json.loads(self.request(connection, "GET", query, accept=_LIST_OF_NAMES))
        return [item["metadata"]["name"] for item in found["items"] or ()]

    def nodes_of(self, path: str, selector: str) -> dict[str, str]:
        """Pod to node, empty for one that waits."""
        connection = self.connect(timeout=600)
        found = json.loads(self.request(connection, "GET", f"{path}?labelSelector={quote(selector)}"))
        connection.close()
        return {item["metadata"]["name"]: item["spec"].get("nodeName", "") for item in found["items"] or ()}

    def request(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: bytes = b"", accept: str = ""
    ) -> bytes:
        headers = {**self._headers, "Accept": accept or "application/json"}
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= http.client.BAD_REQUEST:
            raise ApiRefused(f"{method} {path} answered {answer.status}: {text[:500].decode(errors='replace')}")
        return text

    def lines(self, connection: http.client.HTTPSConnection, query: str) -> Iterator[bytes]:
        """The events of a watch, for as long as the connection is open."""
        connection.request("GET", query, headers={**self._headers, "Accept": _NAMES_ONLY})
        answer = connection.getresponse()
        while line := answer.readline():
            yield line


class BoundWatch:
    """Record when each pod with these labels is bound (``seen``), and call ``at[n](n)`` in the moment of the n-th.

    It watches names only, of bound pods only: an event costs the API server the least there is.
    """

    def __init__(self, population: Population, selector: str, at: dict[int, Callable[[int], None]]) -> None:
        self.seen: dict[str, float] = {}
        self._population = population
        self._at = at
        self._connection = population.connect(timeout=3600)
        fields = f"labelSelector={quote(selector)}&fieldSelector={quote('spec.nodeName!=')}"
        self._query = f"{PODS}?watch=1&allowWatchBookmarks=false&{fields}"
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        with suppress(OSError, http.client.HTTPException, ValueError, AttributeError):  # closed under its reader
            for line in self._population.lines(self._connection, self._query):
                if line.startswith(b'{"type":"ADDED"'):
                    now = time.perf_counter()
                    self.seen[json.loads(line)["object"]["metadata"]["name"]] = now
                    if (called := self._at.get(len(self.seen))) is not None:
                        called(len(self.seen))

    def wait(self, count: int) -> int:
        """Return once so many are bound, or when nothing has moved for long; says how many are."""
        before, moved = 0, time.monotonic()
        while len(self.seen) < count and time.monotonic() - moved < _PATIENCE:
            if len(self.seen) != before:
                before, moved = len(self.seen), time.monotonic()
            time.sleep(0.05)
        return len(self.seen)

    def close(self) -> None:
        if self._connection.sock is not None:
            with suppress(OSError):
                self._connection.sock.shutdown(2)
        self._thread.join(timeout=5)
        self._connection.close()
