"""The message of kube-scheduler, split into its reasons and compared with a judgement."""

from __future__ import annotations

from typing import Final

import pytest

from app.analysis.scheduler_message import SchedulerReason, compared, split
from app.cache import cluster
from tests.builders import JsonObject, taint
from tests.harness import World
from tests.unit.app.analysis.test_judging import COMPLETE, judged, node, pod

PREEMPTION: Final = " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("message", "nodes", "reasons"),
    [
        (
            "0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods." + PREEMPTION,
            3,
            [(1, "Insufficient cpu"), (2, "Too many pods")],
        ),
        (
            "0/3 nodes are available: 3 node(s) had untolerated taint(s). no new claims to deallocate," + PREEMPTION,
            3,
            [(3, "node(s) had untolerated taint(s)")],
        ),
        (
            '0/3 nodes are available: persistentvolumeclaim "data-2 of 3" not found. not found',
            3,
            [(3, 'persistentvolumeclaim "data-2 of 3" not found')],
        ),
        ("0/3 nodes are available: ", 3, []),
        (
            "0/1 nodes are available: 1 node(s) had volume conflict, 4 of them.",
            1,
            [(1, "node(s) had volume conflict"), (4, "of them")],
        ),
        (
            "0/5000 nodes are available: 5000 node(s) had untolerated taint {a: b, c}.",
            5000,
            [(5000, "node(s) had untolerated taint {a: b, c}")],
        ),
        ("0/3 nodes are available: 1 Insufficient cp", 3, [(1, "Insufficient cp")]),
        ("pod has unbound immediate PersistentVolumeClaims", 0, []),
        ("", 0, []),
    ],
)
def test_reasons_and_counts(message: str, nodes: int, reasons: list[tuple[int, str]]) -> None:
    assert (nodes, [SchedulerReason(*it) for it in reasons]) == split(message)


def waiting(message: str) -> JsonObject:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {**pod(cpu="2"), "status": {"conditions": [{**condition, "lastTransitionTime": "2026-11-22T10:00:00Z"}]}}


@pytest.mark.parametrize(
    ("message", "differences"),
    [
        pytest.param("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.", (), id="equal"),
        pytest.param(
            "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable.",
            ("kube-scheduler counted 3 nodes; there are 2 now",),
            id="a node went",
        ),
        pytest.param(
            "0/2 nodes are available: 1 Insufficient memory, 1 node(s) were unschedulable.",
            ("only kube-scheduler says: Insufficient memory",),
            id="another reason",
        ),
    ],
)
def test_a_difference_is_told(message: str, differences: tuple[str, ...]) -> None:
    world = World(node("a", cpu="1"), node("b", cpu="1", unschedulable=True), profile=COMPLETE)
    asked = world.pod(waiting(message))

    told = compared(asked, judged(world, asked), 0)

    assert told is not None
    assert (differences, "2026-11-22T10:00:00Z") == (told.differences, told.since)


def test_a_pod_that_fits_by_now() -> None:
    world = World(node("a"), node("b", taints=[taint("example.com/gpu")]), profile=COMPLETE)
    asked = world.pod(waiting("0/2 nodes are available: 2 Insufficient cpu."))

    told = compared(asked, judged(world, asked), 0)
    delegated = compared(asked, judged(world, asked), 3)

    assert told is not None
    assert delegated is not None
    assert "kube-scheduler found no node; 1 nodes fit now" in told.differences
    assert ("kube-scheduler found no node; 1 nodes fit now, as far as judged here",) == delegated.differences


def test_a_pod_without_a_message() -> None:
    world = World(node("a"), profile=COMPLETE)

    assert compared(world.pod(pod()), judged(world, world.pod(pod())), 0) is None


def test_all_messages_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message beyond the bound is dropped; room comes back when its pod is deleted or bound."""
    monkeypatch.setattr(cluster, "MOST_MESSAGE_CHARACTERS", 10)
    world = World(node("a"), profile=COMPLETE)
    first, second = ({**waiting("12345678"), "metadata": pod(name)["metadata"]} for name in ("first", "second"))

    world.add(first, second)
    assert ["12345678", ""] == [_message(world, name) for name in ("first", "second")]
    world.add(first)
    assert "12345678" == _message(world, "first")
    world.cluster.delete_pod(("default", "first"))
    world.add(second)
    assert "12345678" == _message(world, "second")


def _message(world: World, name: str) -> str:
    found = world.cluster.pod("default", name)
    assert found is not None
    return found.waiting.message
