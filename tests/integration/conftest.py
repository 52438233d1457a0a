"""One control plane for all stories; each finds it empty."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport

MEMORY: Final = "homes.homeport.dev"


@pytest.fixture(scope="session")
def running() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
def plane(running: ControlPlane) -> Iterator[ControlPlane]:
    yield running
    running.client.clear()
    _forget(running.client)


def _forget(client: Client) -> None:
    """What is remembered of homes outlives machines, on purpose: no story is to hear of another's."""
    if client.find("CustomResourceDefinition", MEMORY) is not None:
        client.delete("CustomResourceDefinition", MEMORY)
        client.wait_for(lambda: client.find("CustomResourceDefinition", MEMORY) is None, what=f"{MEMORY} to be gone")


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
