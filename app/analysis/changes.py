"""Chooses the changes to try for a pod: of nodes, of its home, of pods on nodes, and of the pod itself.

Not here: the proof that a change helps (``app.analysis.remedies``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from app.analysis.change import MOST_TRIED_OF_A_KIND, NODES_PER_STEP, SPREAD, Change, Trials, with_spec
from app.analysis.judging import Judge
from app.analysis.spread_changes import SpreadChanges
from app.cache.cluster import Cluster
from app.kube.core_v1 import Node, Pod
from app.kube.extras import NotDecoded
from app.kube.node_affinity import ANY_NODE
from app.kube.quantity import round_amount, shown_amount
from app.kube.taints import UNSCHEDULABLE, Taint, Tolerance, Toleration

HOME: Final = frozenset({"StickyNode"})
"""Plugin that keeps pods on their home."""

_CORDON: Final = frozenset({"NodeUnschedulable", "TaintToleration"})
_FIT: Final = frozenset({"NodeResourcesFit", "DynamicResources"})
_AFFINITY: Final = frozenset({"NodeAffinity"})
_CROWDED: Final = _FIT | {"NodePorts", "NodeVolumeLimits", "VolumeRestrictions", "InterPodAffinity"}
"""Plugins that can reject a node because of the pods on it, besides PodTopologySpread."""

_MOST_AMOUNTS: Final = 2
"""Maximum number of free amounts that are tried as a smaller request for one resource, the largest first.

More than one, because nominated pods can use the largest free amount.
"""


class Changes:
    """Finds the changes to try for pods of one profile on one snapshot."""

    def __init__(self, cluster: Cluster, judge: Callable[[Collection[str]], Judge]) -> None:
        """``judge``: returns a judge that leaves out the given plugins."""
        self._cluster = cluster
        self._spread = SpreadChanges(cluster, judge)
        self._untried = False

    @property
    def untried(self) -> bool:
        """True if nodes, taints, domains or pods were left out of the search, because there were too many."""
        return self._untried or self._spread.untried

    def for_pod(self, pod: Pod, by_plugins: Mapping[frozenset[str], list[str]]) -> Trials:
        """Yield the changes to try, those of nodes, the home and other pods before those of the pod.

        ``by_plugins``: rejected nodes by the set of plugins that reject them.
        """
        yield from self._uncordon(pod, _nodes_within(by_plugins, _CORDON | HOME))
        if names := _nodes_within(by_plugins, HOME):
            yield Change("ReleaseHome", "release the home", pod, names, ignores=HOME)
        yield None
        spread = _nodes_within(by_plugins, SPREAD)
        yield None
        yield from self._spread.fewer_pods(pod, spread, frozenset(_tied(by_plugins, _CROWDED)))
        yield from self._spread.policies(pod, spread)
        reads_taints = any(it.is_hard and it.honours_taints for it in pod.spec.spread)
        counted = (*spread, *_tied(by_plugins, _CORDON)) if reads_taints else ()
        yield from self._tolerate(pod, _nodes_within(by_plugins, _CORDON), counted)
        yield from self._request_less(pod, _nodes_within(by_plugins, _FIT))
        affinity = _nodes_within(by_plugins, _AFFINITY)
        if affinity and pod.spec.affinity is not ANY_NODE:
            anywhere = with_spec(pod, affinity=ANY_NODE)
            text = "remove the pod's node selector and required node affinity"
            others = (*spread, *_tied(by_plugins, _AFFINITY))
            yield Change("NodeAffinity", text, anywhere, affinity, others, reads=_AFFINITY | SPREAD)

    def _uncordon(self, pod: Pod, names: Sequence[str]) -> Trials:
        """Yield a change for each node in ``names`` that an uncordon can open, at most ``MOST_TRIED_OF_A_KIND``."""
        tolerance = Tolerance(pod.spec.tolerations)
        cordoned: list[tuple[Node, Node]] = []
        for number, name in enumerate(names):
            if number % NODES_PER_STEP == NODES_PER_STEP - 1:
                yield None
            info = self._cluster.nodes.get(name)
            if info is not None and info.node.unschedulable:
                taints = tuple(it for it in info.node.taints if it.key != UNSCHEDULABLE.key)
                if all(tolerance.tolerates(it) for it in taints if it.keeps_out):
                    cordoned.append((info.node, replace(info.node, unschedulable=False, taints=taints)))
        self._untried |= len(cordoned) > MOST_TRIED_OF_A_KIND
        for node, changed in cordoned[:MOST_TRIED_OF_A_KIND]:
            if (yield from self._spread.counts_stay(pod, node, changed)):
                yield Change("Uncordon", f"uncordon {node.name}", pod, (node.name,), node=changed)

    def _tolerate(self, pod: Pod, names: Sequence[str], counted: Sequence[str]) -> Trials:
        """Yield the changes by which the pod tolerates a taint of the nodes ``names``.

        ``counted``: nodes that spread constraints reject, alone or together with cordons and taints, and nothing else.
        """
        tolerance = Tolerance(pod.spec.tolerations)
        tainted: dict[Taint, list[str]] = {}
        for number, name in enumerate(names):
            if number % NODES_PER_STEP == NODES_PER_STEP - 1:
                yield None
            info = self._cluster.nodes.get(name)
            for taint in () if info is None else info.node.taints:
                if taint.keeps_out and taint.key != UNSCHEDULABLE.key and not tolerance.tolerates(taint):
                    tainted.setdefault(taint, []).append(name)
        self._untried |= len(tainted) > MOST_TRIED_OF_A_KIND
        for taint in sorted(tainted, key=lambda it: (-len(tainted[it]), it.key, it.value))[:MOST_TRIED_OF_A_KIND]:
            more = Toleration(taint.key, "Equal", taint.value, taint.effect)
            text = f"tolerate the taint {taint.text}"
            tolerant = with_spec(pod, tolerations=(*pod.spec.tolerations, more))
            yield Change("Tolerate", text, tolerant, tainted[taint], counted, reads=_CORDON | SPREAD)

    def _request_less(self, pod: Pod, names: Sequence[str]) -> Trials:
        """Yield the changes that lower the request for one resource to the free amount of a node.

        A change that is not shown first removes the request. Only nodes that this change opens are considered. The
        amounts in the texts are for the containers, without the overhead of the pod's RuntimeClass.
        """
        try:
            resources = pod.spec.resources
        except NotDecoded:
            return
        left = names
        for name, wanted in resources.requests.items():
            if not left:
                return
            text, overhead = f"request no {name}", resources.overhead.get(name, 0)
            fitting: Sequence[str] = yield Change(
                "RequestLess", text, _requesting(pod, name, 0), left, reads=_FIT, shown=False
            )
            lacking = {*fitting}  # nodes that lack only this resource: smaller requests for others do not help there
            left = [it for it in left if it not in lacking]
            amounts: set[int] = set()
            yield from self._free(name, fitting, amounts)
            less = {round_amount(name, it - overhead) for it in amounts if it > overhead}
            for free in sorted((it for it in less if 0 < it < wanted - overhead), reverse=True)[:_MOST_AMOUNTS]:
                text = f"request {shown_amount(name, free)} {name} instead of {shown_amount(name, wanted - overhead)}"
                smaller = _requesting(pod, name, free + overhead)
                if (yield Change("RequestLess", text, smaller, fitting, reads=_FIT)):
                    break

    def _free(self, resource: str, names: Sequence[str], amounts: set[int]) -> Iterator[None]:
        """Add the free amounts of a resource on the nodes ``names`` to ``amounts``."""
        for number, name in enumerate(names):
            info = self._cluster.nodes.get(name)
            if info is not None:
                amounts.update(info.free((resource,)).values())
            if number % NODES_PER_STEP == NODES_PER_STEP - 1:
                yield None


def _requesting(pod: Pod, resource: str, amount: int) -> Pod:
    """Return the pod with another request for one resource; an ``amount`` of 0 removes the request."""
    resources = pod.spec.resources
    others = {name: it for name, it in resources.requests.items() if name != resource}
    changed = replace(resources, requests={**others, resource: amount} if amount else others)
    return with_spec(pod, parts=replace(pod.spec.parts, resources=changed))


def _nodes_within(by_plugins: Mapping[frozenset[str], list[str]], plugins: frozenset[str]) -> tuple[str, ...]:
    """Return the nodes that only ``plugins`` reject, sorted, so that each process tries the same changes."""
    return tuple(sorted(name for key, names in by_plugins.items() if key <= plugins for name in names))


def _tied(by_plugins: Mapping[frozenset[str], list[str]], plugins: frozenset[str]) -> tuple[str, ...]:
    """Return the nodes that PodTopologySpread and at least one of these plugins reject, but no other plugin."""
    return tuple(it for key in by_plugins if SPREAD < key <= SPREAD | plugins for it in by_plugins[key])
