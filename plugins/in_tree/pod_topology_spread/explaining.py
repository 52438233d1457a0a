"""Explains a pod's constraints: the number of pods in each domain, and changes that would make a domain fit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from app.framework.counts import Counts, DomainCounts
from app.framework.explanation import DomainLimit, Explanation, Table
from app.kube.core_v1 import Pod
from plugins.in_tree.pod_topology_spread.constraints import Constraint
from plugins.in_tree.pod_topology_spread.filtering import HardConstraint, HardState

HARD_COLUMNS: Final = ("domain", "eligible nodes", "pods", "minimum", "skew", "allowed")
SOFT_COLUMNS: Final = ("domain", "eligible nodes", "pods")

_MOST_TABLES: Final = 8
"""Maximum number of tables, one per constraint."""

_MOST_ROWS: Final = 1000
"""Maximum number of rows of all tables together."""

_MOST_SENTENCES: Final = 10
"""Maximum number of domains with too many pods for which a sentence is written, for each constraint."""

_MOST_LACKING: Final = 5
"""Maximum number of domains with too few pods that a sentence lists."""


def explained(pod: Pod, state: HardState, soft: Sequence[Constraint], counts: Counts) -> Explanation:
    """Return a table for each constraint, hard ones first, and a sentence for each domain with too many pods.

    To limit the size and the run time, only the first constraints are shown, with the fullest domains in tables, and
    with sentences for the first domains by name. ``limits`` of the result has all domains of the shown hard
    constraints, and of up to ``_MOST_TABLES`` soft ones.
    """
    constraints = state.constraints[:_MOST_TABLES]
    shown_soft = soft[: _MOST_TABLES - len(constraints)]
    limits = tuple(map(_limit, constraints))
    most = _MOST_ROWS // max(1, len(constraints) + len(shown_soft))
    tables = (
        *(_hard_table(it, limit.pods, most) for it, limit in zip(constraints, limits, strict=True)),
        *_soft_tables(pod, soft, shown_soft, counts, most),
    )
    sentences = [sentence for it, limit in zip(constraints, limits, strict=True) for sentence in _unblock(it, limit)]
    left = len(state.constraints) - len(constraints)
    if left > 0:
        sentences.append(f"{left} more hard constraints are not shown")
    return Explanation(tables, tuple(sentences), limits=limits + _soft_limits(pod, soft, counts))


def _limit(hard: HardConstraint) -> DomainLimit:
    """Return the number of nodes and pods of each domain, and which domains have too many pods for the incoming pod."""
    constraint, limit = hard.constraint, hard.limit({})
    pods = _counts(hard.domains)
    full = frozenset(name for name, count in pods.items() if count > limit)
    return DomainLimit(
        constraint.topology_key,
        hard.terms(),
        pods,
        full,
        hard.domains.nodes_by_domain(),
        constraint.max_skew,
        hard.minimum({}),
        lacks_domains=hard.lacks_domains,
    )


def _soft_limits(pod: Pod, soft: Sequence[Constraint], counts: Counts) -> tuple[DomainLimit, ...]:
    required = frozenset(constraint.topology_key for constraint in soft)
    limits = []
    for constraint in soft[:_MOST_TABLES]:
        key, included = constraint.topology_key, constraint.inclusion
        domains = counts.domains(pod.namespace, constraint.counted, key, required, included)
        limits.append(
            DomainLimit(
                key,
                constraint.terms(),
                _counts(domains),
                frozenset(),
                domains.nodes_by_domain(),
                constraint.max_skew,
                domains.minimum(),
                is_hard=False,
            )
        )
    return tuple(limits)


def _counts(domains: DomainCounts) -> dict[str, int]:
    """Return the number of pods by domain, sorted by the domain's name."""
    return {name: domains.count(name) for name in sorted(domains.nodes_by_domain())}


def _shown_domains(pods: Mapping[str, int], most: int) -> tuple[Sequence[str], str]:
    """Return the sorted names of the ``most`` fullest domains, and a note on omitted domains (empty if none are)."""
    if len(pods) <= most:
        return tuple(pods), ""
    fullest = sorted(pods, key=pods.__getitem__, reverse=True)[:most]
    return sorted(fullest), f", the fullest {most} of {len(pods)} domains"


def _hard_table(hard: HardConstraint, counts: Mapping[str, int], most: int) -> Table:
    constraint, minimum, limit = hard.constraint, hard.minimum({}), hard.limit({})
    rows = []
    domains, rest = _shown_domains(counts, most)
    by_domain = hard.domains.nodes_by_domain()
    for domain in domains:
        nodes, pods = by_domain[domain], counts[domain]
        skew = pods + hard.self_match - minimum
        rows.append((domain, nodes, pods, minimum, skew, pods <= limit))
    title = ", ".join((f"DoNotSchedule over {constraint.topology_key}", *hard.terms()))
    return Table(title + rest, HARD_COLUMNS, tuple(rows))


def _soft_tables(
    pod: Pod, soft: Sequence[Constraint], shown: Sequence[Constraint], counts: Counts, most: int
) -> Iterator[Table]:
    required = frozenset(constraint.topology_key for constraint in soft)
    for constraint in shown:
        domains = counts.domains(
            pod.namespace, constraint.counted, constraint.topology_key, required, constraint.inclusion
        )
        by_domain, pods = domains.nodes_by_domain(), _counts(domains)
        names, rest = _shown_domains(pods, most)
        rows = ((name, by_domain[name], pods[name]) for name in names)
        title = ", ".join((f"ScheduleAnyway over {constraint.topology_key}", *constraint.terms()))
        yield Table(title + rest, SOFT_COLUMNS, tuple(rows))


def _unblock(hard: HardConstraint, domain_limit: DomainLimit) -> Iterator[str]:
    """Yield a sentence on missing domains, and one for each domain with too many pods, up to ``_MOST_SENTENCES``.

    The sentence for a domain says how many pods must leave it or, if no domains are missing, must be added to others. A
    last sentence has the number of the remaining domains with too many pods.
    """
    key, counts = hard.constraint.topology_key, domain_limit.pods
    missing = hard.constraint.min_domains - hard.domains.size()
    if missing > 0:
        needed = "1 more domain is" if missing == 1 else f"{missing} more domains are"
        yield f"{key}: {needed} needed, until then the minimum counts as 0"
    full = [name for name in counts if name in domain_limit.full]
    compared = {name: counts[name] for name in sorted(hard.compared())}
    ordered = sorted(compared.values())
    for domain in full[:_MOST_SENTENCES]:
        excess = hard.excess(domain)
        minimum = counts[domain] + hard.self_match - hard.constraint.max_skew
        fewer = f"{key}={domain} takes the pod with {excess} matching pod{'s'[: excess > 1]} fewer"
        yield fewer if missing > 0 else f"{fewer}, or with {_filled(compared, ordered, minimum)}"
    if len(full) > _MOST_SENTENCES:
        yield f"{key}: so do {len(full) - _MOST_SENTENCES} other domains"


def _filled(counts: Mapping[str, int], ordered: Sequence[int], minimum: int) -> str:
    """Return a text that lists domains with fewer than ``minimum`` pods, and how many pods each of them lacks.

    At most ``_MOST_LACKING`` domains are listed, and the others are counted. ``ordered``: the sorted counts.
    """
    lacking = ((name, minimum - count) for name, count in counts.items() if count < minimum)
    shown = ", ".join(f"{more} more in {name}" for name, more in islice(lacking, _MOST_LACKING))
    others = bisect_left(ordered, minimum) - _MOST_LACKING
    return shown + (f" and some in {others} others" if others > 0 else "")
