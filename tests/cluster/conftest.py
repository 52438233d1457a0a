"""One cluster for all stories, and the table of figures that they leave at the end."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.__main__ import ARCHIVES_VARIABLE
from tests.cluster.cluster import Cluster
from tests.cluster.figures import FIGURES
from tests.cluster.release import Release


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three nodes, a zone each; `python -m tests.cluster` says where the images are."""
    archives = [Path(part) for part in os.environ[ARCHIVES_VARIABLE].split(os.pathsep)]
    with Cluster(archives) as running:
        yield running


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[Release]:
    """The chart in mode `scheduler`, in a namespace that enforces restricted; uninstalled with the module."""
    with Release(cluster, "homeport") as installed:
        yield installed


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("figures")
        terminalreporter.write_line(FIGURES.table())
