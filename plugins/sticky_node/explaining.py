"""Explains the home of a pod: a table, facts as data, and hints for a pod that waits for its home."""

from __future__ import annotations

from typing import Final

from app.framework.explanation import Explanation, HomeFacts, HomeKeeper, Table
from app.framework.handle import NodeVerdict
from app.framework.node_info import Candidates
from app.homes.protocol import POLICY, Policy, State
from plugins.sticky_node.annotations import HOME, Claim, readable, rfc3339, slot_key
from plugins.sticky_node.events import reasons_text
from plugins.sticky_node.owners import Missing, Owner
from plugins.sticky_node.policy import STATES, Action, Decision

_COLUMNS: Final = ("kept by", "node", "policy", "state", "what happens", "grace", "recorded", "made by")
_ASKED: Final = ("node", "in-tree filters refuse it for", "not asked here")
_NOTHING: Final = "nothing that is known here"
_NO_HOME: Final = "none yet: the first bind makes it"
_HOME_OFF: Final = "none: the policy is off"


def explain_missing(owner: Missing) -> Explanation:
    """Explain that the pod's owner, or an object on the way to it, is not in the snapshot."""
    return Explanation(unblock=(f"the pod's owner {owner} is not in the snapshot: it must exist first",))


def explain_home(
    owner: Owner, decision: Decision, nodes: Candidates, *, claim: Claim | None, made: bool, cause: str
) -> Explanation:
    """Explain filter's decision. ``claim``: the claim that makes a home that is not recorded yet; otherwise ``None``.

    ``made``: true if the claim's pod is bound. ``cause``: why the last write of the home failed; empty if it did not.
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
    facts = _facts(owner, decision, recorded=claim is None and bool(home))
    return Explanation((Table("home", _COLUMNS, (row,)),), _unblock(owner, decision, nodes), home=facts)


def _facts(owner: Owner, decision: Decision, *, recorded: bool) -> HomeFacts:
    obj, applied, home_state = owner.obj, decision.applied, decision.home_state
    return HomeFacts(
        HomeKeeper(owner.kind.api_version, owner.kind.kind, obj.namespace, obj.name, obj.uid, owner.slot),
        slot_key(HOME, owner.slot),
        readable(decision.home) if decision.home else "",
        home_state.state.value,
        applied.policy.value,
        applied.source,
        decision.action.value,
        cause=home_state.mark,
        waits=decision.action is Action.WAIT,
        since="" if decision.since is None else rfc3339(decision.since),
        until="" if decision.ends_at is None else rfc3339(decision.ends_at),
        recorded=recorded,
    )


def explain_refused(owner: Owner, decision: Decision, verdict: NodeVerdict | None, *, tried: bool) -> Explanation:
    """Explain why a usable home rejects its pod. ``verdict``: result of the in-tree filters for the home.

    ``verdict`` is ``None`` if the home is not among the nodes that pass the profile's own filters. ``tried``: true if
    the scheduler found no node for the pod. If it is false, the result is empty if the in-tree filters give no reason.
    """
    home, tables = readable(decision.home), tuple[Table, ...]()
    if verdict is None:
        text = "other plugins refuse the pod there"
    else:
        text = reasons_text(verdict.reasons)
        if not text and not tried:
            return Explanation()
        tables = (Table("asked of the home", _ASKED, ((home, text or _NOTHING, ", ".join(verdict.unasked)),)),)
    if not text:
        return Explanation(tables)
    cures = (
        f"node {home} is the home, and does not take the pod: remove the cause: {text}",
        f"move the home or release it: set or remove {slot_key(HOME, owner.slot)} on {owner}",
        f"let the pod go elsewhere while its home does not take it: set {POLICY}={Policy.SOFT.value} on {owner}",
    )
    ends = (f"wait until {rfc3339(decision.ends_at)}",) if decision.ends_at is not None else ()
    return Explanation(tables, (*cures, *ends))


def _state(decision: Decision) -> str:
    home_state = decision.home_state
    text = STATES[home_state.state] if home_state.state is not State.NONE else home_state.state.value
    return f"{text}: {home_state.mark}" if home_state.mark not in ("", text) else text


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
    """Return hints for a pod that can start only at home: how the home can take it, or how it can start elsewhere.

    Empty for other pods, and if the home is usable and among ``nodes``.
    """
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
