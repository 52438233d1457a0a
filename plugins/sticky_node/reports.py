"""Reports about homes for operators: metrics, the list of all homes, and the home of one pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from app.framework.explanation import Figure
from app.framework.handle import Handle
from app.framework.objects import Objects, Unreadable
from app.homes.protocol import Home, HomeOwner, Policy, State, Whereabouts
from app.kube.core_v1 import Pod
from app.kube.names import is_subdomain
from plugins.sticky_node.annotations import PendingHomes, readable, recorded_home, rfc3339
from plugins.sticky_node.background import HomeEntry, HomeScan, in_steps
from plugins.sticky_node.grace import GraceClocks
from plugins.sticky_node.home_state import HomeStates
from plugins.sticky_node.owners import Owner
from plugins.sticky_node.policy import Decider, Policies

NODE_GONE: Final = "node_gone"
UNRECORDED: Final = "unrecorded"

STATES_OF_PODS: Final = (
    Whereabouts.AT_HOME,
    Whereabouts.ELSEWHERE,
    Whereabouts.WAITING,
    Whereabouts.IDLE,
    NODE_GONE,
    UNRECORDED,
)
"""Values of the label ``state``, in order: the pod runs at home, runs elsewhere, waits, or does not exist; the node of
the home does not exist; the home is not written to its owner yet.
"""

_HOMES: Final = "Homes by state: at_home, elsewhere, waiting, idle, node_gone or unrecorded."
_LONGEST: Final = "Age of the oldest pod that waits for its home; 0 if none does."


class PodStateMetrics:
    """Metrics of homes by the state of their pods, recomputed on every call."""

    def __init__(self, scan: HomeScan, objects: Objects, pending: PendingHomes) -> None:
        self._scan = scan
        self._objects = objects
        self._pending = pending

    def figures(self, now: datetime | None = None) -> Iterator[Figure | None]:
        """Yield the gauges ``homes``, by state, and ``homes_longest_wait_seconds``. ``now``: with a time zone."""
        counts = dict.fromkeys(STATES_OF_PODS, 0)
        oldest = ""
        for entry in self._scan():
            if entry is None:
                yield None
            elif entry.home:
                counts[self._state(entry.home, entry.machine)] += 1
                if entry.machine is Whereabouts.WAITING and entry.waits_since:
                    oldest = min(entry.waits_since, oldest or entry.waits_since)
        counts[UNRECORDED] = len(self._pending.made())
        for state, count in counts.items():
            yield Figure("homes", _HOMES, count, {"state": state})
        yield Figure("homes_longest_wait_seconds", _LONGEST, _age(oldest, now or datetime.now(UTC)))

    def _state(self, home: str, machine: Whereabouts) -> str:
        return NODE_GONE if self._objects.misses_node(home) else machine


def _age(created: str, now: datetime) -> float:
    """Return the seconds since a time in RFC 3339; 0 if it is empty, invalid or in the future."""
    try:
        return max(0.0, (now - datetime.fromisoformat(created)).total_seconds())
    except (ValueError, TypeError):  # not a time, or without a zone
        return 0.0


NODE_STATES: Final = tuple(
    it.value for it in (State.USABLE, State.AWAY, State.LEAVING, State.GONE, State.OTHER_MACHINE)
)
MOST_NODES: Final = 10
"""Maximum number of nodes that the metric ``homes_unusable`` names."""

OTHERS: Final = "(others)"
"""Label value for homes on nodes that ``homes_unusable`` does not name."""


NO_NODE: Final = "(gone)"
"""Label value for homes on nodes that do not exist. Users can write any node name, so these names are not used as label
values.
"""

_BY_NODE_STATE: Final = (
    "Homes by the state of their node (usable, away, leaving, gone or other_machine) and by their owner's policy."
)
_BY_NODE: Final = (
    f"Homes that are not usable, by node: the {MOST_NODES} nodes with most of them, {OTHERS}, and {NO_NODE} for homes "
    "on nodes that do not exist."
)


class NodeStateMetrics:
    """Metrics of homes by the state of their nodes, recomputed on every call. Policies of pods are not considered."""

    def __init__(self, scan: HomeScan, home_states: HomeStates, policies: Policies) -> None:
        self._scan = scan
        self._home_states = home_states
        self._policies = policies

    def figures(self) -> Iterator[Figure | None]:
        """Yield the gauges ``homes_by_node_state`` and ``homes_unusable``."""
        counts: Counter[tuple[str, str]] = Counter()
        nodes: Counter[str] = Counter()
        for owner in in_steps(self._scan.owners()):
            if owner is None:
                yield None
                continue
            home = recorded_home(owner)
            if not home:
                continue
            with suppress(Unreadable):
                policy = self._policies.of(owner).policy
                state = self._home_states.of_node(home, owner).state
                counts[state.value, policy.value] += 1
                if state is not State.USABLE:
                    nodes[NO_NODE if state is State.GONE else home] += 1
        for home_state in NODE_STATES:
            for policy in Policy:
                labels = {"node_state": home_state, "policy": policy.value}
                yield Figure("homes_by_node_state", _BY_NODE_STATE, counts[home_state, policy.value], labels)
        for node, count in _bounded(nodes).items():
            yield Figure("homes_unusable", _BY_NODE, count, {"node": node})


def _bounded(nodes: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of homes on the ``MOST_NODES`` nodes with the most homes, ties sorted by name.

    Always includes the sum of the other nodes as ``OTHERS``, and the homes without an existing node as ``NO_NODE``.
    """
    named = sorted((it for it in nodes if it != NO_NODE), key=lambda it: (-nodes[it], it))
    rest = sum(nodes[it] for it in named[MOST_NODES:])
    return {**{it: nodes[it] for it in named[:MOST_NODES]}, OTHERS: rest, NO_NODE: nodes.get(NO_NODE, 0)}


NO_NAME: Final = "the annotation is not a valid node name"
_AWAY: Final = frozenset({State.AWAY, State.LEAVING})
_ORPHANED: Final = frozenset({State.GONE, State.OTHER_MACHINE})

_DATED: Final = _AWAY | _ORPHANED
"""States whose start is recorded."""


class HomeDescription(NamedTuple):
    """State of a home for display. ``policy``: ``None`` if it cannot be read. ``source``: origin of the policy.

    ``since``: since when the home is unusable, in RFC 3339; empty if not recorded. ``mark``: cause of the state.
    ``holds``: true if the pod waits while the node accepts no pods.
    """

    state: State
    policy: Policy | None
    source: str
    since: str = ""
    mark: str = ""
    holds: bool = True


class Listing:
    """Lists all homes with their states and policies, recomputed on every call. Does not start a grace period."""

    def __init__(
        self,
        scan: HomeScan,
        policies: Policies,
        home_states: HomeStates,
        clocks: GraceClocks,
        decider: Decider,
        handle: Handle,
    ) -> None:
        self._scan = scan
        self._policies = policies
        self._home_states = home_states
        self._clocks = clocks
        self._decider = decider
        self._serves = handle.profile.serves

    def homes(self) -> Iterator[Home | None]:
        """Yield all homes, also remembered ones, and owners with only a pod; ``None`` after each short step.

        Raises ``Unreadable`` if a Home object cannot be decoded.
        """
        for entry in self._scan():
            yield None if entry is None else self._home(entry, self._described(entry))
        for entry in self._scan.remembered():
            yield None if entry is None else self._home_without_owner(entry)

    def home_of(self, owner: Owner, pod: Pod) -> Home:
        """Return the home of an owner, described for this pod. Raises ``Unreadable``."""
        entry = HomeEntry(owner, recorded_home(owner), pod)
        return self._home(entry, self._describe(owner, entry.home, pod))

    def _described(self, entry: HomeEntry) -> HomeDescription:
        try:
            return self._describe(entry.owner, entry.home, entry.pod)
        except Unreadable:
            return HomeDescription(State.UNKNOWN, None, "")

    def _describe(self, owner: Owner, home: str, pod: Pod | None) -> HomeDescription:
        """Describe an owner's home. ``home``: name of its node; empty if there is none. Raises ``Unreadable``."""
        applied = self._policies.of(owner, pod)
        if not home:
            return HomeDescription(State.NONE, applied.policy, applied.source, holds=False)
        home_state = self._home_states.of_node(home, owner) if pod is None else self._home_states.of(home, owner, pod)
        since = None if home_state.state not in _DATED else self._clocks.known(owner, home)
        return HomeDescription(
            home_state.state,
            applied.policy,
            applied.source,
            "" if since is None else rfc3339(since),
            home_state.mark,
            self._decider.holds(owner, home, applied, home_state.state),
        )

    def _home(self, entry: HomeEntry, description: HomeDescription) -> Home:
        obj, pod = entry.owner.obj, entry.pod
        kind = entry.owner.kind
        return Home(
            HomeOwner(kind.api_version, kind.kind, obj.namespace, obj.name, obj.uid, entry.owner.slot),
            readable(entry.home) if entry.home else "",
            description.state,
            entry.machine,
            policy=description.policy,
            policy_source=description.source,
            since=description.since,
            mark=description.mark,
            pod=pod.name if pod is not None else "",
            pod_node=pod.node_name if pod is not None else "",
            contradiction=_contradiction(entry, description) if entry.home else "",
            is_away=description.state in _AWAY,
            is_orphaned=description.state in _ORPHANED,
            is_judged=pod is None or self._serves(pod.spec.scheduler_name),
            holds=description.holds,
        )

    def _home_without_owner(self, entry: HomeEntry) -> Home:
        home = self._home(entry, self._described(entry))
        return replace(home, state=State.OWNER_GONE, since="", is_orphaned=True)


def _contradiction(entry: HomeEntry, description: HomeDescription) -> str:
    if not is_subdomain(entry.home):
        return NO_NAME
    if description.state is State.VOLUME_ELSEWHERE:
        return f"its pod's volume is elsewhere: {description.mark}"
    if entry.machine is Whereabouts.ELSEWHERE and entry.pod is not None:
        return f"its pod runs on {entry.pod.node_name}"
    return ""
