"""Finds the pods to evict, so that a pod that only topology spread rejects fits on a node.

Candidates are nodes of the scheduler's last filter request, because its own filters passed these. So the eviction of
pods cannot make one of its filters reject them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from functools import partial
from typing import Final

from msgspec import Struct

from app.cache.cluster import Cluster
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.framework.points import PostFilterAnswer
from app.framework.status import Status
from app.kube.core_v1 import Pod
from app.runtime.framework import Framework
from app.runtime.post_filters import answer_in_steps
from app.verbs.stepwise import decide_prepared, run_stepwise

_STEP: Final = 2048
"""Number of pods that one step examines, which takes less than a millisecond."""


class FoundVictims(Struct, frozen=True):
    """Node, and the pods to evict there, most important first."""

    node: str
    pods: tuple[Pod, ...]


async def find_victims(
    cluster: Cluster, framework: Framework, pod: Pod, names: Collection[str], stays: Callable[[Pod], str]
) -> FoundVictims | None:
    """Find the best node of ``names`` and the victims on it, in steps of some milliseconds.

    Return ``None`` if a node passes without an eviction, or if no eviction helps. ``stays``: returns why a pod must not
    be evicted, or an empty string. Raises ``PluginError``.
    """
    with_lower: set[str] = set()
    await run_stepwise(_nodes_of_lower(cluster, pod, with_lower))
    wanted = with_lower.intersection(names)
    if not wanted:
        return None
    rejected = await decide_prepared(partial(_rejections, cluster, framework, pod, names))
    rejected = {name: status for name, status in rejected.items() if name in wanted}
    if not rejected:
        return None
    choice: list[FoundVictims] = []
    await run_stepwise(_search(cluster, framework, pod, rejected, stays, choice))
    return choice[0] if choice else None


def passes(cluster: Cluster, framework: Framework, pod: Pod, name: str) -> bool:
    """Return true if the profile's filters pass the node. Raises ``PluginError`` or ``Unprepared``."""
    return name in cluster.nodes and not _rejections(cluster, framework, pod, (name,))


def _nodes_of_lower(cluster: Cluster, pod: Pod, names: set[str]) -> Iterator[None]:
    """Add the nodes that have pods of lower priority in the pod's namespace, in steps."""
    for number, other in enumerate(cluster.pods_in(pod.namespace)):
        if other.node_name and other.spec.priority < pod.spec.priority:
            names.add(other.node_name)
        if not number % _STEP:
            yield


def _rejections(cluster: Cluster, framework: Framework, pod: Pod, names: Collection[str]) -> dict[str, Status]:
    """Return the rejections of nodes; empty if one of them passes."""
    with cluster.without(pod.uid, pod.key):
        known = cluster.nodes
        nodes = Candidates([name for name in names if name in known], known.__getitem__)
        rejected = framework.filters.feasible(CycleState(), pod, nodes).rejected
        return dict(rejected) if len(rejected) == len(nodes) else {}


def _search(
    cluster: Cluster,
    framework: Framework,
    pod: Pod,
    rejected: dict[str, Status],
    stays: Callable[[Pod], str],
    choice: list[FoundVictims],
) -> Generator[None, None, None]:
    answer: PostFilterAnswer | None = yield from answer_in_steps(
        framework.filters,
        lambda: cluster.without(pod.uid, pod.key),
        pod,
        lambda state: framework.post_filters.for_spread(state, pod, rejected, stays),
    )
    result = None if answer is None else answer[0]
    if result is not None and result.victims is not None and result.victims.pods:
        choice.append(FoundVictims(result.nominated_node_name, result.victims.pods))
