"""From a pod to the object that keeps its home, by controller owner references."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from app.framework.interface import Objects
from app.kube.core_v1 import Pod
from app.kube.kinds import AnnotatedObject, Kind, owner_kind
from app.kube.meta_v1 import OwnerReference
from plugins.sticky_node.args import OwnerRule


class Chain(Struct, frozen=True):
    """An ``OwnerRule`` as kinds: from the pod's controller to the object that keeps the home."""

    kinds: tuple[Kind[AnnotatedObject], ...]
    per_ordinal: bool

    @classmethod
    def of(cls, rule: OwnerRule) -> Chain:
        kinds = tuple(owner_kind(*it.pair) for it in (*rule.through, rule))
        return cls(kinds, rule.per_ordinal)


class Owner(Struct, frozen=True):
    """The object that keeps a pod's home. ``slot`` tells the pods of one owner apart; empty for an only one."""

    kind: Kind[AnnotatedObject]
    found: AnnotatedObject
    slot: str


class Missing(Struct, frozen=True):
    """The chain cannot be followed: this object is not in the picture."""

    kind: Kind[AnnotatedObject]
    namespace: str
    name: str


class Owners:
    """Follows the chains of the plugin's arguments."""

    def __init__(self, rules: Iterable[OwnerRule], objects: Objects) -> None:
        chains = [Chain.of(rule) for rule in rules]
        self._chains: Final = {(it.kinds[0].api_version, it.kinds[0].kind): it for it in chains}
        self._objects = objects

    def of(self, pod: Pod) -> Owner | Missing | None:
        """The keeper of the pod's home; ``None`` if no rule applies to the pod, or the chain ends early."""
        reference = pod.owner
        chain = self._chains.get((reference.api_version, reference.kind)) if reference else None
        if chain is None:
            return None
        slot = _ordinal(pod.name) if chain.per_ordinal else ""
        if slot is None:
            return None
        return self._follow(chain, slot, pod.namespace, reference)

    def _follow(
        self, chain: Chain, slot: str, namespace: str, reference: OwnerReference | None
    ) -> Owner | Missing | None:
        found: AnnotatedObject | None = None
        for kind in chain.kinds:
            if reference is None or (reference.api_version, reference.kind) != (kind.api_version, kind.kind):
                return None
            found = self._objects.get(kind, namespace, reference.name)
            if found is None or reference.uid not in ("", found.uid):
                return Missing(kind, namespace, reference.name)
            reference = found.owner
        return None if found is None else Owner(chain.kinds[-1], found, slot)


def kinds_of(rules: Iterable[OwnerRule]) -> tuple[Kind[Any], ...]:
    """All kinds that the rules read."""
    return tuple(kind for rule in rules for kind in Chain.of(rule).kinds)


def keepers_of(rules: Iterable[OwnerRule]) -> tuple[Kind[Any], ...]:
    """The kinds that keep homes."""
    return tuple(Chain.of(rule).kinds[-1] for rule in rules)


def _ordinal(name: str) -> str | None:
    _, dash, number = name.rpartition("-")
    return number if dash and number.isascii() and number.isdecimal() else None
