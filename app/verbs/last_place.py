"""Decisions beside binds that are due: the pod that asked first gets the last place of a node (ADR 41)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from app.framework.cycle_state import CycleState
from app.kube.core_v1 import Pod
from app.memory.expected_binds import DuePods, ExpectedBinds
from app.runtime.framework import Framework
from app.verbs.slices import prepared

T = TypeVar("T")


class Crowded(Exception):
    """The pods ``uids``, whose binds are due, may take the room on a node that passes."""

    def __init__(self, uids: frozenset[str]) -> None:
        super().__init__()
        self.uids = uids


async def decided(binds: ExpectedBinds, pod: Pod, due: DuePods, decide: Callable[[DuePods], T]) -> T:
    """Return what ``decide`` says, given the pods that are due; if it raises ``Crowded``, once these are bound.

    Nothing is awaited between its answer and the caller.
    """
    try:
        return await prepared(lambda: decide(due))
    except Crowded as found:
        uids = found.uids
    await binds.wait(lambda _, other: other.uid in uids, pod)
    return await prepared(lambda: decide(()))


def require_room(framework: Framework, state: CycleState, pod: Pod, passed: Sequence[str], due: DuePods) -> None:
    """Check that the pod fits beside the due pods on every node that it passes. ``state``: of that search.

    Raises ``Crowded``, ``PluginError`` or ``Unprepared``.
    """
    if due and passed and (uids := framework.search.crowded(state, pod, passed, due)):
        raise Crowded(uids)
