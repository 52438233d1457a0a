"""Processes that cannot outlive the tests that started them, with their output kept for the error that may need it."""

import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.controlplane import watchdog

LOG_TAIL: Final = 4000
"""Characters of a component's log that the error about its start repeats."""

POLL_SECONDS: Final = 0.05
FIRST_PORT: Final = 10_240
EPHEMERAL_PORTS: Final = 32_768
"""From here on Linux takes ports for outgoing connections."""


class StartError(Exception):
    """A component ended, or was not ready in time; the message carries the end of its log."""


class Process:
    """One running component; its standard output and error go to one file."""

    def __init__(self, name: str, running: subprocess.Popen[bytes], log_file: Path) -> None:
        self.name = name
        self.log_file = log_file
        self._running = running

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._running.poll() is None

    def log(self) -> str:
        """All it has written so far."""
        return self.log_file.read_text(errors="replace")

    def wait_ready(self, ready: Callable[[], bool], timeout: float) -> None:
        """Return as soon as `ready()` holds; kill it and raise `StartError` when it ends before or takes longer."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.alive:
                raise StartError(self._describe(f"ended with {self._running.returncode}"))
            if time.monotonic() > deadline:
                self.kill()
                raise StartError(self._describe(f"was not ready after {timeout:g} s"))
            time.sleep(POLL_SECONDS)

    def wait(self, timeout: float) -> int:
        """Its exit code, once it has ended; `TimeoutExpired` when it has not after `timeout` seconds."""
        return self._running.wait(timeout)

    def stop(self, timeout: float = 10) -> None:
        """Ask it to end, and end it when it has not after `timeout` seconds."""
        self._running.terminate()
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it as a crash would."""
        self._running.kill()
        self._running.wait()

    def _describe(self, what: str) -> str:
        return f"{self.name} {what}; the end of {self.log_file.name}:\n{self.log()[-LOG_TAIL:]}"


class ProcessGroup:
    """Processes in a process group of their own, led by a watchdog that ends them all when this process is gone.

    A Ctrl-C in the terminal reaches the tests alone, so that they stop the components in their own order.
    """

    def __init__(self, folder: Path) -> None:
        """Start the watchdog, which also removes `folder` when this process ends without `close()`."""
        command = [sys.executable, "-I", watchdog.__file__, str(folder)]
        self._folder = folder
        self._watchdog = subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)
        self._members: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Process:
        """Start a component; what it writes goes to `<name>.log`, after what its predecessor of that name wrote.

        `environment` is added to that of the tests.
        """
        log_file = self._folder / f"{name}.log"
        with log_file.open("ab") as log:
            running = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env={**os.environ, **(environment or {})},
                process_group=self._watchdog.pid,
            )
        self._members.append(running)
        return Process(name, running, log_file)

    def close(self) -> None:
        """Kill every member and the watchdog; harmless when done before."""
        if self._watchdog.poll() is None:
            os.killpg(self._watchdog.pid, signal.SIGKILL)
        for member in (*self._members, self._watchdog):
            member.wait()
        if self._watchdog.stdin:
            self._watchdog.stdin.close()


def _own_ports() -> Iterator[int]:
    """Yield the ports of this worker of pytest-xdist, each once before any comes again."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    own = range(FIRST_PORT + worker, EPHEMERAL_PORTS, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    first = secrets.randbelow(len(own))
    return itertools.cycle((*own[first:], *own[:first]))


_PORTS: Final = _own_ports()


def free_port() -> int:
    """Return a loopback port that no process listens on.

    Another run of tests may take it before its user does, but no other worker of this one, and no outgoing connection.
    """
    return next(port for port in _PORTS if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
