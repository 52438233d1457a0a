"""Are verbs delayed by open pages, and how much processor time does a poll cost?

    python -m tests.load.pages
    python -m tests.load.pages --nodes 1000 --pods 30000 --open 100

A service with ``explain: complete`` gets filter calls one after the other, in turns of some seconds: alone, and beside
open pages that poll every 5 s. Then one client polls as fast as it is answered. Prints JSON: p50 and p99 of a filter in
microseconds in both cases, their ratios, and the processor time of the service for each request of a poll.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx

from tests.load import report
from tests.load.bench import Connection, Workload, api_server, workloads
from tests.load.what_ifs import filters, serving, summary

PATHS: Final = ("overview",)
"""What the page polls."""

OTHERS: Final = ("nodes", "status")
"""What it reads if they changed, or on other pages."""

POLL_SECONDS: Final = 5.0
_READY_SECONDS: Final = 60.0
_REQUESTS: Final = 100


class _OpenPage:
    """Polls like one page in a browser."""

    def __init__(self, port: int) -> None:
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1/", trust_env=False, timeout=30)
        self._etags: dict[str, str] = {}

    def read(self, path: str) -> int:
        """Return the status of the answer."""
        known = self._etags.get(path)
        answer = self._http.get(path, headers={"If-None-Match": known} if known else {})
        if "etag" in answer.headers:
            self._etags[path] = answer.headers["etag"]
        return answer.status_code

    def poll(self, over: threading.Event) -> None:
        while not over.is_set():
            for path in PATHS:
                self.read(path)
            over.wait(POLL_SECONDS)

    def close(self) -> None:
        self._http.close()


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _polled(port: int, pid: int) -> dict[str, float]:
    """Milliseconds of processor time for each request, by path. The pauses of the page queue do not count."""
    page, cost = _OpenPage(port), {}
    for path in (*PATHS, *OTHERS):
        page.read(path)
        idle = _idle(pid)
        began, cpu = time.monotonic(), _processor_seconds(pid)
        for _ in range(_REQUESTS):
            page.read(path)
        seconds = time.monotonic() - began
        cost[path] = round(1e3 * (_processor_seconds(pid) - cpu - idle * seconds) / _REQUESTS, 2)
    page.close()
    return cost


def _idle(pid: int) -> float:
    """Share of a core that the service uses without requests."""
    before = _processor_seconds(pid)
    time.sleep(2)
    return (_processor_seconds(pid) - before) / 2


def _measured(port: int, pid: int, workload: Workload, pages: int, seconds: float, rounds: int) -> dict[str, Any]:
    alone, beside = list[float](), list[float]()
    with Connection(port) as connection:
        filters(connection, workload, 2)
        for _ in range(rounds):
            alone += filters(connection, workload, seconds)
            over = threading.Event()
            open_pages = [_OpenPage(port) for _ in range(pages)]
            threads = [threading.Thread(target=it.poll, args=(over,)) for it in open_pages]
            for number, thread in enumerate(threads):
                thread.start()
                time.sleep(0 if number else 0.1)
            beside += filters(connection, workload, seconds)
            over.set()
            for thread in threads:
                thread.join()
            for page in open_pages:
                page.close()
    found = {name: summary(each) for name, each in (("alone", alone), ("beside", beside))}
    ratios = {key: round(found["beside"][key] / found["alone"][key], 3) for key in ("p50", "p99")}
    return {**found, "ratios": ratios, "milliseconds_of_a_request": _polled(port, pid)}


def _wait_for_pages(port: int) -> None:
    page, until = _OpenPage(port), time.monotonic() + _READY_SECONDS
    while any(page.read(path) not in (httpx.codes.OK, httpx.codes.NOT_MODIFIED) for path in PATHS):
        if time.monotonic() > until:
            raise TimeoutError("the snapshot of explain is not complete")
        time.sleep(0.5)
    page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--open", type=int, default=100, help="number of open pages")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workload", default="filter_5000")
    asked = parser.parse_args()
    with ExitStack() as stack:
        _, kubeconfig = stack.enter_context(api_server(asked.nodes, asked.pods))
        port, pid = stack.enter_context(serving(kubeconfig))
        _wait_for_pages(port)
        (workload,) = (it for it in workloads() if it.name == asked.workload)
        measured = _measured(port, pid, workload, asked.open, asked.seconds, asked.rounds)
    report.publish({"machine": report.machine(), "nodes": asked.nodes, "pods": asked.pods, **measured})


if __name__ == "__main__":
    main()
