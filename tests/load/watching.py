"""What an event of a watch costs the client before anybody decodes it: TLS, HTTP, lines.

    python -m tests.load.watching
    python -m tests.load.watching --by-httpx    # as through a proxy

A server in a process of its own sends events over TLS, at a pace or as fast as it can. The figure is processor time of
this process for an event: the median of several watches, with the least and the most. Prints JSON, and a table on
standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
import trustme
import uvloop

from app.kube.api_requests import PODS
from app.kube.client import KubeClient
from app.kube.credential_sources import Kubeconfig
from app.kube.credentials import Access, Credentials
from tests.load import cluster, report

_SIZES: Final = (1_500, 4_000)
_PACES: Final = (200, 1_000, 0)
_WARM_UP_SECONDS: Final = 0.2


class Given(Credentials):
    """Of a server on loopback; nothing is read."""

    def __init__(self, server: str, tls: ssl.SSLContext) -> None:
        super().__init__(Kubeconfig("/nowhere"))
        self._given = Access(server, "Bearer x", tls, "", "")

    async def access(self) -> Access:
        return self._given


def _serve(told: Connection, pair: str, size: int, pace: int, events: int) -> None:
    """A watch for whoever asks: ``events`` of about ``size`` bytes, ``pace`` a second, 0 as fast as can be."""
    uvloop.run(_served(told, pair, size, pace, events))


async def _served(told: Connection, pair: str, size: int, pace: int, events: int) -> None:
    pod = cluster.pod(1, 1)
    pod["metadata"]["annotations"] = {"filler": "x" * max(0, size - len(json.dumps(pod)))}
    line = json.dumps({"type": "MODIFIED", "object": pod}).encode() + b"\n"
    part = f"{len(line):x}\r\n".encode() + line + b"\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await asyncio.sleep(_WARM_UP_SECONDS)
        began = time.monotonic()
        for number in range(events):
            if pace and (early := began + number / pace - time.monotonic()) > 0:
                await asyncio.sleep(early)
            writer.write(part)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    told.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


@contextmanager
def serving(size: int, pace: int, events: int) -> Iterator[tuple[str, ssl.SSLContext]]:
    """Its address, and what trusts it."""
    authority = trustme.CA()
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pair))
        ours, theirs = multiprocessing.Pipe()
        arguments = (theirs, str(pair), size, pace, events)
        process = multiprocessing.get_context("spawn").Process(target=_serve, args=arguments, daemon=True)
        process.start()
        try:
            yield f"https://127.0.0.1:{ours.recv()}", context
        finally:
            process.kill()
            process.join()


async def watched(server: str, tls: ssl.SSLContext, events: int, *, by_httpx: bool) -> float:
    """µs of processor time for an event of one watch."""
    network = httpx.AsyncHTTPTransport(verify=tls) if by_httpx else None
    async with (
        KubeClient(Given(server, tls), transport=network) as client,
        client.watch(PODS, resource_version="1") as lines,
    ):
        began, found = time.process_time(), 0
        async for _ in lines:
            found += 1
        took = time.process_time() - began
    if found != events:
        raise RuntimeError(f"{found} events instead of {events}")
    return took / events * 1e6


def measure(rounds: int, events: int, *, by_httpx: bool) -> list[dict[str, Any]]:
    found = []
    for size in _SIZES:
        for pace in _PACES:
            with serving(size, pace, events) as (server, tls):
                took = [uvloop.run(watched(server, tls, events, by_httpx=by_httpx)) for _ in range(rounds)]
            least, most = min(took), max(took)
            found.append({"bytes": size, "pace": pace, "us": median(took), "least": least, "most": most})
    return found


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.load.watching", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="watches of each kind; default: %(default)s")
    parser.add_argument("--events", type=int, default=1000, help="of a watch; default: %(default)s")
    parser.add_argument("--by-httpx", action="store_true", help="through httpx instead of app.kube.streams")
    arguments = parser.parse_args()
    found = measure(arguments.rounds, arguments.events, by_httpx=arguments.by_httpx)
    head = ("bytes", "events a second", "µs an event", "least", "most")
    report.table(head, [(it["bytes"], it["pace"] or "all", it["us"], it["least"], it["most"]) for it in found])
    report.publish({"machine": report.machine(), "watching": found})


if __name__ == "__main__":
    main()
