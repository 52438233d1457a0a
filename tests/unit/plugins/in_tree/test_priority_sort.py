"""Rules of PrioritySort."""

from typing import Any

import pytest

from app.kube.core_v1 import Pod
from tests.builders import make_pod
from tests.harness import World, only

LOW, HIGH = make_pod("low", priority=-1), make_pod("high", priority=10)


@pytest.mark.parametrize(
    ("pod", "queued_at", "other", "other_queued_at", "expected"),
    [
        pytest.param(HIGH, 2.0, LOW, 1.0, True, id="higher priority goes first, however late"),
        pytest.param(LOW, 1.0, HIGH, 2.0, False, id="lower priority waits"),
        pytest.param(LOW, 1.0, LOW, 2.0, True, id="of equal priority who has waited longer"),
        pytest.param(LOW, 1.0, LOW, 1.0, False, id="nobody goes before an equal"),
    ],
)
def test_which_pod_goes_first(pod: Pod, queued_at: float, other: Pod, other_queued_at: float, expected: bool) -> None:
    plugin: Any = World(profile=only()).framework.plugins["PrioritySort"]

    assert expected is plugin.less(pod, queued_at, other, other_queued_at)
