"""Homeport with a standard error that cannot be written drops and counts the lines; nothing else changes."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import httpx
import pytest

from tests.api.service import SAMPLE, example
from tests.controlplane.processes import free_port

START_SECONDS: Final = 60
END_SECONDS: Final = 60
PAGE: Final = 4096
MOST: Final = 10
"""The lowest limit of connections."""


def unread_pipe() -> int:
    """Return the end for writing of a pipe of one page that nobody reads; its other end stays open."""
    _, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PAGE)
    return writing


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@contextmanager
def served(standard_error: int | None) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start Homeport with that standard error, a closed one for ``None``; give the process and its port."""
    port = free_port()
    flags = [f"--cluster={SAMPLE}", f"--port={port}", f"--max-connections={MOST}", "--log-level=debug"]
    command = [sys.executable, "-m", "homeport", "serve", *flags]
    closing = [] if standard_error is not None else ["sh", "-c", 'exec "$@" 2>&-', "sh"]
    process = subprocess.Popen([*closing, *command], stdout=subprocess.DEVNULL, stderr=standard_error)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(port):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process, port
    finally:
        process.kill()
        process.wait()


def client(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False, timeout=10)


def answers(port: int, times: int = 1) -> bool:
    try:
        with client(port) as http:
            found = [http.post("/lean/filter", json=example("filter-home")).json() for _ in range(times)]
    except httpx.TransportError:
        return False
    return [["node-b2"]] * times == [it["NodeNames"] for it in found]


def connect(port: int) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port))
    line.settimeout(30)
    return line


def malformed_request_is_answered(port: int) -> bool:
    with connect(port) as line:
        line.sendall(b"\x00\x01nonsense\r\n\r\n")
        return line.recv(1024).startswith(b"HTTP/1.1 400 ")


def one_connection_too_many_is_closed(port: int) -> bool:
    with ExitStack() as lines:
        *_, last = [lines.enter_context(connect(port)) for _ in range(MOST + 1)]
        return last.recv(1) == b""


def is_served_again(port: int) -> bool:
    deadline = time.monotonic() + END_SECONDS
    while not answers(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def dropped(port: int) -> int:
    with client(port) as http:
        text = http.get("/metrics").text
    (found,) = re.findall(r"^homeport_log_lines_dropped_total (\S+)$", text, re.MULTILINE)
    return int(float(found))


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(full_disk, id="a full disk"),
        pytest.param(unread_pipe, id="a pipe whose reader does not read"),
        pytest.param(lambda: None, id="a closed descriptor"),
    ],
)
def test_it_serves_and_ends_as_ever(made: Callable[[], int | None]) -> None:
    with served(made()) as (process, port):
        assert answers(port, times=PAGE // 50)  # each is a line at this log level
        assert malformed_request_is_answered(port)
        assert one_connection_too_many_is_closed(port)
        assert is_served_again(port)
        assert dropped(port) > 0

        process.send_signal(signal.SIGTERM)
        assert -signal.SIGTERM == process.wait(END_SECONDS)


def test_mistakes_have_their_exit_code() -> None:
    command = [sys.executable, "-m", "homeport", "serve", "--port=nonsense"]
    assert 2 == subprocess.run(command, stderr=full_disk(), check=False).returncode
