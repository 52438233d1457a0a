"""What ``homeport explain --local`` costs: seconds and memory of a command that lists a cluster and judges one pod.

    python -m tests.load.local_mode
    python -m tests.load.local_mode --nodes 100
    python -m tests.load.local_mode --nodes 1000 --real

The cluster is that of the fake API server of tests/load/apiserver.py, a process of its own, with pods and nodes that
have what all plugins of kube-scheduler read. With --real the same objects are created in a kube-apiserver with etcd.
Prints JSON, and a table for docs/measurements/.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import httpx

from tests.apiserver import kubeconfig
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane
from tests.controlplane.processes import ProcessGroup, free_port
from tests.load import cluster, report

_PENDING: Final = 10
_WORKLOADS: Final = 100
_START_SECONDS: Final = 300
_NODES: Final = "100,1000,5000"
_CONNECTIONS: Final = 16
_BATCH: Final = 500


def measured(command: Sequence[str]) -> dict[str, float]:
    """Seconds, processor seconds and the most megabytes of a command that succeeds.

    The kernel counts at least the memory of this process, which starts the command: it must stay small.
    """
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "homeport", *command], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return {
        "seconds": round(seconds, 2),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 2),
        "megabytes": round(used.ru_maxrss / 1024),
    }


def run(nodes: int, pods: int, folder: Path, *, real: bool) -> dict[str, Any]:
    """The figures of each command on a cluster of ``nodes`` and ``pods``."""
    pod = cluster.waiting_pod(0, _WORKLOADS)["metadata"]
    with (_real if real else _fake)(nodes, pods, folder) as config:
        source = ("--local", "-q", f"--kubeconfig={config}")
        return {
            "nodes": nodes,
            "pods": pods,
            "explain": measured(("explain", f"{pod['namespace']}/{pod['name']}", *source)),
            "pending": measured(("pending", "-A", *source)),
        }


@contextmanager
def _fake(nodes: int, pods: int, folder: Path) -> Iterator[Path]:
    """The kubeconfig of a fake API server with the cluster."""
    port = free_port()
    processes = ProcessGroup(folder)
    sizes = [str(it) for it in (port, nodes, pods, _PENDING, 1, _WORKLOADS)]
    try:
        server = processes.start("apiserver", [sys.executable, "-m", "tests.load.apiserver", *sizes])
        server.wait_ready(lambda: _answers(port), _START_SECONDS)
        yield kubeconfig(folder, f"http://127.0.0.1:{port}")
    finally:
        processes.close()


@contextmanager
def _real(nodes: int, pods: int, _: Path) -> Iterator[Path]:
    """The kubeconfig of a kube-apiserver, in which the cluster was created. Statuses of pods are left out."""
    with ControlPlane() as plane:
        for number in range(nodes):
            plane.client.create_node(_unborn(cluster.furnished_node(number)))
        running = (cluster.furnish(cluster.pod(number, nodes)) for number in range(pods))
        waiting = (cluster.furnish(cluster.waiting_pod(number, _WORKLOADS)) for number in range(_PENDING))
        _create(plane.client, chain(running, waiting))
        yield plane.kubeconfig


def _create(client: Client, pods: Iterator[dict[str, Any]]) -> None:
    for namespace in sorted({cluster.pending_pod(it)["metadata"]["namespace"] for it in range(cluster.WORKLOADS)}):
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    with ThreadPoolExecutor(_CONNECTIONS) as creators:
        while batch := [_unborn(it) for it in islice(pods, _BATCH)]:
            list(creators.map(client.create, batch))


def _unborn(made: dict[str, Any]) -> dict[str, Any]:
    """The object as a client creates it."""
    for field in ("uid", "resourceVersion", "creationTimestamp"):
        made["metadata"].pop(field, None)
    return made


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/api/v1", trust_env=False).is_success
    except httpx.TransportError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.local_mode", description=__doc__)
    parser.add_argument("--nodes", default=_NODES, help=f"numbers of nodes; default {_NODES}")
    parser.add_argument("--pods-per-node", type=int, default=30)
    parser.add_argument("--real", action="store_true", help="create the cluster in a kube-apiserver with etcd")
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for nodes in map(int, given.nodes.split(",")):
            found.append(run(nodes, nodes * given.pods_per_node, Path(folder), real=given.real))
            report.say(f"{found[-1]}")
    rows = [
        (it["nodes"], it["pods"], command, *it[command].values()) for it in found for command in ("explain", "pending")
    ]
    report.table(("nodes", "pods", "command", "seconds", "processor seconds", "peak MB"), rows)
    report.publish({"machine": report.machine(), "real": given.real, "local mode": found}, "")


if __name__ == "__main__":
    main()
