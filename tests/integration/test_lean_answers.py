"""A stock kube-scheduler chooses alike, whether it is answered in full or leanly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from tests.controlplane import objects
from tests.controlplane.controlplane import ControlPlane
from tests.integration.service import Homeport, scheduler_config
from tests.integration.test_spread_stories import wait_all_bound

StartHomeport = Callable[..., Homeport]

PODS: Final = 240
SCORES: Final = {"multiPoint": {"disabled": [{"name": "PodTopologySpread"}]}, "score": {"disabled": [{"name": "*"}]}}
"""No score but Homeport's, so that equals are exactly equal."""


@pytest.mark.long
@pytest.mark.parametrize("prefix", ["", "/lean"])
@pytest.mark.parametrize(("equals", "least"), [(4, 30), (30, 1)])
def test_among_equals_each_node_is_chosen_about_as_often(
    plane: ControlPlane, start_homeport: StartHomeport, prefix: str, equals: int, least: int
) -> None:
    """In 240 fair draws among four, one of them has fewer than 30 once in ten million times."""
    for number in range(equals):
        plane.client.create_node(
            objects.node(f"n{number}", zone=f"z{number % 2}", cpu="64", memory="256Gi", pods="1000")
        )
    homeport = start_homeport()
    config = dict(scheduler_config(homeport, urlPrefix=homeport.url + prefix))
    config["profiles"] = [{"schedulerName": "default-scheduler", "plugins": SCORES}]
    names = [f"pod-{number}" for number in range(PODS)]

    with plane.start_scheduler(config):
        for name in names:
            plane.client.create(objects.pod(name))
        placed = Counter(wait_all_bound(plane, names).values())

    assert len(placed) > equals - 3
    assert min(placed.values()) >= least
    assert max(placed.values()) <= 3 * PODS // equals
