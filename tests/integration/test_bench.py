"""The benchmark of scheduling, as small as it gets: it places all pods, breaks no constraint, counts what it says."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.controlplane import ControlPlane
from tests.load.quiet import Probe
from tests.load.scheduling import Bench, measure_case
from tests.load.workload import chosen, load

pytestmark = pytest.mark.long

SYSTEMS = ("in-tree", "homeport", "pick")


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Any]]:
    (case,) = chosen(load("scheduling"), matching="zone-hard-host-soft/5000-nodes-10000-pods", scale=0.004)
    with ControlPlane() as plane, tempfile.TemporaryDirectory() as folder:
        bench = Bench(plane, Path(folder), case.size.nodes, case.size.existing)
        yield measure_case(bench, case, SYSTEMS, rounds=1, probe=Probe())


def test_every_system_places_every_pod(found: dict[str, Any]) -> None:
    assert dict.fromkeys(SYSTEMS, (0, 10)) == {
        name: (it["unplaced"], it["attempts"]["scheduled"]) for name, it in found["systems"].items()
    }


def test_hard_constraints_hold(found: dict[str, Any]) -> None:
    assert [] == [it for name in SYSTEMS for it in found["systems"][name]["broken"]]


def test_it_is_told_how_even_the_pods_stand(found: dict[str, Any]) -> None:
    """Existing pods stand two to a node, and there is half a pod a node more."""
    even = {name: it["even"] for name, it in found["systems"].items()}

    assert {("topology.kubernetes.io/zone", "kubernetes.io/hostname")} == {tuple(it) for it in even.values()}
    assert 1 == even["pick"]["kubernetes.io/hostname"]["skew"]
