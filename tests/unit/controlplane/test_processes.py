"""Ports that tests give to the processes they start."""

import socket
from itertools import islice

import pytest

from tests.controlplane import processes


def test_workers_share_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    ports: list[int] = []
    for worker in ("gw0", "gw1", "gw2"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        ports += islice(processes._own_ports(), 7_000)

    assert len(ports) == len(set(ports)) == 21_000


def test_a_port_is_given_once_and_not_while_it_is_listened_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", processes.free_port()))
        port = taken.getsockname()[1]
        monkeypatch.setattr(processes, "_PORTS", iter([port, *range(20_000, 20_100)]))

        assert processes.free_port() != port
