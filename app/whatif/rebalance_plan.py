"""Plan of a rebalancing as a JSON object: evictions, spread before and after, constraints still above ``maxSkew``."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from app.analysis.skew_estimate import Key, SkewEstimate
from app.analysis.spread_blocks import SPREAD
from app.analysis.workloads import workload_of, workloads_of
from app.cache.cluster import Cluster
from app.framework.explanation import DomainLimit
from app.kube.kinds import POD_DISRUPTION_BUDGETS
from app.verbs.outcome import VerbFailure
from app.verbs.similar import MOST_COMPARED, similar
from app.verbs.unserved import printable
from app.whatif.budget import Budget
from app.whatif.mistakes import RequestMistake
from app.whatif.rebalancing import ChosenEviction, ImprovedConstraint, Limits, Rebalancing
from app.whatif.scratch import ScratchCluster
from app.whatif.spread import SpreadState, changes, skew_of

DEFAULT_EVICTIONS: Final = 20
MOST_EVICTIONS: Final = 1000
"""Maximum number of evictions of one plan."""

MOST_SPREAD: Final = 100
"""Maximum number of workloads whose domains are listed, because a workload can have a domain for each node."""

_MOST_REASONS: Final = 5
_FULL: Final = "at most {} evictions were allowed"
_OVER: Final = "there was no time left"
_NOT_JUDGED: Final = "no profile judges PodTopologySpread: set explain: complete, or use --local"
_NONE: Final = "no pod can be evicted to improve it"

Steps = Generator[str | None, None, Mapping[str, Any]]


class RebalanceRequest(Struct, frozen=True):
    """``namespace``: empty for all namespaces. ``kind`` and ``name``: of one workload; empty for all workloads.

    ``most``: maximum number of evictions. ``soft``: improve ``ScheduleAnyway`` constraints too.
    """

    namespace: str = ""
    kind: str = ""
    name: str = ""
    most: int = DEFAULT_EVICTIONS
    soft: bool = False


def rebalanced(scratch: ScratchCluster, request: RebalanceRequest, budget: Budget) -> Steps:
    """Choose evictions. The steps return the fields of a ``RebalancePlan``.

    Raises ``RequestMistake``, ``PluginError``, and ``VerbFailure`` if no profile of the workloads has the plugin
    PodTopologySpread.

    When ``budget`` has no processor time left, the remaining workloads are not improved, and can be missing in
    ``above``.
    """
    if (request.kind or request.name) and not (request.kind and request.name and request.namespace):
        raise RequestMistake("name", "one workload needs kind, name and namespace")
    answer = {"known": True, "suggestion": "", "budgetsJudged": scratch.reads(POD_DISRUPTION_BUDGETS)}
    nothing: Mapping[str, Any] = {"above": 0, "evictions": [], "spread": [], "left": []}
    unknown = _unknown(scratch.cluster, request)
    if unknown is not None:
        return {**answer, **nothing, "known": False, "suggestion": unknown}
    estimate = SkewEstimate(scratch.cluster, scratch.framework_for)
    yield "collecting workloads"
    yield from estimate.collecting()
    keys = [key for key in sorted(estimate.workloads, key=lambda it: it[:3]) if _matches(key, request)]
    if keys and not any(SPREAD in scratch.framework_for(estimate.workloads[key][-1]).plugins for key in keys):
        raise VerbFailure("nothing_to_do", _NOT_JUDGED)
    candidates: list[Key] = []
    yield from estimate.estimating(keys, candidates, len(keys))
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
    why: dict[str, list[Mapping[str, Any]]] = {}
    for key in after:  # pods of one workload can have several keys
        why.setdefault(_name(key), []).extend(_why(rebalancing, key, request, over=budget.is_over))
    left = [{**it, "why": _distinct(why[it["workload"]])} for it in _distinct(_above(rebalancing, after))]
    improved = {it.key for eviction in rebalancing.evictions for it in eviction.improves}
    shown = [key for key in before if key in improved][:MOST_SPREAD]
    return {
        **answer,
        "above": len(_distinct(_above(rebalancing, before))),
        "evictions": [_eviction(scratch.cluster, it) for it in rebalancing.evictions],
        "spread": _distinct(changes(_states(before, shown), _states(after, shown))),
        "left": left,
    }


def _matches(key: Key, request: RebalanceRequest) -> bool:
    """Return True if the request includes the workload, which needs a hard constraint unless ``soft`` is set."""
    if not request.soft and not any(it.is_hard for it in key[3]):
        return False
    wanted = (request.namespace, request.kind, request.name)
    return all(not it or it == value for it, value in zip(wanted, key[:3], strict=True))


def _unknown(cluster: Cluster, request: RebalanceRequest) -> str | None:
    """Return ``None`` if namespace and workload are known; else similar names as text, which can be empty."""
    if request.namespace and request.namespace not in cluster.namespaces():
        return similar(printable(request.namespace), cluster.namespaces(), "namespace")
    if not request.name:
        return None
    names: dict[str, None] = {}
    for pod in cluster.pods_in(request.namespace):
        for kind, name in workloads_of(pod):
            if (kind, name) == (request.kind, request.name):
                return None
            if kind == request.kind and len(names) < MOST_COMPARED:
                names[name] = None
    return similar(printable(request.name), names)


def _states(limits: Mapping[Key, Limits], keys: Iterable[Key]) -> dict[str, SpreadState]:
    """Return the spread by workload. Constraints of different pods of one workload are put together."""
    states: dict[str, SpreadState] = {}
    for key in keys:
        name = _name(key)
        known = states[name].limits if name in states else ()
        states[name] = SpreadState(name, (*known, *limits[key]))
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
        "improves": _distinct(_improves(cluster, it, pod.node_name, placement.node) for it in chosen.improves),
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
    """Return the node's domain; empty if the node is unknown, or if the constraint counts no node of that domain."""
    info = cluster.nodes.get(node)
    domain = info.node.labels.get(limit.key, "") if info is not None else ""
    return domain if domain in limit.pods else ""


def _above(rebalancing: Rebalancing, limits: Mapping[Key, Limits]) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of a ``LeftConstraint`` without ``why``, for each constraint that needs moves."""
    for key, of_key in limits.items():
        for limit, need in zip(of_key, rebalancing.needs(of_key), strict=True):
            if need:
                yield {
                    "workload": _name(key),
                    "topologyKey": limit.key,
                    "whenUnsatisfiable": "DoNotSchedule" if limit.is_hard else "ScheduleAnyway",
                    "maxSkew": limit.max_skew,
                    "skew": skew_of(limit),
                }


def _distinct(items: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the items without duplicates: pods of one workload can have different constraints, and share some."""
    distinct: list[Mapping[str, Any]] = []
    for item in items:
        if item not in distinct:
            distinct.append(item)
    return distinct


def _why(rebalancing: Rebalancing, key: Key, request: RebalanceRequest, *, over: bool) -> Iterable[Mapping[str, Any]]:
    """Yield ``LeftReason`` objects: first one that is not about certain pods, if any; then the most frequent ones."""
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
