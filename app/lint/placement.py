"""Rules that compare a pod template with the nodes, pods and volumes of a cluster, and with known schedulers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from app.kube.core_v1 import Pod, TopologySpreadConstraint
from app.lint.facts import HOSTNAME, ClusterFacts
from app.lint.rules import (
    MIN_DOMAINS,
    TAINTED_DOMAINS,
    UNKNOWN_KEY,
    UNKNOWN_SCHEDULER,
    VOLUME_ZONE,
    ZONE_AND_HOST,
    Mistaken,
    Severity,
)
from app.lint.templates import selects_own
from app.lint.workloads import LintedWorkload

_MOST_SHOWN: Final = 5
_MOST_REPLICAS: Final = 10_000
"""Maximum number of replicas whose PersistentVolumeClaims are looked up."""


def of_placement(workload: LintedWorkload, facts: ClusterFacts) -> Iterator[Mistaken]:
    """Yield the mistakes in a workload that depend on the cluster.

    DaemonSets are left out, because each of their pods is made for one node.
    """
    pod = workload.pod
    if pod is None or workload.kind == "DaemonSet":
        return
    yield from _unknown_keys(workload, facts)
    for number, constraint in workload.hard:
        if facts.has_key(constraint.topology_key):
            yield from _min_domains(workload, pod, number, constraint, facts)
            yield from _tainted(workload, pod, number, constraint, facts)
            yield from _volumes(workload, pod, number, constraint, facts)
    yield from _zone_and_host(workload, pod, facts)


def of_scheduler(workload: LintedWorkload, schedulers: Collection[str]) -> Iterator[Mistaken]:
    """Yield a mistake if the schedulerName of the pods is not in ``schedulers``."""
    name = workload.pod.spec.scheduler_name if workload.pod is not None else ""
    if name and name not in schedulers:
        yield Mistaken(
            UNKNOWN_SCHEDULER,
            Severity.ERROR,
            (*workload.template, "spec", "schedulerName"),
            f"no known scheduler has the name {name}, so these pods stay Pending without an Event",
            f"use one of {', '.join(sorted(schedulers))}, or start a scheduler with this name",
        )


def _unknown_keys(workload: LintedWorkload, facts: ClusterFacts) -> Iterator[Mistaken]:
    """Yield a mistake for each constraint whose topology key no node has."""
    for number, constraint in enumerate(workload.constraints):
        key = constraint.topology_key
        if not key or facts.has_key(key):
            continue
        effect = "no node fits the pods" if constraint.is_hard else "the constraint has no effect"
        yield Mistaken(
            UNKNOWN_KEY,
            Severity.ERROR if constraint.is_hard else Severity.WARNING,
            workload.constraint_place(number, "topologyKey"),
            f"no node has the label {key}, so {effect}",
            "use a label that the nodes have, such as topology.kubernetes.io/zone, or label the nodes",
        )


def _min_domains(
    workload: LintedWorkload, pod: Pod, number: int, constraint: TopologySpreadConstraint, facts: ClusterFacts
) -> Iterator[Mistaken]:
    """Yield a mistake if the constraint counts fewer domains than ``minDomains``."""
    wanted = constraint.min_domains
    if wanted is None:
        return
    every, usable = facts.all_domains(constraint.topology_key), facts.domains(pod, constraint).size()
    if usable >= wanted:
        return
    left = f"the cluster has {every} domains" if every < wanted else f"of {every} domains the pods can use {usable}"
    cause = "" if every < wanted else ", by their node affinity, tolerations and other constraints"
    yield Mistaken(
        MIN_DOMAINS,
        Severity.ERROR if (workload.replicas or 0) > usable * constraint.max_skew else Severity.WARNING,
        workload.constraint_place(number, "minDomains"),
        f"minDomains is {wanted}, and {left}{cause}: each domain takes at most {constraint.max_skew} of the pods",
        f"set minDomains to {usable or every} or less, or add nodes in more domains",
    )


def _tainted(
    workload: LintedWorkload, pod: Pod, number: int, constraint: TopologySpreadConstraint, facts: ClusterFacts
) -> Iterator[Mistaken]:
    """Yield a mistake if empty domains with taints limit the number of pods to less than the replicas."""
    if constraint.honours_taints or not constraint.honours_affinity or not selects_own(workload, constraint):
        return
    key = constraint.topology_key
    counted = facts.domains(pod, constraint)
    usable = facts.usable_hosts(pod, key)
    closed = [it for it in counted.nodes_by_domain().keys() - usable.keys() if not counted.count(it)]
    if not usable or not closed:
        return
    most = len(usable) * constraint.max_skew
    if (workload.replicas or 0) <= most:
        return
    taints = sorted({taint for it in closed for taint in facts.taints_in(key, it)})
    if not taints:
        return
    yield Mistaken(
        TAINTED_DOMAINS,
        Severity.ERROR,
        workload.constraint_place(number),
        f"the pods do not tolerate the taint {', '.join(taints)} of {key} {_listed(closed)}, which counts as a domain "
        f"without pods: at most {most} pods fit",
        "add nodeTaintsPolicy: Honor to the constraint",
    )


def _listed(names: Collection[str]) -> str:
    shown = sorted(names)[:_MOST_SHOWN]
    rest = len(names) - len(shown)
    return f"{', '.join(shown)}{f' and {rest} more' if rest else ''}"


def _zone_and_host(workload: LintedWorkload, pod: Pod, facts: ClusterFacts) -> Iterator[Mistaken]:
    """Yield a mistake if a constraint over hosts and another one together allow fewer pods than the replicas."""
    hosts = [it for _, it in workload.hard if it.topology_key == HOSTNAME and selects_own(workload, it)]
    for number, wide in workload.hard:
        if wide.topology_key == HOSTNAME or not hosts or not selects_own(workload, wide):
            continue
        sizes = facts.usable_hosts(pod, wide.topology_key)
        replicas = workload.replicas or 0
        most = most_replicas(sizes, wide.max_skew, hosts[0].max_skew, replicas)
        if most < replicas:
            numbers = ", ".join(f"{domain} {size}" for domain, size in sorted(sizes.items())[:_MOST_SHOWN])
            yield Mistaken(
                ZONE_AND_HOST,
                Severity.ERROR,
                workload.constraint_place(number),
                f"together with the hard constraint over {HOSTNAME}, at most {most} pods fit, and there are "
                f"{replicas} replicas: the domains of {wide.topology_key} have unequal numbers of hosts ({numbers})",
                "set whenUnsatisfiable: ScheduleAnyway in one of the two constraints, or raise its maxSkew",
            )


def most_replicas(hosts: Mapping[str, int], skew: int, host_skew: int, enough: int) -> int:
    """Return the largest number of pods that two hard constraints allow.

    Return ``enough`` if there is no limit or no host, or if a maxSkew is below 1.

    ``hosts``: number of hosts by domain. ``skew`` and ``host_skew``: maxSkew of the constraint over the domains and of
    the one over hosts.

    With ``level`` pods on the emptiest host, no host has more than ``level + host_skew`` pods. So the smallest domain,
    with ``least`` hosts, has at most ``least * (level + host_skew)`` pods, and each other domain at most ``skew`` more.
    The level rises only if each domain can have ``level + 1`` pods on each of its ``size`` hosts. It stops once
    ``least * (level + host_skew) + skew < size * (level + 1)`` for any domain, and never if all sizes are equal.
    """
    if not hosts or min(skew, host_skew) < 1:
        return enough
    least = min(hosts.values())
    larger = [it for it in hosts.values() if it > least]
    if not larger:
        return enough
    level = max(0, min((least * host_skew + skew - it) // (it - least) + 1 for it in larger))
    return sum(min(it * (level + host_skew), least * (level + host_skew) + skew) for it in hosts.values())


def _volumes(
    workload: LintedWorkload, pod: Pod, number: int, constraint: TopologySpreadConstraint, facts: ClusterFacts
) -> Iterator[Mistaken]:
    """Yield a mistake if volumes bind more pods to a domain than the constraint allows."""
    if not selects_own(workload, constraint):
        return
    domains = facts.domains(pod, constraint).nodes_by_domain()
    held, free = _held(workload, pod, constraint.topology_key, facts)
    pods = {domain: held.get(domain, 0) for domain in domains}
    if not any(pods.values()):
        return
    least = max(pods.values()) - constraint.max_skew
    if sum(max(0, least - it) for it in pods.values()) <= free:
        return
    numbers = ", ".join(f"{domain} {pods_there}" for domain, pods_there in sorted(pods.items())[:_MOST_SHOWN])
    yield Mistaken(
        VOLUME_ZONE,
        Severity.ERROR,
        workload.constraint_place(number),
        f"the volumes hold pods in domains of {constraint.topology_key} ({numbers}), which a maxSkew of "
        f"{constraint.max_skew} does not allow: not all {workload.replicas} pods fit at once",
        "set whenUnsatisfiable: ScheduleAnyway, or move volumes to other domains",
    )


def _held(workload: LintedWorkload, pod: Pod, key: str, facts: ClusterFacts) -> tuple[Mapping[str, int], int]:
    """Return the number of pods that volumes bind to a domain, by domain, and the number of other pods.

    Without ``volumeClaimTemplates``, pods are assumed to spread evenly over the domains that can use all their volumes.
    With them, a pod that can be in several domains is one of the other pods.
    """
    replicas = min(workload.replicas or 0, _MOST_REPLICAS)
    held: dict[str, int] = defaultdict(int)
    free = 0
    shared = [facts.volume_domains(pod.namespace, it.claim, key) for it in pod.spec.volumes if it.claim]
    for ordinal in range(workload.first_ordinal, workload.first_ordinal + replicas):
        own = (f"{claim}-{workload.name}-{ordinal}" for claim in workload.claims)
        reached = [*shared, *(facts.volume_domains(pod.namespace, it, key) for it in own)]
        bounds = [it for it in reached if it is not None]
        domains = frozenset.intersection(*bounds) if bounds else frozenset()
        if domains and (len(domains) == 1 or not workload.claims):
            held[min(sorted(domains), key=lambda it: held[it])] += 1
        else:
            free += 1
    return held, free
