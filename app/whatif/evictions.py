"""PodDisruptionBudgets while pods are evicted and placed again, by the rules of the Eviction API.

A budget allows an eviction if its ``status.disruptionsAllowed`` is above 0. Each eviction of a ready pod uses up one,
until a new pod is placed in its stead. The rules are those of kube-apiserver and of the disruption controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.cache.cluster import Cluster
from app.kube.core_v1 import Pod
from app.kube.disruption import Disruption
from app.kube.kinds import POD_DISRUPTION_BUDGETS
from app.kube.labels import LabelSet
from app.kube.meta_v1 import ObjectKey
from app.kube.policy_v1 import PodDisruptionBudget

SEVERAL: Final = "more than one budget guards it, and the Eviction API refuses such pods: {}"
UNREADABLE: Final = "budget {} cannot be read here, and might guard it"
OUTDATED: Final = "budget {} is not processed yet"
NOT_ALLOWED: Final = "budget {} needs {} healthy pods and has {}"


class BudgetState:
    """One budget during evictions. ``missing``: UIDs of its ready pods that are gone, until new pods are placed."""

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
    """Budgets of a scratch cluster, which change with evictions and placements."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._states: dict[ObjectKey, BudgetState] = {}
        self._guarding: dict[tuple[str, LabelSet], Sequence[BudgetState]] = {}

    def guarding(self, pod: Pod) -> Sequence[BudgetState]:
        """Return the budgets that select the pod, by name."""
        key = (pod.namespace, pod.labels)
        if key not in self._guarding:
            budgets = self._cluster.others.in_namespace(POD_DISRUPTION_BUDGETS, pod.namespace)
            chosen = sorted((it for it in budgets if it.guards(pod.labels)), key=lambda it: it.name)
            self._guarding[key] = [self._states.setdefault(it.key, BudgetState(it)) for it in chosen]
        return self._guarding[key]

    def refusal(self, pod: Pod) -> str:
        """Return why the Eviction API refuses to evict the pod now; empty if it does not refuse.

        If a budget of the namespace cannot be read, its pods count as refused, because the budget might select them.
        """
        if pod.terminating or pod.finished or (isinstance(pod.lifecycle, Disruption) and pod.lifecycle.pending):
            return ""
        unreadable = sorted(
            name for space, name in self._cluster.unreadable.of(POD_DISRUPTION_BUDGETS) if space == pod.namespace
        )
        if unreadable:
            return UNREADABLE.format(", ".join(f"{pod.namespace}/{it}" for it in unreadable))
        guarding = self.guarding(pod)
        if len(guarding) > 1:
            return SEVERAL.format(", ".join(it.name for it in guarding))
        return guarding[0].refusal(pod) if guarding else ""

    def remove(self, pod: Pod) -> None:
        """Count a pod as gone. ``pod``: as it was on its node."""
        if is_ready(pod):
            for state in self.guarding(pod):
                state.missing.add(pod.uid)

    def restore(self, pod: Pod) -> None:
        """Count a new pod as ready that is placed in the stead of ``pod``."""
        for state in self.guarding(pod):
            state.missing.discard(pod.uid)


def is_ready(pod: Pod) -> bool:
    """Return whether the pod is ready. A pod whose conditions are not in the snapshot counts as ready."""
    return not isinstance(pod.lifecycle, Disruption) or pod.lifecycle.ready
