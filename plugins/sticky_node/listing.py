"""Every home, for a person: where it is, how it is about it, and what cannot both be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from app.framework.interface import Handle, Home, HomeOwner, Unreadable
from app.kube.core_v1 import Node, Pod
from app.kube.names import is_subdomain
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.home import readable
from plugins.sticky_node.owners import Owner
from plugins.sticky_node.table import State
from plugins.sticky_node.walk import ELSEWHERE, Kept, Walk

NO_NAME: Final = "what is written there is no name of a node"

_AWAY: Final = frozenset({State.AWAY, State.LEAVING})
_ORPHANED: Final = frozenset({State.GONE, State.OTHER_MACHINE})
_TAKES_NOTHING: Final = frozenset(f"node.kubernetes.io/{it}" for it in ("unschedulable", "not-ready", "unreachable"))
UNKNOWN: Final = "unknown"
"""The state of a home that rests on something that cannot be read."""


class Described(NamedTuple):
    """How it is about a home. ``source``: who said the policy · ``since``: RFC 3339, empty if nobody knows.

    ``mark``: what says so of its node, for a person.
    """

    state: str
    policy: str
    source: str
    since: str = ""
    mark: str = ""


Describe = Callable[[Owner, str, Pod | None], Described]
"""Takes an owner, its home (empty for none) and its pod. May raise ``Unreadable``."""


class Listing:
    """Lists homes anew each time. ``describe`` has the word on each."""

    def __init__(self, walk: Walk, describe: Describe, handle: Handle) -> None:
        self._walk = walk
        self._describe = describe
        self._serves = handle.serves

    def homes(self) -> Iterator[Home | None]:
        """``None`` after each short step."""
        for kept in self._walk():
            yield None if kept is None else self._home(kept, self._described(kept))

    def _described(self, kept: Kept) -> Described:
        try:
            return self._describe(kept.owner, kept.home, kept.pod)
        except Unreadable:
            return Described(UNKNOWN, "", "")

    def _home(self, kept: Kept, told: Described) -> Home:
        found, pod = kept.owner.found, kept.pod
        kind = kept.owner.kind
        return Home(
            HomeOwner(kind.api_version, kind.kind, found.namespace, found.name, found.uid, kept.owner.slot),
            readable(kept.home) if kept.home else "",
            told.state.replace(" ", "_"),
            kept.machine,
            policy=told.policy,
            policy_source=told.source,
            since=told.since,
            mark=told.mark,
            pod=pod.name if pod is not None else "",
            pod_node=pod.node_name if pod is not None else "",
            contradiction=_contradiction(kept, told.state) if kept.home else "",
            is_away=told.state in _AWAY,
            is_orphaned=told.state in _ORPHANED,
            is_judged=pod is None or self._serves(pod.spec.scheduler_name),
        )


def _contradiction(kept: Kept, state: str) -> str:
    if not is_subdomain(kept.home):
        return NO_NAME
    if state == State.VOLUME_ELSEWHERE:
        return f"a volume of its pod cannot be reached from {kept.home}"
    if kept.machine == ELSEWHERE and kept.pod is not None:
        return f"its pod runs on {kept.pod.node_name}"
    return ""


class ByNode:
    """Implements ``Describe`` by what a node says of itself and what the arguments say of policies."""

    def __init__(self, args: StickyNodeArgs, handle: Handle) -> None:
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._default = args.policy
        self._of_kinds = {it.pair: it.policy for it in args.owners if it.policy is not None}

    def __call__(self, owner: Owner, home: str, pod: Pod | None) -> Described:
        policy = self._of_kinds.get((owner.kind.api_version, owner.kind.kind))
        source = "default" if policy is None else f"owners: {owner.kind.kind}"
        state, mark = self._state(home)
        return Described(state, policy or self._default, source, mark=mark)

    def _state(self, home: str) -> tuple[State, str]:
        if not home:
            return State.NONE, ""
        if self._objects.misses_node(home):
            return State.GONE, ""
        found = self._nodes.get(home)
        mark = "" if found is None else _mark(found.node)
        return (State.AWAY if mark else State.USABLE), mark


def _mark(node: Node) -> str:
    """What says that the node takes nothing; empty if nothing does."""
    if node.unschedulable:
        return "cordoned"
    return next((f"taint {it.key}" for it in node.taints if it.key in _TAKES_NOTHING), "")
