"""A process among strangers: what they send costs it little memory, and nothing keeps it from ending."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.api.service import SAMPLE, example
from tests.controlplane.processes import free_port
from tests.load.usage import resident_megabytes

MEGABYTE: Final = 1 << 20
START_SECONDS: Final = 60
END_SECONDS: Final = 60
"""Three times what is promised, for a machine that is busy."""

MOST_MEGABYTES: Final = 40
"""Of what is sent, a hundredth may stay."""


class Served:
    """A running Homeport that serves the sample cluster, and connections to it that say what they like."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "homeport", "serve", f"--cluster={SAMPLE}", f"--port={self.port}"]
        with (folder / "homeport.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            assert self.process.poll() is None, (folder / "homeport.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def answers(self) -> bool:
        url = f"http://127.0.0.1:{self.port}/lean/filter"
        try:
            answer = httpx.post(url, json=example("filter-home"), trust_env=False, timeout=10)
        except httpx.TransportError:
            return False
        return bool(["node-b2"] == answer.json()["NodeNames"])

    def connect(self) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", self.port))
        found.settimeout(30)
        return found

    @property
    def megabytes(self) -> float:
        return resident_megabytes(self.process.pid)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One process for all that does not end it."""
    with contextlib.closing(Served(tmp_path_factory.mktemp("served"))) as found:
        yield found


def flood(served: Served, head: bytes, part: bytes, times: int) -> None:
    """Send as much of it as is taken."""
    with served.connect() as line:
        try:
            line.sendall(head)
            for _ in range(times):
                line.sendall(part)
        except OSError:
            return  # hung up on us, as it should


@pytest.mark.parametrize(
    ("head", "part", "times"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n", b"x: y\r\n" * 20_000, 160, id="20 MB of small headers"),
        pytest.param(b"GET /", b"x" * MEGABYTE, 60, id="a URL of 60 MB"),
        pytest.param(b"GET / HTTP/1.1\r\nX: ", b"y" * MEGABYTE, 60, id="a header of 60 MB"),
        pytest.param(
            b"POST /bind HTTP/1.1\r\nHost: localhost\r\nContent-Length: 125829120\r\n\r\n",
            b"x" * MEGABYTE,
            120,
            id="a bind of 120 MB",
        ),
        pytest.param(b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20_000, 20, id="requests without end"),
    ],
)
def test_what_is_sent_is_not_kept(served: Served, head: bytes, part: bytes, times: int) -> None:
    flood(served, head, part, 1)
    before = served.megabytes
    for _ in range(4):
        flood(served, head, part, times)

    assert served.answers()
    assert served.megabytes - before < MOST_MEGABYTES


HALVES: Final = {
    "nothing": b"",
    "half a request line": b"POST /bi",
    "half its headers": b"POST /bind HTTP/1.1\r\nHost: loc",
    "half a body of a verb": b"POST /bind HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    "half a body of a page": b"POST /api/v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    "half a chunk": b"POST /filter HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
    "an answer that is not fetched": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 30,
}


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_no_client_keeps_it_from_ending(tmp_path: Path, number: signal.Signals) -> None:
    with contextlib.closing(Served(tmp_path)) as served:
        lines = [served.connect() for _ in HALVES]
        for line, half in zip(lines, HALVES.values(), strict=True):
            line.sendall(half)
        time.sleep(0.5)  # they have arrived: nothing tells
        served.process.send_signal(number)

        assert served.process.wait(END_SECONDS) in (0, -number)
    for line in lines:
        line.close()
