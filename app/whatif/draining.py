"""Simulated drain of nodes: in waves, evicts the pods of a node as budgets allow, and places new pods for them.

The rules are those of ``kubectl drain --ignore-daemonsets --force --delete-emptydir-data``: a pod is evicted as soon as
its budgets allow that. Once the new pods of a wave are placed, they count as ready, and the next wave begins. Pods of
DaemonSets, static pods and pods that are already being deleted are left alone. A drained node stays in the cluster,
cordoned. So its domain counts for topology spread, unless the constraint has ``nodeTaintsPolicy: Honor`` or the profile
``untoleratedDomains: Ignore``. No pod is placed on the node, even if it tolerates the cordon.

Homes: pods that can start elsewhere at once are placed first. Pods that wait for their home during a grace period
follow. Pods that wait for their home without end take no room elsewhere.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.cache.counters import run_prepared
from app.framework.cycle_state import CycleState
from app.framework.evictions import BudgetLedger, BudgetState
from app.framework.node_info import Candidates
from app.homes.lists import HomeLists
from app.homes.protocol import Home, HomesPlugin
from app.homes.restarts import ENDING, Restart, homes_of_node, restart_condition
from app.kube.core_v1 import Node, Pod
from app.kube.taints import UNSCHEDULABLE
from app.runtime.framework import Framework
from app.runtime.guard import PluginError
from app.runtime.search import Search
from app.runtime.slots import declares
from app.verbs.candidates import unreadable_nodes
from app.whatif.budget import Budget
from app.whatif.placing import AGAIN, Placement, Placer, recreated
from app.whatif.scratch import ScratchCluster

APART: Final = {"DaemonSet": "DaemonSet", "Node": "static pod"}
"""Kinds of owners whose pods a drain leaves alone, and the reason in the answer. A Node owns its static pods."""

ENDS: Final = "ends already"
"""Reason why a pod that is being deleted is left alone."""


class LeavingPod(Struct, eq=False):
    """Pod of a drain: it is on the node, or waits without a node for its home there, or is evicted by preemption.

    ``pod``: as before the drain · ``wave``: number of the wave in which it leaves; 0 if it is in none · ``refusal``:
    why the Eviction API still refuses to evict it · ``preempted``: evicted from another node, by preemption for a pod
    of the drain · ``after_grace``: true once the grace period of its home is over · ``placement``: result for the new
    pod; ``None`` if it was not tried · ``returned``: node of a new pod that is placed only after the drained node is
    uncordoned; else empty · ``fault``: why its home is unknown; empty if no plugin failed.
    """

    pod: Pod
    home: Home | None = None
    condition: Restart = Restart.FREE
    wave: int = 0
    refusal: str = ""
    preempted: bool = False
    after_grace: bool = False
    placement: Placement | None = None
    returned: str = ""
    fault: str = ""

    @property
    def is_lost(self) -> bool:
        """True if the pod is evicted and no controller creates a new one."""
        return self.pod.owner is None and (self.wave > 0 or self.preempted)

    @property
    def waited_before(self) -> bool:
        """True if the pod has no node, and waits for its home on the drained node."""
        return not self.pod.node_name


class DrainPlacer(Placer):
    """Places pods on nodes that are not ``closed`` and whose newest version could be decoded.

    ``free``: UIDs of the pods whose grace period is over. They no longer wait for their home.
    """

    def __init__(self, scratch: ScratchCluster) -> None:
        super().__init__(scratch, preempts=True)
        self.closed: set[str] = set()
        self.free: set[str] = set()
        self._without_homes: dict[str, Search] = {}

    def candidates(self, pod: Pod) -> Candidates:
        return super().candidates(pod).without({*self.closed, *unreadable_nodes(self._cluster)})

    def tried(self, framework: Framework, pod: Pod, search: Search | None = None) -> Placement:
        """Like ``Placer.tried``, but raise no error: if a plugin fails, the pod waits, with that Error as ``gate``.

        A pod of ``free`` that waits is tried again without the filters that keep homes, if one of them rejects a node.
        """
        try:
            placement = super().tried(framework, pod, search)
            if placement.waits and pod.uid in self.free and _is_held(framework, placement):
                return super().tried(framework, pod, self.without_homes(framework))
        except PluginError as fault:
            return Placement(pod, gate=fault.status)
        return placement

    def fitting(self, pod: Pod) -> Sequence[str]:
        """Return the names of the candidates that pass all filters except those for homes; empty if a plugin fails."""
        search = self.without_homes(self._scratch.framework_for(pod))

        def passed() -> Sequence[str]:
            with self._cluster.without(pod.uid, pod.key):
                return tuple(search.find_nodes_that_fit(pod, self.candidates(pod), CycleState()).passed)

        try:
            return run_prepared(passed)
        except PluginError:
            return ()

    @contextmanager
    def without_preemption(self) -> Iterator[None]:
        """Evict no pods while the block runs."""
        self._preempts = False
        try:
            yield
        finally:
            self._preempts = True

    def without_homes(self, framework: Framework) -> Search:
        """Return a search with all filters except those of plugins that keep homes."""
        name = framework.scheduler_name
        if name not in self._without_homes:
            self._without_homes[name] = framework.search_without(HomesPlugin)
        return self._without_homes[name]


def _is_held(framework: Framework, placement: Placement) -> bool:
    """Return True if a plugin that keeps homes rejects at least one node."""
    plugins = framework.plugins
    return any(declares(type(plugins.get(it.plugin)), HomesPlugin) for it, _ in placement.rejections)


class NodeDrain:
    """Drain of one node on a scratch cluster.

    ``leaving``: pods of the drain · ``apart``: pods that are left alone, each with the reason · ``homes``: homes on the
    node whose pod is neither there nor in ``leaving`` · ``placements``: of the new pods · ``budgets``: those that
    select a pod that ``begin`` finds, by NAMESPACE/NAME · ``waves``: number of waves so far · ``ended``: true once no
    more pods can be evicted or placed.
    """

    def __init__(self, scratch: ScratchCluster, placer: DrainPlacer, ledger: BudgetLedger, node: str) -> None:
        self._scratch = scratch
        self._cluster = scratch.cluster
        self._placer = placer
        self._ledger = ledger
        self._records: dict[str, LeavingPod] = {}
        self.node = node
        self.leaving: list[LeavingPod] = []
        self.apart: list[tuple[Pod, str]] = []
        self.homes: list[Home] = []
        self.placements: list[Placement] = []
        self.budgets: dict[str, BudgetState] = {}
        self.waves = 0
        self.ended = False

    @property
    def is_known(self) -> bool:
        return self._cluster.has_node(self.node)

    def begin(self) -> None:
        """Fill ``leaving``, ``apart``, ``homes`` and ``budgets``. Can raise ``PluginError``."""
        lists = HomeLists(self._scratch.frameworks(), self._scratch.guard)
        listed = homes_of_node(lists.homes(), self.node)
        info = self._cluster.base_nodes.get(self.node)
        pods = sorted(info.pods.values(), key=lambda it: it.key) if info is not None else ()
        for pod in pods:
            reason = ENDS if pod.terminating else APART.get(pod.owner.kind, "") if pod.owner is not None else ""
            if reason:
                self.apart.append((pod, reason))
            else:
                self.leaving.append(self._leaving(lists, pod))
        for home in listed:
            pod_of_home = self._cluster.pod(home.owner.namespace, home.pod) if home.pod else None
            node = "" if pod_of_home is None else pod_of_home.node_name
            if pod_of_home is not None and not node and self.is_known and not pod_of_home.uid.endswith(AGAIN):
                self.leaving.append(LeavingPod(pod_of_home, home, restart_condition(home, self.node)))
            elif node != self.node:
                self.homes.append(home)
        for leaving in self.leaving:
            for state in self._ledger.guarding(leaving.pod):
                self.budgets[state.name] = state

    def _leaving(self, lists: HomeLists, pod: Pod) -> LeavingPod:
        """Return the record of a pod on the node, with its home, or with the fault of the plugin that keeps homes."""
        try:
            home = lists.home_of(self._scratch.framework_for(pod), pod)
        except PluginError as fault:
            return LeavingPod(pod, fault=fault.status.message)
        return LeavingPod(pod, home, Restart.FREE if home is None else restart_condition(home, self.node))

    def steps(self, budget: Budget) -> Iterator[str | None]:
        """Evict the pods and place new ones, in waves. The node must be cordoned.

        If ``budget`` has no processor time left after a pod was tried, the steps stop, and ``ended`` stays false.
        """
        self._placer.closed.add(self.node)
        more = True
        while more:
            more = yield from self._wave(budget)

    def _wave(self, budget: Budget) -> Generator[str | None, None, bool]:
        """Evict the pods of one wave and place new ones. If none can be evicted, end the grace periods instead,
        and place the pods that waited.

        Return True if another wave can follow.
        """
        evicted = self._evict()
        pods = [self._new_pod(it) for it in evicted if not it.is_lost and not it.fault]
        if not evicted:
            pods = self._after_grace()
            if not pods:
                self.ended = True
                return False
        for _ in self._placer.placing(pods, self.placements):
            yield f"{self.node}: {len(self.placements)} of {len(self.leaving)} pods placed or waiting"
            if budget.is_over:
                break
        self._record_placements()
        return not budget.is_over

    def _evict(self) -> list[LeavingPod]:
        """Evict all pods whose budgets allow it now, remove those that wait without a node, and return both."""
        evicted: list[LeavingPod] = []
        for leaving in self.leaving:
            if leaving.wave or leaving.preempted:
                continue
            leaving.refusal = "" if leaving.waited_before else self._ledger.refusal(leaving.pod)
            if not leaving.refusal:
                leaving.wave = self.waves + 1
                if not leaving.waited_before:
                    self._ledger.remove(leaving.pod)
                self._cluster.delete_pod(leaving.pod.key, leaving.pod.uid)
                evicted.append(leaving)
        self.waves += bool(evicted)
        return evicted

    def _new_pod(self, leaving: LeavingPod) -> Pod:
        """Return the pod to place for a pod that left, and store the record by the UID of the pod to place."""
        pod = leaving.pod.nominated("") if leaving.waited_before else recreated(leaving.pod)
        self._records[pod.uid] = leaving
        return pod

    def _after_grace(self) -> list[Pod]:
        """End the grace periods of all waiting pods that have one, and return these pods to place them again."""
        ending: list[Pod] = []
        for placement in tuple(self.placements):
            record = self._records.get(placement.pod.uid)
            if placement.waits and record is not None and record.condition in ENDING and not record.after_grace:
                record.after_grace = True
                self._placer.free.add(placement.pod.uid)
                self.placements.remove(placement)
                ending.append(placement.pod)
        return ending

    def _record_placements(self) -> None:
        """Store each placement in the record of the pod that left. Also record the pods that preemption evicts for the
        placements, and drop the earlier placements of these pods.

        For budgets, a pod is healthy again once its new pod is placed.
        """
        for placement in self.placements:
            record = self._records.get(placement.pod.uid)
            if record is not None:
                record.placement = placement
            for victim in placement.victims if placement.node else ():
                self._record_victim(victim)
        gone = {pod.uid for it in self.placements if it.node for pod in it.victims}
        self.placements = [it for it in self.placements if it.pod.uid not in gone]
        for leaving in self.leaving:
            if leaving.placement is not None and leaving.placement.node:
                self._ledger.restore(leaving.pod)

    def guarding(self, pod: Pod) -> Sequence[BudgetState]:
        """Return the budgets that select the pod."""
        return self._ledger.guarding(pod)

    def waiting(self) -> list[LeavingPod]:
        """Return the pods whose new pod still waits, unless PreEnqueue gates it or a plugin failed (``gate``)."""
        placements = ((it, it.placement) for it in self.leaving if not it.returned)
        return [it for it, found in placements if found is not None and found.waits and found.gate.is_success]

    def _record_victim(self, victim: Pod) -> None:
        """Record a pod that preemption evicted. The key of the record is the UID of the pod's new pod.

        The record is added to ``leaving``, unless the evicted pod is itself a new pod of this drain.
        """
        record = self._records.get(victim.uid)
        again = recreated(victim).uid
        if again in self._records:
            return  # recorded after an earlier wave
        if record is None:
            record = LeavingPod(victim, preempted=True)
            self.leaving.append(record)
        self._ledger.remove(record.pod)
        record.placement = None
        self._records[again] = record


def cordoned(node: Node) -> Node:
    """Return a node as it is after ``kubectl cordon``."""
    taints = (*(it for it in node.taints if it.key != UNSCHEDULABLE.key), UNSCHEDULABLE)
    return replace(node, unschedulable=True, taints=taints)
