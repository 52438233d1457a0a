"""Pods that would leave a drained node, and the condition under which each can start again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from app.homes.lists import HomeLists
from app.homes.protocol import Home, Place, Policy, State
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ObjectKey
from app.runtime.guard import PluginError
from app.verbs.context import VerbContext

MOST_HOMES: Final = 1000
"""Maximum number of homes of one node that are listed and evaluated. Further homes are only counted."""

MOST_PODS: Final = 512
"""Maximum number of other pods of one node that are evaluated and listed. By default, a kubelet runs at most 110
pods.
"""

MOST_NAMES: Final = 100
"""Maximum number of nodes listed for a pod."""

_STAYING: Final = frozenset({"DaemonSet", "Node"})
"""Controllers whose pods a drain does not evict. Pods owned by a Node are its static pods."""


class Restart(Enum):
    """Condition under which a pod can start again once the node accepts no pods."""

    FREE = "at once, anywhere"
    HOME = "at once, at its home, which is another node; after its grace anywhere"
    HELD_HOME = "at its home, which is another node, and nowhere else"
    GRACE = "after its grace, anywhere"
    HELD = "at its home, which takes no pods then"


class DrainOutcome(Struct, frozen=True):
    """Outcome for a home on the node, or for a pod that runs there. ``home`` is ``None`` for a pod without one.

    ``nodes``: the first of the ``count`` nodes on which the pod fits together with all pods placed before; ``None`` if
    not checked · ``goes_to``: the node on which the pod was placed · ``waits_for``: the home that the pod waits for,
    for some time or forever · ``fits_alone``: true if the pod would fit on a node without the other pods · ``why``:
    most frequent rejection · ``then``: the outcome as text.
    """

    namespace: str
    pod: str
    home: Home | None
    then: str
    nodes: Sequence[str] | None = None
    count: int = 0
    goes_to: str = ""
    waits_for: str = ""
    fits_alone: bool | None = None
    why: str = ""
    is_judged: bool = True


class NodeSearch(Struct, frozen=True):
    """Result of a search. ``best``: the passing node with the highest score, then with the fewest pods; empty if none
    was scored.
    """

    passed: Sequence[str] = ()
    best: str = ""
    why: str = ""


class EvictedPod(Struct, frozen=True):
    """Pod that leaves the node, as in the snapshot. ``fault``: why its restart condition is unknown; empty if it is
    known.
    """

    pod: Pod
    condition: Restart
    home: Home | None = None
    fault: str = ""

    @property
    def place(self) -> tuple[int, str, str, str]:
        """Sort key, for the order of the scheduling queue."""
        return (-self.pod.spec.priority, self.pod.created, *self.pod.key)

    def outcome(self, then: str, result: NodeSearch | None = None, **more: Any) -> DrainOutcome:
        """Build the pod's outcome."""
        waits_for = self.home.node if self.home is not None and self.condition is not Restart.FREE else ""
        given: dict[str, Any] = {"waits_for": waits_for, **more}
        if result is not None:
            given |= {"nodes": tuple(result.passed[:MOST_NAMES]), "count": len(result.passed), "why": result.why}
        return DrainOutcome(self.pod.namespace, self.pod.name, self.home, then, **given)


def restart_condition(home: Home, node: str) -> Restart:
    """Return the condition under which a pod with that home can start again, once ``node`` accepts no pods."""
    if not home.node or not home.holds:
        return Restart.FREE
    has_grace = home.policy is Policy.GRACE
    if _is_elsewhere(home, node):
        return Restart.HOME if has_grace else Restart.HELD_HOME
    return Restart.GRACE if has_grace else Restart.HELD


def _is_elsewhere(home: Home, node: str) -> bool:
    """Return true if the home is another node that exists, accepts pods, and can reach the pod's volumes."""
    is_usable = not (home.is_away or home.is_orphaned or home.state is State.VOLUME_ELSEWHERE)
    return is_usable and home.node not in ("", node)


def tried_first(home: Home | None, node: str) -> str:
    """Return the home if it is another node that the pod tries first; otherwise an empty string."""
    if home is None or home.policy is Policy.OFF or home.state is State.TARGET or not _is_elsewhere(home, node):
        return ""
    return home.node


class EvictedPods:
    """Pods that leave the node or wait for it as their home (``leaving``), and those that are evaluated
    (``evicted``).
    """

    def __init__(self, context: VerbContext, homes: HomeLists, node: str) -> None:
        self._context = context
        self._homes = homes
        self._cluster = context.cluster
        self._node = node
        self._seen: dict[Place, Home] = {}
        self._beyond: dict[Place, ObjectKey] = {}
        self.evicted: list[EvictedPod] = []
        self.leaving: list[Pod] = []
        self.staying: list[DrainOutcome] = []
        self.more_others = 0
        self.lost = 0

    @property
    def more(self) -> int:
        """Number of homes that are not listed."""
        return len(self._beyond)

    def reading(self) -> Iterator[None]:
        """Collect homes and pods in short steps.

        If several profiles list a home, the profile that schedules its pod takes precedence.
        """
        for home in self._homes.homes():
            if home is None:
                yield
            elif self._node in (home.node, home.pod_node):
                self._note(home)
        yield
        for home in self._seen.values():
            self._take(home)
        yield
        yield from self._take_others()

    def _note(self, home: Home) -> None:
        place = home.owner.place
        known = self._seen.get(place)
        if known is None and len(self._seen) == MOST_HOMES:
            self._beyond[place] = (home.owner.namespace, home.pod)
        elif known is None or (home.is_judged and not known.is_judged):
            self._seen[place] = home

    def _take(self, home: Home) -> None:
        namespace = home.owner.namespace
        pod = self._cluster.pod(namespace, home.pod) if home.pod else None
        if pod is not None and pod.node_name in ("", self._node):
            self.evicted.append(EvictedPod(pod, restart_condition(home, self._node), home))
            self.leaving.append(pod)
        else:
            self.staying.append(DrainOutcome(namespace, home.pod, home, _stays(home, pod, self._node)))

    def _take_others(self) -> Iterator[None]:
        """Collect the other evicted pods in short steps: pods without a home, and further pods of shared homes."""
        info = self._cluster.nodes.get(self._node)
        known = {it.uid for it in self.leaving}
        unlisted = {*self._beyond.values()}
        others = 0
        for pod in () if info is None else tuple(info.pods.values()):
            if pod.uid in known or pod.terminating or (pod.owner is not None and pod.owner.kind in _STAYING):
                continue
            self.leaving.append(pod)
            if pod.owner is None:
                self.lost += 1
                continue
            if pod.key in unlisted:
                continue
            if others < MOST_PODS:
                yield
                evicted_pod = self._other(pod)
                if evicted_pod.home is not None and evicted_pod.home.owner.place in self._beyond:
                    continue
                self.evicted.append(evicted_pod)
            others += 1
        self.more_others = max(0, others - MOST_PODS)

    def _other(self, pod: Pod) -> EvictedPod:
        """Return a pod that the list of homes does not name, together with its home.

        The list has only one pod per home, so the pod's profile is queried for the home.
        """
        framework = self._context.framework_for(pod)
        try:
            home = None if framework is None else self._homes.home_of(framework, pod)
        except PluginError as fault:
            return EvictedPod(pod, Restart.FREE, fault=fault.status.message)
        return EvictedPod(pod, Restart.FREE if home is None else restart_condition(home, self._node), home)


def _stays(home: Home, pod: Pod | None, node: str) -> str:
    """Describe the outcome for a home without a pod on the node."""
    if home.state is State.OWNER_GONE:
        return "its owner is gone"
    if pod is not None:
        return f"stays on {pod.node_name}"
    match restart_condition(home, node):
        case Restart.HOME | Restart.HELD_HOME:
            return f"goes home to {home.node}"
        case Restart.GRACE:
            return f"waits for {home.node}; elsewhere after its grace"
        case Restart.HELD:
            return f"waits for {home.node}"
    return "starts elsewhere"
