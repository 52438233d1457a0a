"""Where a home is written down, whose it is, and which pod's word for it still counts.

A first bind writes the home onto the pod, in the Binding itself, so that no crash can separate the two. From there it
is copied to the owner, together with the UID of the pod it came from:

    on the owner   homeport.dev/home          the node                                (homeport.dev/home.3: ordinal 3)
                   homeport.dev/home-pod      the UID of the pod that was heard last  (homeport.dev/home-pod.3)
                   homeport.dev/home-owner    the owner's UID and the node, when Homeport last looked
                   homeport.dev/home-machine  the systemUUID of the node then
    on the pod     homeport.dev/home          the node
                   homeport.dev/home-after    the ``home-pod`` its owner had then; absent if it had none
                   homeport.dev/home-replaces the home its owner had then; absent if it had none

A pod's word is open as long as its owner still has that ``home-pod``, so of all pods that were bound on the same word
one is heard, once. It is heard in place of the home that was there when it was bound, and of no other: a newer edit by
a person wins, and closes what was open. Nor does a home come back that a person removed: ``home-pod`` stays behind, and
whose word is open was bound since. The target of a migration carries the open claim of the pod that it replaces, with
that pod's node: that pod will be gone.

Clones and restores copy annotations. What stands beside the UID of another object is not the owner's own, and counts
for nothing, unless the home is another than the one that UID was written with: then a person has written it since.
Without any UID a home is a person's word.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from app.framework.handle import Handle
from app.kube.core_v1 import Pod
from app.kube.homes_v1alpha1 import Home, memory_name
from app.kube.kinds import AnnotatedObject, Kind
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.kube.names import is_subdomain, shown
from plugins.sticky_node.owners import HOMES, Owner
from plugins.sticky_node.pods import slots

HOME: Final = f"{ANNOTATION_DOMAIN}home"
HOME_POD: Final = f"{ANNOTATION_DOMAIN}home-pod"
HOME_OWNER: Final = f"{ANNOTATION_DOMAIN}home-owner"
HOME_MACHINE: Final = f"{ANNOTATION_DOMAIN}home-machine"
HOME_SINCE: Final = f"{ANNOTATION_DOMAIN}home-since"
HOME_AFTER: Final = f"{ANNOTATION_DOMAIN}home-after"
HOME_REPLACES: Final = f"{ANNOTATION_DOMAIN}home-replaces"

_GIVEN_UP: Final = "-"
"""In place of a node, and the name of none."""

_LATEST: Final = 253402300799.0
"""Last second of the year 9999, in seconds since 1970: RFC 3339 has years of four digits."""

_HOME_ANNOTATIONS: Final = (HOME, HOME_POD, HOME_OWNER, HOME_MACHINE, HOME_SINCE)


class ClaimSource(StrEnum):
    """What a claim comes from."""

    BIND = "bind"
    MIGRATION = "migration"
    ADOPTION = "adoption"


class Claim(Struct, frozen=True):
    """A pod's word for a home: it goes, or has gone, to ``node`` while its owner's home was ``replaces``.

    ``after``: the owner's ``home-pod`` at that time · ``decides``: it was the machine's active pod when last looked at
    · ``replaces``: empty where there was no home.
    """

    pod: Pod
    node: str
    owner: Owner
    after: str
    decides: bool
    replaces: str = ""
    by: ClaimSource = ClaimSource.BIND

    def is_open(self, owner: Owner) -> bool:
        """Return whether it may still be heard; ``owner`` in its newest form."""
        return home_pod(owner) == self.after != self.pod.uid

    def makes(self, owner: Owner) -> bool:
        """Return whether its node becomes the home if it is heard now: nobody has written another one since."""
        return self.is_open(owner) and recorded_home(owner) == self.replaces


def slot_key(name: str, slot: str) -> str:
    """Return the key of an annotation for one slot: ``homeport.dev/home.3`` for ordinal 3."""
    return f"{name}.{slot}" if slot else name


def recorded_home(owner: Owner) -> str:
    """The home on the owner, or the one that is remembered of an earlier object of its name.

    Empty if there is none, a person removed it, or what stands there was copied from another object.
    """
    home = home_in(owner.obj, owner.slot)
    if home or owner.before is None or last_pod_in(owner.obj, owner.slot):
        return home
    return owner.before.node


def home_in(obj: AnnotatedObject, slot: str) -> str:
    """The same of an object that keeps homes."""
    home = obj.annotations.get(slot_key(HOME, slot), "")
    return home if home and not is_copied(obj, slot) else ""


def recorded_machine(owner: Owner) -> str:
    """The systemUUID of the home's node when it became the home; empty if that is not known of this home."""
    obj, slot = owner.obj, owner.slot
    home = home_in(obj, slot)
    if owner.before is not None and not home and recorded_home(owner):
        return owner.before.machine
    _, _, node = obj.annotations.get(slot_key(HOME_OWNER, slot), "").partition(" ")
    if is_copied(obj, slot) or node not in ("", home):
        return ""  # copied, or a person has moved the home since
    return obj.annotations.get(slot_key(HOME_MACHINE, slot), "")


def home_pod(owner: Owner) -> str:
    """The UID of the pod whose word was heard last; of a home that is remembered, its owner's; else empty."""
    heard = last_pod_in(owner.obj, owner.slot)
    if heard or owner.before is None or home_in(owner.obj, owner.slot):
        return heard
    return _mark(owner.before)


def _mark(before: Home) -> str:
    return before.keeper.uid or before.uid


def last_pod_in(obj: AnnotatedObject, slot: str) -> str:
    """The same of what stands on an object that keeps homes."""
    heard = obj.annotations.get(slot_key(HOME_POD, slot), "")
    return heard if heard and not is_copied(obj, slot) else ""


def is_copied(obj: AnnotatedObject, slot: str) -> bool:
    """Return whether what stands there of a home was copied from another object, and is as it was there."""
    uid, _, node = obj.annotations.get(slot_key(HOME_OWNER, slot), "").partition(" ")
    home = obj.annotations.get(slot_key(HOME, slot), "")
    return uid not in ("", obj.uid) and (not home or node in ("", home))


def is_own(obj: AnnotatedObject, slot: str) -> bool:
    """Return whether the owner's UID stands there, with a home or without: without, somebody has given one up."""
    uid, _, _ = obj.annotations.get(slot_key(HOME_OWNER, slot), "").partition(" ")
    return uid == obj.uid != ""


def is_confirmed(obj: AnnotatedObject, slot: str) -> bool:
    """Return whether the owner's UID stands beside the home as it is: Homeport wrote it, or has seen it."""
    return obj.annotations.get(slot_key(HOME_OWNER, slot)) == _owner_value(
        obj.uid, obj.annotations.get(slot_key(HOME, slot), "")
    )


def _owner_value(uid: str, home: str) -> str:
    return f"{uid} {home}" if is_subdomain(home) else uid


def slots_of(obj: AnnotatedObject, *, per_ordinal: bool) -> list[str]:
    """The slots of which anything is written on the object, within the bound of ``slots``."""
    return slots(obj.annotations, *_HOME_ANNOTATIONS, per_ordinal=per_ordinal)


def readable(home: str) -> str:
    """What stands where a home does, for a person: anybody may have written anything there, of any length."""
    return home if is_subdomain(home) else shown(home)


def owner_annotations(owner: Owner, claim: Claim, machine: str) -> dict[str, str | None]:
    """What a claim that is heard writes on its owner. Where it makes no home it is closed, and nothing else.

    ``machine``: of the claim's node.
    """
    heard: dict[str, str | None] = {slot_key(HOME_POD, owner.slot): claim.pod.uid}
    if not claim.makes(owner):
        return heard
    return {slot_key(HOME, owner.slot): claim.node, **heard, **ownership_annotations(owner, claim.node, machine)}


def restored_annotations(owner: Owner, before: Home) -> dict[str, str | None]:
    """What writes a home that is remembered onto the owner."""
    heard = {slot_key(HOME, owner.slot): before.node, slot_key(HOME_POD, owner.slot): _mark(before)}
    return {**heard, **ownership_annotations(owner, before.node, before.machine)}


def ownership_annotations(owner: Owner, home: str, machine: str) -> dict[str, str | None]:
    """What tells a home from a copy of it, and a node from another of its name."""
    written: dict[str, str | None] = {slot_key(HOME_OWNER, owner.slot): _owner_value(owner.obj.uid, home)}
    if machine or slot_key(HOME_MACHINE, owner.slot) in owner.obj.annotations:
        written[slot_key(HOME_MACHINE, owner.slot)] = machine or None
    return written


def release_annotations(obj: AnnotatedObject, slot: str) -> dict[str, str | None]:
    """What is to be written since somebody gave a home up: the next one is new, on whatever machine it is then."""
    key = slot_key(HOME_MACHINE, slot)
    is_left = key in obj.annotations and is_own(obj, slot) and not obj.annotations.get(slot_key(HOME, slot))
    return {key: None, slot_key(HOME_OWNER, slot): f"{obj.uid} {_GIVEN_UP}"} if is_left else {}


def without(obj: AnnotatedObject, slot: str) -> dict[str, str | None]:
    """What removes all that is written of a home."""
    keys = (slot_key(name, slot) for name in _HOME_ANNOTATIONS)
    return {key: None for key in keys if key in obj.annotations}


def pod_annotations(claim: Claim, there: Mapping[str, str]) -> dict[str, str]:
    """What the Binding says of a claim, in place of whatever stands ``there``."""
    said = {HOME_AFTER: claim.after, HOME_REPLACES: claim.replaces}
    return {HOME: claim.node, **{key: value for key, value in said.items() if value or key in there}}


def no_claim_annotations(there: Mapping[str, str]) -> dict[str, str]:
    """What the Binding says for a pod that makes no home: a Binding cannot remove what somebody else wrote there."""
    return {HOME: ""} if there.get(HOME) else {}


async def remember(handle: Handle, kind: Kind[Any], obj: AnnotatedObject, slot: str, node: str, machine: str) -> None:
    """Write the Home object in which a home outlives its owner.

    Raises what the writer raises, and ``Unreadable``.
    """
    owner: dict[str, str | None] = {"apiVersion": kind.api_version, "kind": kind.kind}
    owner |= {"name": obj.name, "uid": obj.uid}
    spec: dict[str, Any] = {"node": node, "since": rfc3339(handle.timing.wall_clock())}
    name = memory_name(kind.api_version, kind.kind, obj.name, slot)
    known = handle.objects.get(HOMES, obj.namespace, name)
    if known is not None:
        whole = {"owner": owner | {"slot": slot or None}, "machine": machine or None}
        await handle.writer.change(HOMES, known, spec | whole)
    else:
        given = {"owner": owner | ({"slot": slot} if slot else {})} | ({"machine": machine} if machine else {})
        await handle.writer.create(HOMES, obj.namespace, name, spec | given)


def seconds(time: str) -> float | None:
    """Return a time in RFC 3339 as seconds since 1970; ``None`` if it is invalid or has no zone."""
    try:
        parsed = datetime.fromisoformat(time)
        return parsed.timestamp() if parsed.tzinfo else None
    except (ValueError, OverflowError):
        return None


def rfc3339(time: float) -> str:
    """Return a time in seconds since 1970 in RFC 3339, to the second, limited to the years 1970 to 9999."""
    return datetime.fromtimestamp(min(max(time, 0.0), _LATEST), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
