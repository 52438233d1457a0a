"""What one interpreter takes for the work of a pod, without sockets and other processes: to compare interpreters.

    python3.13 -m tests.load.interpreter

Processor time, each figure the median of many. Prints a table on standard error and JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import platform
import sys
import sysconfig
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Final

from app.feeds.documents import EVENTS, IDENTIFIED
from app.kube.core_decoding import decode_pod
from app.kube.streams import Stream
from app.verbs.outcome import Verb
from tests.load import cluster, report
from tests.load.picture import microseconds
from tests.load.shop import Shop, app, asked, constraint, pending_json, pod

_NODES: Final = 1000
_PODS: Final = 20_000
_NAMES: Final = 420
_ZONE_HARD: Final = constraint(cluster.ZONE_KEY, app(7))
_ZONE_SOFT: Final = constraint(cluster.ZONE_KEY, app(7), hard=False)


def repeated(call: Callable[[], object], times: int) -> float:
    """µs of one call."""
    for _ in range(times // 4):
        call()
    return round(median(microseconds(call) for _ in range(times)), 1)


def verb(shop: Shop, name: Verb, times: int) -> float:
    spread = _ZONE_HARD if name == "filter" else _ZONE_SOFT
    body = asked(pending_json(7, spread), shop.names()[:_NAMES])
    return repeated(lambda: shop.call(name, body), times)


def event(shop: Shop, times: int) -> float:
    """A pod that turns up and goes again, as bytes of two events; half of it."""
    came, gone = (_chunk(kind, cluster.pod(_PODS + 1, _NODES)) for kind in ("ADDED", "DELETED"))
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    key = pod(cluster.pod(_PODS + 1, _NODES)).key

    async def measured() -> float:
        stream = Stream(b"", silence=600)
        stream.data_received(head)

        def both() -> None:
            for part in (came, gone):
                stream.data_received(part)
                for line in _taken(stream):
                    found = EVENTS.at_once(line)
                    meta = IDENTIFIED.decode(found.object).metadata
                    if found.type == "ADDED":
                        shop.picture.upsert_pod(decode_pod(found.object))
                    else:
                        shop.picture.delete_pod(key, meta.uid or "")

        return round(repeated(both, times) / 2, 1)

    return asyncio.run(measured())


def _taken(stream: Stream) -> list[bytes]:
    """The lines that are there: nothing is waited for."""
    try:
        stream.lines().send(None)
    except StopIteration as done:
        return list(done.value)
    raise RuntimeError("no line is there")


def _chunk(kind: str, made: object) -> bytes:
    line = json.dumps({"type": kind, "object": made}).encode() + b"\n"
    return f"{len(line):x}\r\n".encode() + line + b"\r\n"


def turns(times: int) -> float:
    """A task that waits for another, a hundred times; of one."""

    async def chain() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(100):
            future = loop.create_future()
            loop.call_soon(partial(future.set_result, None))
            async with asyncio.timeout(5):
                await future

    with asyncio.Runner() as runner:
        return round(repeated(lambda: runner.run(chain()), times) / 100, 2)


def measure(times: int) -> dict[str, float]:
    shop = Shop(_NODES, pods=_PODS)
    gc.collect()
    gc.freeze()
    return {
        f"filter of {_NAMES} names, zone hard": verb(shop, "filter", times),
        f"prioritize of {_NAMES} names, zone soft": verb(shop, "prioritize", times),
        "an event, from its chunk to the picture": event(shop, times),
        "a wait of a task, with a time limit": turns(max(4, times // 20)),
    }


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.interpreter", description=__doc__)
    parser.add_argument("--times", type=int, default=2000, help="calls of each; default: %(default)s")
    arguments = parser.parse_args()
    found = measure(arguments.times)
    configured = sysconfig.get_config_var("CONFIG_ARGS") or ""
    optimised = "--enable-optimizations" in configured
    name = f"{platform.python_version()}{', optimised' if optimised else ''}"
    report.table((f"Python {name}", "µs"), list(found.items()))
    report.publish({"python": sys.version, "optimised": optimised, "us": found}, "")


if __name__ == "__main__":
    main()
