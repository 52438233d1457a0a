"""Whole nodes (``nodeCacheCapable: false``): how long does a filter of 5,000 nodes of 12 KB take, and who waits for it?

Run as ``python -m tests.load.nodes_form [--nodes 50]``; prints one JSON object. The service runs in this process behind
its real server; ``longest_pause_ms`` is the longest time in which the event loop did nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import uvloop

from app.config.settings import Settings
from app.kube.core_decoding import decode_node
from app.main import HomeportService
from app.server.web import server
from app.telemetry.logging import configure
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.controlplane.processes import free_port
from tests.listening import on_loopback
from tests.load import cluster
from tests.load.bench import answers, wait_for

NODES: Final = 5_000
NODE_BYTES: Final = 12_000
CALLS: Final = 10


def big_node(number: int) -> dict[str, Any]:
    """A node padded with an annotation."""
    node = cluster.node(number)
    padding = NODE_BYTES - len(json.dumps(node))
    node["metadata"]["annotations"] = {"example.com/padding": "x" * padding}
    return node


async def pauses(into: list[float]) -> None:
    """Write down how long each round of the loop took."""
    last = time.perf_counter()
    while True:
        await asyncio.sleep(0.0005)
        now = time.perf_counter()
        into.append(now - last - 0.0005)
        last = now


async def calls(port: int, body: Path) -> list[float]:
    """Milliseconds at curl, a process of its own: from the connection to the last byte read."""
    url = f"http://127.0.0.1:{port}/filter"
    command = [
        "curl",
        "-s",
        "-o",
        "/dev/null",
        "-w",
        "%{time_total}",
        "-H",
        "Expect:",
        "--data-binary",
        f"@{body}",
        url,
    ]
    times = []
    for _ in range(CALLS):
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        times.append(float(out) * 1000)
    return times


async def measure(count: int) -> dict[str, Any]:
    configure("error", "json")
    service = HomeportService(
        Settings(cluster="examples/sample-cluster.yaml"), SHIPPED, DEFAULT_WEIGHTS, version="bench"
    )
    nodes = [big_node(number) for number in range(count)]
    for node in nodes:
        service.snapshot.upsert_node(decode_node(msgspec.json.encode(node)))
    asked = {"Pod": cluster.pending_pod(7), "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}
    body = json.dumps(asked, separators=(",", ":")).encode()
    port = free_port()
    web = service.web()
    running = server(web, [on_loopback(web, port)])
    serving = asyncio.create_task(running.serve())
    await asyncio.to_thread(wait_for, lambda: answers(port))
    found: list[float] = []
    watching = asyncio.create_task(pauses(found))
    with tempfile.NamedTemporaryFile() as file:
        await asyncio.to_thread(Path(file.name).write_bytes, body)
        times = await calls(port, Path(file.name))
    watching.cancel()
    running.should_exit = True
    await serving
    return {
        "megabytes": round(len(body) / 1e6, 1),
        "filter_ms": {"median": round(median(times), 1), "all": [round(it, 1) for it in times]},
        "longest_pause_ms": round(max(found) * 1000, 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    uvloop.install()
    print(json.dumps(asyncio.run(measure(parser.parse_args().nodes)), indent=2))
