"""Sentences on demands of a pod that the cluster cannot meet, such as a request larger than every node.

A sentence about nodes holds for the nodes of the snapshot. Not here: changes that help (``app.analysis.remedies``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from app.analysis.judging import Judge, Judgement
from app.cache.cluster import Cluster
from app.kube.core_v1 import DO_NOT_SCHEDULE, HONOR, Pod, TopologySpreadConstraint
from app.kube.extras import NotDecoded
from app.kube.quantity import shown_amount
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS

_IGNORE: Final = "Ignore"
_FIT: Final = "NodeResourcesFit"
_SPREAD: Final = "PodTopologySpread"
_OTHERS: Final = frozenset(KUBE_SCHEDULER_DEFAULTS) - {_SPREAD}
"""In-tree plugins except PodTopologySpread."""

_TAINTS: Final = frozenset({"NodeUnschedulable", "TaintToleration"})
_ONE_CAUSE: Final = {
    **dict.fromkeys(("NodeVolumeLimits", "VolumeBinding", "VolumeRestrictions", "VolumeZone"), "VolumeBinding"),
    **dict.fromkeys(_TAINTS, "TaintToleration"),
}
"""Plugins that can reject a node for one cause, each with the name under which ``_several_plugins`` counts it."""

_NODES_PER_STEP: Final = 128


class Impossibilities:
    """Finds demands that cannot be met, for pods of one profile on one snapshot. Its methods work in short steps."""

    def __init__(self, cluster: Cluster, judge: Callable[[Collection[str]], Judge]) -> None:
        """``judge``: returns a judge that leaves out the given plugins."""
        self._cluster = cluster
        self._judge = judge

    def steps(self, pod: Pod, judgement: Judgement, has_remedy: bool, sentences: list[str]) -> Iterator[None]:
        """Add the sentences about a pod that fits no node.

        ``has_remedy``: true if a single change opens nodes. Then only requests and ``minDomains`` are checked.
        """
        if all(any(it.plugin == _FIT for it in statuses) for statuses in judgement.by_reasons()):
            yield from self._too_large(pod, sentences)
        hard = [it for it in pod.spec.spread if it.when_unsatisfiable == DO_NOT_SCHEDULE]
        limited = [it for it in hard if it.min_domains and it.selector is not None and it.selector.matches(pod.labels)]
        if limited:
            yield from self._too_few_domains(judgement, hard, limited, sentences)
        if has_remedy or sentences:
            return
        if len(hard) > 1:
            yield from self._contradiction(pod, judgement, hard, sentences)
        if not sentences and not judgement.everywhere:
            sentences += _several_plugins(judgement)

    def _too_large(self, pod: Pod, sentences: list[str]) -> Iterator[None]:
        """Add a sentence for each request that is larger than the allocatable amount of every node."""
        try:
            requests = pod.spec.resources.requests
        except NotDecoded:
            return
        largest = dict.fromkeys(requests, (-1, ""))
        for number, name in enumerate(tuple(self._cluster.nodes)):
            info = self._cluster.nodes.get(name)
            allocatable = {} if info is None else info.allocatable
            for resource in requests:
                largest[resource] = max(largest[resource], (allocatable.get(resource, 0), name))
            if number % _NODES_PER_STEP == _NODES_PER_STEP - 1:
                yield
        for resource, wanted in requests.items():
            most, name = largest[resource]
            if name and most < wanted:
                has = f"the largest node, {name}, has {shown_amount(resource, most)}" if most else "no node has any"
                asks = f"the pod requests {shown_amount(resource, wanted)} {resource}"
                sentences.append(f"no node is large enough: {asks}, and {has}")

    def _too_few_domains(
        self,
        judgement: Judgement,
        hard: Sequence[TopologySpreadConstraint],
        limited: Sequence[TopologySpreadConstraint],
        sentences: list[str],
    ) -> Iterator[None]:
        """Add a sentence for each constraint in ``limited`` that has fewer usable domains than ``minDomains``.

        Each domain then takes at most ``maxSkew`` pods. ``hard``: all hard constraints of the pod. Only nodes with all
        their topology keys count.
        """
        keys = {it.topology_key for it in hard}
        domains: list[set[str]] = [set() for _ in limited]
        for number, name in enumerate(tuple(self._cluster.nodes)):
            info = self._cluster.nodes.get(name)
            labels = {} if info is None else info.node.labels
            if keys <= labels.keys():
                rejecting = {status.plugin for status in judgement.rejected.get(name, ())}
                for constraint, known in zip(limited, domains, strict=True):
                    if _counts(constraint, rejecting):
                        known.add(labels[constraint.topology_key])
            if number % _NODES_PER_STEP == _NODES_PER_STEP - 1:
                yield
        for constraint, known in zip(limited, domains, strict=True):
            if len(known) < (constraint.min_domains or 0):
                few = f"minDomains is {constraint.min_domains}, and the pod can use {len(known)} domains"
                each = f"of which each takes at most {constraint.max_skew} of the selected pods until there are more"
                sentences.append(f"{constraint.topology_key}: {few}, {each}")

    def _contradiction(
        self, pod: Pod, judgement: Judgement, hard: Sequence[TopologySpreadConstraint], sentences: list[str]
    ) -> Iterator[None]:
        """Judge each hard constraint alone, on the nodes that only PodTopologySpread rejects.

        If each constraint accepts some of these nodes, add the sentence that the constraints exclude each other.
        """
        rejected = judgement.rejected.items()
        names = [name for name, statuses in rejected if all(status.plugin == _SPREAD for status in statuses)]
        accepted: list[int] = []
        for constraint in hard if names else ():
            alone = Judgement()
            one = replace(pod, spec=replace(pod.spec, spread=(constraint,)))
            yield from self._judge(_OTHERS).steps(one, alone, names)
            accepted.append(len(alone.feasible))
        if accepted and all(accepted):
            numbers = ", ".join(f"{it.topology_key} {nodes}" for it, nodes in zip(hard, accepted, strict=True))
            sentences.append(f"the constraints exclude each other: each alone accepts nodes, together none ({numbers})")


def _counts(constraint: TopologySpreadConstraint, rejecting: Collection[str]) -> bool:
    """Return True if the constraint counts a node, and so its domain, although the plugins ``rejecting`` reject it.

    It depends on the constraint's ``nodeAffinityPolicy`` and ``nodeTaintsPolicy``.
    """
    is_matched = constraint.node_affinity_policy == _IGNORE or "NodeAffinity" not in rejecting
    return is_matched and (constraint.node_taints_policy != HONOR or _TAINTS.isdisjoint(rejecting))


def _several_plugins(judgement: Judgement) -> Iterator[str]:
    """If each node is rejected by at least two plugins, yield a sentence about the smallest set of rejecting plugins.

    Of equally small sets, it is the one with the most nodes. Plugins that can reject for one cause, such as a cordon or
    a missing claim, count as one.
    """
    nodes: dict[tuple[str, ...], int] = {}
    for statuses, names in judgement.by_reasons().items():
        plugins = {_ONE_CAUSE.get(status.plugin, status.plugin) for status in statuses}
        nodes[tuple(sorted(plugins))] = nodes.get(tuple(sorted(plugins)), 0) + len(names)
    nearest = min(nodes, key=lambda it: (len(it), -nodes[it]), default=())
    if len(nearest) > 1:
        rejecting = " and ".join(nearest)
        yield f"each node is rejected by {len(nearest)} or more plugins; {rejecting} reject {_nodes(nodes[nearest])}"


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"
