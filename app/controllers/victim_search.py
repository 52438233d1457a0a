"""Finds the pods to evict, so that a pod that only topology spread rejects fits on a node.

Candidates are nodes of the scheduler's last filter request, because its own filters passed these. So the eviction of
pods cannot make one of its filters reject them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from math import inf
from time import monotonic
from typing import Final

from msgspec import Struct

from app.cache.cluster import Cluster
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.framework.points import Victims
from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.runtime.framework import Framework
from app.runtime.post_filters import answer_in_steps
from app.verbs.stepwise import decide_prepared, run_stepwise

SEARCH_SECONDS: Final = 0.02
"""Maximum seconds of dry runs in one search. Dry runs on all of 5,000 nodes can take ten times as long."""

_AT_ONCE: Final = 128
"""Number of nodes between two checks of the time."""

_STEP: Final = 2048
"""Number of pods that one step examines, which takes less than a millisecond."""


class FoundVictims(Struct, frozen=True):
    """Node, and the pods to evict there, most important first. Without pods, no eviction helps on the tried nodes, or
    none is needed.

    ``is_complete``: false if the time was over before all nodes were tried.
    """

    node: str = ""
    pods: tuple[Pod, ...] = ()
    is_complete: bool = True


NONE: Final = FoundVictims()


async def find_victims(
    cluster: Cluster,
    framework: Framework,
    pod: Pod,
    names: Collection[str],
    stays: Callable[[Pod], str],
    excluded: Collection[str] = (),
) -> FoundVictims:
    """Find the best node of ``names`` and the victims on it, in steps of some milliseconds.

    The search begins at a random node, and ends after ``SEARCH_SECONDS``. Return ``NONE`` if a node passes without an
    eviction. ``stays``: returns why a pod must not be evicted, or an empty string. ``excluded``: nodes that are no
    candidates. Raises ``PluginError``.
    """
    with_lower: set[str] = set()
    await run_stepwise(_nodes_of_lower(cluster, pod, with_lower))
    wanted = with_lower.intersection(names).difference(excluded)
    if not wanted:
        return NONE
    rejected = await decide_prepared(partial(_rejections, cluster, framework, pod, names))
    search = _Search(cluster, framework, pod, stays)
    await run_stepwise(search.steps({name: status for name, status in rejected.items() if name in wanted}))
    return search.best()


async def victims_on(
    cluster: Cluster, framework: Framework, pod: Pod, node: str, names: Collection[str], stays: Callable[[Pod], str]
) -> FoundVictims:
    """Find the victims on ``node``, or ``NONE`` if a node of ``names`` passes. Raises ``PluginError``."""
    rejected = await decide_prepared(partial(_rejections, cluster, framework, pod, names))
    search = _Search(cluster, framework, pod, stays)
    await run_stepwise(search.steps({node: rejected[node]} if node in rejected else {}))
    return search.best()


async def has_lower(cluster: Cluster, pod: Pod) -> bool:
    """Return true if a pod of lower priority runs in the pod's namespace."""
    names: set[str] = set()
    await run_stepwise(_nodes_of_lower(cluster, pod, names, most=1))
    return bool(names)


def passes(cluster: Cluster, framework: Framework, pod: Pod, name: str) -> bool:
    """Return true if the profile's filters pass the node. Raises ``PluginError`` or ``Unprepared``."""
    return name in cluster.nodes and not _rejections(cluster, framework, pod, (name,))


def _nodes_of_lower(cluster: Cluster, pod: Pod, names: set[str], most: float = inf) -> Iterator[None]:
    """Add the nodes that have pods of lower priority in the pod's namespace, at most ``most``, in steps."""
    for number, other in enumerate(cluster.pods_in(pod.namespace)):
        if other.node_name and other.spec.priority < pod.spec.priority:
            names.add(other.node_name)
            if len(names) >= most:
                return
        if not number % _STEP:
            yield


def _rejections(cluster: Cluster, framework: Framework, pod: Pod, names: Collection[str]) -> dict[str, Status]:
    """Return the rejections of nodes; empty if one of them passes."""
    with cluster.without(pod.uid, pod.key):
        known = cluster.nodes
        nodes = Candidates([name for name in names if name in known], known.__getitem__)
        rejected = framework.filters.feasible(CycleState(), pod, nodes).rejected
        return dict(rejected) if len(rejected) == len(nodes) else {}


class _Search:
    """Search for victims on the rejected nodes. ``_victims``: victims on the best node of each group, by node."""

    def __init__(self, cluster: Cluster, framework: Framework, pod: Pod, stays: Callable[[Pod], str]) -> None:
        self._cluster = cluster
        self._framework = framework
        self._pod = pod
        self._stays = stays
        self._victims: dict[str, Victims] = {}
        self._seconds = 0.0
        self._is_complete = True

    def steps(self, rejected: Mapping[str, Status]) -> Iterator[None]:
        """Search group by group until the time is over. Raises ``PluginError``."""
        names = [*rejected]
        start = random.randrange(max(1, len(names)))  # noqa: S311  # not for a secret
        names = [*names[start:], *names[:start]]
        for first in range(0, len(names), _AT_ONCE):
            if self._seconds > SEARCH_SECONDS:
                self._is_complete = False
                return
            yield from self._timed({name: rejected[name] for name in names[first : first + _AT_ONCE]})

    def best(self) -> FoundVictims:
        """Return the best node and its victims. Raises ``PluginError``."""
        if not self._victims:
            return FoundVictims(is_complete=self._is_complete)
        node = self._framework.post_filters.pick(self._victims)[0]
        return FoundVictims(node, self._victims[node].pods, self._is_complete)

    def _timed(self, rejected: Mapping[str, Status]) -> Iterator[None]:
        """Search a group of nodes, and add the time of the steps to ``_seconds``."""
        steps = answer_in_steps(
            self._framework.filters,
            lambda: self._cluster.without(self._pod.uid, self._pod.key),
            self._pod,
            lambda state: self._framework.post_filters.for_spread(state, self._pod, rejected, self._stays),
        )
        while True:
            began = monotonic()
            try:
                next(steps)
            except StopIteration as end:
                self._seconds += monotonic() - began
                result = None if end.value is None else end.value[0]
                if result is not None and result.victims is not None and result.victims.pods:
                    self._victims[result.nominated_node_name] = result.victims
                return
            self._seconds += monotonic() - began
            yield
