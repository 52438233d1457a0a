"""Homeport as a process of its own, serving a saved cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from tests.controlplane.processes import Process, ProcessGroup, free_port

START_SECONDS: Final = 30


@contextmanager
def started(
    folder: Path,
    *flags: str | Path,
    python: str | Path = sys.executable,
    ready_at: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[Process, httpx.Client]]:
    """``homeport serve`` with these flags, started in ``folder`` by an interpreter that has Homeport, and a client.

    ``ready_at``: the port of ``/readyz``, where it is not that of the verbs.
    """
    port = free_port()
    processes = ProcessGroup(folder)
    command = [str(it) for it in (python, "-m", "homeport", "serve", "--port", port, *flags)]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            process = processes.start("homeport", command, environment)
            process.wait_ready(lambda: _is_ready(http, ready_at or port), START_SECONDS)
            yield process, http
    finally:
        processes.close()


@contextmanager
def served(
    folder: Path, *flags: str | Path, python: str | Path = sys.executable, ready_at: int | None = None
) -> Iterator[httpx.Client]:
    """The client of ``started``."""
    with started(folder, *flags, python=python, ready_at=ready_at) as (_, http):
        yield http


def _is_ready(http: httpx.Client, port: int) -> bool:
    try:
        return http.get(f"http://127.0.0.1:{port}/readyz").is_success
    except httpx.TransportError:
        return False
