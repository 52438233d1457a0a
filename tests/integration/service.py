"""Homeport as a process of its own, and a stock kube-scheduler that asks it: what the stories are played with."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx
import yaml

from tests.controlplane.controlplane import ControlPlane, Scheduler
from tests.controlplane.processes import Process, ProcessGroup, free_port

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
SCHEDULER_CONFIG: Final = Path(__file__).parents[2] / "examples" / "kube-scheduler" / "homeport.yaml"
START_SECONDS: Final = 30
HTTP: Final = httpx.Client(trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))
"""Sends requests without TLS. ``httpx.get`` takes 20 ms for each: it reads the authorities that this machine trusts."""


class Homeport:
    """A running Homeport on a fixed port, which a test may kill and start again."""

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        flags: Sequence[str] = (),
        module: str = "homeport",
        environment: Mapping[str, str] | None = None,
        start_seconds: float = START_SECONDS,
        pages: int = 0,
        plain: bool = False,
    ) -> None:
        """`module` is what Python runs, with `serve` and the flags; `environment` is added to that of the tests.

        `pages`: the port of a plain operator listener; the verbs are then over TLS, unless they are `plain`.
        """
        self.port = free_port()
        self.url = f"{'https' if pages and not plain else 'http'}://127.0.0.1:{self.port}"
        self.pages = f"http://127.0.0.1:{pages}" if pages else self.url
        operator = [f"--operator-port={pages}", "--operator-tls=false"] if pages else []
        self._flags = [f"--kubeconfig={kubeconfig}", f"--port={self.port}", *operator, *flags]
        self._module = module
        self._environment = environment
        self._start_seconds = start_seconds
        self._processes = ProcessGroup(folder)
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.close()

    def start(self) -> None:
        """Start it and wait until its picture is complete."""
        self.begin()
        self.wait_ready()

    def begin(self) -> None:
        """Start it."""
        command = [sys.executable, "-m", self._module, "serve", *self._flags]
        self._process = self._processes.start("homeport", command, self._environment)

    def wait_ready(self) -> None:
        """Wait until its picture is complete."""
        assert self._process is not None
        self._process.wait_ready(self._is_ready, self._start_seconds)

    @property
    def pid(self) -> int:
        """The process id of the one that runs now."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it as a crash would."""
        assert self._process is not None
        self._process.kill()

    def signal(self, number: int) -> None:
        """Send it a signal, as a kubelet or a debugger would."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process is not None and self._process.alive

    def log(self) -> str:
        """All it has written."""
        assert self._process is not None
        return self._process.log()

    def get(self, path: str) -> Any:
        """The JSON of one of its pages."""
        return HTTP.get(f"{self.pages}{path}").raise_for_status().json()

    def knows(self, name: str) -> bool:
        """Return true if the snapshot has the pod ``name`` of the namespace ``default``."""
        return HTTP.post(f"{self.pages}/api/v1/explain", json={"namespace": "default", "name": name}).is_success

    def outcomes(self, verb: str) -> dict[str, int]:
        """How often each outcome of a verb was counted."""
        return counted(HTTP.get(f"{self.pages}/metrics").text, verb)

    def _is_ready(self) -> bool:
        try:
            return HTTP.get(f"{self.pages}/readyz", timeout=2).is_success
        except httpx.TransportError:
            return False


def counted(metrics: str, verb: str) -> dict[str, int]:
    """How often each outcome of a verb stands in the text of /metrics."""
    found: dict[str, int] = {}
    for line in metrics.splitlines():
        if line.startswith("homeport_requests_total{") and f'verb="{verb}"' in line:
            outcome = line.partition('outcome="')[2].partition('"')[0]
            found[outcome] = int(float(line.rpartition(" ")[2]))
    return found


def scheduler_config(homeport: Homeport, file: Path = SCHEDULER_CONFIG, **extender: object) -> Mapping[str, Any]:
    """A configuration from examples/, with this Homeport's address; `extender` changes fields of its entry."""
    config: dict[str, Any] = yaml.safe_load(file.read_text())
    path = urlsplit(config["extenders"][0]["urlPrefix"]).path
    config["extenders"][0].update({"urlPrefix": f"{homeport.url}{path}", **extender})
    del config["clientConnection"], config["leaderElection"]
    return config


def start_scheduler(plane: ControlPlane, homeport: Homeport, **extender: Any) -> Scheduler:
    """A stock kube-scheduler with PodTopologySpread disabled that asks this Homeport."""
    return plane.start_scheduler(scheduler_config(homeport, **extender))


def role(homeport: Homeport, *, whole: bool = False) -> str:
    """`ok: leader`, or `ok: follower`; with `whole` as the page has it."""
    text = HTTP.get(f"{homeport.url}/readyz", timeout=5).text
    return text if whole else text.partition(" of ")[0].strip()


@contextmanager
def leader_and_follower(
    plane: ControlPlane,
    folder: Path,
    config: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    module: str = "homeport",
) -> Iterator[tuple[Homeport, Homeport]]:
    """Two replicas, both ready, under a configuration with `leaderElection` in namespace default."""
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    file = folder / "homeport.yaml"
    file.write_text(yaml.safe_dump({**head, **config}))
    folders = [folder / name for name in ("one", "other")]
    for each in folders:
        each.mkdir()
    both = [Homeport(plane.kubeconfig, each, [f"--config={file}"], module, environment) for each in folders]
    try:
        for homeport in both:
            homeport.begin()
        for homeport in both:
            homeport.wait_ready()
        leader, follower = sorted(both, key=role, reverse=True)
        yield leader, follower
    finally:
        for homeport in both:
            homeport.__exit__(None, None, None)
        plane.client.request("DELETE", f"{LEASES}/{config['leaderElection']['resourceName']}")


@contextmanager
def extender(answer: Callable[[str, bytes], bytes]) -> Iterator[str]:
    """Serve an extender; return its address. ``answer`` is called with each path and body."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = answer(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
