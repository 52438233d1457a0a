"""Whoever is stopped before the end goes on there, so that nobody at the end of the line waits for ever.

Others have their turn once a step has taken its time, and not before.
"""

from __future__ import annotations

from typing import Any

import pytest

from app.kube.kinds import AnnotatedObject, Kind
from plugins.sticky_node import background as module
from plugins.sticky_node.background import STEP_SECONDS, ResumableIteration, Steps
from tests.fakes import ManualClock
from tests.unit.plugins.sticky_node.machines import INSTANCE, MACHINE, Machines


def stop_at(turns: ResumableIteration[Any], kind: Kind[Any], name: str) -> None:
    for it, found in turns:
        if found is not None and (it, found.name) == (kind, name):
            break


def names(turns: ResumableIteration[AnnotatedObject]) -> list[str]:
    """Of those that had their turn."""
    return [f"{kind.kind} {found.name}" for kind, found in turns if found is not None]


def test_turns_go_on_where_they_were_stopped() -> None:
    machines = Machines()
    for name in "abcd":
        machines.add(MACHINE, name)
        machines.add(INSTANCE, name)
    turns = ResumableIteration[AnnotatedObject](machines.cluster, (MACHINE, INSTANCE), {})
    stop_at(turns, INSTANCE, "b")

    there = [f"{it.kind} {name}" for it in (MACHINE, INSTANCE) for name in "abcd"]
    assert there[5:] + there[:5] == names(turns)
    assert there == names(turns)


def test_turns_begin_anew_where_that_one_is_gone_and_it_is_settled_no_more() -> None:
    machines = Machines()
    for name in "abc":
        machines.add(MACHINE, name)
    settled: dict[str, object] = {f"uid-VirtualMachine-{name}": None for name in "abc"}
    turns = ResumableIteration[AnnotatedObject](machines.cluster, (MACHINE,), settled)
    stop_at(turns, MACHINE, "b")
    machines.gone(MACHINE, "b")

    assert [f"{MACHINE.kind} a", f"{MACHINE.kind} c"] == names(turns)
    assert {"uid-VirtualMachine-a", "uid-VirtualMachine-c"} == settled.keys()


def test_others_have_their_turn_on_the_way_there() -> None:
    machines = Machines()
    for name in "abcd":
        machines.add(MACHINE, name)
    turns = ResumableIteration[AnnotatedObject](machines.cluster, (MACHINE,), {})
    stop_at(turns, MACHINE, "d")

    assert [True, True, True, False] == [found is None for _, found in turns][:4]


async def test_a_step_ends_with_the_thing_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, slept = ManualClock(100.0), []
    monkeypatch.setattr(module, "monotonic", clock)

    async def sleep(seconds: float) -> None:
        slept.append((round(clock.now - 100, 6), seconds))

    steps = Steps(sleep)
    for _ in range(10):
        await steps()
        clock.now += 0.4 * STEP_SECONDS

    assert [(0.0, 0), (0.0012, 0), (0.0024, 0), (0.0036, 0)] == slept
