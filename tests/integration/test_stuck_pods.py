"""Pods that wait for ever cost a bounded number of attempts, with Homeport as with stock kube-scheduler."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.controlplane.controlplane import ControlPlane
from tests.integration import stuck
from tests.integration.attempts import attempts_by_profile
from tests.integration.service import Homeport, scheduler_config
from tests.integration.test_home_stories import install_kubevirt

PODS: Final = 5
WINDOW_SECONDS: Final = 5
"""Time in which no further attempt may come. Nominations in vain caused three a second for five such pods."""

OURS: Final = "homeport"
PATIENCE: Final = "120s"
"""Time limit of a call: longer than the story, so that no bind of a held pod ends and wakes the others."""


@pytest.fixture
def emptied(plane: ControlPlane) -> Iterator[ControlPlane]:
    yield plane
    stuck.clear(plane.client)


@pytest.mark.long
def test_stuck_pods_are_tried_once_and_with_homeport_twice(emptied: ControlPlane, tmp_path: Path) -> None:
    plane = emptied
    install_kubevirt(plane.client)
    sides = {side: stuck.groups(side) for side in (stuck.STOCK, OURS)}
    stuck.make(plane.client, sides, PODS)
    expected = {
        side: {name: PODS * (kind.stock if side == stuck.STOCK else kind.ours) for name, kind in kinds.items()}
        for side, kinds in sides.items()
    }
    flag, variables = stuck.homeport_settings(tmp_path, OURS, httpTimeout=PATIENCE)

    with Homeport(plane.kubeconfig, tmp_path, [flag], environment=variables) as homeport:
        config = stuck.profiles(scheduler_config(homeport, httpTimeout=PATIENCE), sides[OURS])
        with (
            plane.start_scheduler(stuck.profiles({}, sides[stuck.STOCK])) as stock,
            plane.start_scheduler(config) as ours,
        ):
            schedulers = {stuck.STOCK: stock, OURS: ours}

            def found() -> dict[str, dict[str, int]]:
                counts = {side: attempts_by_profile(it) for side, it in schedulers.items()}
                return {side: {name: counts[side][name] for name in sides[side]} for side in sides}

            plane.client.wait_for(
                lambda: all(found()[side][name] >= expected[side][name] for side in sides for name in sides[side]),
                what="each pod to be tried",
            )
            plane.client.wait_for(
                lambda: len(homeport.get("/api/v1/waiting")) == PODS, what="pods to be held at Permit"
            )
            time.sleep(WINDOW_SECONDS)
            counted = found()

    assert expected == counted
