"""Stands between a kube-scheduler and its extender, passes on what they say and keeps it.

Without an extender behind it, it lets every node pass and scores nothing: what it is then asked is what the
scheduler's own filters have left.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import httpx

Json: TypeAlias = dict[str, Any]

NOT_ON_TRIAL: Final = "not on trial"
TIMEOUT_SECONDS: Final = 30


@dataclass(frozen=True)
class Heard:
    """What was said about one pod. ``scored`` is None while nobody asked; ``target`` is where it is to be bound."""

    asked: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    scored: Mapping[str, int] | None = None
    target: str = ""
    problem: str = ""


class Recorder:
    """One extender for one kube-scheduler. Pods that are not on trial fit nowhere, so that they change nothing.

    A bind is held until `release`: all judges see the same cluster, whoever is first.
    """

    def __init__(self, upstream: str = "") -> None:
        self._upstream = upstream
        self._http = httpx.Client(timeout=TIMEOUT_SECONDS, trust_env=False)
        self._lock = Lock()
        self._on_trial = ""
        self._heard: dict[str, Heard] = {}
        self._released = Event()
        self._server = _server(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._http.close()

    def expect(self, pod: str) -> None:
        """From now on this pod, as namespace/name, is on trial."""
        with self._lock:
            self._on_trial = pod
            self._heard.clear()
            self._released = Event()

    def release(self) -> None:
        """Answer the bind that is held, with an error: whoever is to bind the pod has done so."""
        self._released.set()

    def heard(self, pod: str) -> Heard:
        """What was said about a pod so far; of several attempts the last."""
        with self._lock:
            return self._heard.get(pod, Heard())

    def answer(self, verb: str, asked: bytes) -> bytes:
        """The answer to a call."""
        question = json.loads(asked)
        match verb:
            case "filter":
                return self._filter(question, asked)
            case "prioritize":
                return self._prioritize(question, asked)
        return self._bind(question)

    def _filter(self, question: Json, asked: bytes) -> bytes:
        pod, names = _key(question["Pod"]["metadata"]), question["NodeNames"]
        if pod != self._on_trial:
            self._keep(pod, Heard(frozenset(names)))
            return _filtered((), dict.fromkeys(names, NOT_ON_TRIAL))
        said = self._ask("filter", asked) if self._upstream else _filtered(names, {})
        self._keep(pod, _heard_filter(names, json.loads(said)))
        return said

    def _prioritize(self, question: Json, asked: bytes) -> bytes:
        pod = _key(question["Pod"]["metadata"])
        said = self._ask("prioritize", asked)
        scored = {host["Host"]: host["Score"] for host in json.loads(said)}
        self._keep(pod, replace(self.heard(pod), scored=scored))
        return said

    def _bind(self, question: Json) -> bytes:
        pod = f"{question['PodNamespace']}/{question['PodName']}"
        with self._lock:
            released = self._released
            self._heard[pod] = replace(self._heard.get(pod, Heard()), target=question["Node"])
        released.wait(TIMEOUT_SECONDS)
        return b'{"Error":"judged, not bound"}'

    def _keep(self, pod: str, heard: Heard) -> None:
        with self._lock:
            self._heard[pod] = heard

    def _ask(self, verb: str, asked: bytes) -> bytes:
        headers = {"Content-Type": "application/json"}
        answer = self._http.post(f"{self._upstream}/{verb}", content=asked, headers=headers)
        return answer.raise_for_status().content


def _key(metadata: Json) -> str:
    return f"{metadata['namespace']}/{metadata['name']}"


def _filtered(passed: Collection[str], failed: Mapping[str, str]) -> bytes:
    return json.dumps({"NodeNames": list(passed), "FailedAndUnresolvableNodes": failed}).encode()


def _heard_filter(names: Collection[str], said: Json) -> Heard:
    return Heard(frozenset(names), frozenset(said["NodeNames"] or ()), problem=said.get("Error", ""))


def _server(recorder: Recorder) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            said = recorder.answer(self.path.rpartition("/")[2], body)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name the base class gives it
            """Say nothing: what matters is kept."""

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)
