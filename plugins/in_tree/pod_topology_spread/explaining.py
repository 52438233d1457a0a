"""The tables behind a verdict: for each constraint its domains, how full they are, and what would open one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice
from typing import Final

from app.framework.counts import Counts, DomainCounts
from app.framework.explanation import Explanation, Table
from app.kube.core_v1 import Pod
from plugins.in_tree.pod_topology_spread.constraints import Constraint
from plugins.in_tree.pod_topology_spread.filtering import HardConstraint, hard_state

HARD_COLUMNS: Final = ("domain", "eligible nodes", "pods", "minimum", "skew", "allowed")
SOFT_COLUMNS: Final = ("domain", "eligible nodes", "pods")

_MOST_TABLES: Final = 8
_MOST_ROWS: Final = 1000
"""Of all tables together."""

_MOST_SENTENCES: Final = 10
_MOST_LACKING: Final = 5
"""Of one constraint."""


def explained(pod: Pod, hard: Sequence[Constraint], soft: Sequence[Constraint], counts: Counts) -> Explanation:
    """A table per constraint, hard ones first; a sentence for each domain that is too full.

    Of many constraints the first are told, of many domains the fullest: a person reads no more, and others wait.
    """
    told = (*hard, *soft)[:_MOST_TABLES]
    judged = hard_state(pod, hard, counts).constraints[:_MOST_TABLES]
    most = _MOST_ROWS // max(1, len(told))
    tables = (*(_hard_table(it, most) for it in judged), *_soft_tables(pod, soft, told[len(judged) :], counts, most))
    sentences = [sentence for it in judged for sentence in _unblock(it)]
    left = len(hard) - len(judged)
    if left > 0:
        sentences.append(f"{left} more hard constraints are not told of here")
    return Explanation(tables, tuple(sentences))


def _told(domains: DomainCounts, most: int) -> tuple[list[str], str]:
    """The domains to be told of, by name, and what to say of the others."""
    every = domains.nodes_by_domain()
    if len(every) <= most:
        return sorted(every), ""
    return sorted(nlargest(most, every, key=domains.count)), f", the fullest {most} of {len(every)} domains"


def _hard_table(judged: HardConstraint, most: int) -> Table:
    constraint, minimum = judged.constraint, judged.minimum({})
    rows = []
    domains, rest = _told(judged.domains, most)
    by_domain = judged.domains.nodes_by_domain()
    for domain in domains:
        nodes, pods = by_domain[domain], judged.domains.count(domain)
        skew = pods + judged.self_match - minimum
        rows.append((domain, nodes, pods, minimum, skew, skew <= constraint.max_skew))
    title = f"DoNotSchedule over {constraint.topology_key}, maxSkew {constraint.max_skew}"
    if constraint.min_domains > 1:
        title += f", minDomains {constraint.min_domains}"
    return Table(title + rest, HARD_COLUMNS, tuple(rows))


def _soft_tables(
    pod: Pod, soft: Sequence[Constraint], told: Sequence[Constraint], counts: Counts, most: int
) -> Iterator[Table]:
    required = frozenset(constraint.topology_key for constraint in soft)
    for constraint in told:
        domains = counts.domains(
            pod.namespace, constraint.counted, constraint.topology_key, required, constraint.inclusion
        )
        by_domain = domains.nodes_by_domain()
        names, rest = _told(domains, most)
        rows = ((name, by_domain[name], domains.count(name)) for name in names)
        yield Table(
            f"ScheduleAnyway over {constraint.topology_key}, maxSkew {constraint.max_skew}{rest}",
            SOFT_COLUMNS,
            tuple(rows),
        )


def _unblock(judged: HardConstraint) -> Iterator[str]:
    """Each domain that is too full takes the pod once it has fewer, or once the emptier ones have more."""
    key, domains, limit = judged.constraint.topology_key, judged.domains, judged.limit({})
    missing = judged.constraint.min_domains - domains.size()
    if missing > 0:
        needed = "1 more domain is" if missing == 1 else f"{missing} more domains are"
        yield f"{key}: {needed} needed, until then the minimum counts as 0"
    counts = {name: domains.count(name) for name in sorted(domains.nodes_by_domain())}
    full = [name for name, count in counts.items() if count > limit]
    for domain in full[:_MOST_SENTENCES]:
        excess = counts[domain] - limit
        fewer = f"{key}={domain} takes the pod with {excess} matching pod{'s'[: excess > 1]} fewer"
        yield fewer if missing > 0 else f"{fewer}, or with {_filled(counts, judged.minimum({}) + excess)}"
    if len(full) > _MOST_SENTENCES:
        yield f"{key}: so do {len(full) - _MOST_SENTENCES} other domains"


def _filled(counts: Mapping[str, int], minimum: int) -> str:
    """What it takes until every domain has ``minimum`` pods."""
    lacking = ((name, minimum - count) for name, count in counts.items() if count < minimum)
    told = ", ".join(f"{more} more in {name}" for name, more in islice(lacking, _MOST_LACKING))
    others = sum(map(minimum.__gt__, counts.values())) - _MOST_LACKING
    return told + (f" and some in {others} others" if others > 0 else "")
