"""PodDisruptionBudgets during simulated evictions and placements, by the rules of the Eviction API.

A budget allows an eviction if its ``status.disruptionsAllowed`` is above 0. Each eviction of a ready pod lowers this
number by 1, until a new pod is placed. At 0, some unready pods can still be evicted (see ``BudgetState.refusal``). The
rules are those of kube-apiserver and of the disruption controller. Nothing is evicted here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

from app.framework.objects import Objects, Unreadable
from app.kube.core_v1 import Pod
from app.kube.disruption import Disruption
from app.kube.kinds import POD_DISRUPTION_BUDGETS, Kind
from app.kube.labels import LabelSet
from app.kube.meta_v1 import ObjectKey
from app.kube.policy_v1 import PodDisruptionBudget

SEVERAL: Final = "more than one budget guards it, and the Eviction API refuses such pods: {}"
UNREADABLE: Final = "{}, and might guard it"
OUTDATED: Final = "budget {} is not processed yet"
NOT_ALLOWED: Final = "budget {} needs {} healthy pods and has {}"

BudgetsIn: TypeAlias = Callable[[Kind[PodDisruptionBudget], str], Collection[PodDisruptionBudget]]


class BudgetState:
    """One budget during simulated evictions. ``missing``: UIDs of its evicted ready pods, until new pods are placed."""

    def __init__(self, budget: PodDisruptionBudget) -> None:
        self.budget = budget
        self.missing: set[str] = set()

    @property
    def healthy(self) -> int:
        return self.budget.current_healthy - len(self.missing)

    @property
    def allowed(self) -> int:
        """Number of evictions of ready pods that the budget allows now."""
        return max(0, self.budget.disruptions_allowed - len(self.missing))

    @property
    def name(self) -> str:
        return f"{self.budget.namespace}/{self.budget.name}"

    def refusal(self, pod: Pod) -> str:
        """Return why the budget does not allow the pod's eviction now; empty if it does."""
        desired = self.budget.desired_healthy
        if not is_ready(pod) and (self.budget.allows_unready or self.healthy >= desired > 0):
            return ""
        if self.budget.is_outdated:
            return OUTDATED.format(self.name)
        return "" if self.allowed else NOT_ALLOWED.format(self.name, desired, self.healthy)


class BudgetLedger:
    """Budgets of a cluster during a sequence of simulated evictions and placements.

    ``readable``: returns the budgets of a namespace, without those that cannot be read. The default is
    ``objects.in_namespace``, which raises ``Unreadable`` if one cannot be read.
    """

    def __init__(self, objects: Objects, readable: BudgetsIn | None = None) -> None:
        self._objects = objects
        self._readable: BudgetsIn = readable or objects.in_namespace
        self._states: dict[ObjectKey, BudgetState] = {}
        self._guarding: dict[tuple[str, LabelSet], Sequence[BudgetState]] = {}

    def guarding(self, pod: Pod) -> Sequence[BudgetState]:
        """Return the budgets that select the pod, sorted by name. Raises the exceptions of ``readable``."""
        key = (pod.namespace, pod.labels)
        if key not in self._guarding:
            budgets = self._readable(POD_DISRUPTION_BUDGETS, pod.namespace)
            chosen = sorted((it for it in budgets if it.guards(pod.labels)), key=lambda it: it.name)
            self._guarding[key] = [self._states.setdefault(it.key, BudgetState(it)) for it in chosen]
        return self._guarding[key]

    def refusal(self, pod: Pod) -> str:
        """Return why the Eviction API refuses to evict the pod now; empty if it does not refuse.

        If a budget of the namespace cannot be read, the eviction is refused, because the budget might select the pod.
        """
        if _is_unguarded(pod):
            return ""
        try:
            self._objects.in_namespace(POD_DISRUPTION_BUDGETS, pod.namespace)
        except Unreadable as unreadable:
            return UNREADABLE.format(unreadable)
        return refusal_of(pod, self.guarding(pod))

    def remove(self, pod: Pod) -> None:
        """Count a pod as gone; no effect if it was not ready. ``pod``: its version before the eviction."""
        if is_ready(pod):
            for state in self.guarding(pod):
                state.missing.add(pod.uid)

    def restore(self, pod: Pod) -> None:
        """Undo ``remove`` for ``pod``, because a new pod is placed in its stead and counts as ready."""
        for state in self.guarding(pod):
            state.missing.discard(pod.uid)


def refusal_of(pod: Pod, guarding: Sequence[BudgetState]) -> str:
    """Return why the Eviction API refuses to evict a pod with the budgets ``guarding``; empty if it does not refuse."""
    if not guarding or _is_unguarded(pod):
        return ""
    if len(guarding) > 1:
        return SEVERAL.format(", ".join(it.name for it in guarding))
    return guarding[0].refusal(pod)


def _is_unguarded(pod: Pod) -> bool:
    """Return True for a terminating, finished or pending pod: the Eviction API evicts it without checking budgets."""
    return pod.terminating or pod.finished or (isinstance(pod.lifecycle, Disruption) and pod.lifecycle.pending)


def is_ready(pod: Pod) -> bool:
    """Return whether the pod is ready. A pod whose conditions are not in the snapshot counts as ready."""
    return not isinstance(pod.lifecycle, Disruption) or pod.lifecycle.ready
