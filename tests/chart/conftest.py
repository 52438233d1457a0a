"""One control plane for all tests of the chart, with the definitions that it may make objects of."""

from collections.abc import Iterator

import pytest

from tests.chart.cluster import Cluster
from tests.chart.definitions import definitions
from tests.controlplane.controlplane import ControlPlane


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as plane:
        for it in definitions():
            plane.client.create(it)
        yield plane


@pytest.fixture(scope="session")
def cluster(plane: ControlPlane) -> Iterator[Cluster]:
    with Cluster(plane) as cluster:
        cluster.wait_for(definitions())
        yield cluster
