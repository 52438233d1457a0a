"""Rebalancing: few evictions after which workloads satisfy their topology spread constraints again.

Each eviction is tried on a scratch cluster: the pod is deleted, and a new pod is placed by a complete scheduling cycle.
The eviction is chosen only if a constraint gets better, and none needs more moves than before. A move is a pod that
changes its domain. Soft constraints are considered only on request. The best eviction is chosen first, until no
constraint needs moves, no eviction helps, or no more are allowed. No pod of the real cluster is evicted.

A constraint gets better if it needs fewer moves. If no eviction achieves that, because kube-scheduler would not choose
the domain that lacks pods, an eviction that makes the domains more even is chosen. At the end of a workload, evictions
after the last one that saved a move are undone.

Budgets are respected as in a drain. A new pod counts as ready before the next pod is evicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.analysis.pending import Inputs, inputs_of
from app.analysis.skew_estimate import Key
from app.framework.evictions import BudgetLedger
from app.framework.explanation import DomainLimit
from app.homes.evictable import why_never_evicted
from app.homes.lists import HomeLists
from app.kube.core_v1 import Pod, TopologySpreadConstraint
from app.whatif.budget import Budget
from app.whatif.placing import AGAIN, Placement, Placer, recreated
from app.whatif.scratch import ScratchCluster
from app.whatif.spread import limits_of, skew_of

MOST_TRIALS: Final = 200
"""Position of the candidate, from 0, after which the search for one eviction ends, if an eviction helps by then."""

_MOST_REASONS: Final = 3

Limits = Sequence[DomainLimit]


class ImprovedConstraint(Struct, frozen=True):
    """Constraint that an eviction improves. ``number``: position in the constraints of the workload."""

    key: Key
    number: int
    before: DomainLimit
    after: DomainLimit


class ChosenEviction(Struct, frozen=True):
    """Eviction of a plan. ``placement``: of the new pod."""

    pod: Pod
    placement: Placement
    improves: Sequence[ImprovedConstraint]


class _Trial(Struct, frozen=True):
    """Result of an eviction that helps. ``limits``: those of each workload that it affects, after the eviction.

    ``gain``: (moves that it saves, decrease of ``_unevenness``), both summed over the constraints to improve.
    """

    pod: Pod
    placement: Placement
    gain: tuple[int, int]
    limits: Mapping[Key, Limits]


def moves_needed(limit: DomainLimit) -> int:
    """Return the smallest number of pods that must change their domain so that the skew is at most ``maxSkew``.

    Each pod is assumed to fit each domain. With fewer domains than ``minDomains``, return the number of pods that the
    domains have beyond ``maxSkew`` each.
    """
    if skew_of(limit) <= limit.max_skew:
        return 0
    counts = Counter(limit.pods.values())  # number of domains by their number of pods

    def above(fewest: int) -> int:
        return sum(max(0, it - fewest - limit.max_skew) * domains for it, domains in counts.items())

    def lacking(fewest: int) -> int:
        return sum(max(0, fewest - it) * domains for it, domains in counts.items())

    if limit.lacks_domains:
        return above(0)

    low, high = min(counts), max(counts)  # a larger minimum means more lacking pods and fewer pods above
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if lacking(middle) >= above(middle) else (middle + 1, high)
    return min(lacking(low), above(low - 1))


class Rebalancing:
    """Chooses evictions on a scratch cluster.

    ``workloads``: pods of all workloads with constraints. ``most``: maximum number of evictions. ``soft``: improve
    ``ScheduleAnyway`` too. ``reasons``: for each workload, why pods were not chosen in its last search, each reason
    with its number of pods.
    """

    def __init__(
        self, scratch: ScratchCluster, workloads: Mapping[Key, Sequence[Pod]], budget: Budget, *, most: int, soft: bool
    ) -> None:
        self._scratch = scratch
        self._cluster = scratch.cluster
        self._budget = budget
        self._most = most
        self._soft = soft
        self._placer = Placer(scratch)
        self._ledger = BudgetLedger(scratch.cluster, scratch.cluster.others.in_namespace)
        self._homes = HomeLists(scratch.frameworks(), scratch.guard)
        self._samples = {key: max(pods, key=lambda it: it.created) for key, pods in workloads.items()}
        self._by_namespace: dict[str, list[Key]] = {}
        for key in workloads:
            self._by_namespace.setdefault(key[0], []).append(key)
        self._limits: dict[Key, Limits] = {}
        self._counted: dict[Key, Sequence[Pod]] = {}
        self._targets: frozenset[Key] = frozenset()
        self.evictions: list[ChosenEviction] = []
        self.reasons: dict[Key, Counter[str]] = {}

    def limits(self, key: Key) -> Limits:
        """Return the workload's constraints, each with the current number of pods by domain. Raises ``PluginError``."""
        if key not in self._limits:
            self._limits[key] = limits_of(self._scratch, self._samples[key])
        return self._limits[key]

    def needs(self, limits: Limits) -> list[int]:
        """Return the number of moves that each constraint needs; 0 for constraints that are not to be improved."""
        return [moves_needed(it) if it.is_hard or self._soft else 0 for it in limits]

    @property
    def is_full(self) -> bool:
        """True if no more evictions are allowed."""
        return len(self.evictions) >= self._most

    def steps(self, targets: Sequence[Key]) -> Iterator[str | None]:
        """Choose evictions for these workloads, the workload that needs most moves first. Raises ``PluginError``.

        A workload that no eviction helps is tried again after evictions for others, because they can make room.
        """
        self._targets = frozenset(targets)
        progressed = True
        while progressed:
            progressed = False
            for key in sorted(targets, key=lambda it: (-sum(self.needs(self.limits(it))), it[:3])):
                useful = len(self.evictions)
                while any(self.needs(self.limits(key))) and not self.is_full and not self._budget.is_over:
                    chosen = yield from self._choose(key)
                    if chosen is None:
                        break
                    self._carry_out(chosen)
                    if chosen.gain[0]:
                        useful = len(self.evictions)
                        progressed = True
                    yield f"rebalancing: {len(self.evictions)} evictions"
                self._undo_after(useful)

    def _choose(self, key: Key) -> Generator[None, None, _Trial | None]:
        """Return the best eviction found for a workload, the first of equally good ones; ``None`` if none helps.

        The search ends early if no better one is possible, after ``MOST_TRIALS``, or without processor time.
        """
        best: _Trial | None = None
        reasons = self.reasons[key] = Counter()
        tried: set[tuple[str, Inputs]] = set()
        for number, pod in enumerate(self._candidates(key)):
            equal = (pod.node_name, inputs_of(pod))
            reason = self._never(pod) or self._ledger.refusal(pod)
            if not reason and equal not in tried:
                tried.add(equal)
                trial = self._tried(pod)
                reason = trial if isinstance(trial, str) else ""
                if isinstance(trial, _Trial) and (best is None or trial.gain > best.gain):
                    best = trial
            if reason:
                reasons[reason] += 1
            yield
            if self._budget.is_over or (
                best is not None and (best.gain[0] >= self._open(best) or number >= MOST_TRIALS)
            ):
                break
        return best

    def _open(self, trial: _Trial) -> int:
        """Return how many moves an eviction of the trial's pod saves at most: one per constraint that needs moves."""
        return sum(it > 0 for key in trial.limits if key in self._targets for it in self.needs(self.limits(key)))

    def _candidates(self, key: Key) -> list[Pod]:
        """Return the pods in domains with at least two pods more than the minimum, the largest excess over it first.

        Pods with the same excess: first those on nodes with many of these pods, then the youngest.
        """
        limits, needs = self.limits(key), self.needs(self.limits(key))
        open_limits = [limit for limit, need in zip(limits, needs, strict=True) if need]
        excess: dict[str, int] = {}
        for node, info in self._cluster.nodes.items():
            counts = [(it.pods.get(info.node.labels.get(it.key, ""), 0), it) for it in open_limits]
            excess[node] = sum(count - it.minimum for count, it in counts if count > it.minimum + 1)
        pods = [it for it in self._counted_pods(key) if self._is_there(it) and excess.get(it.node_name, 0) > 0]
        on_node = Counter(it.node_name for it in pods)
        youngest = sorted(sorted(pods, key=lambda it: it.name), key=lambda it: it.created, reverse=True)
        return sorted(youngest, key=lambda it: (-excess[it.node_name], -on_node[it.node_name]))

    def _counted_pods(self, key: Key) -> Sequence[Pod]:
        """Return the pods that have a node and are selected by a constraint of the workload, as at the first call."""
        if key not in self._counted:
            pods = (it for it in self._cluster.pods_in(key[0]) if it.node_name and not it.terminating)
            sample, constraints = self._samples[key], key[3]
            self._counted[key] = [pod for pod in pods if any(_selects(it, sample, pod) for it in constraints)]
        return self._counted[key]

    def _is_there(self, pod: Pod) -> bool:
        """Return True if the pod still exists, and is not the new pod of an eviction."""
        known = self._cluster.pod(*pod.key)
        return known is not None and known.uid == pod.uid and not pod.uid.endswith(AGAIN)

    def _never(self, pod: Pod) -> str:
        """Return why the pod is never evicted; empty if it can be. Raises ``PluginError``."""
        if pod.owner is None:
            return "no controller would create the pod again"
        if pod.owner.kind == "Job":
            return "its Job would count the eviction as a failure"
        return why_never_evicted(self._homes, self._scratch.framework_for(pod), pod)

    def _affected(self, pod: Pod) -> list[Key]:
        """Return the workloads with a constraint that selects the pod."""
        keys = self._by_namespace.get(pod.namespace, ())
        return [key for key in keys if any(_selects(it, self._samples[key], pod) for it in key[3])]

    def _tried(self, pod: Pod) -> _Trial | str:
        """Try an eviction and undo it. Return the result, or why it does not help. Raises ``PluginError``."""
        affected = self._affected(pod)
        before = {key: self.needs(self.limits(key)) for key in affected}
        new, placement = self._replace(pod)
        if placement.waits:
            self._undo(pod, new)
            return f"the new pod would wait: {_why(placement)}"
        limits = {key: limits_of(self._scratch, self._samples[key]) for key in affected}
        self._undo(pod, new)
        after = {key: self.needs(limits[key]) for key in affected}
        if any(more > less for key in affected for more, less in zip(after[key], before[key], strict=True)):
            return "another constraint would get worse"
        targets = [key for key in affected if key in self._targets]
        moves = sum(sum(before[key]) - sum(after[key]) for key in targets)
        evenness = sum(
            _unevenness(was) - _unevenness(now)
            for key in targets
            for was, now, need in zip(self.limits(key), limits[key], before[key], strict=True)
            if need
        )
        if moves <= 0 and evenness <= 0:
            return "the new pod would not go to a domain that lacks pods"
        return _Trial(pod, placement, (moves, evenness), limits)

    def _replace(self, pod: Pod) -> tuple[Pod, Placement]:
        """Delete a pod and place a new one. Raises ``PluginError``."""
        self._cluster.delete_pod(pod.key, pod.uid)
        new = recreated(pod)
        return new, self._placer.place(new)

    def _undo(self, pod: Pod, new: Pod) -> None:
        self._cluster.delete_pod(new.key, new.uid)
        self._cluster.upsert_pod(pod)

    def _carry_out(self, trial: _Trial) -> None:
        """Carry out an eviction as in its trial, without another scheduling cycle, and record it."""
        self._ledger.remove(trial.pod)
        self._cluster.delete_pod(trial.pod.key, trial.pod.uid)
        self._cluster.upsert_pod(replace(trial.placement.pod, node_name=trial.placement.node))
        self._ledger.restore(trial.pod)
        self.evictions.append(ChosenEviction(trial.pod, trial.placement, [*self._improved(trial)]))
        self._limits.update(trial.limits)

    def _undo_after(self, number: int) -> None:
        """Undo all evictions after the first ``number``."""
        for eviction in reversed(self.evictions[number:]):
            self._undo(eviction.pod, eviction.placement.pod)
            for key in self._affected(eviction.pod):
                self._limits.pop(key, None)
        del self.evictions[number:]

    def _improved(self, trial: _Trial) -> Iterable[ImprovedConstraint]:
        """Yield each constraint that needs moves and whose domains the trial makes more even."""
        for key, limits in trial.limits.items():
            for number, (before, after) in enumerate(zip(self.limits(key), limits, strict=True)):
                is_open = any(self.needs([before]))
                if is_open and _unevenness(after) < _unevenness(before):
                    yield ImprovedConstraint(key, number, before, after)


def _selects(constraint: TopologySpreadConstraint, sample: Pod, pod: Pod) -> bool:
    """Return True if ``constraint``, one of the pod ``sample``, selects ``pod``."""
    if constraint.selector is None:
        return False
    pairs = [(key, sample.labels[key]) for key in constraint.match_label_keys if key in sample.labels]
    return constraint.selector.with_labels(pairs).matches(pod.labels)


def _unevenness(limit: DomainLimit) -> int:
    """Return the sum of the squared pod counts. It falls if a pod moves to a domain with at least two pods fewer."""
    return sum(it * it for it in limit.pods.values())


def _why(placement: Placement) -> str:
    """Return why a pod waits, as text: what gates it, or the reasons that reject the most nodes."""
    if not placement.gate.is_success:
        return f"{placement.gate.plugin}: {placement.gate.message}"
    reasons = (f"{status.plugin}: {status.message}" for status, _ in placement.rejections)
    return "; ".join([*dict.fromkeys(reasons)][:_MOST_REASONS]) or "there is no node"
