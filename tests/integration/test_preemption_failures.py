"""Preemption for topology spread while processes are killed and the API server is away; and ``preemption: Never``."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.controlplane import ControlPlane
from tests.integration.killed import KILLED_AFTER
from tests.integration.preemption import (
    HIGH,
    LOW,
    configuration,
    evicted,
    forget_lease,
    homeport_of,
    make_classes,
    plans,
    running,
    stays_pending,
    web,
    zones,
)
from tests.integration.service import HTTP, leader_and_follower, start_scheduler


@pytest.fixture
def classes(plane: ControlPlane) -> Iterator[None]:
    make_classes(plane.client)
    yield
    forget_lease(plane)


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


@pytest.mark.long
def test_p6_the_place_is_kept_on_every_node_of_the_domain(plane: ControlPlane, classes: None, tmp_path: Path) -> None:
    """Without a scheduler: the high pod is refused and not tried again, and a low pod is tried on another node."""
    client = plane.client
    zones(client, "a2")
    running(client, "low-0")
    homeport = homeport_of(plane, tmp_path)

    with homeport:

        def passing(pod: dict[str, Any]) -> list[str]:
            answer = HTTP.post(f"{homeport.url}/filter", json={"Pod": pod, "NodeNames": ["a1", "a2"]}).json()
            return sorted(answer["NodeNames"] or ())

        high, again = (client.create(web(name, priority)) for name, priority in (("high", HIGH), ("again", LOW)))
        before = [passing(high), passing(again)]
        client.wait_for(lambda: evicted(client), what="an eviction")
        during = passing(again)
        client.wait_for(lambda: plans(homeport), timeout=20, what="the plan to end")
        client.wait_for(lambda: passing(again), what="the place to be free again")

        assert ([[], []], []) == (before, during)
        assert {"timed_out": 1} == plans(homeport)


@pytest.mark.long
def test_p6_after_another_pod_took_the_place_the_node_is_tried_again(
    plane: ControlPlane, classes: None, tmp_path: Path
) -> None:
    """Without a scheduler, so nothing calls Homeport again."""
    client = plane.client
    zones(client)
    for number in range(2):
        running(client, f"low-{number}")
    homeport = homeport_of(plane, tmp_path)

    with homeport:
        high = client.create(web("high", skew=2))
        HTTP.post(f"{homeport.url}/filter", json={"Pod": high, "NodeNames": ["a1"]})
        client.wait_for(lambda: evicted(client), what="an eviction")
        client.create(web("highest", "highest"))
        client.bind("highest", "a1")
        client.wait_for(lambda: plans(homeport), what="the plan to end")
        before = len(evicted(client))
        client.wait_for(lambda: len(evicted(client)) == 2, timeout=120, what="another eviction")

        assert (1, {"overtaken": 1}) == (before, {key: it for key, it in plans(homeport).items() if key == "overtaken"})
