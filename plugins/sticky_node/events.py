"""Events about homes, and log lines about their states, refusals and edits.

For homes that Homeport writes or removes, the callers in ``recorder`` and ``reconciler`` write the log lines.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

import structlog
from msgspec import Struct

from app.framework.events import EventRecorder, EventType, Reference
from app.framework.handle import Handle
from app.homes.protocol import POLICY, Policy, State
from app.kube.core_v1 import Pod
from app.kube.kinds import NAMESPACES, NODES, PERSISTENT_VOLUMES, AnnotatedObject, Kind
from app.kube.names import is_subdomain, shown
from plugins.sticky_node.annotations import (
    HOME,
    HOME_POD,
    HOME_SINCE,
    Claim,
    ClaimSource,
    home_in,
    readable,
    rfc3339,
    slot_key,
)
from plugins.sticky_node.grace import read_since
from plugins.sticky_node.home_state import HomeState
from plugins.sticky_node.owners import Owner, Slot
from plugins.sticky_node.policy import Action, Decision

_LOG: Final = structlog.get_logger(__name__)
_BINDING: Final = "Binding"
_EDITING: Final = "Editing"
_WATCHING: Final = "Watching"

_UNUSABLE: Final[Mapping[State, tuple[EventType, str]]] = {
    State.AWAY: ("Normal", "HomeAway"),
    State.LEAVING: ("Normal", "HomeLeaving"),
    State.GONE: ("Warning", "HomeGone"),
    State.OTHER_MACHINE: ("Warning", "HomeReplaced"),
}
_FOLLOWING: Final = "Following"
_ADOPTING: Final = "Adopting"
_CLEANING: Final = "Cleaning"
_REMEMBERING: Final = "Remembering"


def made(events: EventRecorder, owner: Owner, claim: Claim) -> None:
    """Report a home that Homeport wrote for a claim. The Event's reason depends on the claim."""
    reason, action, why = "HomeMade", _BINDING, f"{claim.pod} was bound there first"
    if claim.by is ClaimSource.MIGRATION:
        reason, action, why = "HomeFollowed", _FOLLOWING, f"{claim.pod} migrated there from {readable(claim.replaces)}"
    elif claim.by is ClaimSource.ADOPTION:
        reason, action, why = "HomeAdopted", _ADOPTING, f"{claim.pod} runs there"
    elif claim.replaces:
        reason, why = "HomeRemade", f"{claim.pod} was bound there, since {readable(claim.replaces)} could not be had"
    note = f"{claim.node} is the home from now on: {why}"
    _about(events, owner, Reference.to_pod(claim.pod), "Normal", reason, action, note)


def not_inherited(events: EventRecorder, kind: Kind[AnnotatedObject], obj: AnnotatedObject, home: str) -> None:
    """Report that home annotations copied from another object were removed."""
    note = f"the home {readable(home)} was copied from another object and is not this one's: it is removed"
    events.event(Reference.to(kind, obj), _node(home), "Normal", "HomeNotInherited", _CLEANING, note)


def remembered(events: EventRecorder, owner: Owner, home: str) -> None:
    """Report that the owner inherited the home of a predecessor of the same name."""
    note = f"{home} is the home from now on: an earlier {owner.kind.kind} of this name lived there"
    _about(events, owner, _node(home), "Normal", "HomeRemembered", _REMEMBERING, note)


def overridden(events: EventRecorder, owner: Owner, claim: Claim, home: str) -> None:
    """Report that a user wrote another home before the pod's claim was recorded."""
    note = f"{claim.pod} runs on {claim.node}; the home stays {readable(home)}, which was written meanwhile"
    _about(events, owner, Reference.to_pod(claim.pod), "Warning", "HomeOverridden", _BINDING, note)


def not_recorded(events: EventRecorder, owner: Owner, claim: Claim, cause: str) -> None:
    """Report that a home could not be written to its owner."""
    note = f"the home {claim.node} of {claim.pod} cannot be written here, and is kept in memory: {cause}"
    _about(events, owner, Reference.to_pod(claim.pod), "Warning", "HomeNotRecorded", _BINDING, note)


def state_changed(
    events: EventRecorder, owner: Owner, home: str, home_state: HomeState, *, before: State, is_given: bool
) -> None:
    """Report the state of a home by a log line and an Event, if it differs from ``before``. ``NONE`` is not reported,
    nor is ``USABLE`` after ``NONE``.

    ``home_state``: derived only from the node. ``is_given``: true if the home is new or was moved. If the node of such
    a home does not exist, the report asks users to correct or remove the home.
    """
    machine, node, state = str(owner), readable(home), home_state.state
    if state in (before, State.NONE) or (state is State.USABLE and before is State.NONE):
        return
    type_: EventType = "Normal"
    if state is State.USABLE:
        _LOG.info("home returned", machine=machine, node=node)
        reason, note = "HomeReturned", f"the home {node} is usable again"
    elif state is State.GONE and is_given:
        _LOG.warning("home unknown", machine=machine, node=node)
        note = f"the home {node} does not name an existing node: correct or remove {slot_key(HOME, owner.slot)}"
        type_, reason = "Warning", "HomeUnknown"
    else:
        _LOG.info("home not usable", machine=machine, node=node, state=state.words, mark=home_state.mark)
        (type_, reason), note = _UNUSABLE[state], _state_text(home, home_state)
    _about(events, owner, _node(home), type_, reason, _WATCHING, note)


def unknown_policy(events: EventRecorder, owner: Owner, value: str) -> None:
    """Report a policy annotation whose value is not a policy."""
    _LOG.warning("policy unknown", machine=str(owner), policy=readable(value))
    there = ", ".join(it.value for it in Policy)
    note = f"{POLICY} says {readable(value)}, which is not a policy and is ignored: use one of {there}"
    _about(events, owner, None, "Warning", "PolicyUnknown", _WATCHING, note)


def waits(events: EventRecorder, pod: Pod, decision: Decision) -> None:
    """Emit an Event on the pod: it waits for its home, whose node is unusable. For other states, do nothing."""
    if decision.home_state.state in _UNUSABLE:
        type_, reason = _UNUSABLE[decision.home_state.state]
        note = f"the pod waits: {_state_text(decision.home, decision.home_state)}{_until(decision)}"
        events.event(Reference.to_pod(pod), _node(decision.home), type_, reason, _WATCHING, note)


def refused(events: EventRecorder, owner: Owner, pod: Pod, decision: Decision, reasons: str) -> None:
    """Report, on the owner and on the pod, that in-tree filters reject the pod on a usable home."""
    _LOG.info("home refuses", machine=str(owner), node=readable(decision.home), pod=str(pod), reasons=reasons)
    note = f"waits for {readable(decision.home)}: {reasons}{_until(decision)}"
    _about(events, owner, Reference.to_pod(pod), "Normal", "HomeRefuses", _WATCHING, f"{pod} {note}")
    events.event(Reference.to_pod(pod), _node(decision.home), "Normal", "HomeRefuses", _WATCHING, f"the pod {note}")


def grace_over(events: EventRecorder, owner: Owner, pod: Pod, decision: Decision, reasons: str = "") -> None:
    """Report, on the owner and on the pod, that the grace period has ended and the pod may start elsewhere.

    ``reasons``: why a usable home rejected the pod; empty if unknown.
    """
    _LOG.info("grace over", machine=str(owner), node=readable(decision.home), pod=str(pod))
    if decision.home_state.state is State.USABLE:
        why = f"the home {readable(decision.home)} did not take {pod}{f' ({reasons})' if reasons else ''}"
    else:
        why = _state_text(decision.home, decision.home_state)
    since = "" if decision.since is None else f" since {rfc3339(decision.since)}"
    note = f"{why}{since}: the grace is over, and {pod} may start elsewhere"
    _about(events, owner, Reference.to_pod(pod), "Normal", "GraceOver", _WATCHING, note)
    events.event(Reference.to_pod(pod), _node(decision.home), "Normal", "GraceOver", _WATCHING, note)


def elsewhere(events: EventRecorder, owner: Owner, pod: Pod, decision: Decision) -> None:
    """Report, on the owner and on the pod, that a volume of the pod cannot be reached from the home."""
    node, mark = readable(decision.home), decision.home_state.mark
    _LOG.warning("home elsewhere", machine=str(owner), node=node, pod=str(pod), mark=mark)
    does = "waits" if decision.action is Action.WAIT else "may start where it can"
    note = (
        f"the home {node} cannot use a volume of {pod}, which {does} ({mark}): "
        f"move the home to where the volume is, or release it, by {slot_key(HOME, owner.slot)}; "
        "or restore the volume at home"
    )
    _about(events, owner, Reference.to_pod(pod), "Warning", "HomeElsewhere", _WATCHING, note)
    events.event(Reference.to_pod(pod), _node(decision.home), "Warning", "HomeElsewhere", _WATCHING, note)


def _state_text(home: str, home_state: HomeState) -> str:
    """Return the home and its state as text, such as ``the home n1 is away (cordoned)``."""
    mark = f" ({home_state.mark})" if home_state.mark and home_state.state is not State.GONE else ""
    words = "another machine now" if home_state.state is State.OTHER_MACHINE else home_state.state.words
    return f"the home {readable(home)} is {words}{mark}"


def _until(decision: Decision) -> str:
    return "" if decision.ends_at is None else f"; from {rfc3339(decision.ends_at)} on it may start elsewhere"


def edited(
    events: EventRecorder, kind: Kind[AnnotatedObject], obj: AnnotatedObject, ordinal: str, was: str, now: str
) -> None:
    """Emit the Event for a home that was set, moved or removed by someone other than Homeport.

    ``ordinal``: the words " of ordinal 3", which follow "the home"; empty for an owner with one home.
    """
    old, new = readable(was), readable(now)
    if not was:
        reason, note = "HomeGiven", f"{new} is the home{ordinal} from now on"
    elif now:
        reason, note = "HomeMoved", f"the home{ordinal} was moved from {old} to {new}"
    else:
        reason, note = "HomeGivenUp", f"{old} is not the home{ordinal} any more: the next bind makes a new one"
    events.event(Reference.to(kind, obj), _node(now or was), "Normal", reason, _EDITING, note)


def _about(
    events: EventRecorder,
    owner: Owner,
    related: Reference | None,
    type_: EventType,
    reason: str,
    action: str,
    note: str,
) -> None:
    events.event(Reference.to(owner.kind, owner.obj), related, type_, reason, action, note)


def _node(name: str) -> Reference | None:
    """Return a reference to the node; ``None`` if the name is not a valid node name."""
    return Reference(NODES.api_version, NODES.kind, "", name) if is_subdomain(name) else None


_WITHOUT_ANNOTATIONS: Final = frozenset[Kind[Any]]((PERSISTENT_VOLUMES, NAMESPACES))
"""Kinds that are watched for other purposes and never keep homes."""

MOST_REPORTED: Final = 50
"""Maximum number of homes of one object reported per change, because a user can write hundreds at once."""


def report_edits(
    kind: Kind[AnnotatedObject], old: AnnotatedObject, new: AnnotatedObject, recorder: EventRecorder
) -> None:
    """Log a line and emit an Event for each home of the object that was set, moved or removed. Homes that Homeport
    wrote are left out. At most ``MOST_REPORTED`` homes are reported.
    """
    if kind in _WITHOUT_ANNOTATIONS or old.annotations == new.annotations:
        return
    reported = 0
    for key in sorted({*old.annotations, *new.annotations}):
        if key == HOME or key.startswith(f"{HOME}."):
            reported += _report_edit(key.removeprefix(HOME), kind, old, new, recorder)
            if reported == MOST_REPORTED:
                return


def _report_edit(
    suffix: str, kind: Kind[AnnotatedObject], old: AnnotatedObject, new: AnnotatedObject, recorder: EventRecorder
) -> bool:
    """Report that a home was removed, or was set or moved by someone other than Homeport.

    Return true if a change was reported; false if the home is unchanged, or Homeport wrote it.

    ``suffix``: end of the home's annotation: empty, or a dot and the ordinal of the pod.
    """
    slot = suffix[1:]
    was, now = home_in(old, slot), home_in(new, slot)
    is_ours = old.annotations.get(f"{HOME_POD}{suffix}") != new.annotations.get(f"{HOME_POD}{suffix}")
    ordinal = f", ordinal {slot}" if slot else ""
    machine = f"{kind.kind} {new.namespace}/{new.name}{ordinal}"
    if was and not now:
        _LOG.info("home given up", machine=machine, node=readable(was))
    elif was == now or is_ours:
        return False
    elif was:
        _LOG.info("home moved", machine=machine, before=readable(was), node=readable(now))
    else:
        _LOG.info("home given", machine=machine, node=readable(now))
    edited(recorder, kind, new, f" of{ordinal[1:]}" if ordinal else "", was, now)
    return True


_MOST_REASONS: Final = 4
"""Maximum number of reasons in a text."""

_LONGEST_REASON: Final = 160
"""Maximum length of a reason that is not shortened, in characters."""


def reasons_text(reasons: Sequence[str]) -> str:
    """Return the first few reasons on one line.

    Unprintable and overlong reasons are quoted and cut, because reasons can contain resource names chosen by tenants.
    """
    texts = [it if it.isprintable() and len(it) <= _LONGEST_REASON else shown(it) for it in reasons[:_MOST_REASONS]]
    more = len(reasons) - len(texts)
    return ", ".join((*texts, f"and {more} more") if more else texts)


class OwnedHome(Struct, frozen=True):
    """Home as last evaluated. ``home_state``: derived only from ``node``; ``NONE`` while the policy ``off`` applies."""

    owner: Owner
    node: str
    home_state: HomeState


HomesBySlot: TypeAlias = Mapping[str, OwnedHome]
"""Homes of one owner, by slot."""


class StateReporter:
    """Reports each change of state once, even if the state cannot be written to the owner."""

    def __init__(self, handle: Handle) -> None:
        self._events = handle.event_recorder
        self._now = handle.timing.wall_clock
        self._unwritten: dict[Slot, State] = {}

    def forget(self, slot: Slot) -> None:
        """Forget a slot whose owner was deleted."""
        self._unwritten.pop(slot, None)

    def written(self, obj: AnnotatedObject, homes: HomesBySlot, given: Collection[str]) -> None:
        """Report the changed states of an owner's homes after a write.

        Each state is compared with the last one that was reported but not written, else with the annotation on ``obj``,
        the owner before the write. No valid annotation means ``USABLE``. ``given``: slots with new or moved homes.
        """
        now = self._now()
        for slot, home in homes.items():
            written = read_since(obj.annotations.get(slot_key(HOME_SINCE, slot), ""), home.node, now)
            before = State.USABLE if written is None else written.state
            last = self._unwritten.pop(home.owner.key, before)
            self._report(home, last, is_given=slot in given)

    def unwritten(self, homes: HomesBySlot, given: Collection[str]) -> None:
        """Report states that could not be written and differ from the last unwritten ones, at first from ``USABLE``."""
        for slot, home in homes.items():
            last = self._unwritten.get(home.owner.key, State.USABLE)
            self._report(home, last, is_given=slot in given)
            self._unwritten[home.owner.key] = home.home_state.state

    def settled(self, homes: HomesBySlot) -> None:
        """Forget the unwritten states of these homes, which need no write now. Report those that are usable again."""
        for home in homes.values():
            last = self._unwritten.pop(home.owner.key, None)
            if last is not None and home.home_state.state is State.USABLE:
                self._report(home, last, is_given=False)

    def _report(self, home: OwnedHome, before: State, *, is_given: bool) -> None:
        state_changed(self._events, home.owner, home.node, home.home_state, before=before, is_given=is_given)
