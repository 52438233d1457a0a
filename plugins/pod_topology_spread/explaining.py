"""The tables behind a verdict: for each constraint its domains, how full they are, and what would open one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from app.framework.interface import Counts, Explanation, Table
from app.kube.core_v1 import Pod
from plugins.pod_topology_spread.constraints import Constraint
from plugins.pod_topology_spread.filtering import HardConstraint, hard_state

HARD_COLUMNS: Final = ("domain", "eligible nodes", "pods", "minimum", "skew", "allowed")
SOFT_COLUMNS: Final = ("domain", "eligible nodes", "pods")


def explained(pod: Pod, hard: Sequence[Constraint], soft: Sequence[Constraint], counts: Counts) -> Explanation:
    """A table per constraint, hard ones first; a sentence for each domain that is too full."""
    judged = hard_state(pod, hard, counts).constraints
    tables = (*(_hard_table(it) for it in judged), *_soft_tables(pod, soft, counts))
    return Explanation(tables, tuple(sentence for it in judged for sentence in _unblock(it)))


def _hard_table(judged: HardConstraint) -> Table:
    constraint, minimum = judged.constraint, judged.minimum({})
    rows = []
    for domain, nodes in sorted(judged.domains.nodes_by_domain().items()):
        pods = judged.domains.count(domain)
        skew = pods + judged.self_match - minimum
        rows.append((domain, nodes, pods, minimum, skew, skew <= constraint.max_skew))
    title = f"DoNotSchedule over {constraint.topology_key}, maxSkew {constraint.max_skew}"
    if constraint.min_domains > 1:
        title += f", minDomains {constraint.min_domains}"
    return Table(title, HARD_COLUMNS, tuple(rows))


def _soft_tables(pod: Pod, soft: Sequence[Constraint], counts: Counts) -> Iterator[Table]:
    required = frozenset(it.topology_key for it in soft)
    for it in soft:
        domains = counts.domains(pod.namespace, it.counted, it.topology_key, required, it.inclusion)
        rows = ((name, nodes, domains.count(name)) for name, nodes in sorted(domains.nodes_by_domain().items()))
        yield Table(f"ScheduleAnyway over {it.topology_key}, maxSkew {it.max_skew}", SOFT_COLUMNS, tuple(rows))


def _unblock(judged: HardConstraint) -> Iterator[str]:
    """Each domain that is too full takes the pod once it has fewer, or once the emptier ones have more."""
    key, domains, limit = judged.constraint.topology_key, judged.domains, judged.limit({})
    missing = judged.constraint.min_domains - domains.size()
    if missing > 0:
        needed = "1 more domain is" if missing == 1 else f"{missing} more domains are"
        yield f"{key}: {needed} needed, until then the minimum counts as 0"
    counts = {name: domains.count(name) for name in sorted(domains.nodes_by_domain())}
    for domain, count in counts.items():
        excess = count - limit
        if excess > 0:
            fewer = f"{key}={domain} takes the pod with {excess} matching pod{'s'[: excess > 1]} fewer"
            yield fewer if missing > 0 else f"{fewer}, or with {_filled(counts, judged.minimum({}) + excess)}"


def _filled(counts: Mapping[str, int], minimum: int) -> str:
    """What it takes until every domain has ``minimum`` pods."""
    lacking = [f"{minimum - count} more in {name}" for name, count in counts.items() if count < minimum]
    return ", ".join(lacking[:5]) + (f" and some in {len(lacking) - 5} others" if len(lacking) > 5 else "")
