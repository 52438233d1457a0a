"""Hard constraints under the options ``untoleratedDomains`` and ``onViolation`` of a profile."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import final

from msgspec import Struct

from app.framework.counts import Counts, DomainCounts, Inclusion
from app.kube.core_v1 import Pod
from plugins.in_tree.pod_topology_spread.args import Beyond
from plugins.in_tree.pod_topology_spread.constraints import Constraint
from plugins.in_tree.pod_topology_spread.filtering import Counted, HardConstraint, in_tree


class Relaxation(Struct, frozen=True):
    """Rules that let more nodes pass than kube-scheduler does.

    ``ignores_untolerated``: the minimum is taken over the domains with an open node (see ``RelaxedConstraint``), or
    over all domains if none has one.
    ``allows_not_worse``: a node also passes if the pod does not raise the skew of a violated constraint.
    """

    ignores_untolerated: bool
    allows_not_worse: bool

    def counted(self, counts: Counts, pod: Pod, required: frozenset[str], constraint: Constraint) -> HardConstraint:
        """Return the constraint with its counts, under this relaxation. Raises ``Unprepared``."""

        def of(inclusion: Inclusion) -> DomainCounts:
            return counts.domains(pod.namespace, constraint.counted, constraint.topology_key, required, inclusion)

        domains = open_domains = of(constraint.inclusion)
        if self.ignores_untolerated:
            open_domains = of(constraint.inclusion.without_closed_nodes(pod.spec))
        return RelaxedConstraint(self, constraint, domains, open_domains, int(constraint.matches(pod.labels)), {})


def counted_by(beyond: Beyond | None) -> Counted:
    """Return the function that adds the counts to a hard constraint, under the options of a profile."""
    if beyond is None:
        return in_tree
    relaxation = Relaxation(beyond.untolerated_domains == "Ignore", beyond.on_violation == "AllowNotWorse")
    return relaxation.counted if relaxation.ignores_untolerated or relaxation.allows_not_worse else in_tree


@final
class RelaxedConstraint(HardConstraint):
    """Hard constraint under a ``Relaxation``. ``open_domains``: the counts, only for nodes that are open for the pod;
    equal to ``domains`` without ``ignores_untolerated``.

    A node is open if the pod tolerates its NoSchedule and NoExecute taints, and, on a cordoned node, the taint of a
    cordon. Only the names of the open domains are used. The pods of a domain are counted on all of its nodes.
    """

    __slots__ = ("open_domains", "relaxation")

    def __init__(
        self,
        relaxation: Relaxation,
        constraint: Constraint,
        domains: DomainCounts,
        open_domains: DomainCounts,
        self_match: int,
        deltas: dict[str, int],
    ) -> None:
        super().__init__(constraint, domains, self_match, deltas)
        self.relaxation = relaxation
        self.open_domains = open_domains

    def clone(self) -> HardConstraint:
        return RelaxedConstraint(
            self.relaxation, self.constraint, self.domains, self.open_domains, self.self_match, dict(self.deltas)
        )

    def minimum(self, deltas: Mapping[str, int]) -> int:
        return 0 if self.lacks_domains else self._extremes(deltas)[0]

    def limit(self, deltas: Mapping[str, int]) -> int:
        """Return the largest number of pods that a domain can have so that the incoming pod still fits there.

        Under ``allows_not_worse``, a domain can always grow to the size of the largest open one. This changes the limit
        only if the skew is above ``maxSkew``. If a pod leaves another domain, both extremes fall or stay equal. So the
        worst case of ``evaluate_certain`` is the same as for ``HardConstraint``.
        """
        lowest, highest = self._extremes(deltas)
        limit = self.constraint.max_skew + (0 if self.lacks_domains else lowest)
        return (max(limit, highest) if self.relaxation.allows_not_worse else limit) - self.self_match

    def compared(self) -> Collection[str]:
        open_names = self.open_domains.nodes_by_domain()
        return open_names or self.domains.nodes_by_domain()

    def excess(self, domain: str) -> int:
        """Like ``HardConstraint.excess``. Each pod that leaves can also change the limit, so the number is searched."""
        pods = self.domains.count(domain)

        def fits_without(number: int) -> bool:
            return pods - number <= self.limit({domain: -number})

        return 1 + bisect_left(range(1, pods), True, key=fits_without)

    def terms(self) -> tuple[str, ...]:
        options = (
            (self.relaxation.ignores_untolerated, "untoleratedDomains Ignore by profile"),
            (self.relaxation.allows_not_worse, "onViolation AllowNotWorse by profile"),
        )
        return (*super().terms(), *(text for is_set, text in options if is_set))

    def _extremes(self, deltas: Mapping[str, int]) -> tuple[int, int]:
        """Return the smallest and the largest count of the open domains; of all domains if none is open."""
        open_names = self.open_domains.nodes_by_domain()
        if not open_names or len(open_names) == self.domains.size():
            return self.domains.extremes(deltas)
        return self.domains.extremes(deltas, open_names.keys())
