"""One control plane for all stories; each finds it empty."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport


@pytest.fixture(scope="session")
def running() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
def plane(running: ControlPlane) -> Iterator[ControlPlane]:
    yield running
    running.client.clear()


@pytest.fixture
def start_homeport(plane: ControlPlane, tmp_path: Path) -> Iterator[Callable[..., Homeport]]:
    """Starts a Homeport against the control plane, with further flags; ended with the test."""
    started: list[Homeport] = []

    def start(*flags: str) -> Homeport:
        homeport = Homeport(plane.kubeconfig, tmp_path, flags)
        started.append(homeport)
        homeport.start()
        return homeport

    yield start
    for homeport in started:
        homeport.__exit__(None, None, None)
