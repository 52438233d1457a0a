"""Preemption for topology spread while processes are killed and the API server is away; and ``preemption: Never``."""

import time
from pathlib import Path

import pytest

from tests.controlplane.controlplane import ControlPlane
from tests.integration.killed import KILLED_AFTER
from tests.integration.preemption import (
    configuration,
    evicted,
    homeport_of,
    make_classes,
    running,
    stays_pending,
    web,
    zones,
)
from tests.integration.service import leader_and_follower, start_scheduler


@pytest.fixture
def classes(plane: ControlPlane) -> None:
    make_classes(plane.client)


def test_p1_with_never_it_waits(plane: ControlPlane, classes: None, tmp_path: Path) -> None:
    client = plane.client
    zones(client)
    running(client, "low-0")
    homeport = homeport_of(plane, tmp_path, "Never")

    with homeport, start_scheduler(plane, homeport):
        client.create(web("high"))
        stays_pending(client, "high")

    assert [] == evicted(client)


@pytest.mark.parametrize(
    "write",
    [pytest.param("nominate", marks=pytest.mark.long), "evict-1", pytest.param("evict-2", marks=pytest.mark.long)],
)
def test_p8_it_is_killed_during_a_plan_and_started_again(
    plane: ControlPlane, classes: None, tmp_path: Path, write: str
) -> None:
    """In the end, both victims are evicted, no third pod is, and the pod is bound."""
    client = plane.client
    zones(client, "a2")
    for number in range(2):
        running(client, f"low-{number}")
    running(client, "low-2", "a2")
    killed = homeport_of(plane, tmp_path, killed_after=write)

    with killed, start_scheduler(plane, killed):
        client.create(web("high", skew=2))
        client.wait_for(lambda: not killed.alive, what="the process to be killed")
        before = evicted(client)
        killed.start()
        bound = client.wait_bound("high", timeout=60)

    assert (int(write[-1]) if write[-1].isdigit() else 0) == len(before)
    assert 2 == len(evicted(client))
    assert bound in ("a1", "a2")


@pytest.mark.long
def test_p8_the_leader_changes_during_a_plan(plane: ControlPlane, classes: None, tmp_path: Path) -> None:
    """The old leader is killed after the first of two evictions; the follower goes on."""
    client = plane.client
    zones(client)
    for number in range(2):
        running(client, f"low-{number}")
    killing = {KILLED_AFTER: f"evict-1:{tmp_path}/killed"}
    with (
        leader_and_follower(plane, tmp_path, configuration(), killing, "tests.integration.killed") as (
            leader,
            follower,
        ),
        start_scheduler(plane, follower),
    ):
        client.create(web("high"))
        client.wait_for(lambda: not leader.alive, what="the leader to be killed")

        assert "a1" == client.wait_bound("high", timeout=60)
    assert ["low-0", "low-1"] == evicted(client)


@pytest.mark.long
def test_p8_the_api_server_is_away_during_a_plan(plane: ControlPlane, classes: None, tmp_path: Path) -> None:
    client = plane.client
    zones(client)
    for number in range(2):
        running(client, f"low-{number}")
    homeport = homeport_of(plane, tmp_path)

    with homeport, start_scheduler(plane, homeport):
        client.create(web("high"))
        client.wait_for(lambda: evicted(client), what="an eviction")
        plane.stop_apiserver()
        time.sleep(15)
        plane.start_apiserver()

        assert "a1" == client.wait_bound("high", timeout=90)
    assert ["low-0", "low-1"] == evicted(client)
