"""A process among strangers: what they send costs it little memory, and nothing keeps it from ending."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.api.service import SAMPLE, example
from tests.controlplane.processes import Process
from tests.load.usage import resident_megabytes
from tests.served import started

MEGABYTE: Final = 1 << 20
END_SECONDS: Final = 60
"""Three times what is promised, for a machine that is busy."""

MOST_MEGABYTES: Final = 40
"""Of what is sent, a hundredth may stay."""


class Served:
    """A running Homeport, and connections to it that say what they like."""

    def __init__(self, process: Process, http: httpx.Client) -> None:
        self.process = process
        self._http = http

    def answers(self) -> bool:
        answer = self._http.post("/lean/filter", json=example("filter-home"), timeout=10).json()
        return bool(["node-b2"] == answer["NodeNames"])

    def connect(self) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", self._http.base_url.port))
        found.settimeout(30)
        return found

    @property
    def megabytes(self) -> float:
        return resident_megabytes(self.process.pid)


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    with started(folder, "--cluster", SAMPLE) as (process, http):
        yield Served(process, http)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One process for all that does not end it."""
    with serving(tmp_path_factory.mktemp("served")) as found:
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
    with serving(tmp_path) as served:
        lines = [served.connect() for _ in HALVES]
        for line, half in zip(lines, HALVES.values(), strict=True):
            line.sendall(half)
        time.sleep(0.5)  # they have arrived: nothing tells
        os.kill(served.process.pid, number)

        assert served.process.wait(END_SECONDS) in (0, -number)
    for line in lines:
        line.close()
