"""What a person sees of homes on the object that keeps them, as Events; the same in the log is told elsewhere."""

from __future__ import annotations

from typing import Final

from app.framework.events import EventRecorder, EventType, Reference
from app.kube.kinds import NODES, AnnotatedObject, Kind
from app.kube.names import is_subdomain
from plugins.sticky_node.home import By, Claim, home_key, readable
from plugins.sticky_node.owners import Owner

_BINDING: Final = "Binding"
_EDITING: Final = "Editing"
_FILTERING: Final = "Filtering"
_FOLLOWING: Final = "Following"
_ADOPTING: Final = "Adopting"
_CLEANING: Final = "Cleaning"
_REMEMBERING: Final = "Remembering"


def made(events: EventRecorder, owner: Owner, claim: Claim) -> None:
    """Homeport has written a home; the reason says from what."""
    reason, action, why = "HomeMade", _BINDING, f"{claim.pod} was bound there first"
    if claim.by is By.MIGRATION:
        reason, action, why = "HomeFollowed", _FOLLOWING, f"{claim.pod} migrated there from {readable(claim.replaces)}"
    elif claim.by is By.ADOPTION:
        reason, action, why = "HomeAdopted", _ADOPTING, f"{claim.pod} runs there"
    elif claim.replaces:
        reason, why = "HomeRemade", f"{claim.pod} was bound there, since {readable(claim.replaces)} could not be had"
    note = f"{claim.node} is the home from now on: {why}"
    _about(events, owner, Reference.to_pod(claim.pod), "Normal", reason, action, note)


def not_inherited(events: EventRecorder, kind: Kind[AnnotatedObject], found: AnnotatedObject, home: str) -> None:
    """What stood there of a home was copied from another object, and has been removed."""
    note = f"the home {readable(home)} was copied from another object and is not this one's: it is removed"
    events.event(Reference.to(kind, found), _node(home), "Normal", "HomeNotInherited", _CLEANING, note)


def remembered(events: EventRecorder, owner: Owner, home: str) -> None:
    """An earlier object of the owner's name lived there."""
    note = f"{home} is the home from now on: an earlier {owner.kind.kind} of this name lived there"
    _about(events, owner, _node(home), "Normal", "HomeRemembered", _REMEMBERING, note)


def overridden(events: EventRecorder, owner: Owner, claim: Claim, home: str) -> None:
    """A person wrote a home while the pod was bound elsewhere."""
    note = f"{claim.pod} runs on {claim.node}; the home stays {readable(home)}, which was written meanwhile"
    _about(events, owner, Reference.to_pod(claim.pod), "Warning", "HomeOverridden", _BINDING, note)


def not_recorded(events: EventRecorder, owner: Owner, claim: Claim, cause: str) -> None:
    note = f"the home {claim.node} of {claim.pod} cannot be written here, and is kept in memory: {cause}"
    _about(events, owner, Reference.to_pod(claim.pod), "Warning", "HomeNotRecorded", _BINDING, note)


def lost(events: EventRecorder, owner: Owner, home: str) -> None:
    """The home is no node of the cluster."""
    cure = f"bring it back, or set or remove {home_key(owner.slot)}"
    note = f"the home {readable(home)} is not there, so no node will do: {cure}"
    _about(events, owner, _node(home), "Warning", "HomeLost", _FILTERING, note)


def edited(
    events: EventRecorder, kind: Kind[AnnotatedObject], found: AnnotatedObject, ordinal: str, was: str, now: str
) -> None:
    """Somebody else than Homeport gave, moved or removed a home. ``ordinal``: in words, empty where there is none."""
    old, new = readable(was), readable(now)
    if not was:
        reason, note = "HomeGiven", f"{new} is the home{ordinal} from now on"
    elif now:
        reason, note = "HomeMoved", f"the home{ordinal} was moved from {old} to {new}"
    else:
        reason, note = "HomeGivenUp", f"{old} is not the home{ordinal} any more: the next first bind makes one"
    events.event(Reference.to(kind, found), _node(now or was), "Normal", reason, _EDITING, note)


def _about(
    events: EventRecorder,
    owner: Owner,
    related: Reference | None,
    type_: EventType,
    reason: str,
    action: str,
    note: str,
) -> None:
    events.event(Reference.to(owner.kind, owner.found), related, type_, reason, action, note)


def _node(name: str) -> Reference | None:
    """``None`` for what no node can be called."""
    return Reference(NODES.api_version, NODES.kind, "", name) if is_subdomain(name) else None
