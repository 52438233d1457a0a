"""Who would have to leave a node that is drained, and when each may start again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from app.homes.lists import HomeLists
from app.homes.protocol import Home, Policy, State
from app.kube.core_v1 import Pod
from app.kube.meta_v1 import ObjectKey
from app.runtime.guard import PluginError
from app.verbs.context import VerbContext

MOST_HOMES: Final = 1000
"""Homes of one node that are told of, and so the pods of them that are judged; the rest is counted."""

MOST_PODS: Final = 512
"""Other pods of one node that are judged, and told of. Kubelets run 110 unless they are told otherwise."""

MOST_NAMES: Final = 100
"""Nodes that are named of those on which a pod could run."""

_STAYING: Final = frozenset({"DaemonSet", "Node"})
"""Controllers whose pods no drain evicts: those of a node itself are its static pods."""


class Way(Enum):
    """When a pod may start again, once the node takes no pods."""

    FREE = "at once, anywhere"
    HOME = "at once, at its home, which is another node; after its grace anywhere"
    HELD_HOME = "at its home, which is another node, and nowhere else"
    GRACE = "after its grace, anywhere"
    HELD = "at its home, which takes no pods then"


class Lodger(Struct, frozen=True):
    """Somebody who has the home on the node, or whose pod runs there. What is not of a home has ``home`` ``None``.

    ``nodes``: the first of those that would take the pod beside all that were placed before it, ``count`` of them in
    all; ``None`` where nobody asked · ``goes_to``: the one that it was placed on · ``waits_for``: the home that it
    waits for, at first or for good · ``fits_alone``: without the others it would find a node · ``why``: what most other
    nodes say · ``then``: what becomes of it, in words.
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


class Found(Struct, frozen=True):
    """``best``: of the nodes that pass and were scored, that with the highest score, then with the fewest pods; empty
    for none.
    """

    passed: Sequence[str] = ()
    best: str = ""
    why: str = ""


class Goer(Struct, frozen=True):
    """``pod`` as the picture has it. ``fault``: why it cannot be said when it may start; mostly empty."""

    pod: Pod
    way: Way
    home: Home | None = None
    fault: str = ""

    @property
    def place(self) -> tuple[int, str, str, str]:
        """In the order of schedulers' queues."""
        return (-self.pod.spec.priority, self.pod.created, *self.pod.key)

    @property
    def waits_for(self) -> str:
        """The home that it waits for, at least for a while; empty for none."""
        return self.home.node if self.home is not None and self.way is not Way.FREE else ""

    def told(self, then: str, found: Found | None = None, **more: Any) -> Lodger:
        """What is told of it."""
        given: dict[str, Any] = {"waits_for": self.waits_for, **more}
        if found is not None:
            given |= {"nodes": tuple(found.passed[:MOST_NAMES]), "count": len(found.passed), "why": found.why}
        return Lodger(self.pod.namespace, self.pod.name, self.home, then, **given)


_Place = tuple[str, str, str, str, str]
"""Namespace, kind, name, slot and apiVersion of the owner."""


def _place_of(home: Home) -> _Place:
    owner = home.owner
    return (owner.namespace, owner.kind, owner.name, owner.slot, owner.api_version)


def way_of(home: Home, node: str) -> Way:
    """When a pod with that home may start again, once ``node`` takes no pods."""
    if not home.node or not home.holds:
        return Way.FREE
    has_grace = home.policy is Policy.GRACE
    if _is_elsewhere(home, node):
        return Way.HOME if has_grace else Way.HELD_HOME
    return Way.GRACE if has_grace else Way.HELD


def _is_elsewhere(home: Home, node: str) -> bool:
    """Whether the home is another node, to which the pod may go."""
    is_usable = not (home.is_away or home.is_orphaned or home.state is State.VOLUME_ELSEWHERE)
    return is_usable and home.node not in ("", node)


def tried_first(home: Home | None, node: str) -> str:
    """The home, where it is another node that the pod would go to before any other; else empty."""
    if home is None or home.policy is Policy.OFF or home.state is State.TARGET or not _is_elsewhere(home, node):
        return ""
    return home.node


class Lodging:
    """Who is at the node: those that are to be judged, and all pods that would leave it."""

    def __init__(self, context: VerbContext, homes: HomeLists, node: str) -> None:
        self._context = context
        self._homes = homes
        self._cluster = context.cluster
        self._node = node
        self._seen: dict[_Place, Home] = {}
        self._beyond: dict[_Place, ObjectKey] = {}
        self.goers: list[Goer] = []
        self.leaving: list[Pod] = []
        self.staying: list[Lodger] = []
        self.more_others = 0
        self.lost = 0

    @property
    def more(self) -> int:
        """Homes that are not told of, nor their pods."""
        return len(self._beyond)

    def reading(self) -> Iterator[None]:
        """In short steps. Of a home that several profiles list, the one counts that judges its pod."""
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
        place = _place_of(home)
        known = self._seen.get(place)
        if known is None and len(self._seen) == MOST_HOMES:
            self._beyond[place] = (home.owner.namespace, home.pod)
        elif known is None or (home.is_judged and not known.is_judged):
            self._seen[place] = home

    def _take(self, home: Home) -> None:
        namespace = home.owner.namespace
        pod = self._cluster.pod(namespace, home.pod) if home.pod else None
        if pod is not None and pod.node_name in ("", self._node):
            self.goers.append(Goer(pod, way_of(home, self._node), home))
            self.leaving.append(pod)
        else:
            self.staying.append(Lodger(namespace, home.pod, home, _stays(home, pod, self._node)))

    def _take_others(self) -> Iterator[None]:
        """The other pods that a drain evicts, in short steps: those without a home, and those that share one."""
        info = self._cluster.nodes.get(self._node)
        known = {it.uid for it in self.leaving}
        untold = {*self._beyond.values()}
        others = 0
        for pod in () if info is None else tuple(info.pods.values()):
            if pod.uid in known or pod.terminating or (pod.owner is not None and pod.owner.kind in _STAYING):
                continue
            self.leaving.append(pod)
            if pod.owner is None:
                self.lost += 1
                continue
            if pod.key in untold:
                continue
            if others < MOST_PODS:
                yield
                goer = self._other(pod)
                if goer.home is not None and _place_of(goer.home) in self._beyond:
                    continue
                self.goers.append(goer)
            others += 1
        self.more_others = max(0, others - MOST_PODS)

    def _other(self, pod: Pod) -> Goer:
        """A home has one pod in the list: of its others the profile that judges them is asked."""
        framework = self._context.framework_for(pod)
        try:
            home = None if framework is None else self._homes.home_of(framework, pod)
        except PluginError as fault:
            return Goer(pod, Way.FREE, fault=fault.status.message)
        return Goer(pod, Way.FREE if home is None else way_of(home, self._node), home)


def _stays(home: Home, pod: Pod | None, node: str) -> str:
    """What becomes of a home whose pod is not on the node, if there is any."""
    if home.state is State.OWNER_GONE:
        return "its owner is gone"
    if pod is not None:
        return f"stays on {pod.node_name}"
    match way_of(home, node):
        case Way.HOME | Way.HELD_HOME:
            return f"goes home to {home.node}"
        case Way.GRACE:
            return f"waits for {home.node}; elsewhere after its grace"
        case Way.HELD:
            return f"waits for {home.node}"
    return "starts elsewhere"
