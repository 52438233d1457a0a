"""What the sampling guard decides by: which nodes beyond the shown ones would do, and whether it is time to try one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct, field

from app.cache.cluster import Cluster
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.kube.core_v1 import AFFINITY, NODE_SELECTOR, TOLERATIONS, Node, Pod
from app.kube.taints import UNSCHEDULABLE, Tolerance
from app.runtime.framework import Framework
from app.verbs.slices import in_slices, prepared

MOST_MISSES: Final = 6
"""Misses in a row after which a workload is left to the scheduler's own windows for ``REST_SECONDS``."""

REST_SECONDS: Final = 300.0
_FIRST_SECONDS: Final = 0.25
_NODE_SECONDS: Final = 10.0
_MOST_SECONDS: Final = 300.0
_READ: Final = frozenset((AFFINITY, NODE_SELECTOR, TOLERATIONS))
_MOST_REFUSED: Final = 64

_LONGEST_UID: Final = 64
"""A UID has 36 characters; whoever creates a pod writes any into its owner references."""


class _Refusal(Struct, frozen=True):
    until: float
    times: int


class Attempts(Struct):
    """What became of the nominations of one workload: its replicas ask for the same and are refused for the same.

    A node that in-tree filters refused is out for 10 s, twice as long each time it is refused again. Between two
    attempts lies a back-off that doubles with every miss in a row, and after ``MOST_MISSES`` of them a rest. Times
    are on the caller's clock.
    """

    misses: int = 0
    not_before: float = 0.0
    refused: dict[str, _Refusal] = field(default_factory=dict)

    def missed(self, node: str, now: float, *, in_tree: bool) -> None:
        """A pod did not get ``node``. ``in_tree``: because of a filter that is not ours, as far as can be told.

        What replicas miss at the same time is one miss.
        """
        if in_tree:
            self._refuse(node, now)
        if now < self.not_before:
            return
        self.misses += 1
        pause = REST_SECONDS if self.misses >= MOST_MISSES else _FIRST_SECONDS * 2 ** (self.misses - 1)
        self.misses %= MOST_MISSES
        self.not_before = now + pause

    def _refuse(self, node: str, now: float) -> None:
        before = self.refused.pop(node, None)
        times = 1 if before is None else before.times + 1
        if len(self.refused) >= _MOST_REFUSED:
            self.refused.pop(next(iter(self.refused)))
        self.refused[node] = _Refusal(now + min(_NODE_SECONDS * 2 ** (times - 1), _MOST_SECONDS), times)

    def forget(self, now: float) -> None:
        """What was refused long ago says nothing any more."""
        for name in [name for name, it in self.refused.items() if it.until + _MOST_SECONDS <= now]:
            del self.refused[name]

    def hit(self, node: str) -> None:
        """The scheduler took the node."""
        self.misses = 0
        self.not_before = 0.0
        self.refused.pop(node, None)

    @property
    def repeats(self) -> bool:
        """Whether the next attempt follows one that was in vain."""
        return bool(self.misses or self.refused)

    def refused_at(self, now: float) -> dict[str, float]:
        """The nodes that were refused lately, each with the time at which it may be tried again."""
        return {name: it.until for name, it in self.refused.items() if it.until > now}


def workload_of(pod: Pod) -> str:
    """What shares its attempts: the pods of one controller, or a pod alone. A UID."""
    return pod.owner.uid if pod.owner is not None and len(pod.owner.uid) <= _LONGEST_UID else pod.uid


async def elsewhere(cluster: Cluster, framework: Framework, pod: Pod) -> list[str]:
    """The nodes that our filters pass and that no in-tree filter refuses for what is written on node and pod.

    Whether there is room, volumes or ports, only the scheduler knows. Raises ``PluginError``.
    """
    is_open = open_to(pod)
    found: list[str] = []

    def look(name: str) -> None:
        info = cluster.nodes.get(name)
        if info is not None and is_open(info.node):
            found.append(name)

    await in_slices(map(look, await prepared(partial(_passing, cluster, framework, pod))))
    return found


def _passing(cluster: Cluster, framework: Framework, pod: Pod) -> list[str]:
    with cluster.without(pod.uid, pod.key):
        nodes = Candidates.of(cluster.nodes)
        rejected = framework.feasible(CycleState(), pod, nodes).rejected
        return [name for name in nodes.names if name not in rejected]


def open_to(pod: Pod) -> Callable[[Node], bool]:
    """NodeUnschedulable, NodeAffinity and TaintToleration: what the slim models are enough for.

    To a pod of which what they rest on is not read, no node is open.
    """
    spec = pod.spec
    if not _READ.isdisjoint(spec.oversized):
        return lambda _: False
    tolerance, affinity = Tolerance(spec.tolerations), spec.affinity.compiled()
    takes_unschedulable = tolerance.tolerates(UNSCHEDULABLE)

    def is_open(node: Node) -> bool:
        if node.unschedulable and not takes_unschedulable:
            return False
        if node.taints and not tolerance.tolerates_all(node.taints):
            return False
        return affinity.matches(node.name, node.labels)

    return is_open


def best(framework: Framework, pod: Pod, nodes: Candidates) -> list[str]:
    """Those of ``nodes``, at least one, that our scores put first. Raises ``PluginError``."""
    totals = framework.score(CycleState(), pod, nodes).totals
    most = max(totals.values())
    return [name for name, total in totals.items() if total == most]
