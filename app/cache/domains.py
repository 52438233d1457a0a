"""Number of pods that a selector matches in each topology domain."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from typing import Final

from app.cache.bounded import COUNT_BYTES, ENTRY_BYTES
from app.cache.selections import Scope, Selection
from app.cache.topologies import Topology, new_stamp
from app.framework.counts import Inclusion
from app.kube.selectors import Selector

_MAX_LIMITS: Final = 4
"""Maximum number of limits with a stamp in one ``Domains``. A changed count is compared with all these limits."""

DomainsKey = tuple[Scope, Selector, str, frozenset[str], Inclusion]
"""Scope, selector, topology key, required label keys, and node inclusion policies of a ``Domains``."""


class Domains:
    """Number of pods of one selection in each domain of one topology. Implements ``framework.DomainCounts``.

    ``counts``: number of pods by domain, without zeros. ``by_count``: for each number of pods, the domains with that
    number. ``stamps``: for each of some limits, a number that changes when the count of a domain crosses the limit. In
    a ``TermMatch``, the counts can be sums of weights instead of numbers of pods.
    """

    __slots__ = ("by_count", "counts", "selection", "stamps", "topology")

    def __init__(self, selection: Selection, topology: Topology) -> None:
        self.selection = selection
        self.topology = topology
        self.stamps: dict[int, int] = {}
        self.counts, self.by_count = self._counted(selection.nodes)

    def _counted(self, nodes: Mapping[str, int]) -> tuple[dict[str, int], dict[int, set[str]]]:
        """Return the sum of the counts of ``nodes`` for each domain, and the domains by sum. Sums of 0 are omitted."""
        counts: dict[str, int] = {}
        by_count: dict[int, set[str]] = {}
        domain = self.topology.domain
        for node, count in nodes.items():
            value = domain.get(node)
            if value is not None:
                counts[value] = counts.get(value, 0) + count
        if 0 in counts.values():
            counts = {value: count for value, count in counts.items() if count}
        for value, count in counts.items():
            by_count.setdefault(count, set()).add(value)
        return counts, by_count

    def key(self) -> DomainsKey:
        """Return the ``DomainsKey`` of the selection and the topology."""
        selection, topology = self.selection, self.topology
        eligibility = topology.eligibility
        return selection.namespace, selection.selector, topology.key, eligibility.required, eligibility.inclusion

    def weight(self) -> int:
        """Return the estimated bytes."""
        return ENTRY_BYTES + COUNT_BYTES * len(self.counts)

    def add(self, value: str, delta: int) -> None:
        """Change the number of pods in the domain ``value`` by ``delta``, which is not 0."""
        counts, by_count = self.counts, self.by_count
        old = counts.get(value, 0)
        new = old + delta
        if old:
            bucket = by_count[old]
            if len(bucket) == 1:
                del by_count[old]
            else:
                bucket.remove(value)
        if not new:
            del counts[value]
        else:
            counts[value] = new
            if new in by_count:
                by_count[new].add(value)
            else:
                by_count[new] = {value}
        if self.stamps:
            self._move_stamps(old, new)

    def _move_stamps(self, old: int, new: int) -> None:
        """Renew the stamps of the limits that a count crosses if it changes from ``old`` to ``new``."""
        for limit in self.stamps:
            if (old > limit) != (new > limit):
                self.stamps[limit] = new_stamp()

    def stamp(self, limit: int) -> int:
        stamp = self.stamps.get(limit)
        if stamp is None:
            if len(self.stamps) >= _MAX_LIMITS:
                del self.stamps[next(iter(self.stamps))]
            stamp = self.stamps[limit] = new_stamp()
        return stamp

    def count(self, value: str) -> int:
        return self.counts.get(value, 0)

    def is_empty(self) -> bool:
        return not self.counts

    def size(self) -> int:
        return len(self.topology.sizes)

    def nodes_by_domain(self) -> Mapping[str, int]:
        return self.topology.sizes

    def domain_of(self, node: str) -> str | None:
        return self.topology.domain.get(node)

    def minimum(self, deltas: Mapping[str, int] | None = None) -> int:
        if deltas:
            return self._minimum_with(deltas)
        if len(self.counts) < len(self.topology.sizes):
            return 0
        return min(self.by_count, default=0)

    def extremes(self, deltas: Mapping[str, int], among: Set[str] | None = None) -> tuple[int, int]:
        values = self.topology.sizes.keys() if among is None else among
        counts, changed = self.counts, [value for value in deltas if value in values]
        ends = [counts.get(value, 0) + deltas[value] for value in changed]
        others = values - set(changed) if changed else values
        ends += [count for count, bucket in self.by_count.items() if not others.isdisjoint(bucket)]
        if not others <= counts.keys():
            ends.append(0)
        return min(ends, default=0), max(ends, default=0)

    def skew(self) -> int:
        """Return the difference between the largest and the smallest number of pods in a domain."""
        return max(self.by_count, default=0) - self.minimum()

    def _minimum_with(self, deltas: Mapping[str, int]) -> int:
        """Return the smallest count of any domain if the counts change by ``deltas``.

        It is the smaller of two numbers: the minimum of the changed domains, and the minimum of all other domains.
        """
        counts, sizes = self.counts, self.topology.sizes
        candidates = [counts.get(value, 0) + delta for value, delta in deltas.items()]
        if max(deltas.values()) <= 0:  # no count grows, so only a changed count can be below the old minimum
            return min(self.minimum(), *candidates)
        others = len(sizes) - sum(value in sizes for value in deltas)
        others_with_pods = len(counts) - sum(value in counts for value in deltas)
        if others > others_with_pods:
            candidates.append(0)
        else:
            untouched = (
                count for count in sorted(self.by_count) if any(it not in deltas for it in self.by_count[count])
            )
            candidates.extend(next(((count,) for count in untouched), ()))
        return min(candidates)

    def above(self, limit: int) -> Collection[str]:
        buckets = [values for count, values in self.by_count.items() if count > limit]
        return buckets[0] if len(buckets) == 1 else [value for values in buckets for value in values]

    def differences(self, counted: Mapping[str, int]) -> Iterator[str]:
        """Yield a sentence for each of ``counts`` and ``by_count`` that does not fit the counts by node ``counted``."""
        counts, by_count = self._counted(counted)
        where = f"{self.topology.key} of {self.selection.selector} in {self.selection.namespace}"
        parts = {"counts": self.counts == counts, "buckets": self.by_count == by_count}
        yield from (f"{name} by {where} differ from a recount" for name, right in parts.items() if not right)


def join_domains(selection: Selection, topology: Topology) -> Domains:
    """Create the counts of a selection by the domains of a topology.

    Both ``selection`` and ``topology`` refer to the result, and update it at each change.
    """
    domains = Domains(selection, topology)
    selection.domains[domains] = None
    topology.users[domains] = None
    return domains
