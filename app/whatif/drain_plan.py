"""Plan of the drain of one or several nodes, one after the other, as a JSON object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from app.analysis.workloads import workload_of
from app.framework.evictions import BudgetLedger
from app.framework.status import Code
from app.homes.homes_page import listed
from app.homes.restarts import ENDING, Restart, without_pod_there
from app.kube.core_v1 import Node, Pod
from app.kube.kinds import POD_DISRUPTION_BUDGETS
from app.verbs.similar import similar
from app.verbs.unserved import printable
from app.whatif.budget import Budget
from app.whatif.draining import DrainPlacer, LeavingPod, NodeDrain, cordoned
from app.whatif.placing import Placement, original_name
from app.whatif.reasons import waiting_groups
from app.whatif.scratch import ScratchCluster
from app.whatif.spread import changes, spread_of

MOST_NODES: Final = 100
"""Maximum number of nodes of one plan."""

MOST_HOMES: Final = 1000
"""Maximum number of homes that are listed for one node. Only homes whose pod does not run there are listed."""

MOST_NAMES: Final = 100
"""Maximum number of nodes that are listed for a waiting pod: those on which it could run if its home were released."""

OUTCOMES: Final = ("placed", "waiting", "lost", "blocked", "notJudged", "notReached")
"""Outcomes of a pod of a drain.

- ``placed``, ``waiting``: the new pod gets a node, or waits.
- ``lost``: no controller creates a new pod.
- ``blocked``: budgets never allow the eviction.
- ``notJudged``: a plugin failed.
- ``notReached``: there was no processor time left to evict the pod or to place the new one.
"""

Steps = Generator[str | None, None, Mapping[str, Any]]


class DrainRequest(Struct, frozen=True):
    """``nodes``: names in the order in which the nodes are drained.

    ``keeps_cordoned``: true if all nodes are cordoned first, and stay cordoned.
    """

    nodes: Sequence[str]
    keeps_cordoned: bool = False


def drained(scratch: ScratchCluster, request: DrainRequest, budget: Budget) -> Steps:
    """Simulate the drain of nodes, one after the other. The steps return the fields of a ``DrainPlan``.

    Raises ``PluginError``.

    Before the next node is drained, a node is restored as it was, as in a rolling upgrade, unless ``keeps_cordoned``.
    Pods that are not tried because ``budget`` has no processor time left have the outcome ``notReached``.
    """
    plan = _Plan(scratch, request, budget)
    items: list[Mapping[str, Any]] = []
    for number, name in enumerate(request.nodes):
        yield f"draining {name}: {number} of {len(request.nodes)} nodes done"
        items.append((yield from plan.step(name, is_last=number == len(request.nodes) - 1)))
    return {
        "keepCordoned": request.keeps_cordoned,
        "budgetsJudged": scratch.reads(POD_DISRUPTION_BUDGETS),
        "items": [{**item, "pods": [plan.row(it) for it in item["pods"]]} for item in items],
    }


class _Plan:
    """Simulates the drains of one request on a scratch cluster, and returns the parts of the answer."""

    def __init__(self, scratch: ScratchCluster, request: DrainRequest, budget: Budget) -> None:
        self._scratch = scratch
        self._cluster = scratch.cluster
        self._budget = budget
        self._keeps_cordoned = request.keeps_cordoned
        self._placer = DrainPlacer(scratch)
        self._ledger = BudgetLedger(scratch.cluster, scratch.cluster.others.in_namespace)
        self._drains: list[NodeDrain] = []
        self._elsewhere: dict[int, Sequence[str]] = {}
        for name in request.nodes if request.keeps_cordoned else ():
            self._cordon(name)

    def _cordon(self, name: str) -> Node | None:
        """Cordon a node of the scratch cluster, and return it as it was before; ``None`` if it does not exist."""
        info = self._cluster.base_nodes.get(name)
        if info is None:
            return None
        node = info.node
        self._cluster.upsert_node(cordoned(node))
        self._placer.closed.add(name)
        return node

    def step(self, name: str, *, is_last: bool) -> Steps:
        """Simulate the drain of one node, and return a ``DrainedNode``. Its ``pods`` are arguments of ``row``, not JSON
        yet.

        Afterwards the node is uncordoned, and waiting pods are tried again, unless nodes stay cordoned or ``is_last``.
        """
        drain = NodeDrain(self._scratch, self._placer, self._ledger, name)
        drain.begin()
        yield None
        budgets = {key: (it.allowed, it.healthy) for key, it in drain.budgets.items()}
        samples = _samples(drain.leaving)
        spread = spread_of(self._scratch, samples)
        node = self._cordon(name)
        if node is not None:
            yield from drain.steps(self._budget)
        self._drains.append(drain)
        judged = [it for it in drain.placements if it.waits and it.gate.code is not Code.ERROR]
        groups = yield from waiting_groups(self._scratch, judged, self._budget, self._placer.closed)
        yield from self._find_nodes_without_homes(drain)
        outcomes = Counter(_outcome(it, drain) for it in drain.leaving)
        answer = {
            "node": name,
            "known": node is not None,
            "suggestion": "" if node is not None else similar(printable(name), self._cluster.nodes),
            "evicted": sum(not it.waited_before and not it.preempted for it in drain.leaving),
            "waitedBefore": sum(it.waited_before for it in drain.leaving),
            "preempted": sum(it.preempted for it in drain.leaving),
            **{it: outcomes[it] for it in OUTCOMES},
            "waves": drain.waves,
            "pods": [(it, drain) for it in drain.leaving],
            "apart": [{"namespace": it.namespace, "pod": original_name(it), "why": why} for it, why in drain.apart],
            "budgets": [_budget(drain, key, *before) for key, before in sorted(budgets.items())],
            "homes": [{**listed(it), "then": without_pod_there(it, name)} for it in drain.homes[:MOST_HOMES]],
            "moreHomes": max(0, len(drain.homes) - MOST_HOMES),
            "waitingGroups": [{**it, "fitsAlone": self._fits_alone(drain, it)} for it in groups],
            "spread": [*changes(spread, spread_of(self._scratch, samples))],
        }
        if node is not None and not self._keeps_cordoned and not is_last:
            self._placer.closed.discard(name)
            self._cluster.upsert_node(node)
            yield from self._place_waiting_again()
        return answer

    def _place_waiting_again(self) -> Generator[None, None, None]:
        """After a node is uncordoned, try the waiting pods of all drains so far again. No pods are evicted for them."""
        waiting = {it.placement.pod.uid: it for of in self._drains for it in of.waiting() if it.placement is not None}
        placements: list[Placement] = []
        with self._placer.without_preemption():
            yield from self._placer.placing([it.placement.pod for it in waiting.values() if it.placement], placements)
        for placement in placements:
            if placement.node:
                leaving = waiting[placement.pod.uid]
                leaving.returned = placement.node
                self._ledger.restore(leaving.pod)

    def _find_nodes_without_homes(self, drain: NodeDrain) -> Generator[None, None, None]:
        """For each waiting pod with a home, find the nodes on which it could run if the home were released.

        Pods are left out once no processor time is left.
        """
        for leaving in drain.leaving:
            placement = leaving.placement
            if leaving.home is not None and placement is not None and placement.waits and not self._budget.is_over:
                self._elsewhere[id(leaving)] = self._placer.fitting(placement.pod)
                yield

    def _fits_alone(self, drain: NodeDrain, group: Mapping[str, Any]) -> bool | None:
        """Return True if, without the pods that the drain placed, a node would pass all filters except those for homes.

        This is tried for the first pod of the group. Return ``None`` if nothing was placed, if only its home keeps that
        pod from a node, or if no processor time is left.
        """
        pods = [it.pod for it in drain.placements if it.node]
        sample = next((it for it in drain.placements if it.waits and original_name(it.pod) == group["pods"][0]), None)
        if not pods or sample is None or self._budget.is_over or self._placer.fitting(sample.pod):
            return None
        with self._cluster.overlay(without=pods):
            return bool(self._placer.fitting(sample.pod))

    def row(self, item: tuple[LeavingPod, NodeDrain]) -> Mapping[str, Any]:
        """Return a ``DrainedPod``."""
        leaving, drain = item
        pod, placement, home = leaving.pod, leaving.placement, leaving.home
        outcome = _outcome(leaving, drain)
        names = self._elsewhere.get(id(leaving))
        waits_for_home = home is not None and leaving.condition is not Restart.FREE
        waits_for_home = waits_for_home and (outcome == "waiting" or (outcome == "placed" and leaving.after_grace))
        kind, name = workload_of(pod)
        return {
            "namespace": pod.namespace,
            "pod": original_name(pod),
            "workload": f"{kind}/{pod.namespace}/{name}" if pod.owner is not None else "",
            "outcome": outcome,
            "then": _then(leaving, outcome),
            "wave": leaving.wave,
            "preempted": leaving.preempted,
            "waitedBefore": leaving.waited_before,
            "nodeName": placement.node if outcome == "placed" and placement is not None else "",
            "ties": placement.ties if placement is not None else 0,
            "victims": [str(it) for it in placement.victims] if placement is not None else [],
            "budgets": [it.budget.name for it in self._ledger.guarding(pod)],
            "home": None if home is None else listed(home),
            "waitsFor": home.node if waits_for_home and home is not None else "",
            "couldRunOn": None if names is None else names[:MOST_NAMES],
            "couldRunOnCount": len(names or ()),
            "placedLater": leaving.returned,
        }


def _samples(leaving: Iterable[LeavingPod]) -> dict[str, Pod]:
    """Return one leaving pod of each workload with topology spread constraints, by KIND/NAMESPACE/NAME.

    Pods without a controller, or without constraints of their own, are left out.
    """
    samples: dict[str, Pod] = {}
    for pod in (it.pod for it in leaving):
        if pod.spec.spread and pod.owner is not None:
            kind, name = workload_of(pod)
            samples.setdefault(f"{kind}/{pod.namespace}/{name}", pod)
    return samples


def _outcome(leaving: LeavingPod, drain: NodeDrain) -> str:
    """Return one of ``OUTCOMES``."""
    placement = leaving.placement
    if leaving.is_lost:
        return "lost"
    if placement is None:
        if leaving.fault and (leaving.wave or leaving.waited_before):
            return "notJudged"
        return "blocked" if drain.ended and leaving.refusal else "notReached"
    if placement.gate.code is Code.ERROR:
        return "notJudged"
    return "placed" if placement.node else "waiting"


def _then(leaving: LeavingPod, outcome: str) -> str:
    """Return the outcome as text for users."""
    placement, home = leaving.placement, leaving.home
    node = "" if home is None else home.node
    match outcome:
        case "lost":
            return "is lost: no controller creates it again"
        case "blocked":
            return f"is not evicted: {leaving.refusal}"
        case "notReached":
            return "not judged: it took too long"
        case "notJudged":
            return f"not judged: {leaving.fault or (placement.gate.message if placement is not None else '')}"
        case "placed" if placement is not None:
            if placement.node == node:
                return f"goes home to {node}"
            if leaving.after_grace:
                return f"waits for {node}; after its grace starts on {placement.node}"
            return f"starts on {placement.node}"
    why = "" if placement is None else _why(placement)
    if leaving.condition in ENDING:
        return f"waits for {node}, and after its grace: {why}"
    if leaving.condition is Restart.HELD_HOME:
        return f"waits for {node}, which does not take it: {why}"
    return f"waits for {node}" if leaving.condition is Restart.HELD else f"waits: {why}"


def _why(placement: Placement) -> str:
    """Return why a pod waits: what gates it, or the most frequent rejection with its share of the rejected nodes."""
    if not placement.gate.is_success:
        return placement.gate.message
    counts: Counter[str] = Counter()
    for status, count in placement.rejections:
        counts[f"{status.plugin}: {status.message}"] += count
    for text, count in counts.most_common(1):
        return f"{count} of {counts.total()}: {text}"
    return "there is no other node"


def _budget(drain: NodeDrain, key: str, allowed: int, healthy: int) -> Mapping[str, Any]:
    """Return a ``DrainedBudget``. ``allowed`` and ``healthy``: values before the node is drained."""
    state = drain.budgets[key]
    pods = [it for it in drain.leaving if any(state is guarding for guarding in drain.guarding(it.pod))]
    return {
        "namespace": state.budget.namespace,
        "name": state.budget.name,
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": state.budget.desired_healthy,
        "pods": len(pods),
        "waves": sorted({it.wave for it in pods if it.wave}),
        "blocked": sum(_outcome(it, drain) == "blocked" for it in pods),
    }
