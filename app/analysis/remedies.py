"""Single changes that would open nodes for a pod, each proved by judging the pod again with the change applied.

A change of the pod is judged first on the nodes that only the changed rule rejects. A change of a node is judged on
that node. An overlay of the snapshot leaves out deleted pods and has the changed nodes. Only changes that were judged
are shown, and the real cluster does not change.

Not here: the verdict that the remedies start from (``app.analysis.judging``), and which changes are tried
(``app.analysis.changes``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from app.analysis.change import Change
from app.analysis.changes import HOME, Changes
from app.analysis.judging import Judge, Judgement
from app.analysis.spread_changes import SOFT
from app.cache.cluster import Cluster
from app.kube.core_v1 import Pod
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS

MOST_SHOWN: Final = 5
"""Maximum number of remedies that are shown for one pod."""

MOST_TRIED: Final = 24
"""Maximum number of changes that are judged for one pod."""

_MOST_OF_A_SORT: Final = 12
"""Maximum number of changes with one ``Change.sort`` that are judged for one pod."""

_MOST_NAMED: Final = 10
"""Maximum number of nodes that are named for a remedy."""

_IN_TREE: Final = frozenset(KUBE_SCHEDULER_DEFAULTS)
"""In-tree plugins of kube-scheduler's default profile."""


class Remedy(Struct, frozen=True):
    """One change after which nodes fit. ``change``: text for users. ``opens``: number of nodes that fit after it.

    ``nodes``: the first of these nodes by name. ``sort``: constant name of the kind of change, for programs. ``pods``:
    names of the pods that the change deletes, in the namespace of the explained pod.
    """

    sort: str
    change: str
    opens: int
    nodes: tuple[str, ...]
    pods: tuple[str, ...] = ()


class Remedies:
    """Finds the remedies for one pod on one snapshot. Its methods work in short steps."""

    def __init__(self, cluster: Cluster, judge: Callable[[Collection[str]], Judge]) -> None:
        """``judge``: returns a judge that leaves out the given plugins."""
        self._judge = judge
        self._changes = Changes(cluster, judge)
        self._tried = Counter[str]()
        self._fitting: dict[tuple[str, tuple[str, ...]], Sequence[str]] = {}
        self._is_over = False

    @property
    def untried(self) -> bool:
        """True if some changes were not tried because there were too many."""
        return self._is_over or self._changes.untried

    def steps(self, pod: Pod, judgement: Judgement, remedies: list[Remedy]) -> Iterator[None]:
        """Try changes, and add those that open nodes to ``remedies``. ``best`` chooses among them."""
        by_plugins = judgement.by_plugins()
        yield
        if any(status.plugin in HOME for status in judgement.everywhere):
            return  # the pod's owner must exist first, and no change of a node or of the pod helps
        changes, fitting = self._changes.for_pod(pod, by_plugins), None
        while True:
            try:
                change = changes.send(fitting)
            except StopIteration:
                return
            fitting = None if change is None else (yield from self._try(change, remedies))
            yield

    def _try(self, change: Change, remedies: list[Remedy]) -> Generator[None, None, Sequence[str]]:
        """Return the nodes that fit after a change. If there are any, add a change that is ``shown`` to ``remedies``.

        Return no nodes, without judging the change, if too many changes were judged before.
        """
        key = (change.text, tuple(it.uid for it in change.without))
        if key in self._fitting:
            return self._fitting[key]
        if self._tried[change.sort] >= _MOST_OF_A_SORT or self._tried.total() >= MOST_TRIED:
            self._is_over = True
            return ()
        self._tried[change.sort] += 1
        fitting = yield from self._judged(change, change.names)
        if fitting and change.others:
            judged = {*change.names}
            fitting += yield from self._judged(change, [it for it in change.others if it not in judged])
        self._fitting[key] = fitting
        if fitting and change.shown:
            nodes, pods = tuple(sorted(fitting)[:_MOST_NAMED]), tuple(it.name for it in change.without)
            if change.instead:
                remedies.pop()
            remedies.append(Remedy(change.sort, change.text, len(fitting), nodes, pods))
        return fitting

    def _judged(self, change: Change, names: Collection[str]) -> Generator[None, None, list[str]]:
        """Return those of the nodes ``names`` that fit after a change; none if a plugin failed."""
        left, nodes = [*names], () if change.node is None else (change.node,)
        for ignored in _rounds(change):
            after = Judgement()
            yield from self._judge(ignored).steps(change.pod, after, left, without=change.without, nodes=nodes)
            left = [] if after.faults else after.feasible  # a plugin that failed gave no verdict: nothing is proved
        return left


def _rounds(change: Change) -> Iterator[Collection[str]]:
    """Yield the plugins to ignore in each round of judging a change.

    In the first round, only ``change.reads`` and out-of-tree plugins judge. For a change of the pod, this is enough:
    the other in-tree plugins accepted these nodes before, and read nothing that the change affects. If the change
    deletes pods or changes a node, a last round follows, in which all plugins judge except ``change.ignores``. A
    changed node has only this round.
    """
    if change.node is None:
        yield change.ignores | (_IN_TREE - change.reads)
    if change.without or change.node is not None:
        yield change.ignores


def best(remedies: Iterable[Remedy]) -> list[Remedy]:
    """Return at most ``MOST_SHOWN`` remedies, first those that open the most nodes; equal ones keep their order.

    Making a constraint soft comes last, because it opens many nodes but gives up the purpose of the constraint.
    """
    return sorted(remedies, key=lambda it: (it.sort == SOFT, -it.opens))[:MOST_SHOWN]
