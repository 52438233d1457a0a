"""Topology spread of workloads before and after a what-if."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from app.analysis.spread_blocks import SPREAD
from app.cache.counters import run_prepared
from app.framework.explanation import DomainLimit
from app.framework.node_info import Candidates
from app.kube.core_v1 import Pod
from app.whatif.scratch import ScratchCluster

_OWN_TERMS: Final = ("maxSkew ", "minDomains ")
"""Prefixes of the terms of ``DomainLimit`` that come from the constraint. Other terms come from the profile."""


class SpreadState(Struct, frozen=True):
    """Pod counts by domain, for each constraint of a workload, at one moment. ``workload``: KIND/NAMESPACE/NAME."""

    workload: str
    limits: Sequence[DomainLimit]


def spread_of(scratch: ScratchCluster, pods: Mapping[str, Pod]) -> dict[str, SpreadState]:
    """Return the spread of workloads as PodTopologySpread counts it. ``pods``: one pod of each workload, by workload.

    Raises ``PluginError``.
    """
    return {workload: SpreadState(workload, limits_of(scratch, pod)) for workload, pod in pods.items()}


def limits_of(scratch: ScratchCluster, pod: Pod) -> Sequence[DomainLimit]:
    """Return the pod counts by domain for each constraint, as PodTopologySpread counts. Raises ``PluginError``.

    Empty if the pod has no constraints of its own, or if its profile does not have the plugin.
    """
    framework = scratch.framework_for(pod)
    if SPREAD not in framework.plugins or not pod.spec.spread:
        return ()
    another = replace(pod, uid=f"{pod.uid}-next", node_name="")  # else the pod itself would not be counted
    nodes = Candidates.of(scratch.cluster.nodes)
    return run_prepared(lambda: framework.explain_with(SPREAD, another, nodes).limits)


def changes(before: Mapping[str, SpreadState], after: Mapping[str, SpreadState]) -> Iterable[Mapping[str, Any]]:
    """Yield each constraint of each workload as a JSON object, with the pod counts by domain before and after."""
    for workload, state in after.items():
        earlier = before[workload].limits if workload in before else ()
        for number, limit in enumerate(state.limits):
            was = earlier[number] if number < len(earlier) else None
            yield {
                "workload": workload,
                "topologyKey": limit.key,
                "whenUnsatisfiable": "DoNotSchedule" if limit.is_hard else "ScheduleAnyway",
                "maxSkew": limit.max_skew,
                "before": {} if was is None else was.pods,
                "after": limit.pods,
                "skewBefore": 0 if was is None else skew_of(was),
                "skewAfter": skew_of(limit),
                "options": [it for it in limit.terms if not it.startswith(_OWN_TERMS)],
            }


def skew_of(limit: DomainLimit) -> int:
    """Return the largest number of pods in a domain, minus the minimum of the constraint."""
    return max(limit.pods.values(), default=0) - limit.minimum
