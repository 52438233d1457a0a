"""Finds the object that keeps the home of a pod: by controller references, otherwise by the pod's
PersistentVolumeClaims.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from app.framework.objects import Objects
from app.kube.core_v1 import Pod
from app.kube.homes_v1alpha1 import API_VERSION, KIND, HomeRecord, RecordedKeeper, decode_home, memory_name
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, VIRTUAL_MACHINE_INSTANCES, AnnotatedObject, Kind, owner_kind
from app.kube.kubevirt_v1 import VirtualMachineInstance
from app.kube.labels import NO_LABELS
from app.kube.meta_v1 import OwnerReference, PartialObject
from app.kube.names import is_subdomain
from app.kube.persistent_volumes import PersistentVolumeClaim
from plugins.sticky_node.args import OwnerRule
from plugins.sticky_node.pods import LEADER_SET, LEADER_WORKER_SETS, HomeClaims, is_led_by_pod, is_slot, slot_of

T = TypeVar("T", bound=AnnotatedObject)


class OwnerChain(Struct, frozen=True):
    """Kinds of an ``OwnerRule``, from the pod's controller to the object that keeps the home."""

    kinds: tuple[Kind[AnnotatedObject], ...]
    per_ordinal: bool
    by_name: bool

    @classmethod
    def of(cls, rule: OwnerRule) -> OwnerChain:
        return cls(tuple(owner_kind(*it) for it in rule.chain), rule.per_ordinal, rule.by_name)


Slot = tuple[str, str]
"""Key of a home: UID of the owner, and slot."""


class Owner(Struct, frozen=True):
    """Object that keeps a pod's home. ``slot``: distinguishes the homes of one owner; empty if it has only one.

    ``controller``: the object that the pod's controller reference names; the owner itself if it was found in another
    way. ``before``: Home remembered from a predecessor of the same name.
    """

    kind: Kind[AnnotatedObject]
    obj: AnnotatedObject
    slot: str
    controller: AnnotatedObject
    before: HomeRecord | None = None

    @property
    def key(self) -> Slot:
        return (self.obj.uid, self.slot)

    def __str__(self) -> str:
        """Return text such as ``VirtualMachine default/db`` or ``StatefulSet default/db, ordinal 3``."""
        ordinal = f", ordinal {self.slot}" if self.slot else ""
        return f"{self.kind.kind} {self.obj.namespace}/{self.obj.name}{ordinal}"


class Missing(Struct, frozen=True):
    """Object of an owner chain, or volume claim of a pod, that is not in the snapshot, so the owner is unknown."""

    kind: Kind[AnnotatedObject]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.namespace}/{self.name}"


class Owners:
    """Finds owners along the chains of the plugin's arguments: controller references within the pod's namespace,
    checked by name and UID.

    If several chains start with the same kind, the longest chain that matches the references is used. If the chains
    give no owner, one of the pod's volume claims can keep its home.
    """

    def __init__(self, rules: Iterable[OwnerRule], objects: Objects) -> None:
        every = tuple(rules)
        chains = [OwnerChain.of(rule) for rule in every]
        self._chains: Final[dict[tuple[str, str], list[OwnerChain]]] = {}
        for rule, chain in sorted(zip(every, chains, strict=True), key=lambda it: -len(it[1].kinds)):
            if not rule.is_claim:
                self._chains.setdefault(rule.chain[0], []).append(chain)
        selector = next((it.claims for it in every if it.is_claim), None)
        self._claims: Final = None if selector is None else HomeClaims(selector, objects)
        self._objects = objects
        self._keepers: Final = dict.fromkeys(it.kinds[-1] for it in chains)
        self._by_name: Final = frozenset(it.kinds[-1] for it in chains if it.by_name)
        self._remembered: Final = {(it.api_version, it.kind): it for it in self._by_name}
        self._per_ordinal: Final = frozenset(it.kinds[-1] for it in chains if it.per_ordinal)
        self._controlled: Final = tuple(objects.by_controller(it) for it in self.controllers())

    def of(self, pod: Pod) -> Owner | Missing | None:
        """Return the owner that keeps the pod's home; ``None`` if the rules give the pod no owner.

        The result is ``Missing`` if an object on the way to the owner is not in the snapshot. Raises ``Unreadable``.
        """
        owner = self._by_controllers(pod)
        return owner if owner is not None or self._claims is None else self._by_claims(pod, self._claims)

    def _by_controllers(self, pod: Pod) -> Owner | Missing | None:
        reference = pod.owner
        if reference is None:
            return None
        chains = self._chains.get((reference.api_version, reference.kind))
        if chains is None:
            return None
        for chain in chains:
            slot = slot_of(pod, chain.kinds) if chain.per_ordinal else ""
            if slot is None and chain is chains[-1]:
                return None
            links = self._follow(chain, pod, reference)
            if isinstance(links, Missing):
                return links
            if links:
                return None if slot is None else self._owner(chain, slot, links)
        return None

    def _by_claims(self, pod: Pod, claims: HomeClaims) -> Owner | Missing | None:
        claim = claims.of(pod)
        if isinstance(claim, str):
            return Missing(PERSISTENT_VOLUME_CLAIMS, pod.namespace, claim)
        return None if claim is None else self.keeper(PERSISTENT_VOLUME_CLAIMS, claim, "")

    def _owner(self, chain: OwnerChain, slot: str, links: Sequence[AnnotatedObject]) -> Owner:
        kind, obj = chain.kinds[-1], links[-1]
        return Owner(kind, obj, slot, links[0], self._before(kind, obj, slot))

    @property
    def follows_claims(self) -> bool:
        """True if volume claims keep homes. A pod's owner then also depends on the other pods that use its volume
        claim.
        """
        return self._claims is not None

    def controllers(self) -> Collection[Kind[AnnotatedObject]]:
        """Return the kinds of controllers whose pods can have a home, each once."""
        return [it[0].kinds[0] for it in self._chains.values()]

    def keepers(self) -> Collection[Kind[AnnotatedObject]]:
        """Return the kinds that keep homes, each once."""
        return self._keepers

    def pods(self) -> Iterator[Pod]:
        """Yield all pods that can have a home, some more than once. Pods can change during the iteration."""
        for groups in (*self._controlled, *(() if self._claims is None else (self._claims.pods,))):
            for group in tuple(groups):
                yield from tuple(groups.get(group, {}).values())

    def newest_pod(self, pod: Pod) -> Pod | None:
        """Return the newest version of a pod that can have a home; ``None`` if it was deleted."""
        if pod.owner is not None:
            for groups in self._controlled:
                newest = groups.get(pod.owner.uid, {}).get(pod.uid)
                if newest is not None:
                    return newest
        return None if self._claims is None else self._claims.newest(pod)

    def every(self, kind: Kind[T]) -> Iterator[T | None]:
        """Yield the objects of the kind that keep homes. Objects can change during the iteration.

        ``None`` is yielded for each object that keeps no homes, so that the caller can also yield to other tasks there.
        """
        return (it if self.keeps(kind, it) else None for it in self._objects.every(kind))

    def keeps(self, kind: Kind[Any], obj: AnnotatedObject) -> bool:
        """Return true if the object keeps homes. ``kind``: one of ``keepers``. All its objects do, except volume claims
        that the selector does not match.
        """
        if self._claims is None or not isinstance(obj, PersistentVolumeClaim) or kind not in self._keepers:
            return True
        return self._claims.keeps(obj)

    def may_be_shared(self, pod: Pod, other: Pod) -> bool:
        """Return true if two pods could have the same owner, without looking up any object.

        This is possible if both have controllers that can lead to a home, or if they use a common volume claim.
        """
        pairs = ((it.owner.api_version, it.owner.kind) if it.owner else None for it in (pod, other))
        return all(it in self._chains for it in pairs) or (
            self._claims is not None and self._claims.in_common(pod, other)
        )

    def newest(self, owner: Owner) -> Owner | None:
        """Return the owner in its newest version; ``None`` if it was deleted. Raises ``Unreadable``."""
        obj = self._objects.get(owner.kind, owner.obj.namespace, owner.obj.name)
        if obj is None or obj.uid != owner.obj.uid:
            return None
        return replace(owner, obj=obj, before=self._before(owner.kind, obj, owner.slot))

    def keeper(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject, slot: str) -> Owner:
        """Return an owner for an object and a slot, independent of any pod. Raises ``Unreadable``."""
        return Owner(kind, obj, slot, obj, self._before(kind, obj, slot))

    def gone(self, home: HomeRecord) -> Owner | None:
        """Return the deleted owner of a remembered home, as the Home describes it; ``None`` if an object has its name.

        Users can write any Home object, so the result is also ``None`` for a Home that no owner could use. Raises
        ``Unreadable``.
        """
        keeper = home.keeper
        kind = self._remembered.get((keeper.api_version, keeper.kind))
        if kind is None or bool(keeper.slot) != self.is_per_ordinal(kind):
            return None
        if not (is_subdomain(keeper.name) and is_slot(keeper.slot)):
            return None
        if self._objects.get(kind, home.namespace, keeper.name) is not None:
            return None
        was = PartialObject(home.namespace, keeper.name, keeper.uid, "", NO_LABELS, {}, None)
        effective = remembered(self._objects, kind, was, keeper.slot)
        return Owner(kind, was, keeper.slot, was, home) if effective is home else None

    def is_per_ordinal(self, kind: Kind[AnnotatedObject]) -> bool:
        """Return true if an object of the kind keeps a separate home for each of its pods."""
        return kind in self._per_ordinal

    def is_remembered(self, kind: Kind[AnnotatedObject]) -> bool:
        """Return true if the homes of owners of this kind outlive the owners."""
        return kind in self._by_name

    def has_machines(self) -> bool:
        """Return true if KubeVirt's VirtualMachineInstances are watched."""
        return VIRTUAL_MACHINE_INSTANCES in self.controllers()

    def running(self, obj: AnnotatedObject) -> VirtualMachineInstance | None:
        """Return a VirtualMachine's instance, which has its name; ``None`` if there is none. Raises ``Unreadable``."""
        get = self._objects.get if self.has_machines() else None
        instance = None if get is None else get(VIRTUAL_MACHINE_INSTANCES, obj.namespace, obj.name)
        if instance is None:
            return None
        keeper = instance.owner.uid if instance.owner is not None else instance.uid
        return instance if keeper == obj.uid else None

    def remembers(self) -> bool:
        """Return true if the homes of any kind of owners outlive the owners."""
        return bool(self._by_name)

    def _before(self, kind: Kind[AnnotatedObject], obj: AnnotatedObject, slot: str) -> HomeRecord | None:
        if kind not in self._by_name:
            return None
        home = remembered(self._objects, kind, obj, slot)
        return home if home is not None and home.keeper.uid != obj.uid else None

    def _follow(
        self, chain: OwnerChain, pod: Pod, reference: OwnerReference | None
    ) -> Sequence[AnnotatedObject] | Missing:
        """Return one object for each kind of the chain; empty if the references do not match the chain.

        The result is ``Missing`` if an object on the way is not in the snapshot.
        """
        namespace = pod.namespace
        links: list[AnnotatedObject] = []
        for kind in chain.kinds:
            if kind == LEADER_WORKER_SETS and links and is_led_by_pod(pod, reference):
                set_name = pod.labels[LEADER_SET]
                leader_set = self._objects.get(kind, namespace, set_name)
                if leader_set is None:
                    return Missing(kind, namespace, set_name)
                links.append(leader_set)
                reference = leader_set.owner
                continue
            if reference is None or (reference.api_version, reference.kind) != (kind.api_version, kind.kind):
                return ()
            obj = self._objects.get(kind, namespace, reference.name)
            if obj is None or not reference.uid or reference.uid != obj.uid:
                return Missing(kind, namespace, reference.name)
            links.append(obj)
            reference = obj.owner
        return links


def kinds_of(rules: Iterable[OwnerRule]) -> tuple[Kind[Any], ...]:
    """Return the kinds of the owner chains of all rules, and ``HOMES`` if a rule has ``by_name``."""
    every = tuple(rules)
    memory = (HOMES,) if any(it.by_name for it in every) else ()
    return tuple(dict.fromkeys((*(kind for rule in every for kind in OwnerChain.of(rule).kinds), *memory)))


def keepers_of(rules: Iterable[OwnerRule]) -> tuple[Kind[Any], ...]:
    """Return the kinds that keep homes, each once."""
    return tuple(dict.fromkeys(OwnerChain.of(rule).kinds[-1] for rule in rules))


HOMES: Final[Kind[HomeRecord]] = Kind(API_VERSION, KIND, decode_home)


def remembered(objects: Objects, kind: Kind[Any], obj: AnnotatedObject, slot: str) -> HomeRecord | None:
    """Return the Home remembered under an object's name, regardless of the UID. Raises ``Unreadable``.

    The result is ``None`` if there is no such Home, if its node name is invalid, or if it describes another owner.
    """
    home = objects.get(HOMES, obj.namespace, memory_name(kind.api_version, kind.kind, obj.name, slot))
    if home is None or not is_subdomain(home.node):
        return None
    keeper = RecordedKeeper(kind.api_version, kind.kind, obj.name, home.keeper.uid, slot)
    return home if home.keeper == keeper else None
