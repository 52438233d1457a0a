"""Every home, for a person: where it is, how it is about it, and what cannot both be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from app.framework.interface import Handle, Home, HomeOwner, Unreadable
from app.kube.core_v1 import Pod
from app.kube.names import is_subdomain
from plugins.sticky_node.clocks import Clocks, rfc3339
from plugins.sticky_node.deciding import Decider
from plugins.sticky_node.home import readable, recorded_home
from plugins.sticky_node.owners import Owner
from plugins.sticky_node.policies import Policies
from plugins.sticky_node.standing import Standings
from plugins.sticky_node.table import State
from plugins.sticky_node.walk import ELSEWHERE, Kept, Walk

NO_NAME: Final = "what is written there is no name of a node"

_AWAY: Final = frozenset({State.AWAY, State.LEAVING})
_ORPHANED: Final = frozenset({State.GONE, State.OTHER_MACHINE})
_DATED: Final = _AWAY | _ORPHANED
"""States of which it is written down when they began."""

UNKNOWN: Final = "unknown"
"""The state of a home that rests on something that cannot be read."""

OWNER_GONE: Final = "owner gone"
"""The state of a home that is remembered of an owner that is not there any more, whatever its node is like."""


class Described(NamedTuple):
    """How it is about a home. ``source``: who said the policy · ``since``: RFC 3339, empty if nobody knows.

    ``mark``: what says so of its node, for a person · ``holds``: whether its pod waits while the node takes none.
    """

    state: str
    policy: str
    source: str
    since: str = ""
    mark: str = ""
    holds: bool = True


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
        for kept in self._walk.remembered():
            yield None if kept is None else self._home_of_nobody(kept)

    def home_of(self, owner: Owner, pod: Pod) -> Home:
        """That of the owner, with this one of its pods. Raises ``Unreadable``."""
        kept = Kept(owner, recorded_home(owner), pod)
        return self._home(kept, self._describe(owner, kept.home, pod))

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
            contradiction=_contradiction(kept, told) if kept.home else "",
            is_away=told.state in _AWAY,
            is_orphaned=told.state in _ORPHANED,
            is_judged=pod is None or self._serves(pod.spec.scheduler_name),
            holds=told.holds,
        )

    def _home_of_nobody(self, kept: Kept) -> Home:
        found = self._home(kept, self._described(kept))
        return replace(found, state=OWNER_GONE.replace(" ", "_"), since="", is_orphaned=True)


def _contradiction(kept: Kept, told: Described) -> str:
    if not is_subdomain(kept.home):
        return NO_NAME
    if told.state == State.VOLUME_ELSEWHERE:
        return f"its pod's volume is elsewhere: {told.mark}"
    if kept.machine == ELSEWHERE and kept.pod is not None:
        return f"its pod runs on {kept.pod.node_name}"
    return ""


class Describer:
    """Implements ``Describe`` by what filter goes by, and begins no clock."""

    def __init__(self, policies: Policies, standings: Standings, clocks: Clocks, decider: Decider) -> None:
        self._policies = policies
        self._standings = standings
        self._clocks = clocks
        self._decider = decider

    def __call__(self, owner: Owner, home: str, pod: Pod | None) -> Described:
        applied = self._policies.of(owner, pod)
        if not home:
            return Described(State.NONE, applied.policy, applied.source, holds=False)
        found = self._standings.of_node(home, owner) if pod is None else self._standings.of(home, owner, pod)
        since = None if found.state not in _DATED else self._clocks.known(owner, home)
        return Described(
            found.state,
            applied.policy,
            applied.source,
            "" if since is None else rfc3339(since),
            found.mark,
            self._decider.holds(owner, home, applied, found.state),
        )
