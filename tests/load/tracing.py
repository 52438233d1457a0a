"""What tracing costs a call, in CPU time of the whole process: ``python -m tests.load.tracing``.

The endpoint of filter is called as the HTTP server calls it, 500 names of a cluster of 1,000 nodes, in turns of the
four ways; spans go to a collector in a process of its own. CPU time and not time, so that neighbours matter less.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from typing import Final

from app.server.incoming import CompleteRequest, Endpoint
from app.server.routes import LEAN, verb_endpoints
from app.telemetry import otlp
from app.telemetry.otlp import OtlpTracing
from tests.collector import Collector
from tests.load import cluster
from tests.load.shop import Shop, app, asked, constraint, pending_json

CALLS: Final = 2000
TURNS: Final = 15
RATES: Final = {"off": None, "on, no trace begins": 0, "1 in 100": otlp.PER_MILLION // 100, "all": otlp.PER_MILLION}


def _collect(told: Connection) -> None:
    with Collector() as found:
        told.send(found.url)
        told.recv()


async def _turn(endpoint: Endpoint, body: bytes) -> float:
    """Seconds of CPU time per call."""
    began = time.process_time()
    for _ in range(CALLS):
        status, _answer = await endpoint.answer(CompleteRequest((), body, None))
        assert status == 200
    return (time.process_time() - began) / CALLS


async def measure(url: str) -> dict[str, list[float]]:
    """Of each way, the cost of a call in each turn."""
    shop = Shop(1000, pods=4000)
    service = shop._service
    body = asked(pending_json(7, constraint(cluster.ZONE_KEY, app(7))), shop.names()[:500])
    endpoints: dict[str, Endpoint] = {}
    for name, rate in RATES.items():
        tracing: OtlpTracing | None = None
        if rate is not None:
            tracing = otlp.otlp(url, rate, version="bench", instance="bench")
        callers = {LEAN: service._callers[LEAN]}
        admission = service._admission
        made = verb_endpoints(callers, service._metrics, admission, max_body_bytes=1 << 24, tracing=tracing)
        endpoints[name] = made[f"{LEAN}/filter"]
    found: dict[str, list[float]] = {name: [] for name in endpoints}
    for _ in range(TURNS):
        for name, endpoint in endpoints.items():
            found[name].append(await _turn(endpoint, body))
    return found


def main() -> None:
    ours, theirs = multiprocessing.Pipe()
    collector = multiprocessing.get_context("spawn").Process(target=_collect, args=(theirs,))
    collector.start()
    try:
        found = asyncio.run(measure(ours.recv()))
    finally:
        ours.send("enough")
        collector.join()
    base = statistics.median(found["off"])
    for name, costs in found.items():
        median = statistics.median(costs)
        print(f"{name:22} {median * 1e6:7.1f} µs a call, {(median - base) * 1e6:+6.1f}, best {min(costs) * 1e6:.1f}")


if __name__ == "__main__":
    main()
