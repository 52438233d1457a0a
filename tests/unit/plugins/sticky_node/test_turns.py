"""Whoever is stopped before the end goes on there, so that nobody at the end of the line waits for ever."""

from __future__ import annotations

from plugins.sticky_node.turns import Turns
from tests.unit.plugins.sticky_node.machines import INSTANCE, MACHINE, Machines


def test_turns_go_on_where_they_were_stopped() -> None:
    machines = Machines()
    for name in "abcd":
        machines.add(MACHINE, name)
        machines.add(INSTANCE, name)
    turns = Turns(machines.cluster, (MACHINE, INSTANCE))
    for kind, found in turns:
        if (kind, found.name) == (INSTANCE, "b"):
            break

    every = [f"{kind.kind} {found.name}" for kind, found in turns]
    there = [f"{it.kind} {name}" for it in (MACHINE, INSTANCE) for name in "abcd"]
    assert there[5:] + there[:5] == every
    assert there == [f"{kind.kind} {found.name}" for kind, found in turns]


def test_turns_begin_anew_where_that_one_is_gone() -> None:
    machines = Machines()
    for name in "abc":
        machines.add(MACHINE, name)
    turns = Turns(machines.cluster, (MACHINE,))
    for _, found in turns:
        if found.name == "b":
            break
    machines.gone(MACHINE, "b")

    assert ["a", "c"] == [found.name for _, found in turns]
