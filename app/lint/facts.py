"""Facts about a cluster that rules use, from its snapshot: domains with pods, taints and volumes, and schedulers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.cache.cluster import Cluster
from app.cache.counters import run_prepared
from app.framework.counts import DomainCounts, inclusion_of
from app.kube.core_v1 import DEFAULT_SCHEDULER_NAME, Node, Pod, TopologySpreadConstraint
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Kind
from app.kube.selectors import EVERYTHING
from app.kube.taints import Tolerance

FACTS: Final[tuple[Kind[Any], ...]] = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES)
"""Kinds that the rules read in addition to nodes, pods and the judged workloads."""

_TEMPORARY: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "ToBeDeletedByClusterAutoscaler")
"""Prefixes of the keys of taints that controllers add only for some time, for example while a node is not ready."""

_MOST_CACHED: Final = 64
"""Maximum number of cached results of ``usable_hosts``. Most workloads share their affinity and tolerations."""

HOSTNAME: Final = "kubernetes.io/hostname"


class ClusterFacts:
    """Read-only view of a snapshot for the rules."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._schedulers: frozenset[str] | None = None
        self._usable: dict[tuple[object, ...], Mapping[str, int]] = {}

    def has_key(self, key: str) -> bool:
        """Return true if any node has the label ``key``."""
        return bool(self._values(key))

    def all_domains(self, key: str) -> int:
        """Return the number of different values of a node label in the cluster."""
        return len(set(self._values(key).values()))

    def domains(self, pod: Pod, constraint: TopologySpreadConstraint) -> DomainCounts:
        """Return the domains that a constraint of ``pod`` counts, each with its number of selected pods.

        Without a selector, all pods of the namespace are counted.
        """
        keys = frozenset(it.topology_key for it in pod.spec.spread if it.is_hard)
        inclusion = inclusion_of(
            pod.spec, honours_affinity=constraint.honours_affinity, honours_taints=constraint.honours_taints
        )
        selector = constraint.selector or EVERYTHING
        counts = self._cluster.counts
        return run_prepared(lambda: counts.domains(pod.namespace, selector, constraint.topology_key, keys, inclusion))

    def usable_hosts(self, pod: Pod, key: str) -> Mapping[str, int]:
        """Count, in each domain of ``key``, the different hostnames of the nodes that the pod can use.

        The pod can use a node if node affinity and tolerations allow it, and if the node has the labels of all hard
        constraints. Cordons, and taints that controllers add for some time, are ignored.
        """
        keys = frozenset(it.topology_key for it in pod.spec.spread if it.is_hard)
        of = (pod.spec.affinity, pod.spec.tolerations, keys, key)
        sizes = self._usable.get(of)
        if sizes is None:
            hosts: dict[str, set[str]] = {}
            for node in self._usable_nodes(pod, keys | {key}):
                hosts.setdefault(node.labels[key], set()).add(node.labels.get(HOSTNAME, node.name))
            if len(self._usable) >= _MOST_CACHED:
                self._usable.clear()
            sizes = self._usable[of] = {domain: len(names) for domain, names in hosts.items()}
        return sizes

    def _usable_nodes(self, pod: Pod, keys: frozenset[str]) -> Iterator[Node]:
        """Yield the nodes that the pod can use and that have the labels ``keys``."""
        matcher, tolerance = pod.spec.affinity.compiled(), Tolerance(pod.spec.tolerations)
        for info in self._cluster.nodes.values():
            node = info.node
            taints = [it for it in node.taints if not it.key.startswith(_TEMPORARY)]
            has_keys = node.labels.keys() >= keys
            if has_keys and tolerance.tolerates_all(taints) and matcher.matches(node.name, node.labels):
                yield node

    def taints_in(self, key: str, domain: str) -> tuple[str, ...]:
        """Return, sorted, the keys of the lasting taints that keep pods off at least one node of a domain."""
        values = self._values(key)
        taints = (
            taint for name, it in values.items() if it == domain for taint in self._cluster.nodes[name].node.taints
        )
        return tuple(sorted({it.key for it in taints if it.keeps_out and not it.key.startswith(_TEMPORARY)}))

    def volume_domains(self, namespace: str, claim: str, key: str) -> frozenset[str] | None:
        """Return the domains with at least one node that can use the volume of a claim.

        ``None``: the claim or its volume is missing, the claim is unbound, or no node affinity restricts the volume.
        """
        bound = self._cluster.others.get(PERSISTENT_VOLUME_CLAIMS, namespace, claim)
        if bound is None or not bound.is_bound:
            return None
        volume = self._cluster.others.get(PERSISTENT_VOLUMES, "", bound.volume_name)
        affinity = None if volume is None else volume.migrated_affinity or volume.affinity
        if affinity is None:
            return None
        matcher = affinity.compiled()
        values = self._values(key)
        nodes = self._cluster.nodes
        return frozenset(it for name, it in values.items() if matcher.matches(name, nodes[name].node.labels))

    def schedulers(self) -> frozenset[str]:
        """Return the scheduler names of all pods that have a node, and the name of the default scheduler."""
        if self._schedulers is None:
            bound = (it.spec.scheduler_name for it in self._cluster.pods() if it.node_name)
            self._schedulers = frozenset((DEFAULT_SCHEDULER_NAME, *bound))
        return self._schedulers

    def _values(self, key: str) -> Mapping[str, str]:
        """Return the values of the label ``key`` by node name, for nodes that have it. The first call takes longer."""
        return run_prepared(lambda: self._cluster.counts.values(key))
