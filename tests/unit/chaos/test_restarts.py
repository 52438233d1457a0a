"""How long machines wait for their nodes is read off the history."""

from __future__ import annotations

import pytest

from tests.chaos.checker import Event, Json
from tests.chaos.restarts import seconds_until_bound
from tests.controlplane import objects


def pod(name: str, machine: str, node: str = "") -> Json:
    labels = {"vm.kubevirt.io/name": machine} if machine else {}
    found = objects.pod(name, labels=labels, node_name=node)
    return {**found, "metadata": {**found["metadata"], "uid": f"uid-{name}"}}


def test_seconds_are_those_from_a_pod_to_its_binding() -> None:
    """Of machines alone; a pod that has no node yet counts for nothing."""
    history = [
        Event("Pod", "ADDED", pod("first", "hard-1"), 10.0),
        Event("Pod", "ADDED", pod("waits", "hard-2"), 10.5),
        Event("Pod", "ADDED", pod("other", ""), 11.0),
        Event("Pod", "MODIFIED", pod("first", "hard-1"), 11.5),
        Event("Pod", "MODIFIED", pod("first", "hard-1", "n1"), 12.25),
        Event("Pod", "MODIFIED", pod("first", "hard-1", "n1"), 13.0),
        Event("Pod", "MODIFIED", pod("other", "", "n1"), 13.0),
    ]

    assert [pytest.approx(2.25)] == seconds_until_bound(history)
