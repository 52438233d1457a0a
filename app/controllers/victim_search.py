"""Finds the pods to evict, so that a pod that only topology spread rejects fits on a node.

Candidates are nodes of the scheduler's last filter request, because its own filters passed these. So the eviction of
pods cannot make one of its filters reject them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from functools import partial
from time import monotonic
from typing import Final, TypeVar

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
"""Maximum seconds of work of one search, apart from counts that are computed first. The first group of nodes is tried
in any case. Dry runs on all of 5,000 nodes can take ten times as long.
"""

_SCAN_SECONDS: Final = 0.004
"""Seconds after which the scan for pods of lower priority ends, if it has found a node to try."""

_AT_ONCE: Final = 32
"""Number of nodes of a group. The time is checked between two groups."""

_STEP: Final = 2048
"""Number of pods that one step examines, which takes less than a millisecond."""

_T = TypeVar("_T")


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

    The search begins at a random place and ends after ``SEARCH_SECONDS``. Return ``NONE`` if a node passes without an
    eviction. ``stays``: returns why a pod must not be evicted, or an empty string. ``excluded``: nodes that are no
    candidates. Raises ``PluginError``.
    """
    search = _Search(cluster, framework, pod, stays)
    rejected = await decide_prepared(partial(search.rejections, names))
    candidates = {name: status for name, status in rejected.items() if name not in excluded}
    await run_stepwise(search.steps(candidates))
    return search.best()


async def victims_on(
    cluster: Cluster, framework: Framework, pod: Pod, node: str, names: Collection[str], stays: Callable[[Pod], str]
) -> FoundVictims:
    """Find the victims on ``node``; ``NONE`` without victims, or if a node of ``names`` passes without an eviction.

    Raises ``PluginError``.
    """
    search = _Search(cluster, framework, pod, stays)
    rejected = await decide_prepared(partial(search.rejections, names))
    await run_stepwise(search.dry_runs({node: rejected[node]} if node in rejected else {}))
    return search.best()


async def has_lower(cluster: Cluster, pod: Pod) -> bool:
    """Return true if a pod of lower priority runs in the pod's namespace."""
    lower: list[Pod] = []

    def steps() -> Iterator[None]:
        for pods in _lower(cluster, pod):
            lower.extend(pods)
            if lower:
                return
            yield

    await run_stepwise(steps())
    return bool(lower)


def passes(cluster: Cluster, framework: Framework, pod: Pod, name: str) -> bool:
    """Return true if the node exists and the profile's filters pass it. Raises ``PluginError`` or ``Unprepared``."""
    return name in cluster.nodes and not _rejections(cluster, framework, pod, (name,))


def _lower(cluster: Cluster, pod: Pod) -> Iterator[list[Pod]]:
    """Yield lists of running pods of lower priority in the pod's namespace, beginning at a random place.

    Each list is the result of examining ``_STEP`` pods, and can be empty.
    """
    pods = cluster.pods_in(pod.namespace)
    for first in _rotated([*range(0, len(pods), _STEP)]):
        yield [it for it in pods[first : first + _STEP] if it.node_name and it.spec.priority < pod.spec.priority]


def _rotated(items: list[_T]) -> list[_T]:
    """Return the items in their order, from a random one on, and then those before it."""
    start = random.randrange(max(1, len(items)))  # noqa: S311  # not for a secret
    return items[start:] + items[:start]


def _rejections(cluster: Cluster, framework: Framework, pod: Pod, names: Collection[str]) -> dict[str, Status]:
    """Return the rejection of each node; empty if a node passes."""
    with cluster.without(pod.uid, pod.key):
        known = cluster.nodes
        nodes = Candidates([name for name in names if name in known], known.__getitem__)
        rejected = framework.filters.feasible(CycleState(), pod, nodes).rejected
        return dict(rejected) if len(rejected) == len(nodes) else {}


class _Search:
    """Search for victims on the rejected nodes. ``_victims``: for the best node of each group, the victims on it."""

    def __init__(self, cluster: Cluster, framework: Framework, pod: Pod, stays: Callable[[Pod], str]) -> None:
        self._cluster = cluster
        self._framework = framework
        self._pod = pod
        self._stays = stays
        self._victims: dict[str, Victims] = {}
        self._seconds = 0.0
        self._is_complete = True

    def rejections(self, names: Collection[str]) -> dict[str, Status]:
        """Return the rejection of each node; empty if a node passes. Raises ``PluginError`` or ``Unprepared``."""
        began = monotonic()
        rejected = _rejections(self._cluster, self._framework, self._pod, names)
        self._seconds += monotonic() - began
        return rejected

    def steps(self, rejected: Mapping[str, Status]) -> Iterator[None]:
        """Search on the rejected nodes that have pods of lower priority. Raises ``PluginError``."""
        yield from self.dry_runs((yield from self._timed(self._with_lower(rejected))))

    def _with_lower(self, rejected: Mapping[str, Status]) -> Generator[None, None, dict[str, Status]]:
        """Return the nodes that have pods of lower priority. After ``_SCAN_SECONDS``, some can be missing."""
        names: dict[str, Status] = {}
        until = self._seconds + _SCAN_SECONDS
        for pods in _lower(self._cluster, self._pod) if rejected else ():
            names.update((it.node_name, rejected[it.node_name]) for it in pods if it.node_name in rejected)
            yield
            if names and self._seconds > until:
                self._is_complete = False
                break
        return names

    def dry_runs(self, rejected: Mapping[str, Status]) -> Iterator[None]:
        """Search on these nodes, group by group, until the time is over. Raises ``PluginError``."""
        names, longest = _rotated([*rejected]), 0.0
        for first in range(0, len(names), _AT_ONCE):
            before = self._seconds
            if first and before + longest > SEARCH_SECONDS:
                self._is_complete = False
                return
            yield from self._timed(self._group({name: rejected[name] for name in names[first : first + _AT_ONCE]}))
            longest = max(longest, self._seconds - before)

    def best(self) -> FoundVictims:
        """Return the best node and its victims; without pods if no victims were found. Raises ``PluginError``."""
        if not self._victims:
            return FoundVictims(is_complete=self._is_complete)
        node = self._framework.post_filters.pick(self._victims)[0]
        return FoundVictims(node, self._victims[node].pods, self._is_complete)

    def _group(self, rejected: Mapping[str, Status]) -> Generator[None, None, None]:
        answer = yield from answer_in_steps(
            self._framework.filters,
            lambda: self._cluster.without(self._pod.uid, self._pod.key),
            self._pod,
            lambda state: self._framework.post_filters.for_spread(state, self._pod, rejected, self._stays),
        )
        result = None if answer is None else answer[0]
        if result is not None and result.victims is not None and result.victims.pods:
            self._victims[result.nominated_node_name] = result.victims

    def _timed(self, steps: Generator[None, None, _T]) -> Generator[None, None, _T]:
        """Run the steps, and add their time to ``_seconds``."""
        while True:
            began = monotonic()
            try:
                next(steps)
            except StopIteration as end:
                result: _T = end.value
                return result
            finally:
                self._seconds += monotonic() - began
            yield
