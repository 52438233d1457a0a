"""Annotations that hold homes: their format, their owner, and the claims of pods.

The first bind writes the home onto the pod, in the Binding itself, so that a crash cannot lose the home of a bound pod.
Homeport then copies the home to the owner, together with the UID of the pod:

    on the owner   homeport.dev/home          the node                              (homeport.dev/home.3: ordinal 3)
                   homeport.dev/home-pod      UID of the pod recorded last          (homeport.dev/home-pod.3)
                   homeport.dev/home-owner    the owner's UID and the node, as last seen by Homeport
                   homeport.dev/home-machine  systemUUID of that node at the time
                   homeport.dev/home-since    time at which the home became unusable
    on the pod     homeport.dev/home          the node
                   homeport.dev/home-after    ``home-pod`` of its owner at the time; absent or empty if there was none
                   homeport.dev/home-replaces home of its owner at the time; absent or empty if there was none

The annotations on a pod are its *claim*. It is open while its ``home-after`` equals the owner's ``home-pod``. So of the
pods bound under one ``home-pod``, only one is recorded, and only once. A claim replaces only the home in its
``home-replaces``. After an edit by a user, the claim is closed and the home stays. A home that a user removed does not
come back: ``home-pod`` remains, and older claims have another ``home-after``. The target pod of a migration carries the
open claim of the source pod, with the source pod's node, because the source pod will be deleted.

Clones and restores copy annotations. So home annotations are ignored if ``home-owner`` has the UID of another object,
unless the home differs from the node there, because a user has changed it. A home without any UID is from a user.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from app.framework.handle import Handle
from app.framework.objects import Unreadable
from app.kube.core_v1 import Pod
from app.kube.homes_v1alpha1 import HomeRecord, memory_name
from app.kube.kinds import AnnotatedObject, Kind
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.kube.names import is_subdomain, shown
from plugins.sticky_node.owners import HOMES, Owner, Slot
from plugins.sticky_node.pods import slots

HOME: Final = f"{ANNOTATION_DOMAIN}home"
HOME_POD: Final = f"{ANNOTATION_DOMAIN}home-pod"
HOME_OWNER: Final = f"{ANNOTATION_DOMAIN}home-owner"
HOME_MACHINE: Final = f"{ANNOTATION_DOMAIN}home-machine"
HOME_SINCE: Final = f"{ANNOTATION_DOMAIN}home-since"
HOME_AFTER: Final = f"{ANNOTATION_DOMAIN}home-after"
HOME_REPLACES: Final = f"{ANNOTATION_DOMAIN}home-replaces"

_GIVEN_UP: Final = "-"
"""Placeholder for the node in ``home-owner`` after a release; not a valid node name."""

_LATEST: Final = 253402300799.0
"""Last second of the year 9999, in seconds since 1970, because years in RFC 3339 have four digits."""

_HOME_ANNOTATIONS: Final = (HOME, HOME_POD, HOME_OWNER, HOME_MACHINE, HOME_SINCE)


class ClaimSource(StrEnum):
    """Cause of a claim: the bind of its pod, a migration, or the adoption of a running virtual machine."""

    BIND = "bind"
    MIGRATION = "migration"
    ADOPTION = "adoption"


class Claim(Struct, frozen=True):
    """Claim of a pod: ``node`` becomes the owner's home.

    ``after`` and ``replaces``: the owner's ``home-pod`` and home when the claim was created; empty if there was none.
    ``decides``: last result of ``ActivePods.decides``, which tells if the pod may make the home.
    """

    pod: Pod
    node: str
    owner: Owner
    after: str
    decides: bool
    replaces: str = ""
    by: ClaimSource = ClaimSource.BIND

    def is_open(self, owner: Owner) -> bool:
        """Return true if the claim can still be recorded. ``owner``: in its newest version."""
        return home_pod(owner) == self.after != self.pod.uid

    def makes(self, owner: Owner) -> bool:
        """Return true if recording the claim now makes its node the home.

        The result is false if another home has been written since. ``owner``: in its newest version.
        """
        return self.is_open(owner) and recorded_home(owner) == self.replaces


def slot_key(name: str, slot: str) -> str:
    """Return the key of an annotation for one slot: ``homeport.dev/home.3`` for ordinal 3."""
    return f"{name}.{slot}" if slot else name


def recorded_home(owner: Owner) -> str:
    """Return the home on the owner; if there is none, the home remembered from a predecessor of the same name.

    A home that was copied from another object is ignored. The result is empty if no home is left, or a user removed it.
    """
    home = home_in(owner.obj, owner.slot)
    if home or owner.before is None or last_pod_in(owner.obj, owner.slot):
        return home
    return owner.before.node


def home_in(obj: AnnotatedObject, slot: str) -> str:
    """Return the home written on an object; empty if there is none, or if it was copied from another object."""
    home = obj.annotations.get(slot_key(HOME, slot), "")
    return home if home and not is_copied(obj, slot) else ""


def recorded_machine(owner: Owner) -> str:
    """Return the systemUUID that the home's node had when it became the home; empty if unknown for this home."""
    obj, slot = owner.obj, owner.slot
    home = home_in(obj, slot)
    if owner.before is not None and not home and recorded_home(owner):
        return owner.before.machine
    _, _, node = obj.annotations.get(slot_key(HOME_OWNER, slot), "").partition(" ")
    if is_copied(obj, slot) or node not in ("", home):
        return ""  # copied, or a user has moved the home since
    return obj.annotations.get(slot_key(HOME_MACHINE, slot), "")


def home_pod(owner: Owner) -> str:
    """Return the UID of the pod recorded last; empty if there is none.

    For a remembered home, the result is the UID of the earlier owner with this name, or else of the Home object.
    """
    last_pod = last_pod_in(owner.obj, owner.slot)
    if last_pod or owner.before is None or home_in(owner.obj, owner.slot):
        return last_pod
    return _home_pod_of(owner.before)


def _home_pod_of(before: HomeRecord) -> str:
    """Return ``home-pod`` of a remembered home: the UID of the predecessor, or else of the Home object."""
    return before.keeper.uid or before.uid


def last_pod_in(obj: AnnotatedObject, slot: str) -> str:
    """Return ``home-pod`` of an object; empty if there is none, or if it was copied from another object."""
    last_pod = obj.annotations.get(slot_key(HOME_POD, slot), "")
    return last_pod if last_pod and not is_copied(obj, slot) else ""


def is_copied(obj: AnnotatedObject, slot: str) -> bool:
    """Return true if ``home-owner`` names another object, and the home it names was not replaced by another one."""
    uid, _, node = obj.annotations.get(slot_key(HOME_OWNER, slot), "").partition(" ")
    home = obj.annotations.get(slot_key(HOME, slot), "")
    return uid not in ("", obj.uid) and (not home or node in ("", home))


def is_own(obj: AnnotatedObject, slot: str) -> bool:
    """Return true if ``home-owner`` names this object. This is also true after a release, when there is no home."""
    uid, _, _ = obj.annotations.get(slot_key(HOME_OWNER, slot), "").partition(" ")
    return uid == obj.uid != ""


def is_confirmed(obj: AnnotatedObject, slot: str) -> bool:
    """Return true if ``home-owner`` names this object and its current home: Homeport wrote or saw this home."""
    return obj.annotations.get(slot_key(HOME_OWNER, slot)) == _owner_value(
        obj.uid, obj.annotations.get(slot_key(HOME, slot), "")
    )


def _owner_value(uid: str, home: str) -> str:
    return f"{uid} {home}" if is_subdomain(home) else uid


def slots_of(obj: AnnotatedObject, *, per_ordinal: bool) -> list[str]:
    """Return the slots that have home annotations on the object, at most ``MOST_SLOTS``."""
    return slots(obj.annotations, *_HOME_ANNOTATIONS, per_ordinal=per_ordinal)


def readable(home: str) -> str:
    """Return the home as text for messages: quoted and shortened unless it is a valid node name."""
    return home if is_subdomain(home) else shown(home)


def machine_of(handle: Handle, node: str) -> str:
    """Return the systemUUID of a node; empty if it is unknown."""
    with suppress(Unreadable):
        info = handle.nodes.get(node)
        return "" if info is None else info.node.state.machine
    return ""


def owner_annotations(owner: Owner, claim: Claim, machine: str) -> dict[str, str | None]:
    """Return the annotations that record a claim on its owner.

    If the claim does not make a home, only ``home-pod`` is written, which closes the claim. ``machine``: systemUUID of
    the claim's node.
    """
    closing: dict[str, str | None] = {slot_key(HOME_POD, owner.slot): claim.pod.uid}
    if not claim.makes(owner):
        return closing
    return {slot_key(HOME, owner.slot): claim.node, **closing, **ownership_annotations(owner, claim.node, machine)}


def restored_annotations(owner: Owner, before: HomeRecord) -> dict[str, str | None]:
    """Return the annotations that write a remembered home onto the owner."""
    restored = {slot_key(HOME, owner.slot): before.node, slot_key(HOME_POD, owner.slot): _home_pod_of(before)}
    return {**restored, **ownership_annotations(owner, before.node, before.machine)}


def ownership_annotations(owner: Owner, home: str, machine: str) -> dict[str, str | None]:
    """Return the annotations with the UID of the home's owner and the systemUUID of its node.

    They let Homeport recognize a home that was copied from another object, or whose node another machine replaced.
    """
    written: dict[str, str | None] = {slot_key(HOME_OWNER, owner.slot): _owner_value(owner.obj.uid, home)}
    if machine or slot_key(HOME_MACHINE, owner.slot) in owner.obj.annotations:
        written[slot_key(HOME_MACHINE, owner.slot)] = machine or None
    return written


def release_annotations(obj: AnnotatedObject, slot: str) -> dict[str, str | None]:
    """Return the annotations to write after a user removed a home; empty if nothing has to be written.

    They remove the recorded systemUUID, so that the next home records the systemUUID that its node then has.
    """
    key = slot_key(HOME_MACHINE, slot)
    is_left = key in obj.annotations and is_own(obj, slot) and not obj.annotations.get(slot_key(HOME, slot))
    return {key: None, slot_key(HOME_OWNER, slot): f"{obj.uid} {_GIVEN_UP}"} if is_left else {}


def without(obj: AnnotatedObject, slot: str) -> dict[str, str | None]:
    """Return the annotations that remove everything recorded about a home; ``None`` removes a key."""
    keys = (slot_key(name, slot) for name in _HOME_ANNOTATIONS)
    return {key: None for key in keys if key in obj.annotations}


def pod_annotations(claim: Claim, there: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of the Binding for a claim. ``there``: the pod's annotations; an old claim is replaced."""
    conditions = {HOME_AFTER: claim.after, HOME_REPLACES: claim.replaces}
    return {HOME: claim.node, **{key: value for key, value in conditions.items() if value or key in there}}


def no_claim_annotations(there: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of the Binding for a pod that makes no home.

    A Binding cannot remove an annotation, so a home that another client wrote on the pod is set to empty.
    """
    return {HOME: ""} if there.get(HOME) else {}


async def remember(handle: Handle, kind: Kind[Any], obj: AnnotatedObject, slot: str, node: str, machine: str) -> None:
    """Write the Home object, which keeps a home after its owner is deleted.

    Raises the writer's exceptions, and ``Unreadable``.
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


class PendingHomes:
    """Claims that are not recorded yet, by the UID of their pod.

    Several pods of one owner can be bound at the same time. The first claim makes the home, and the other pods must
    follow it. If the first bind fails, the claim of the next pod makes the home.
    """

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._of_owner: dict[Slot, dict[str, Claim]] = {}
        self._made: set[str] = set()

    def share(self, other: PendingHomes) -> None:
        """Use the claims of ``other`` from now on."""
        self._claims, self._of_owner, self._made = other._claims, other._of_owner, other._made

    def begin(self, claim: Claim) -> None:
        """Add the claim of a bind in flight."""
        self._claims[claim.pod.uid] = claim
        self._of_owner.setdefault(claim.owner.key, {})[claim.pod.uid] = claim

    def pod_bound(self, claim: Claim) -> None:
        """Record that the claim's pod is bound, but its home is not yet written to the owner."""
        self.begin(claim)
        self._made.add(claim.pod.uid)

    def keep(self, claim: Claim) -> None:
        """Keep a claim whose owner cannot be written now. It replaces the claims of the owner's other bound pods."""
        self.pod_bound(claim)
        for other in list(self._of_owner[claim.owner.key].values()):
            if other.pod.uid != claim.pod.uid and self.is_made(other.pod):
                self.drop(other.pod)

    def drop(self, pod: Pod) -> None:
        """Drop the pod's claim, if any.

        The claim is looked up by pod: the owner is unknown if its virtual machine was stopped during the bind.
        """
        claim = self._claims.pop(pod.uid, None)
        if claim is None:
            return
        self._made.discard(pod.uid)
        of_owner = self._of_owner[claim.owner.key]
        del of_owner[pod.uid]
        if not of_owner:
            del self._of_owner[claim.owner.key]

    def of(self, pod: Pod) -> Claim | None:
        return self._claims.get(pod.uid)

    def holds(self, owner: Owner, pod: Pod) -> Claim | None:
        """Return the first claim of another pod that can still make the home; ``None`` if there is none.

        With such a claim, ``pod`` must go to the node of the claim, even if another home is recorded.
        """
        claims = self._of_owner.get(owner.key, {}).values()
        return next((it for it in claims if it.pod.uid != pod.uid and it.decides and it.makes(owner)), None)

    def is_made(self, pod: Pod) -> bool:
        """Return true if the pod's bind has made a home that is not recorded on the owner yet."""
        return pod.uid in self._made

    def made(self) -> Collection[Claim]:
        """Return the claims of bound pods whose homes are not on their owners yet."""
        return [self._claims[uid] for uid in self._made]
