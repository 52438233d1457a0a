"""Option ``fallback``: makes a hard constraint soft for a pod that would long have fit on a node without it."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from app.framework.handle import Fallbacks
from app.kube.core_v1 import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY, Pod, TopologySpreadConstraint
from app.kube.durations import duration
from plugins.in_tree.pod_topology_spread.constraints import Constraint


class Softening:
    """Makes a pod's hard constraints soft while ``fallbacks`` lists them as relaxed. ``after``: seconds for which a
    constraint must have blocked the pod before.
    """

    def __init__(self, fallbacks: Fallbacks, after: float) -> None:
        fallbacks.enable(after)
        self.relaxed = fallbacks.relaxed
        self._after = duration(after)

    def softened(
        self, pod: Pod, constraints: Collection[TopologySpreadConstraint]
    ) -> tuple[TopologySpreadConstraint, ...] | None:
        """Return the constraints with the relaxed ones changed to soft ones without ``minDomains``; ``None`` if none is
        relaxed.
        """
        relaxed = self.relaxed(pod)
        if not relaxed or not any(_is_relaxed(it, relaxed) for it in constraints):
            return None
        return tuple(_soft(it) if _is_relaxed(it, relaxed) else it for it in constraints)

    def noted(self, pod: Pod, constraints: Collection[Constraint], when: str) -> tuple[Constraint, ...]:
        """Return constraints of one kind, hard or soft (``when``), with notes about the option for ``explain``.

        Of the soft ones, only those with the topology key of a relaxed constraint get a note.
        """
        if when == DO_NOT_SCHEDULE:
            return tuple(it.with_note(f"fallback after {self._after}") for it in constraints)
        relaxed, note = self.relaxed(pod), f"soft by fallback after {self._after}"
        return tuple(it.with_note(note) if it.topology_key in relaxed else it for it in constraints)


def _is_relaxed(constraint: TopologySpreadConstraint, keys: Collection[str]) -> bool:
    return constraint.is_hard and constraint.topology_key in keys


def _soft(constraint: TopologySpreadConstraint) -> TopologySpreadConstraint:
    return replace(constraint, when_unsatisfiable=SCHEDULE_ANYWAY, min_domains=None)
