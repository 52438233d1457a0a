"""Reports about homes for operators: metrics, the list of all homes, and ``explain``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from app.framework.explanation import Explanation, Figure, Table
from app.framework.handle import Handle, NodeVerdict
from app.framework.node_info import Candidates
from app.framework.objects import Objects, Unreadable
from app.homes.protocol import Home, HomeOwner, Policy, State, Whereabouts
from app.kube.core_v1 import Pod
from app.kube.names import is_subdomain
from plugins.sticky_node.annotations import HOME, Claim, PendingHomes, readable, recorded_home, rfc3339, slot_key
from plugins.sticky_node.background import HomeEntry, HomeScan, in_steps
from plugins.sticky_node.events import reasons_text
from plugins.sticky_node.grace import GraceClocks
from plugins.sticky_node.home_state import HomeStates
from plugins.sticky_node.owners import Missing, Owner
from plugins.sticky_node.policy import POLICY, STATES, Action, Decider, Decision, Policies

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
"""Values of the label ``state``. Each recorded home is in one of the first five.

In order: its pod runs at home, runs elsewhere, waits, or does not exist, or the home's node does not exist.
``unrecorded``: the home is not written to its owner yet.
"""

_HOMES: Final = "Homes by state: at_home, elsewhere, waiting, idle, node_gone or unrecorded."
_LONGEST: Final = "Age of the oldest pod that waits for its home; 0 if none does."


class PodStateFigures:
    """Metrics of homes by the state of their pods, recomputed on every call."""

    def __init__(self, scan: HomeScan, objects: Objects, pending: PendingHomes) -> None:
        self._scan = scan
        self._objects = objects
        self._pending = pending

    def figures(self, now: datetime | None = None) -> Iterator[Figure | None]:
        """Yield ``homes`` by state, and ``homes_longest_wait_seconds``. ``now``: in UTC."""
        counts = dict.fromkeys(STATES_OF_PODS, 0)
        oldest = ""
        for kept in self._scan():
            if kept is None:
                yield None
            elif kept.home:
                counts[self._state(kept.home, kept.machine)] += 1
                if kept.machine is Whereabouts.WAITING and kept.waits_since:
                    oldest = min(kept.waits_since, oldest or kept.waits_since)
        counts[UNRECORDED] = len(self._pending.made())
        for state, count in counts.items():
            yield Figure("homes", _HOMES, count, {"state": state})
        yield Figure("homes_longest_wait_seconds", _LONGEST, _age(oldest, now or datetime.now(UTC)))

    def _state(self, home: str, machine: Whereabouts) -> str:
        return NODE_GONE if self._objects.misses_node(home) else machine


def _age(created: str, now: datetime) -> float:
    """Return the seconds since a time in RFC 3339; 0 if it is empty or invalid."""
    try:
        return max(0.0, (now - datetime.fromisoformat(created)).total_seconds())
    except (ValueError, TypeError):  # not a time, or without a zone
        return 0.0


STANDINGS: Final = tuple(it.value for it in (State.USABLE, State.AWAY, State.LEAVING, State.GONE, State.OTHER_MACHINE))
MOST_NODES: Final = 10
OTHERS: Final = "(others)"

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


class NodeStateFigures:
    """Metrics of homes by the state of their nodes, recomputed on every call. Policies of pods are not considered."""

    def __init__(self, scan: HomeScan, home_states: HomeStates, policies: Policies) -> None:
        self._scan = scan
        self._home_states = home_states
        self._policies = policies

    def figures(self) -> Iterator[Figure | None]:
        """Yield ``homes_by_node_state`` and ``homes_unusable``."""
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
        for home_state in STANDINGS:
            for policy in Policy:
                labels = {"node_state": home_state, "policy": policy.value}
                yield Figure("homes_by_node_state", _BY_NODE_STATE, counts[home_state, policy.value], labels)
        for node, count in _bounded(nodes).items():
            yield Figure("homes_unusable", _BY_NODE, count, {"node": node})


def _bounded(nodes: Mapping[str, int]) -> dict[str, int]:
    """Return the nodes with the most homes, ties sorted by name.

    Always includes the sum of the other nodes, and the homes without an existing node.
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
    """State of a home for display. ``source``: origin of the policy · ``since``: in RFC 3339, empty if unknown.

    ``mark``: cause of the node's state · ``holds``: true if the pod waits while the node accepts no pods.
    """

    state: State
    policy: Policy | None
    source: str
    since: str = ""
    mark: str = ""
    holds: bool = True


class Listing:
    """Lists all homes, recomputed on every call, with the decisions that filter would make. Does not start a grace
    period.
    """

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
        """Yield all homes, and ``None`` after each short step."""
        for kept in self._scan():
            yield None if kept is None else self._home(kept, self._described(kept))
        for kept in self._scan.remembered():
            yield None if kept is None else self._home_of_nobody(kept)

    def home_of(self, owner: Owner, pod: Pod) -> Home:
        """Return the home of an owner, described for this pod. Raises ``Unreadable``."""
        kept = HomeEntry(owner, recorded_home(owner), pod)
        return self._home(kept, self._describe(owner, kept.home, pod))

    def _described(self, kept: HomeEntry) -> HomeDescription:
        try:
            return self._describe(kept.owner, kept.home, kept.pod)
        except Unreadable:
            return HomeDescription(State.UNKNOWN, None, "")

    def _describe(self, owner: Owner, home: str, pod: Pod | None) -> HomeDescription:
        """Return the state of an owner's home; ``home`` is empty for none. Raises ``Unreadable``."""
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

    def _home(self, kept: HomeEntry, told: HomeDescription) -> Home:
        obj, pod = kept.owner.obj, kept.pod
        kind = kept.owner.kind
        return Home(
            HomeOwner(kind.api_version, kind.kind, obj.namespace, obj.name, obj.uid, kept.owner.slot),
            readable(kept.home) if kept.home else "",
            told.state,
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

    def _home_of_nobody(self, kept: HomeEntry) -> Home:
        home = self._home(kept, self._described(kept))
        return replace(home, state=State.OWNER_GONE, since="", is_orphaned=True)


def _contradiction(kept: HomeEntry, told: HomeDescription) -> str:
    if not is_subdomain(kept.home):
        return NO_NAME
    if told.state is State.VOLUME_ELSEWHERE:
        return f"its pod's volume is elsewhere: {told.mark}"
    if kept.machine is Whereabouts.ELSEWHERE and kept.pod is not None:
        return f"its pod runs on {kept.pod.node_name}"
    return ""


_COLUMNS: Final = ("kept by", "node", "policy", "state", "what happens", "grace", "recorded", "made by")
_ASKED: Final = ("node", "in-tree filters refuse it for", "not asked here")
_NOTHING: Final = "nothing that is known here"
_NO_HOME: Final = "none yet: the first bind makes it"
_HOME_OFF: Final = "none: the policy is off"


def explain_missing(owner: Missing) -> Explanation:
    return Explanation(unblock=(f"the pod's owner {owner} is not in the snapshot: it must exist first",))


def explain_home(
    owner: Owner, decision: Decision, nodes: Candidates, *, claim: Claim | None, made: bool, cause: str
) -> Explanation:
    """Explain filter's decision. ``claim``: source of a home that is not recorded; ``None`` if it is.

    ``made``: true if the claim's pod is bound · ``cause``: why its home could not be written.
    """
    home, applied = decision.home, decision.applied
    row = (
        str(owner),
        readable(home) if home else _HOME_OFF if applied.policy is Policy.OFF else _NO_HOME,
        f"{applied.policy.value} ({applied.source})",
        _state(decision),
        decision.action.value,
        _grace(decision),
        claim is None and bool(home),
        _made_by(claim, made=made, cause=cause),
    )
    return Explanation((Table("home", _COLUMNS, (row,)),), _unblock(owner, decision, nodes))


def explain_refused(owner: Owner, decision: Decision, verdict: NodeVerdict | None, *, tried: bool) -> Explanation:
    """Explain why a usable home rejects its pod. ``verdict``: result of the in-tree filters for the home.

    ``verdict`` is ``None`` if other filters of the profile reject the pod there, which are listed per node. ``tried``:
    the scheduler found no node, so an unknown rejection is mentioned, too.
    """
    home, tables = readable(decision.home), tuple[Table, ...]()
    if verdict is None:
        said = "other plugins refuse the pod there"
    else:
        said = reasons_text(verdict.reasons)
        if not said and not tried:
            return Explanation()
        tables = (Table("asked of the home", _ASKED, ((home, said or _NOTHING, ", ".join(verdict.unasked)),)),)
    if not said:
        return Explanation(tables)
    cures = (
        f"node {home} is the home, and does not take the pod: remove the cause: {said}",
        f"move the home or release it: set or remove {slot_key(HOME, owner.slot)} on {owner}",
        f"let the pod go elsewhere while its home does not take it: set {POLICY}={Policy.SOFT.value} on {owner}",
    )
    ends = (f"wait until {rfc3339(decision.ends_at)}",) if decision.ends_at is not None else ()
    return Explanation(tables, (*cures, *ends))


def _state(decision: Decision) -> str:
    home_state = decision.home_state
    said = STATES[home_state.state] if home_state.state is not State.NONE else home_state.state.value
    return f"{said}: {home_state.mark}" if home_state.mark not in ("", said) else said


def _grace(decision: Decision) -> str:
    if decision.since is None or decision.ends_at is None:
        return ""
    word = "over since" if decision.over else "until"
    return f"since {rfc3339(decision.since)}, {word} {rfc3339(decision.ends_at)}"


def _made_by(claim: Claim | None, *, made: bool, cause: str) -> str:
    if claim is None:
        return ""
    if not made:
        return f"{claim.pod}, which is being bound to {claim.node}"
    return f"{claim.pod} on {claim.node}, not recorded{': ' if cause else ''}{cause}"


def _unblock(owner: Owner, decision: Decision, nodes: Candidates) -> tuple[str, ...]:
    """Return the changes that would let a pod that waits for its home start there."""
    home, state = readable(decision.home), decision.home_state.state
    key = f"set or remove {slot_key(HOME, owner.slot)} on {owner}"
    if decision.action is Action.WAIT:
        cures = {
            State.GONE: f"node {home} is not there: bring it back, or {key}",
            State.OTHER_MACHINE: f"node {home} is another machine: bring the old one back, or {key}",
            State.VOLUME_ELSEWHERE: f"{decision.home_state.mark}: move the home there, or {key}",
        }
        cure = cures.get(state, f"node {home} takes no pods: {decision.home_state.mark}: let it take them, or {key}")
        ends = (f"wait until {rfc3339(decision.ends_at)}",) if decision.ends_at is not None else ()
        return (cure, *ends)
    if decision.action is Action.HOME and decision.home not in nodes.name_set:
        return (f"node {home} is not among the nodes asked about: see why it does not pass, or {key}",)
    return ()
