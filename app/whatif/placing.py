"""Places pods on a scratch cluster, one after the other, each by a complete scheduling cycle.

The order is that of the profile's QueueSort. If several nodes have the best score, kube-scheduler can choose any of
them. Here, the first by name is chosen, and the number of the others is reported as ``ties``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cmp_to_key, partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.analysis.pending import Inputs, inputs_of
from app.cache.counters import run_prepared
from app.framework.cycle_state import CycleState
from app.framework.node_info import Candidates
from app.framework.points import PostFilterSteps
from app.framework.status import SUCCESS, Status
from app.kube.core_v1 import Pod
from app.kube.deletion_cost import NO_COST, DeletionCost
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS
from app.runtime.framework import Framework
from app.runtime.post_filters import advance
from app.runtime.search import Search
from app.whatif.ephemeral import claims_like
from app.whatif.scratch import ScratchCluster

AGAIN: Final = "-again"
"""Suffix of the UIDs of pods that are created again, and of the names of most of them."""

_PREEMPTION: Final = ["DefaultPreemption"]
"""PostFilter plugins of a profile that evicts only pods of lower priority. Other plugins might evict any pod."""

_SPREAD: Final = "PodTopologySpread"
_NO_VICTIMS: Final[Sequence[Pod]] = ()


class Placement(Struct, frozen=True):
    """Result of the scheduling cycle of one pod. ``node``: empty if the pod waits.

    ``ties``: number of other nodes with the same score. ``gate``: status of PreEnqueue, which is not Success if the pod
    is not queued; in a drain, also the Error of a plugin that failed. ``rejections``: each with its number of nodes,
    the most frequent first. ``victims``: pods that preemption evicts, or would evict, from ``nominated``.
    """

    pod: Pod
    node: str = ""
    ties: int = 0
    gate: Status = SUCCESS
    rejections: Sequence[tuple[Status, int]] = ()
    nominated: str = ""
    victims: Sequence[Pod] = _NO_VICTIMS

    @property
    def waits(self) -> bool:
        """True if the pod has no node."""
        return not self.node


class Placer:
    """Places pods on a scratch cluster. ``preempts``: evict the victims of preemption, and try the pod again."""

    def __init__(self, scratch: ScratchCluster, *, preempts: bool = False) -> None:
        self._scratch = scratch
        self._cluster = scratch.cluster
        self._preempts = preempts
        self._lowest = min((it.spec.priority for it in self._cluster.pods()), default=0)

    def queued(self, pods: Sequence[Pod]) -> list[Pod]:
        """Return pods in the order of QueueSort; equal ones in the given order. Raises ``PluginError``."""

        def compare(one: tuple[int, Pod], other: tuple[int, Pod]) -> int:
            framework = self._scratch.framework_for(one[1])
            if framework.less(one[1], one[0], other[1], other[0]):
                return -1
            return 1 if framework.less(other[1], other[0], one[1], one[0]) else one[0] - other[0]

        return [pod for _, pod in sorted(enumerate(pods), key=cmp_to_key(compare))]

    def placing(self, pods: Sequence[Pod], placements: list[Placement]) -> Iterator[None]:
        """Place pods in the order of the queue, one per step, and append the results. Raises ``PluginError``.

        Evicted victims that have a controller come back as new pods at the end of the queue. Then the waiting pods of
        ``placements``, earlier ones included, are tried again until a pass places none of them, because a pod can need
        another one near it. A new result of a pod replaces the earlier one, and moves to the end of the list.
        """
        yield from self._pass(self.queued(pods), placements)
        placed = True
        while placed:
            placed = yield from self._retry(placements)

    def _pass(self, queue: list[Pod], placements: list[Placement]) -> Iterator[None]:
        """Append a placement for each pod of the queue, and add new pods for evicted victims to the queue.

        Victims without a controller get no new pod. If an equal pod failed and nothing has changed since, its result
        is copied.
        """
        failed: dict[Inputs, Placement] = {}
        for pod in queue:
            known = failed.get(inputs := inputs_of(pod))
            if known is not None:  # nothing has changed since an equal pod was tried
                self._cluster.upsert_pod(pod)
                placements.append(replace(known, pod=pod))
                yield
                continue
            placement = self.place(pod)
            placements.append(placement)
            victims = placement.victims if self._preempts else ()
            queue += map(recreated, filter(_comes_back, victims))
            if placement.node or victims:
                failed.clear()
            if not placement.node:
                failed[inputs] = placement
            yield

    def _retry(self, placements: list[Placement]) -> Generator[None, None, bool]:
        """Try all waiting pods that are not gated again, unless there are no others. Return True if one was placed."""
        waiting = [it for it in placements if it.waits and it.gate.is_success]
        if len(waiting) == len(placements):
            return False
        others = [it for it in placements if not (it.waits and it.gate.is_success)]
        again: list[Placement] = []
        try:
            yield from self._pass([it.pod for it in waiting], again)
        finally:  # also if the caller stops early
            placements[:] = [*others, *waiting[len(again) :], *again]
        return any(it.node for it in again)

    def place(self, pod: Pod) -> Placement:
        """Add a pod without a node to the cluster, run one cycle, and put the pod on the chosen node.

        Missing claims of its ephemeral volumes are added if ``claims_like`` finds a model. With ``preempts``, victims
        of preemption are evicted, and a second cycle is run. A pod that gets no node stays in the cluster, and waits.
        Raises ``PluginError``.
        """
        framework = self._scratch.framework_for(pod)
        self._lowest = min(self._lowest, pod.spec.priority)
        for claim in claims_like(self._cluster, original_name(pod), pod):
            self._cluster.others.upsert(PERSISTENT_VOLUME_CLAIMS, claim)
        self._cluster.upsert_pod(pod)
        placement = self.tried(framework, pod)
        if placement.victims and self._preempts:
            for victim in placement.victims:
                self._cluster.delete_pod(victim.key, victim.uid)
            again = self.tried(framework, pod)
            placement = replace(again, nominated=placement.nominated, victims=placement.victims)
        if placement.node:
            cost = framework.binding.deletion_cost_on(pod, placement.node)
            bound = replace(pod, node_name=placement.node).nominated("")
            self._cluster.upsert_pod(bound if cost is None else bound.with_deletion_cost(DeletionCost(cost)))
        return placement

    def tried(self, framework: Framework, pod: Pod, search: Search | None = None) -> Placement:
        """Run PreEnqueue and one cycle for a pod. ``search``: filters to use instead of those of the profile.

        Raises ``PluginError``.
        """
        gate = framework.pre_enqueue(pod)
        if not gate.is_success:
            return Placement(pod, gate=gate)
        return run_prepared(partial(self._cycle, framework, pod, search or framework.search))

    def candidates(self, pod: Pod) -> Candidates:
        """Return the nodes that are tried for a pod."""
        return Candidates.of(self._cluster.nodes)

    def _cycle(self, framework: Framework, pod: Pod, search: Search) -> Placement:
        """Filter and score; search for victims if no node fits. Raises ``PluginError`` or ``Unprepared``."""
        with self._cluster.without(pod.uid, pod.key):
            nodes = self.candidates(pod)
            result = search.find_nodes_that_fit(pod, nodes, CycleState())
            if result.passed:
                scores = framework.scoring.score(CycleState(), pod, nodes.among(result.passed))
                best = scores.best
                return Placement(pod, min(best), len(best) - 1)
            rejected = result.rejected()
            nominated, victims = self._victims(framework, pod, rejected)
        counted = Counter(rejected.values()).most_common()
        return Placement(pod, rejections=counted, nominated=nominated, victims=victims)

    def _victims(self, framework: Framework, pod: Pod, rejected: Mapping[str, Status]) -> tuple[str, Sequence[Pod]]:
        """Return the node to which preemption nominates the pod, and the pods to evict; both empty if none are found.

        Raises ``PluginError`` or ``Unprepared``.
        """
        plugins = [slot.name for slot in framework.slots["postFilter"]]
        if not plugins or not rejected or (plugins == _PREEMPTION and pod.spec.priority <= self._lowest):
            return "", ()
        for begin in self._preemptions(framework, pod, rejected):
            nominated, victims = _searched(framework, pod, begin)
            if victims:
                return nominated, victims
        return "", ()

    def _preemptions(
        self, framework: Framework, pod: Pod, rejected: Mapping[str, Status]
    ) -> Iterator[Callable[[CycleState], PostFilterSteps]]:
        """Yield the searches for victims, in order. A complete profile has one: its PostFilter.

        In a delegated profile, the scheduler searches on the nodes that topology spread does not reject. Then Homeport
        searches for topology spread, if it preempts for this profile.
        """
        search = framework.post_filters
        if framework.preset == "complete":
            yield lambda state: search.post_filter(state, pod, rejected)
            return
        others = {name: status for name, status in rejected.items() if status.plugin != _SPREAD}
        if others:
            yield lambda state: search.post_filter(state, pod, others)
        if framework.preempts:
            yield lambda state: search.for_spread(state, pod, rejected, self._scratch.stays)


def _searched(
    framework: Framework, pod: Pod, begin: Callable[[CycleState], PostFilterSteps]
) -> tuple[str, Sequence[Pod]]:
    """Run a search, and return its result like ``_victims``. Raises ``PluginError`` or ``Unprepared``."""
    state = CycleState()
    framework.filters.pre_filter(state, pod)
    steps = begin(state)
    over, answer = advance(steps, None)
    while not over:
        over, answer = advance(steps, state)
    result, _ = answer
    if result is None or result.victims is None:
        return "", ()
    return result.nominated_node_name, result.victims.pods


def _comes_back(victim: Pod) -> bool:
    return victim.owner is not None and not victim.terminating


def recreated(pod: Pod) -> Pod:
    """Return the pod with which a controller replaces a deleted pod.

    Pods of a StatefulSet and of a VirtualMachineInstance keep their name. Other names get the suffix ``AGAIN``.
    """
    keeps_name = pod.owner is not None and pod.owner.kind in ("StatefulSet", "VirtualMachineInstance")
    name = pod.name if keeps_name else f"{pod.name}{AGAIN}"
    again = replace(pod, name=name, uid=f"{pod.uid}{AGAIN}", node_name="", terminating=False).nominated("")
    return again.with_deletion_cost(NO_COST)


def original_name(pod: Pod) -> str:
    """Return the pod's name in the cluster: without the suffixes of pods that are created again."""
    name, uid = pod.name, pod.uid
    while uid.endswith(AGAIN):
        name, uid = name.removesuffix(AGAIN), uid.removesuffix(AGAIN)
    return name
