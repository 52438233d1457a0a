"""DefaultPreemption plugin: finds victims on nodes by dry runs, and chooses the node with the cheapest victims.

It has two sets of rules: those of kube-scheduler, and those of a profile with ``preemption: Own`` (``OwnRules``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Annotated, Final, Self, final
from zlib import crc32

from msgspec import Struct
from pydantic import Field, model_validator

from app.framework.cycle_state import CycleState
from app.framework.evictions import UNREADABLE
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.objects import Unreadable
from app.framework.parts import Part
from app.framework.points import PostFilterAnswer, PostFilterPlugin, PostFilterResult, PostFilterSteps, Victims
from app.framework.spec import Needs, PluginArgs, PluginSpec
from app.framework.status import SUCCESS, Code, Status, error, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import POD_DISRUPTION_BUDGETS
from plugins.in_tree.default_preemption.budgets import Budgets, Count
from plugins.in_tree.default_preemption.victims import (
    DryRunResults,
    by_importance,
    cost_of,
    lower,
    unspared,
)

NAME: Final = "DefaultPreemption"

NEVER_PREEMPTS: Final = "not eligible due to preemptionPolicy=Never."
STILL_TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS_FOUND: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
MUST_STAY: Final = "pods of lower priority must stay: {}"

_SPREAD: Final = "PodTopologySpread"
_ANOTHER_NAMESPACE: Final = "another namespace"
_TERMINATING: Final = "they are terminating"

_NO_VICTIMS: Final = Victims(())
_NOBODY: Final = unresolvable(NO_VICTIMS_FOUND)
_UNASKED: Final = unresolvable()
"""Status assumed for a nominated node that no filter rejected. It makes the pod eligible to preempt others."""

_FILTERS_A_STEP: Final = 64
"""Estimated Filter runs after which a search yields. With all of kube-scheduler's plugins, they take 1 or 2 ms."""

_INT32: Final = 2**31 - 1

_MOST_COUNTS: Final = 8
"""Maximum number of attempts to evaluate the budgets of a node's pods, if the pods change meanwhile.

After the last attempt, the search skips the node.
"""


class DefaultPreemptionArgs(PluginArgs):
    """Arguments as in ``kubescheduler.config.k8s.io/v1``.

    A candidate is a node with victims. A search stops once it has found enough candidates, and the best one violates no
    budget. ``minCandidateNodesPercentage`` of the nodes or ``minCandidateNodesAbsolute`` are enough, whichever is more.
    """

    min_candidate_nodes_percentage: Annotated[
        int, Field(alias="minCandidateNodesPercentage", strict=True, ge=0, le=100)
    ] = 10
    min_candidate_nodes_absolute: Annotated[
        int, Field(alias="minCandidateNodesAbsolute", strict=True, ge=0, le=_INT32)
    ] = 100

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise ValueError("minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be zero")
        return self

    def candidates(self, nodes: int) -> int:
        """Return the number of candidates that a search through ``nodes`` nodes looks for."""
        return min(nodes, max(nodes * self.min_candidate_nodes_percentage // 100, self.min_candidate_nodes_absolute))


Stays = Callable[[Pod], str]
"""Function that returns why a pod must not be evicted; empty if it can be evicted."""


class OwnRules(Struct, frozen=True):
    """Rules by which Homeport itself evicts pods for topology spread, with ``preemption: Own``.

    Only nodes whose rejection comes from topology spread are candidates. A victim has a lower priority than the pod and
    is in its namespace. It is not terminating, and ``stays`` returns an empty string for it. A node is no candidate if
    a victim's eviction would violate a PodDisruptionBudget, by the rules of preemption or by those of the Eviction API.
    """

    stays: Stays

    def potential(self, pod: Pod, node: NodeInfo) -> tuple[list[Pod], str]:
        """Return the potential victims on the node, and a reason why a pod of lower priority is not one of them.

        If several pods are not, the reason is that of the last one. It is empty if all are potential victims.
        """
        potential, reason = [], ""
        for victim in lower(pod, node):
            if victim.namespace != pod.namespace:
                reason = _ANOTHER_NAMESPACE
            elif why := _TERMINATING if victim.terminating else self.stays(victim):
                reason = why
            else:
                potential.append(victim)
        return potential, reason


@final
class DefaultPreemption(PostFilterPlugin):
    """Selects victims of lower priority for a pod that fits on no node.

    Source of the rules: ``framework/preemption``, ``framework/plugins/defaultpreemption`` of Kubernetes 1.36 and 1.35.
    """

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        self._args = args
        self._handle = handle
        self._budgets = Budgets(handle.objects)

    def post_filter(self, state: CycleState, pod: Pod, rejected: Mapping[str, Status]) -> PostFilterSteps:
        """Search for the best candidate, yielding between groups of dry runs.

        After each yield, the caller sends the cycle state for the current snapshot. Nodes that the snapshot no longer
        has are skipped.
        """
        why = self.pod_eligible_to_preempt_others(pod, rejected.get(pod.nominated_node_name, _UNASKED))
        if why:
            return None, unschedulable(f"preemption: {why}")
        names = [name for name, it in rejected.items() if it.code is Code.UNSCHEDULABLE]
        return (yield from self._search(state, pod, names))

    def victims_for_spread(
        self, state: CycleState, pod: Pod, rejected: Mapping[str, Status], stays: Stays
    ) -> PostFilterSteps:
        """Search like ``post_filter``, by ``OwnRules``: only nodes that topology spread rejects, no violated budget."""
        if pod.disruption.never_preempts:
            return None, unschedulable(f"preemption: {NEVER_PREEMPTS}")
        names = [name for name, it in rejected.items() if it.code is Code.UNSCHEDULABLE and it.plugin == _SPREAD]
        return (yield from self._search(state, pod, names, OwnRules(stays)))

    def _search(
        self, state: CycleState, pod: Pod, rejected: Sequence[str], rules: OwnRules | None = None
    ) -> PostFilterSteps:
        names = _from_somewhere(pod, rejected)
        wanted = self._args.candidates(len(names))
        results, filters = DryRunResults(), 0
        for name in names:
            if filters >= _FILTERS_A_STEP:
                state = yield
                filters = 0
            state, run = yield from self._try(state, pod, name, results, rules)
            filters += run
            if results.is_enough(wanted):
                break
        return self._chosen(results)

    def _try(
        self, state: CycleState, pod: Pod, name: str, results: DryRunResults, rules: OwnRules | None
    ) -> Generator[None, CycleState, tuple[CycleState, int]]:
        """Run the dry run of one node, and record its result.

        No result is recorded if the node is missing or unreadable, or if its pods change in each of ``_MOST_COUNTS``
        attempts. Return the latest state and the estimated Filter runs since the last yield. Raises ``Unreadable`` for
        unreadable budgets, except with ``rules``.
        """
        count = Count()
        for _ in range(_MOST_COUNTS):
            try:
                node = self._handle.nodes.get(name)
            except Unreadable:
                node = None
            if node is None:
                break
            try:
                answer = self._select(state, pod, node, count, rules)
            except Unreadable as unreadable:
                if rules is None:
                    raise
                answer = _NO_VICTIMS, unschedulable(UNREADABLE.format(unreadable))
            if answer is not None:
                results.take(name, *answer)
                return state, count.filters
            for _ in count.steps():
                state = yield
        return state, 0

    def _chosen(self, results: DryRunResults) -> PostFilterAnswer:
        if results.best is not None:
            _, node, victims = results.best
            return PostFilterResult(node, victims), SUCCESS
        faults = [status for status in results.statuses.values() if status.code is Code.ERROR]
        if faults:
            return None, error("preemption: " + ", ".join(dict.fromkeys(status.message for status in faults)))
        return PostFilterResult(""), unschedulable(f"preemption: {self._no_fit(results.statuses)}")

    def _no_fit(self, statuses: Mapping[str, Status]) -> str:
        """Return the message in kube-scheduler's format: reasons with their numbers of nodes, sorted as strings."""
        nodes = len(self._handle.nodes.list())
        reasons = Counter(reason for status in statuses.values() for reason in status.reasons)
        reasons[NOT_HELPFUL] += max(0, nodes - len(statuses))
        each = sorted(f"{count} {reason}" for reason, count in reasons.items() if count)
        return f"0/{nodes} nodes are available: {', '.join(each)}."

    def pod_eligible_to_preempt_others(self, pod: Pod, nominated_node_status: Status) -> str:
        if pod.disruption.never_preempts:
            return NEVER_PREEMPTS
        if not pod.nominated_node_name or nominated_node_status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return ""
        node = self._handle.nodes.get(pod.nominated_node_name)
        potential = () if node is None else lower(pod, node)
        return STILL_TERMINATING if any(it.terminating and it.disruption.preempted for it in potential) else ""

    def select_victims_on_node(self, state: CycleState, pod: Pod, node: NodeInfo) -> tuple[Victims, Status]:
        """Return the victims on a node: pods of lower priority, except those that are reprieved.

        At first all pods of lower priority are removed. Then each of them is added back in turn. It is reprieved, and
        stays, if the incoming pod still fits. Pods whose eviction would violate a budget are tried first, and within
        each group the most important pods. The status is not Success if there is no pod of lower priority, or if the
        incoming pod does not fit even without all of them.
        """
        count = Count()
        while (answer := self._select(state, pod, node, count)) is None:
            for _ in count.steps():
                pass
        return answer

    def _select(
        self, state: CycleState, pod: Pod, node: NodeInfo, count: Count, rules: OwnRules | None = None
    ) -> tuple[Victims, Status] | None:
        """Like ``select_victims_on_node``; ``None`` if the caller must first run ``count.steps``, for the budgets."""
        potential, reason = (lower(pod, node), "") if rules is None else rules.potential(pod, node)
        count.filters = 1 + 2 * len(potential)
        if not potential:
            return _NO_VICTIMS, unresolvable(MUST_STAY.format(reason)) if reason else _NOBODY
        dry_run = self._handle.profile.dry_run(state, pod, node)
        for victim in potential:
            dry_run.remove_pod(victim)
        status = dry_run.filter()
        if not status.is_success:
            return _NO_VICTIMS, status
        potential = by_importance(potential)
        if not count.is_of(potential):
            budgets = self._budgets
            count.begin(potential, budgets.violating(potential) if rules is None else budgets.refused(potential))
        if count.violating is None:
            return None
        violating = [victim for victim in potential if victim.uid in count.violating]
        others = [victim for victim in potential if victim.uid not in count.violating]
        victims = unspared(dry_run, violating)
        violations = len(victims)
        if violations and rules is not None:
            return _NO_VICTIMS, unschedulable(count.violating[victims[0].uid])
        victims += unspared(dry_run, others)
        victims = by_importance(victims) if violating and others else victims
        return Victims(tuple(victims), violations), SUCCESS

    def select_candidates(self, victims: Mapping[str, Victims]) -> tuple[str, ...]:
        """Return the nodes with the least cost.

        A victim without a start time is treated as the most recently started.
        """
        if not victims:
            return ()
        costs = {name: cost_of(it) for name, it in victims.items()}
        least = min(costs.values())
        return tuple(name for name, cost in costs.items() if cost == least)


def _from_somewhere(pod: Pod, names: Sequence[str]) -> Sequence[str]:
    """Return the names rotated, so that they start at a position given by a hash of the pod's UID and resourceVersion.

    If a search stops early, different pods then try different nodes. kube-scheduler starts at a random node; the hash
    makes results repeatable.
    """
    if not names:
        return names
    first = crc32(f"{pod.uid}/{pod.resource_version}".encode(errors="replace")) % len(names)
    return [*names[first:], *names[:first]]


def _needs(_args: DefaultPreemptionArgs) -> Needs:
    return Needs(kinds=(POD_DISRUPTION_BUDGETS,))


SPEC: Final = PluginSpec(NAME, DefaultPreemptionArgs, DefaultPreemption, parts=(Part.DISRUPTION,), needs=_needs)
