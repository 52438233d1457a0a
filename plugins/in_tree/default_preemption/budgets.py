"""Which evictions would break a PodDisruptionBudget, counted step by step."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence, Set
from operator import is_
from typing import Final, TypeAlias

from app.framework.objects import Objects
from app.kube.core_v1 import Pod
from app.kube.kinds import POD_DISRUPTION_BUDGETS
from app.kube.labels import LabelSet
from app.kube.memo import MISSING, Memo
from app.kube.meta_v1 import ObjectKey
from app.kube.policy_v1 import PodDisruptionBudget

_BUDGETS_A_STEP: Final = 4096
"""Budgets that are counted, and requirements of theirs that are compared, in one step: about a millisecond."""

_MEMO_BYTES: Final = 8 << 20
_ENTRY_BYTES: Final = 500
_BUDGET_BYTES: Final = 8
"""Of which budgets select a label set: some thousand of these are those of the pods on some hundred nodes."""


Counting: TypeAlias = Generator[None, None, Set[str]]


class Count:
    """The pods of a node that may go, the most important first, and which of them break a budget.

    ``violating``: their UIDs, once all are counted.
    """

    __slots__ = ("_rest", "pods", "violating")
    _rest: Counting

    def __init__(self) -> None:
        self.pods: Sequence[Pod] = ()
        self.violating: Set[str] | None = None

    def is_of(self, pods: Sequence[Pod]) -> bool:
        """Whether just these, in these forms, are counted."""
        return len(pods) == len(self.pods) and all(map(is_, pods, self.pods))

    def begin(self, pods: Sequence[Pod], counting: Counting) -> None:
        """Begin with these, and go the first step."""
        self.pods, self.violating, self._rest = pods, None, counting
        self._advance()

    def steps(self) -> Iterator[None]:
        """Count the rest."""
        while self.violating is None:
            yield
            self._advance()

    def _advance(self) -> None:
        try:
            next(self._rest)
        except StopIteration as end:
            self.violating = end.value


class _Pace:
    """Says when so much was done that others are to have their turn."""

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
    """The budgets of the cluster, by the label sets that they select."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._selecting = Memo[tuple[str, LabelSet, int], tuple[PodDisruptionBudget, ...]](_MEMO_BYTES)

    def violating(self, pods: Iterable[Pod]) -> Counting:
        """The UIDs of the pods whose eviction, after that of those before them, would break a budget; step by step.

        A budget counts as it was when it was looked at first. A pod that it lists as disrupted has been counted there
        already.
        """
        left: dict[ObjectKey, int] = {}
        violating: set[str] = set()
        pace = _Pace()
        for pod in pods:
            key = (pod.namespace, pod.labels, self._objects.version(POD_DISRUPTION_BUDGETS, pod.namespace))
            budgets = self._selecting.get(key)
            if budgets is MISSING:
                budgets = yield from self._budgets_of(pod, pace)
                self._selecting.put(key, budgets, _ENTRY_BYTES + _BUDGET_BYTES * len(budgets))
            for it in budgets:
                if pace.is_due(1):
                    yield
                if pod.name not in it.disrupted_pods:
                    left[it.key] = left.get(it.key, it.disruptions_allowed) - 1
                    if left[it.key] < 0:
                        violating.add(pod.uid)
        return violating

    def _budgets_of(self, pod: Pod, pace: _Pace) -> Generator[None, None, tuple[PodDisruptionBudget, ...]]:
        """Those of its namespace as they are now that select it, step by step."""
        found: list[PodDisruptionBudget] = []
        for it in tuple(self._objects.in_namespace(POD_DISRUPTION_BUDGETS, pod.namespace)):
            if it.selects(pod.labels):
                found.append(it)
            if pace.is_due(1 if it.selector is None else 1 + len(it.selector.requirements)):
                yield
        return tuple(found)
