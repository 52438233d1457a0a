"""Plan of a rebalancing as JSON objects: evictions, the spread before and after, and what stays above ``maxSkew``."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from app.analysis.skew_estimate import Key, SkewEstimate
from app.analysis.workloads import workload_of, workloads_of
from app.cache.cluster import Cluster
from app.framework.explanation import DomainLimit
from app.kube.kinds import POD_DISRUPTION_BUDGETS
from app.verbs.similar import MOST_COMPARED, similar
from app.verbs.unserved import printable
from app.whatif.budget import Budget
from app.whatif.rebalancing import ChosenEviction, ImprovedConstraint, Limits, Rebalancing
from app.whatif.scratch import ScratchCluster
from app.whatif.spread import SpreadState, changes, skew_of

DEFAULT_EVICTIONS: Final = 20
MOST_EVICTIONS: Final = 1000
"""Maximum number of evictions of one plan."""

MOST_TARGETS: Final = 1000
"""Maximum number of workloads that are counted exactly."""

_MOST_REASONS: Final = 5
_FULL: Final = "at most {} evictions were allowed"
_OVER: Final = "there was no time left"
_NONE: Final = "no pod can be evicted to improve it"

Steps = Generator[str | None, None, Mapping[str, Any]]


class RebalanceRequest(Struct, frozen=True):
    """``namespace``: empty for all. ``kind`` and ``name``: of one workload; empty for all. ``most``: of evictions."""

    namespace: str = ""
    kind: str = ""
    name: str = ""
    most: int = DEFAULT_EVICTIONS
    soft: bool = False


def rebalanced(scratch: ScratchCluster, request: RebalanceRequest, budget: Budget) -> Steps:
    """Choose evictions. The steps return the fields of a ``RebalancePlan``. Raises ``PluginError``.

    If the budget ends, the workloads that are left are not improved.
    """
    answer = {"known": True, "suggestion": "", "budgetsJudged": scratch.reads(POD_DISRUPTION_BUDGETS)}
    nothing: Mapping[str, Any] = {"above": 0, "evictions": [], "spread": [], "left": []}
    unknown = _unknown(scratch.cluster, request)
    if unknown is not None:
        return {**answer, **nothing, "known": False, "suggestion": unknown}
    estimate = SkewEstimate(scratch.cluster)
    yield "collecting workloads"
    yield from estimate.collecting()
    keys = [key for key in sorted(estimate.workloads, key=lambda it: it[:3]) if _matches(key, request)]
    candidates: list[Key] = []
    yield from estimate.estimating(keys, candidates, MOST_TARGETS)
    rebalancing = Rebalancing(scratch, estimate.workloads, budget, most=request.most, soft=request.soft)
    before: dict[Key, Limits] = {}
    for key in candidates:
        if budget.is_over:
            break
        limits = rebalancing.limits(key)
        if any(rebalancing.needs(limits)):
            before[key] = limits
        yield None
    yield from rebalancing.steps([*before])
    after = {key: rebalancing.limits(key) for key in before}
    left = [*_left(rebalancing, after, request, budget)]
    return {
        **answer,
        "above": sum(it > 0 for limits in before.values() for it in rebalancing.needs(limits)),
        "evictions": [_eviction(scratch.cluster, it) for it in rebalancing.evictions],
        "spread": [*changes(_states(before), _states(after))],
        "left": left,
    }


def _matches(key: Key, request: RebalanceRequest) -> bool:
    wanted = (request.namespace, request.kind, request.name)
    return all(not it or it == value for it, value in zip(wanted, key[:3], strict=True))


def _unknown(cluster: Cluster, request: RebalanceRequest) -> str | None:
    """Return text with names similar to an unknown namespace or workload; ``None`` if all are known."""
    if request.namespace and request.namespace not in cluster.namespaces():
        return similar(printable(request.namespace), cluster.namespaces(), "namespace")
    if not request.name:
        return None
    names: dict[str, None] = {}
    pods = cluster.pods_in(request.namespace) if request.namespace else cluster.pods()
    for pod in pods:
        for kind, name in workloads_of(pod):
            if (kind, name) == (request.kind, request.name):
                return None
            if kind == request.kind and len(names) < MOST_COMPARED:
                names[name] = None
    return similar(printable(request.name), names)


def _states(limits: Mapping[Key, Limits]) -> dict[str, SpreadState]:
    """Return the counts by workload. Pods of one workload with different constraints are together."""
    states: dict[str, SpreadState] = {}
    for key, of_key in limits.items():
        name = _name(key)
        known = states.get(name)
        states[name] = SpreadState(name, of_key if known is None else (*known.limits, *of_key))
    return states


def _name(key: Key) -> str:
    return f"{key[1]}/{key[0]}/{key[2]}"


def _eviction(cluster: Cluster, chosen: ChosenEviction) -> Mapping[str, Any]:
    """Return a ``PlannedEviction``."""
    pod, placement = chosen.pod, chosen.placement
    kind, name = workload_of(pod)
    return {
        "namespace": pod.namespace,
        "pod": pod.name,
        "uid": pod.uid,
        "workload": f"{kind}/{pod.namespace}/{name}",
        "nodeName": pod.node_name,
        "goesTo": placement.node,
        "ties": placement.ties,
        "improves": [_improves(cluster, it, pod.node_name, placement.node) for it in chosen.improves],
    }


def _improves(cluster: Cluster, improved: ImprovedConstraint, old: str, new: str) -> Mapping[str, Any]:
    """Return an ``EvictionImproves``."""
    return {
        "workload": _name(improved.key),
        "topologyKey": improved.before.key,
        "leaves": _domain(cluster, improved.before, old),
        "enters": _domain(cluster, improved.after, new),
        "skewBefore": skew_of(improved.before),
        "skewAfter": skew_of(improved.after),
    }


def _domain(cluster: Cluster, limit: DomainLimit, node: str) -> str:
    info = cluster.nodes.get(node)
    domain = info.node.labels.get(limit.key, "") if info is not None else ""
    return domain if domain in limit.pods else ""


def _left(
    rebalancing: Rebalancing, after: Mapping[Key, Sequence[DomainLimit]], request: RebalanceRequest, budget: Budget
) -> Iterator[Mapping[str, Any]]:
    """Yield a ``LeftConstraint`` for each constraint that stays above ``maxSkew``."""
    for key, limits in after.items():
        for limit, need in zip(limits, rebalancing.needs(limits), strict=True):
            if need:
                yield {
                    "workload": _name(key),
                    "topologyKey": limit.key,
                    "whenUnsatisfiable": "DoNotSchedule" if limit.is_hard else "ScheduleAnyway",
                    "maxSkew": limit.max_skew,
                    "skew": skew_of(limit),
                    "why": [*_why(rebalancing, key, request, over=budget.is_over)],
                }


def _why(rebalancing: Rebalancing, key: Key, request: RebalanceRequest, *, over: bool) -> Iterable[Mapping[str, Any]]:
    """Yield a ``LeftReason`` for each reason, the most frequent first."""
    general: Collection[str] = ()
    counted: Mapping[str, int] = rebalancing.reasons.get(key, {})
    if rebalancing.is_full:
        general = (_FULL.format(request.most),)
    elif over:
        general = (_OVER,)
    elif not counted:
        general = (_NONE,)
    yield from ({"count": 0, "reason": it} for it in general)
    most = sorted(counted.items(), key=lambda it: -it[1])[:_MOST_REASONS]
    yield from ({"count": count, "reason": reason} for reason, count in most)
