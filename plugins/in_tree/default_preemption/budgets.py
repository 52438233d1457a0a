"""Finds, in short steps, evictions that would violate a PodDisruptionBudget or be refused by the Eviction API."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Final, TypeAlias

from app.framework.evictions import BudgetState, is_ready, refusal_of
from app.framework.objects import Objects
from app.kube.core_v1 import Pod
from app.kube.kinds import POD_DISRUPTION_BUDGETS
from app.kube.labels import LabelSet
from app.kube.memo import MISSING, Memo
from app.kube.meta_v1 import ObjectKey
from app.kube.policy_v1 import PodDisruptionBudget

_BUDGETS_A_STEP: Final = 4096
"""Number of budgets and selector requirements evaluated in one step, which takes about a millisecond."""

_MEMO_BYTES: Final = 8 << 20
_ENTRY_BYTES: Final = 500
_BUDGET_BYTES: Final = 8
"""Estimated bytes that each budget adds to a cache entry. The cache has room for about 16,000 entries."""


_NO_EVICTION: Final = "budget {}/{} allows no further eviction"

Violating: TypeAlias = Mapping[str, str]
"""UIDs of the pods whose eviction would violate a budget or be refused, each with the reason as text for users."""

Counting: TypeAlias = Generator[None, None, Violating]


class Count:
    """Evaluation of the PodDisruptionBudgets of the potential victims on a node.

    ``pods``: these victims, most important first. ``violating``: the victims whose eviction would violate a budget
    or be refused; ``None`` until all are evaluated. ``filters``: estimated cost of the dry run, in Filter runs.
    """

    __slots__ = ("_rest", "filters", "pods", "violating")
    _rest: Counting

    def __init__(self) -> None:
        self.pods: Sequence[Pod] = ()
        self.filters = 1
        self.violating: Violating | None = None

    def is_of(self, pods: Sequence[Pod]) -> bool:
        """Return true if this evaluation is of exactly these pod objects, in this order."""
        return len(pods) == len(self.pods) and all(map(is_, pods, self.pods))

    def begin(self, pods: Sequence[Pod], counting: Counting) -> None:
        """Start the evaluation of ``pods`` by the generator ``counting``, and run its first step."""
        self.pods, self.violating, self._rest = pods, None, counting
        self._advance()

    def steps(self) -> Iterator[None]:
        """Evaluate the remaining pods, yielding before each step."""
        while self.violating is None:
            yield
            self._advance()

    def _advance(self) -> None:
        try:
            next(self._rest)
        except StopIteration as end:
            self.violating = end.value


class _Pace:
    """Counter of work. It determines when a generator must yield, so that other requests can run."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    def is_due(self, work: int) -> bool:
        self._done += work
        if self._done < _BUDGETS_A_STEP:
            return False
        self._done = 0
        return True


class Budgets:
    """PodDisruptionBudgets of the cluster. Those that guard a pod are cached until one of its namespace changes."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known = Memo[tuple[str, LabelSet, int], tuple[PodDisruptionBudget, ...]](_MEMO_BYTES)

    def violating(self, pods: Iterable[Pod]) -> Counting:
        """Return, in steps, the pods whose eviction would violate a budget after all pods before them are evicted.

        Each eviction uses up one of the ``disruptionsAllowed`` of a budget. Pods in the budget's ``disruptedPods`` are
        already subtracted from ``disruptionsAllowed``, so evicting them uses up none.
        """
        left: dict[ObjectKey, int] = {}
        violating: dict[str, str] = {}
        pace = _Pace()
        for pod in pods:
            for budget in (yield from self._guarding(pod, pace)):
                if pace.is_due(1):
                    yield
                if budget.selects(pod.labels) and pod.name not in budget.disrupted_pods:
                    left[budget.key] = left.get(budget.key, budget.disruptions_allowed) - 1
                    if left[budget.key] < 0:
                        violating.setdefault(pod.uid, _NO_EVICTION.format(*budget.key))
        return violating

    def refused(self, pods: Sequence[Pod]) -> Counting:
        """Like ``violating``, plus the pods that the Eviction API would refuse to evict after evicting those before."""
        violating = {**(yield from self.violating(pods))}
        states: dict[ObjectKey, BudgetState] = {}
        pace = _Pace()
        for pod in pods:
            guarding = yield from self._guarding(pod, pace)
            guards = [states.setdefault(it.key, BudgetState(it)) for it in guarding]
            refusal = refusal_of(pod, guards)
            if refusal:
                violating.setdefault(pod.uid, refusal)
            elif is_ready(pod):
                for state in guards:
                    state.missing.add(pod.uid)
        return violating

    def _guarding(self, pod: Pod, pace: _Pace) -> Generator[None, None, tuple[PodDisruptionBudget, ...]]:
        """Return, in steps, the budgets that the Eviction API checks for the pod, by ``PodDisruptionBudget.guards``."""
        key = (pod.namespace, pod.labels, self._objects.version(POD_DISRUPTION_BUDGETS, pod.namespace))
        known = self._known.get(key)
        if known is not MISSING:
            return known
        guarding: list[PodDisruptionBudget] = []
        for budget in tuple(self._objects.in_namespace(POD_DISRUPTION_BUDGETS, pod.namespace)):
            if budget.guards(pod.labels):
                guarding.append(budget)
            if pace.is_due(1 if budget.selector is None else 1 + len(budget.selector.requirements)):
                yield
        self._known.put(key, tuple(guarding), _ENTRY_BYTES + _BUDGET_BYTES * len(guarding))
        return tuple(guarding)
