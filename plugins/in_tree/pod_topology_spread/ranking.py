"""Ranks of a ReplicaSet's pods within their domain, for the option ``scaleDown: Spread`` of a profile.

A bound pod gets as its rank the smallest number that no other live pod of its ReplicaSet has in the same domain. The
Binding sets the deletion cost of the pod to minus the rank, and the ReplicaSet controller removes the pods of low cost
first. So a scale-down removes the highest ranks of all domains before lower ones, which leaves about equal numbers of
pods. The domains are those of one topology key of the pod's constraints (``Ranks.widest_key``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from app.framework.counts import Counts, Unprepared
from app.framework.objects import Objects
from app.kube.core_v1 import Pod, TopologySpreadConstraint
from app.kube.kinds import REPLICA_SETS
from app.kube.memo import Newest
from plugins.in_tree.pod_topology_spread.args import HOSTNAME

MOST_PODS: Final = 5000
"""Maximum number of pods of a ReplicaSet that has ranks. A bind reads all of these pods, in less than 1 ms."""

MOST_GIVEN: Final = 4096
"""Maximum number of ranks in memory. A rank is needed only until the watch shows it on the pod, soon after the bind."""

_MOST_SIZES: Final = 64
"""Maximum number of topology keys whose number of domains is cached."""

_FEWEST_DOMAINS: Final = 2
"""Minimum number of domains of a key over which pods can be spread."""


SCALE_DOWN: Final = "scaleDown Spread by profile"


def is_ranked(pod: Pod) -> bool:
    """Return true if the pod's controller is a ReplicaSet."""
    return pod.owner is not None and pod.owner.kind == REPLICA_SETS.kind


class Ranks:
    """Ranks of the pods of ReplicaSets. Remembers the ranks of binds that the watch has not shown yet."""

    def __init__(self, counts: Counts, objects: Objects) -> None:
        self._counts = counts
        self._pods = objects.by_controller(REPLICA_SETS)
        self._given = Newest[str, tuple[str, int]](MOST_GIVEN)
        self._sizes: dict[str, tuple[int, int]] = {}

    def give(self, pod: Pod, node_name: str, constraints: Iterable[TopologySpreadConstraint]) -> int | None:
        """Return the rank that the pod gets on the node, and remember it for the time until the watch shows it.

        The result is ``None`` if the pod gets no rank.
        """
        rank = self.rank(pod, node_name, constraints)
        if rank is not None:
            self._given.put(pod.uid, (node_name, rank))
        return rank

    def rank(self, pod: Pod, node_name: str, constraints: Iterable[TopologySpreadConstraint]) -> int | None:
        """Return the rank that the pod gets on the node; ``None`` if it gets none.

        Only pods of a ReplicaSet with at most ``MOST_PODS`` pods are ranked. One of their constraints must have a
        topology key that the node has, and that has several domains.
        """
        if pod.owner is None or not is_ranked(pod):
            return None
        key = self.widest_key(constraints, node_name)
        pods = self._pods.get(pod.owner.uid, {})
        if not key or len(pods) > MOST_PODS:
            return None
        domains = self._domains(key)
        return self._free(pod, domains[node_name], domains, pods.values())

    def widest_key(self, constraints: Iterable[TopologySpreadConstraint], node_name: str = "") -> str:
        """Return the topology key with the fewest domains, hosts last; empty if no key has several.

        With ``node_name``, only the topology keys of this node are considered.
        """
        sizes = {it.topology_key: self._size(it.topology_key) for it in constraints}
        usable = [
            key
            for key, size in sizes.items()
            if size >= _FEWEST_DOMAINS and (not node_name or node_name in self._domains(key))
        ]
        return min(usable, key=lambda it: (it == HOSTNAME, sizes[it]), default="")

    def _free(self, pod: Pod, domain: str, domains: Mapping[str, str], pods: Iterable[Pod]) -> int:
        """Return the smallest rank that no other live pod of the ReplicaSet has in the domain.

        A pod without a rank counts as a pod with the lowest free rank, because the controller removes it last. Its cost
        is above 0, or is missing and counts as 0.
        """
        taken: set[int] = set()
        without = 0
        domain_of = domains.get
        for other in pods:
            if domain_of(other.node_name) == domain and not other.terminating and other.uid != pod.uid:
                rank = self._rank_of(other)
                if rank is None:
                    without += 1
                else:
                    taken.add(rank)
        return _free_number(taken, without)

    def replica_sets(self) -> Collection[str]:
        """Return the UIDs of the ReplicaSets with pods."""
        return tuple(self._pods)

    def newest(self, uid: str) -> Pod | None:
        """Return the newest pod of a ReplicaSet; ``None`` if it has none now."""
        return max(self._pods.get(uid, {}).values(), key=lambda it: it.created, default=None)

    def misranked(self, uid: str, constraints: Iterable[TopologySpreadConstraint]) -> Collection[tuple[Pod, int]]:
        """Return, for each domain with a hole in its ranks, one bound pod and the rank that it should get.

        It is the pod with the highest superfluous rank; if there is none, a pod without a rank. Pods with a cost above
        0 keep their cost. If a domain has n such pods, its ranks 0 to n - 1 need no pod. ``constraints``: those of the
        ReplicaSet's newest pod.
        """
        key, pods = self.widest_key(constraints), self._pods.get(uid, {})
        if not key or len(pods) > MOST_PODS:
            return ()
        domains, by_domain = self._domains(key), defaultdict[str, list[Pod]](list)
        for pod in pods.values():
            if not pod.terminating and pod.node_name in domains:
                by_domain[domains[pod.node_name]].append(pod)
        holes = (self._hole(it) for it in by_domain.values())
        return [it for it in holes if it is not None]

    def _hole(self, pods: Sequence[Pod]) -> tuple[Pod, int] | None:
        """Return the pod of a domain that should get another rank, and this rank.

        The result is ``None`` if there is no hole, or if only pods in flight could close it.
        """
        own = [it for it in pods if (it.deletion_cost.value or 0) <= 0]
        wanted = range(len(pods) - len(own), len(pods))
        holders: dict[int, Pod] = {}
        movable: list[tuple[int, str, Pod]] = []
        for pod in own:
            rank = self._rank_of(pod)
            if rank is not None and rank in wanted and rank not in holders:
                holders[rank] = pod
            elif not self._is_in_flight(pod):
                movable.append((-1 if rank is None else rank, pod.uid, pod))
        if not movable:
            return None
        return max(movable)[2], next(it for it in wanted if it not in holders)

    def _is_in_flight(self, pod: Pod) -> bool:
        """Return true if the watch has not shown the rank that the pod got. A patch could then make its bind fail."""
        return pod.deletion_cost.value is None and self._given.get(pod.uid, ("",))[0] == pod.node_name

    def _rank_of(self, pod: Pod) -> int | None:
        """Return the pod's rank, from its annotation or from ``give``; ``None`` if it has none, or a cost above 0."""
        lifecycle = pod.lifecycle
        cost = None if lifecycle is None or lifecycle.cost is None else lifecycle.cost.value
        if cost is not None:
            return -cost if cost <= 0 else None
        node_name, rank = self._given.get(pod.uid, ("", None))
        return rank if node_name == pod.node_name else None

    def _size(self, key: str) -> int:
        """Return the number of domains of a key. They are counted again only after a change of the node labels."""
        domains = self._domains(key)
        stamp = self._counts.stamp(key)
        known, size = self._sizes.get(key, (0, 0))
        if known != stamp:
            if len(self._sizes) >= _MOST_SIZES:
                self._sizes.clear()
            size = len(set(domains.values()))
            self._sizes[key] = (stamp, size)
        return size

    def _domains(self, key: str) -> Mapping[str, str]:
        """Return the domains of the nodes with the label ``key``. If not cached, they are read without yielding."""
        try:
            return self._counts.values(key)
        except Unprepared as unprepared:
            for _ in unprepared.steps:
                pass
            return self._counts.values(key)


def _free_number(taken: Collection[int], skipped: int) -> int:
    """Return the free number (0 or more, not in ``taken``) that has exactly ``skipped`` smaller free numbers."""
    number = 0
    while skipped or number in taken:
        skipped -= number not in taken
        number += 1
    return number
