"""Estimate of the workloads whose topology skew can be above ``maxSkew``.

The estimate does not fill the decisions' cache of counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, runtime_checkable

from app.analysis.pods_by_labels import PodsByLabels
from app.analysis.workloads import workload_of
from app.cache.cluster import Cluster
from app.kube.core_v1 import HONOR, Pod, TopologySpreadConstraint
from app.kube.node_affinity import ANY_NODE
from app.runtime.framework import Framework

Key = tuple[str, str, str, tuple[TopologySpreadConstraint, ...], tuple[str | None, ...]]
"""Namespace, kind and name of a workload, its constraints, and the pods' values of the ``matchLabelKeys`` in them.

The values distinguish revisions of a workload. Newer API servers merge them into the selectors, so that the constraints
of two revisions differ already.
"""

_SPREAD: Final = "PodTopologySpread"
_MOST_KEYS: Final = 16
"""Maximum number of topology keys kept in memory with their domains, unless one workload has more."""

_STEP: Final = 512


@runtime_checkable
class ConstraintDefaults(Protocol):
    """Interface of PodTopologySpread for the option ``beyond.defaults``. It is not part of the plugin contract."""

    @property
    def fills_fields(self) -> bool:
        """True if the profile fills in fields that constraints leave out."""
        ...


def fills_fields(framework: Framework | None) -> bool:
    """Return true if the profile fills in fields that constraints leave out."""
    plugin = None if framework is None else framework.plugins.get(_SPREAD)
    return isinstance(plugin, ConstraintDefaults) and plugin.fills_fields


class SkewEstimate:
    """Workloads with spread constraints, and an estimate of their skews. ``workloads``: their pods by ``Key``.

    ``framework_for``: returns the framework of a pod's profile; ``None`` if no profile serves the pod.
    """

    def __init__(self, cluster: Cluster, framework_for: Callable[[Pod], Framework | None]) -> None:
        self.workloads: dict[Key, list[Pod]] = {}
        self._cluster = cluster
        self._framework_for = framework_for
        self._pods = PodsByLabels()

    def collecting(self) -> Iterator[None]:
        """In short steps, collect workloads with constraints and count pods on nodes, both without terminating pods."""
        for number, pod in enumerate(self._cluster.pods()):
            if not pod.terminating:
                self._pods.add(pod)
                if pod.spec.spread and pod.owner is not None:
                    kind, name = workload_of(pod)
                    values = tuple(pod.labels.get(key) for it in pod.spec.spread for key in it.match_label_keys)
                    self.workloads.setdefault((pod.namespace, kind, name, pod.spec.spread, values), []).append(pod)
            if number % _STEP == _STEP - 1:
                yield

    def estimating(self, keys: Sequence[Key], candidates: list[Key], most: int) -> Iterator[None]:
        """Add the workloads whose skew can be larger than ``maxSkew`` to ``candidates``, at most ``most``.

        The estimate counts the pods of all nodes. If PodTopologySpread might leave out nodes, its minimum can be
        smaller. The minimum is then taken as 0, so that the estimate is never smaller than the skew.
        """
        domain_of: dict[str, dict[str, str]] = {}
        sizes: dict[str, int] = {}
        for key in keys:
            pod, constraints = self.workloads[key][-1], key[3]
            if len(domain_of) + len(constraints) > _MOST_KEYS:
                domain_of.clear()
            for constraint in constraints:
                if constraint.topology_key not in domain_of:
                    domain_of[constraint.topology_key] = domains = self._domains(constraint.topology_key)
                    sizes[constraint.topology_key] = len(set(domains.values()))
                    yield
            is_filled = fills_fields(self._framework_for(pod))
            lacks_keys = is_filled or any(
                len(domain_of[it.topology_key]) < len(self._cluster.nodes) for it in constraints
            )
            for constraint in constraints:
                counts = self._pods.by_domain(key[0], constraint, pod.labels, domain_of[constraint.topology_key])
                is_zero = lacks_keys or _can_leave_out_nodes(pod, constraint)
                is_zero = is_zero or len(counts) < sizes[constraint.topology_key]
                fewest = 0 if is_zero else min(counts.values(), default=0)
                if max(counts.values(), default=0) - fewest > constraint.max_skew:
                    candidates.append(key)
                    break
            if len(candidates) == most:
                return
            yield

    def _domains(self, topology_key: str) -> dict[str, str]:
        """Return the domain of each node with the label ``topology_key``, by node name."""
        labels = ((name, info.node.labels) for name, info in self._cluster.nodes.items())
        return {name: of[topology_key] for name, of in labels if topology_key in of}


def _can_leave_out_nodes(pod: Pod, constraint: TopologySpreadConstraint) -> bool:
    """Return True if the pod or the constraint excludes nodes, or if ``minDomains`` can make the minimum 0."""
    return (
        pod.spec.affinity is not ANY_NODE or constraint.node_taints_policy == HONOR or (constraint.min_domains or 1) > 1
    )
