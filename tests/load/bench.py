"""How fast are filter and prioritize, beside a bare echo of the same bytes on the same stack in the same run?

    python -m tests.load.bench --nodes 200 --pods 2000 --calls 200    # to try the harness

Prints one JSON object, and a table on standard error. Calls to Homeport and to the echo alternate on two kept
connections, so that a noisy machine is noisy for both. Figures are microseconds at the client, ratios of the medians
are what counts.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from msgspec import Struct

from tests.apiserver import kubeconfig
from tests.controlplane.processes import free_port
from tests.load import cluster, report
from tests.load.shop import asked as body_of
from tests.load.usage import resident_megabytes

_WARM_UP: Final = 200
_ORDERS: Final = 40
_READY_SECONDS: Final = 180


class Connection:
    """A kept HTTP/1.1 connection on a blocking socket: the least a client can cost."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def get(self, path: str) -> bytes:
        """The same for a page."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return self._receive()

    def post(self, path: str, body: bytes) -> bytes:
        """The body of the answer. Raises ``RuntimeError`` unless it is a 200."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        self._socket.sendall(head.encode() + b"\r\n\r\n" + body)
        return self._receive()

    def _receive(self) -> bytes:
        received = self._socket.recv(1 << 20)
        while b"\r\n\r\n" not in received:
            received += self._socket.recv(1 << 20)
        head, _, body = received.partition(b"\r\n\r\n")
        if not head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 201 ")):
            raise RuntimeError(head.decode())
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        while len(body) < length:
            body += self._socket.recv(1 << 20)
        return body


@contextmanager
def running(module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python module as a process."""
    process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(holds: Callable[[], bool], seconds: float = _READY_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("not ready in time")
        time.sleep(0.05)


def answers(port: int, path: str = "") -> bool:
    """Whether something listens, and answers ``path`` with 200 if one is given."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as probe:
            if not path:
                return True
            probe.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            return probe.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


class Served(Struct, frozen=True):
    """A Homeport, and the port of the API server that it watches. ``started``: in monotonic seconds."""

    port: int
    pid: int
    apiserver: int
    started: float
    control: int

    def longest_pause(self) -> dict[str, float]:
        """Return the longest step of its event loop since the last call: ``cpu_ms`` and ``wall_ms``."""
        with socket.create_connection(("127.0.0.1", self.control)) as control:
            control.sendall(b'{"do": "longest"}\n')
            found: dict[str, float] = json.loads(control.makefile().readline())
        return found


@contextmanager
def api_server(*numbers: int) -> Iterator[tuple[int, Path]]:
    """Start the API server of ``tests.load.apiserver`` with these numbers; yield its port and a kubeconfig for it."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, running("tests.load.apiserver", *map(str, (port, *numbers))):
        wait_for(lambda: answers(port))
        yield port, kubeconfig(Path(folder), f"http://127.0.0.1:{port}")


@contextmanager
def homeport(*numbers: int, config: str = "", observed: bool = False, ready: bool = True) -> Iterator[Served]:
    """Start a Homeport on an ``api_server`` of these numbers; ``observed``: one that measures its pauses."""
    port, control = free_port(), free_port()
    module = ("tests.fuzz.watched", str(control)) if observed else ("homeport",)
    with api_server(*numbers) as (apiserver, file):
        started = time.monotonic()
        flags = (f"--kubeconfig={file}", f"--port={port}", *([f"--config={config}"] if config else ()))
        with running(*module, "serve", "--log-level=error", *flags) as process:
            if ready:
                wait_for(lambda: answers(port, "/readyz"))
            yield Served(port, process.pid, apiserver, started, control)


def requests(pod: dict[str, Any], names: int, orders: int) -> list[bytes]:
    """Bodies as kube-scheduler sends them in names form: the same names, in one order after the other."""
    names_asked = [cluster.node_name(number) for number in range(names)]
    order = random.Random(names)
    bodies = []
    for _ in range(orders):
        order.shuffle(names_asked)
        bodies.append(body_of(pod, names_asked))
    return bodies


class Workload(Struct, frozen=True):
    """Calls of one verb. ``orders``: in how many orders the names are asked for.

    ``after_filter``: about the nodes that a filter call, not timed, passes just before, as kube-scheduler does.
    """

    name: str
    verb: str
    pod: dict[str, Any]
    size: int
    orders: int = _ORDERS
    after_filter: bool = False

    def bodies(self) -> list[bytes]:
        return requests(self.pod, self.size, self.orders)


def workloads() -> Iterator[Workload]:
    """The refused pod wants more zones than there are."""
    pod, refused = cluster.pending_pod(7), cluster.pending_pod(7, "app-7-refused")
    refused["spec"]["topologySpreadConstraints"][0]["minDomains"] = 2 * len(cluster.ZONES)
    for size in (500, 5000):
        yield Workload(f"lean_filter_{size}", "lean/filter", pod, size)
        yield Workload(f"lean_prioritize_{size}", "lean/prioritize", pod, size, after_filter=True)
        yield Workload(f"lean_prioritize_{size}_without_filter", "lean/prioritize", pod, size)
        yield Workload(f"filter_{size}", "filter", pod, size)
        yield Workload(f"prioritize_{size}", "prioritize", pod, size)
        yield Workload(f"filter_{size}_refused_again", "filter", refused, size)
        yield Workload(f"filter_{size}_refused_again_in_one_order", "filter", refused, size, orders=1)


def passed_by_filter(homeport: Connection, verb: str, body: bytes) -> bytes:
    """The request about the nodes that the filter before it passes."""
    asked = json.loads(body)
    passed = json.loads(homeport.post(f"/{verb.replace('prioritize', 'filter')}", body))["NodeNames"]
    return json.dumps({**asked, "NodeNames": passed}, separators=(",", ":")).encode()


def measure(homeport: Connection, echo: Connection, workload: Workload, folder: Path, calls: int) -> dict[str, Any]:
    """Alternate between the two and compare."""
    verb, bodies = workload.verb, workload.bodies()
    name = workload.name
    (folder / name).write_bytes(homeport.post(f"/{verb}", bodies[0]))
    ours: list[float] = []
    floor: list[float] = []
    for number in range(calls + _WARM_UP):
        body = bodies[number % len(bodies)]
        if workload.after_filter:
            body = passed_by_filter(homeport, verb, body)
        for times, connection, path in ((ours, homeport, f"/{verb}"), (floor, echo, f"/{name}")):
            started = time.perf_counter()
            connection.post(path, body)
            if number >= _WARM_UP:
                times.append((time.perf_counter() - started) * 1e6)
    found = {"homeport": report.percentiles(ours), "echo": report.percentiles(floor)}
    return {**found, "ratio_p50": round(found["homeport"]["p50"] / found["echo"]["p50"], 2)}


def bench(nodes: int, pods: int, calls: int, names: Container[str] | None = None) -> dict[str, Any]:
    """All figures of one run, or those of some workloads."""
    port = free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        homeport(nodes, pods) as served,
        running("tests.load.echo", str(port), folder),
    ):
        ready = time.monotonic() - served.started
        wait_for(lambda: answers(port))
        chosen = [it for it in workloads() if names is None or it.name in names]
        with Connection(served.port) as ours, Connection(port) as echo:
            verbs = {it.name: measure(ours, echo, it, Path(folder), calls) for it in chosen}
        memory = resident_megabytes(served.pid)
    return {
        "machine": report.machine(),
        "nodes": nodes,
        "pods": pods,
        "calls": calls,
        "microseconds": verbs,
        "resident_megabytes": round(memory, 1),
        "seconds_to_ready": round(ready, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--calls", type=int, default=2_000)
    arguments = parser.parse_args()
    found = bench(arguments.nodes, arguments.pods, arguments.calls)
    report.table(
        ("call, µs", "p50", "p99", "echo p50", "ratio"),
        [
            (name, it["homeport"]["p50"], it["homeport"]["p99"], it["echo"]["p50"], it["ratio_p50"])
            for name, it in found["microseconds"].items()
        ],
    )
    report.publish(found)


if __name__ == "__main__":
    main()
