"""Bindings of a burst leave together, and hard constraints hold while they are held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import HTTP, Homeport, start_scheduler
from tests.integration.test_spread_stories import wait_all_bound

ZONES = ("zone-a", "zone-b", "zone-c")
PODS = [f"pod-{number}" for number in range(60)]
LABELS = {"app": "web"}


def bound(plane: ControlPlane, homeport: Homeport, constraints: Sequence[dict[str, Any]] = ()) -> Counter[str]:
    """How many of the pods are in each zone once all are bound."""
    for number in range(2 * len(ZONES)):
        plane.client.create_node(objects.node(f"n{number}", zone=ZONES[number % len(ZONES)], cpu="64", memory="256Gi"))
    for name in PODS:
        plane.client.create(objects.pod(name, labels=LABELS, spread_constraints=constraints))
    with start_scheduler(plane, homeport):
        placed = wait_all_bound(plane, PODS)
    return Counter(ZONES[int(node[1:]) % len(ZONES)] for node in placed.values())


def held(homeport: Homeport) -> int:
    """How many Bindings were held."""
    text = HTTP.get(f"{homeport.url}/metrics").text
    (count,) = [it for it in text.splitlines() if it.startswith("homeport_bind_batch_wait_seconds_count")]
    return int(float(count.rpartition(" ")[2]))


@pytest.mark.parametrize(("window", "some"), [("1s", True), pytest.param("0s", False, marks=pytest.mark.long)])
def test_a_burst_leaves_together(
    plane: ControlPlane, start_homeport: Callable[..., Homeport], window: str, some: bool
) -> None:
    """With a window that is filled on a machine under any load."""
    homeport = start_homeport(f"--bind-batch-window={window}")

    bound(plane, homeport)

    assert some == (held(homeport) > 0)


def test_hard_constraints_hold(plane: ControlPlane, start_homeport: Callable[..., Homeport]) -> None:
    """At their limit each pod may be bound only once those before it are, some of which would be held."""
    homeport = start_homeport("--bind-batch-window=1s")

    placed = bound(plane, homeport, [objects.spread(LABELS, max_skew=1)])

    assert dict.fromkeys(ZONES, len(PODS) // len(ZONES)) == placed
