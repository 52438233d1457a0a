"""The cluster that is fuzzed, and the service as a process of its own, watching it.

Beside the sample cluster and that of the recorded talks there are pods to bind, and a canary: a pod, its workload and
three nodes in domains of their own, that no case speaks of. What is answered about them must never change.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import yaml
from msgspec import Struct

from app.server.admission import OUT_OF_TIME
from tests.api.recorded import CALLS
from tests.api.service import SAMPLE
from tests.api.test_recorded import cluster_for
from tests.apiserver import RESOURCES, kubeconfig
from tests.builders import JsonObject, constraint, encoded, node_object, pod_object
from tests.controlplane.processes import Process, ProcessGroup, free_port
from tests.fuzz import client
from tests.fuzz.client import Listener, NotHttp
from tests.fuzz.listening import ListeningApiServer
from tests.load.usage import peak_megabytes, resident_megabytes

ROOT: Final = Path(__file__).parents[2]
START_SECONDS: Final = 60
WAITING: Final = 200
"""Pods to bind, in ``WAITS_IN``."""

WAITS_IN: Final = "waits"
MORE_NODES: Final = 60
VERSION: Final = "@V@"
"""In an event or object: the version that the API server gives it."""

_CRASHED: Final = re.compile(r"[Tt]raceback|internal error|reflector failed|Exception in|Unhandled|never retrieved")
_CANARY_KEY: Final = "canary.example/zone"
_ANSWER_SECONDS: Final = 60.0


class Pause(Struct, frozen=True):
    """A step of the service's loop. Milliseconds of processor time and of the clock; ``began`` and ``ended`` on it."""

    cpu_ms: float
    wall_ms: float
    gc_ms: float
    began: float
    ended: float
    frames: list[str]


class FeedCounts(Struct, frozen=True):
    """Objects left out because they do not decode, and lists taken."""

    undecodable: int
    relists: int


def cluster() -> list[JsonObject]:
    """Every object of the world but the canary's."""
    sample = yaml.safe_load(SAMPLE.read_text(encoding="utf-8"))["items"]
    nodes = [node_object(f"more-{number}", zone=f"eu-1{'abc'[number % 3]}") for number in range(MORE_NODES)]
    pods = [waiting_pod(number) for number in range(WAITING)]
    return [*sample, *cluster_for(list(CALLS)), *nodes, *pods]


def waiting_pod(number: int) -> JsonObject:
    """One of the pods to bind: eight apps, spread over zones."""
    labels = {"app": f"app-{number % 8}"}
    spread = [constraint(skew=5, app=labels["app"])]
    return pod_object(f"waiting-{number}", namespace=WAITS_IN, labels=labels, spread=spread)


class Canary:
    """n1 has a pod of the workload, so its next one may go to n2 and n3 only."""

    _LABELS: Final = {"app": "canary"}
    _SPREAD: Final = (constraint(_CANARY_KEY, app="canary"),)
    NEW: Final = pod_object("canary-new", namespace="canary", labels=_LABELS, spread=_SPREAD)
    OBJECTS: Final = (
        *(node_object(f"canary-{number}", labels={_CANARY_KEY: f"z{number}"}) for number in (1, 2, 3)),
        pod_object("canary-old", namespace="canary", labels=_LABELS, spread=_SPREAD, node="canary-1"),
        NEW,
    )
    REQUEST: Final = encoded({"Pod": NEW, "Nodes": None, "NodeNames": ["canary-1", "canary-2", "canary-3"]})
    PASSES: Final = ["canary-2", "canary-3"]


class World:
    """API server and service. ``verbs`` and ``operator`` are where the service is asked; one listener for both here."""

    def __init__(self, folder: Path, profiles: Sequence[JsonObject] = ()) -> None:
        self.api = ListeningApiServer()
        self.crashes: list[str] = []
        self._folder = folder
        self._flags = [f"--config={_config(folder, profiles)}"] if profiles else []
        self._group = ProcessGroup(folder)
        self._process: Process | None = None
        self._control: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._read_to = 0
        self._markers = 0
        self.verbs = self.operator = Listener(0)

    async def start(self) -> None:
        await self.api.start()
        for found in (*cluster(), *Canary.OBJECTS):
            self.api.put(found)
        await self._begin()

    async def _begin(self) -> None:
        port, pages, control = free_port(), free_port(), free_port()
        self.verbs, self.operator = Listener(port), Listener(pages)
        command = [sys.executable, "-m", "tests.fuzz.watched", str(control), "serve", f"--port={port}"]
        file = kubeconfig(self._folder, f"http://127.0.0.1:{self.api.port}")
        command += [f"--operator-port={pages}", f"--kubeconfig={file}", "--log-level=warning", *self._flags]
        self._process = self._group.start("homeport", command, {"PYTHONPATH": str(ROOT)})
        await asyncio.to_thread(self._process.wait_ready, self._is_ready, START_SECONDS)
        self._control = await asyncio.open_connection("127.0.0.1", control, limit=1 << 26)
        await self.pauses()  # the start is allowed some

    def _is_ready(self) -> bool:
        try:
            return httpx.get(
                f"http://127.0.0.1:{self.operator.port}/readyz", trust_env=False, verify=False, timeout=10
            ).is_success
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        if self._control is not None:
            self._control[1].close()
        self._group.close()
        self.api.close()

    async def restart(self) -> None:
        """A new process on the same cluster, without anything bad in it."""
        if self._control is not None:
            self._control[1].close()
        if self._process is not None:
            self._process.kill()
        self.troubles_in_log()
        for kind in map(str, RESOURCES):
            self.api.list_also(kind, [])
            self.api.forget(kind)
        await self._begin()

    # how it is

    async def ask(self, **question: Any) -> Any:
        """Of the control listener. Raises ``OSError`` where nobody answers any more."""
        if self._control is None:
            raise OSError("the service does not run")
        reader, writer = self._control
        writer.write(json.dumps(question).encode() + b"\n")
        async with asyncio.timeout(_ANSWER_SECONDS):
            answer = await reader.readline()
        if not answer:
            raise OSError("the service has ended")
        return json.loads(answer)

    async def pauses(self) -> list[Pause]:
        """The long steps since this was last asked."""
        found = (await self.ask(do="pauses"))["pauses"]
        return [Pause(*(it[name] for name in ("cpu_ms", "wall_ms", "gc_ms", "began", "ended", "in"))) for it in found]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    def memory(self) -> tuple[float, float]:
        """Megabytes in use now, and at most so far."""
        return resident_megabytes(self.pid), peak_megabytes(self.pid)

    async def troubles(self) -> list[str]:
        """What is wrong with the service, in words: it must live, be ready, consistent, and answer as ever."""
        if not self.alive:
            return ["the process has ended", *self.troubles_in_log()]
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                found = [*await self._wrong_pages(), *await self._wrong_canary()]
        except (OSError, NotHttp, TimeoutError, ValueError) as error:
            found = [f"it does not answer: {type(error).__name__} {error}"]
        return [*found, *self.troubles_in_log()]

    async def _wrong_pages(self) -> list[str]:
        found = []
        for path in ("/livez", "/readyz"):
            answer = await client.get(self.operator, path)
            if (answer.status, answer.body[:2]) != (200, b"ok"):
                found.append(f"{path}: {answer.status} {answer.body[:500].decode()}")
        check = await client.get(self.operator, "/api/v1/check")
        if json.loads(check.body) != {"consistent": True, "differences": []}:
            found.append(f"/api/v1/check: {check.body[:1000].decode()}")
        return found

    async def _wrong_canary(self) -> list[str]:
        answer = await client.post(self.verbs, "/filter", Canary.REQUEST)
        if OUT_OF_TIME.encode() in answer.body:  # on a machine that stood still; once more, and it is a trouble
            answer = await client.post(self.verbs, "/filter", Canary.REQUEST)
        passed = json.loads(answer.body).get("NodeNames")
        return [] if passed == Canary.PASSES else [f"the canary's filter: {answer.body[:1000].decode()}"]

    def troubles_in_log(self) -> list[str]:
        """Lines of its log since this was last asked that tell of something nobody foresaw."""
        if self._process is None:
            return []
        text = self._process.log()
        fresh, self._read_to = text[self._read_to :], len(text)
        return [_short(line) for line in fresh.splitlines() if _CRASHED.search(line)]

    def versioned(self, raw: bytes) -> bytes:
        """Return an event or object under the next version."""
        return raw.replace(VERSION.encode(), str(self.api.version + 1).encode())

    # markers

    async def overtaken(self, seconds: float) -> tuple[list[str], float]:
        """Put an object of every kind that is watched into the cluster and wait for all: which kinds did not bring it?

        With the seconds that it took. Those of last time go.
        """
        self._markers += 1
        keys = {str(it): self._mark(it.api_version, it.kind, it.namespaced) for it in RESOURCES}
        return await self.until_there({kind: [key] for kind, key in keys.items()}, seconds)

    def _mark(self, api_version: str, kind: str, namespaced: bool) -> list[str]:
        namespace = "markers" if namespaced else ""
        old, name = f"marker-{self._markers - 1}", f"marker-{self._markers}"
        if (namespace, old) in self.api.keys(f"{api_version} {kind}"):
            self.api.delete(f"{api_version} {kind}", (namespace, old))
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        made = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {}}
        self.api.put(made if namespaced else {**made, "metadata": {"name": name, "uid": f"uid-{name}"}})
        return [namespace, name]

    async def until_there(self, keys: dict[str, list[list[str]]], seconds: float) -> tuple[list[str], float]:
        """Wait until the picture has them all; what it still lacks is told."""
        loop = asyncio.get_running_loop()
        began, lacking = loop.time(), dict(keys)
        while loop.time() - began < seconds:
            for kind in tuple(lacking):
                if not (missing := await self.ask(do="missing", kind=kind, keys=lacking[kind])):
                    del lacking[kind]
                else:
                    lacking[kind] = missing
            if not lacking:
                return [], loop.time() - began
            await asyncio.sleep(0.005)
        told = [f"{kind}: {len(them)} good objects did not appear, {them[0]} first" for kind, them in lacking.items()]
        return told, loop.time() - began

    async def feed_counts(self) -> dict[str, FeedCounts]:
        """By kind, as /metrics has them."""
        text = (await client.get(self.operator, "/metrics")).body.decode()
        found = [
            dict(re.findall(rf'^homeport_feed_{name}_total\{{kind="(.+)"\}} (\S+)$', text, re.MULTILINE))
            for name in ("undecodable", "relists")
        ]
        return {kind: FeedCounts(int(float(found[0][kind])), int(float(found[1][kind]))) for kind in found[0]}


def _config(folder: Path, profiles: Sequence[JsonObject]) -> Path:
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    file = folder / "fuzzed.yaml"
    file.write_text(yaml.safe_dump({**head, "profiles": list(profiles)}))
    return file


def _short(line: str) -> str:
    """A line of the log; of a traceback its end, where the fault is named."""
    try:
        found = json.loads(line)
    except ValueError:
        return line[-2000:]
    trace = str(found.pop("traceback", "")).rstrip().splitlines()
    return "\n".join([json.dumps(found)[:1000], *trace[-7:]])
