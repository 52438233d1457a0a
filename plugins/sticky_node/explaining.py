"""What a person is told of a home: the same that filter goes by."""

from __future__ import annotations

from typing import Final

from app.framework.interface import Explanation, NodeVerdict, Table
from app.framework.node_info import Candidates
from plugins.sticky_node.clocks import rfc3339
from plugins.sticky_node.deciding import Decision
from plugins.sticky_node.home import Claim, home_key, readable
from plugins.sticky_node.owners import Missing, Owner
from plugins.sticky_node.policies import POLICY
from plugins.sticky_node.refused_pods import in_words
from plugins.sticky_node.table import STATES, Action, Policy, State

_COLUMNS: Final = ("kept by", "node", "policy", "state", "what happens", "grace", "recorded", "made by")
_ASKED: Final = ("node", "in-tree filters refuse it for", "not asked here")
_NOTHING: Final = "nothing that is known here"
_NONE: Final = "none yet: the first bind makes it"
_OFF: Final = "none: the policy is off"


def explain_missing(owner: Missing) -> Explanation:
    return Explanation(unblock=(f"the pod's owner {owner} is not in the picture: it must exist first",))


def explain_home(
    owner: Owner, decision: Decision, nodes: Candidates, *, claim: Claim | None, made: bool, cause: str
) -> Explanation:
    """``decision``: what filter goes by · ``claim``: where the home comes from that is not recorded.

    ``made``: the pod of the claim is there · ``cause``: why its home could not be written.
    """
    home, applied = decision.home, decision.applied
    row = (
        str(owner),
        readable(home) if home else _OFF if applied.policy is Policy.OFF else _NONE,
        f"{applied.policy.value} ({applied.source})",
        _state(decision),
        decision.action.value,
        _grace(decision),
        claim is None and bool(home),
        _made_by(claim, made=made, cause=cause),
    )
    return Explanation((Table("home", _COLUMNS, (row,)),), _unblock(owner, decision, nodes))


def explain_refused(owner: Owner, decision: Decision, verdict: NodeVerdict | None, *, tried: bool) -> Explanation:
    """Of a pod that may go to its home alone, which takes pods. ``verdict``: what in-tree filters say of the home.

    ``None``: other filters of the profile refuse it, which is told of each node. ``tried``: the scheduler has found no
    node for the pod, so that somebody does; that it is not known who, is told then.
    """
    home, tables = readable(decision.home), tuple[Table, ...]()
    if verdict is None:
        said = "other plugins refuse the pod there"
    else:
        said = in_words(verdict.reasons)
        if not said and not tried:
            return Explanation()
        tables = (Table("asked of the home", _ASKED, ((home, said or _NOTHING, ", ".join(verdict.unasked)),)),)
    if not said:
        return Explanation(tables)
    cures = (
        f"node {home} is the home, and does not take the pod: {said}: see to that",
        f"move the home or release it: set or remove {home_key(owner.slot)} on {owner}",
        f"let the pod go elsewhere while its home does not take it: set {POLICY}={Policy.SOFT.value} on {owner}",
    )
    ends = (f"wait until {rfc3339(decision.ends_at)}",) if decision.ends_at is not None else ()
    return Explanation(tables, (*cures, *ends))


def _state(decision: Decision) -> str:
    standing = decision.standing
    said = STATES[standing.state] if standing.state is not State.NONE else standing.state.value
    return f"{said}: {standing.mark}" if standing.mark not in ("", said) else said


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
    """What would let the pod in where it waits for its home."""
    home, state = readable(decision.home), decision.standing.state
    key = f"set or remove {home_key(owner.slot)} on {owner}"
    if decision.action is Action.WAIT:
        cures = {
            State.GONE: f"node {home} is not there: bring it back, or {key}",
            State.OTHER_MACHINE: f"node {home} is another machine: bring the old one back, or {key}",
            State.VOLUME_ELSEWHERE: f"{decision.standing.mark}: move the home there, or {key}",
        }
        cure = cures.get(state, f"node {home} takes no pods: {decision.standing.mark}: let it take them, or {key}")
        ends = (f"wait until {rfc3339(decision.ends_at)}",) if decision.ends_at is not None else ()
        return (cure, *ends)
    if decision.action is Action.HOME and decision.home not in nodes.name_set:
        return (f"node {home} is not among the nodes asked about: see why it does not pass, or {key}",)
    return ()
