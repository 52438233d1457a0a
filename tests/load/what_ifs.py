"""Are verbs delayed while a what-if is computed, and how long does a what-if take?

    python -m tests.load.what_ifs
    python -m tests.load.what_ifs --nodes 1000 --pods 30000 --added 200

A service with ``explain: complete`` gets filter calls one after the other, in turns of some seconds: alone, and beside
simulations that follow each other. Prints JSON: p50 and p99 of a filter in microseconds in both cases, their ratios,
and the seconds of the simulations.
"""

from __future__ import annotations

import argparse
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import httpx

from tests.controlplane.processes import free_port
from tests.load import report
from tests.load.bench import Connection, Workload, answers, api_server, wait_for, workloads

_SIMULATION_SECONDS: Final = 90
_START_SECONDS: Final = 120


@contextmanager
def serving(kubeconfig: Path) -> Iterator[tuple[int, int]]:
    """The port of a service with ``explain: complete``, and its process."""
    port = free_port()
    command = [".venv/bin/python", "-m", "homeport", "serve", "--log-level=error", "--explain=complete"]
    process = subprocess.Popen([*command, f"--kubeconfig={kubeconfig}", f"--port={port}"])
    try:
        wait_for(lambda: answers(port, "/readyz"))
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def _body(pods: int) -> dict[str, Any]:
    """A Deployment of ordinary pods that are spread over zones."""
    labels = {"app": "simulated"}
    spread = [
        {
            "topologyKey": "topology.kubernetes.io/zone",
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
    ]
    requests = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "main", "image": "registry.example/web:1", "resources": {"requests": requests}}
    template = {
        "metadata": {"labels": labels},
        "spec": {"topologySpreadConstraints": spread, "containers": [container]},
    }
    spec = {"replicas": pods, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": "simulated", "namespace": "default"}
    return {"objects": [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}]}


def _simulate(port: int, pods: int) -> float | None:
    """Seconds of one simulation; ``None`` while the snapshot of explain is not complete."""
    began = time.perf_counter()
    answer = httpx.post(
        f"http://127.0.0.1:{port}/api/v1/simulate", json=_body(pods), timeout=_SIMULATION_SECONDS, trust_env=False
    )
    if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return None
    found = answer.raise_for_status().json()
    assert not found["notReached"], found["notReached"]
    return time.perf_counter() - began


def filters(connection: Connection, workload: Workload, seconds: float) -> list[float]:
    """Microseconds of each filter call."""
    bodies, taken, until = workload.bodies(), list[float](), time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        connection.post(f"/{workload.verb}", bodies[len(taken) % len(bodies)])
        taken.append((time.perf_counter() - began) * 1e6)
    return taken


def _beside(port: int, pods: int, over: threading.Event, taken: list[float]) -> None:
    while not over.is_set():
        seconds = _simulate(port, pods)
        if seconds is not None:
            taken.append(seconds)


def measure(port: int, workload: Workload, *, added: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Alternate between filters alone and filters beside simulations."""
    with Connection(port) as connection:
        return _measured(connection, port, workload, added=added, seconds=seconds, rounds=rounds)


def _measured(
    connection: Connection, port: int, workload: Workload, *, added: int, seconds: float, rounds: int
) -> dict[str, Any]:
    alone, beside, simulations = list[float](), list[float](), list[float]()
    filters(connection, workload, 2)
    for _ in range(rounds):
        alone += filters(connection, workload, seconds)
        over = threading.Event()
        thread = threading.Thread(target=_beside, args=(port, added, over, simulations))
        thread.start()
        beside += filters(connection, workload, seconds)
        over.set()
        thread.join()
    found = {name: summary(each) for name, each in (("alone", alone), ("beside", beside))}
    ratios = {key: round(found["beside"][key] / found["alone"][key], 3) for key in ("p50", "p99")}
    return {**found, "ratios": ratios, "simulation_seconds": round(median(simulations), 2), "runs": len(simulations)}


def summary(taken: list[float]) -> dict[str, float]:
    """Microseconds at two percentiles, and the number of calls."""
    return {"p50": round(median(taken), 1), "p99": round(quantiles(taken, n=100)[98], 1), "calls": len(taken)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--added", type=int, default=1_000, help="pods of each simulation")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workload", default="filter_5000")
    asked = parser.parse_args()
    with ExitStack() as stack:
        _, kubeconfig = stack.enter_context(api_server(asked.nodes, asked.pods))
        port, _ = stack.enter_context(serving(kubeconfig))
        until = time.monotonic() + _START_SECONDS
        while _simulate(port, 1) is None and time.monotonic() < until:
            time.sleep(1)
        (workload,) = (it for it in workloads() if it.name == asked.workload)
        found = measure(port, workload, added=asked.added, seconds=asked.seconds, rounds=asked.rounds)
    report.publish({"machine": report.machine(), "nodes": asked.nodes, "pods": asked.pods, **found})


if __name__ == "__main__":
    main()
