"""Which policy holds for a pod's home: the word nearest to it counts.

In this order: the owner's annotation ``homeport.dev/policy``, the pod's own (which its template brings), the first
namespace rule that matches, the owner rule, the default. An annotation that names no policy is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from app.framework.interface import Objects
from app.kube.core_v1 import Pod
from app.kube.kinds import NAMESPACES, Kind
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.kube.selectors import Selector
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.owners import Owner
from plugins.sticky_node.table import Policy

POLICY: Final = f"{ANNOTATION_DOMAIN}policy"

_BY_NAME: Final = {it.value: it for it in Policy}


class Applied(Struct, frozen=True):
    """``grace``: seconds · ``source``: whose word it is, for a person."""

    policy: Policy
    grace: float
    source: str


class _Rule(Struct, frozen=True):
    selector: Selector
    applied: Applied


class Policies:
    """Looks policies up."""

    def __init__(self, args: StickyNodeArgs, objects: Objects) -> None:
        self._objects = objects
        self._grace = args.grace_period
        self._of_namespaces = [_rule(number, args) for number in range(len(args.namespaces))]
        self._of_kinds: dict[tuple[str, str], Applied] = {
            rule.pair: Applied(rule.policy, args.grace_period, f"owners: {rule.kind}")
            for rule in args.owners
            if rule.policy is not None
        }
        self._default = Applied(args.policy, args.grace_period, "default")
        self._seen: tuple[int, dict[str, Applied | None]] = (-1, {})

    def of(self, owner: Owner, pod: Pod | None = None) -> Applied:
        """``pod``: one of the owner's, if there is any. Raises ``Unreadable``."""
        for source, there in (("owner", owner.found.annotations), ("pod", pod.annotations if pod else {})):
            policy = _BY_NAME.get(there.get(POLICY, ""))
            if policy is not None:
                return Applied(policy, self._grace, source)
        found = self._of_namespace(owner.found.namespace) if self._of_namespaces else None
        if found is None:
            found = self._of_kinds.get((owner.kind.api_version, owner.kind.kind), self._default)
        return found

    def is_off(self, owner: Owner, pod: Pod | None = None) -> bool:
        """Whether its machine has no home; without a pod: whatever that says. Raises ``Unreadable``."""
        return self.of(owner, pod).policy is Policy.OFF

    def _of_namespace(self, name: str) -> Applied | None:
        version = self._objects.version(NAMESPACES)
        if version != self._seen[0]:
            self._seen = (version, {})
        known = self._seen[1]
        if name not in known:
            namespace = self._objects.get(NAMESPACES, "", name)
            known[name] = next(
                (it.applied for it in self._of_namespaces if namespace and it.selector.matches(namespace.labels)), None
            )
        return known[name]


def kinds_of_policies(args: StickyNodeArgs) -> Sequence[Kind[Any]]:
    """What the rules read."""
    return (NAMESPACES,) if args.namespaces else ()


def unknown_policy(owner: Owner) -> str:
    """What stands in the owner's annotation and is no policy; empty otherwise."""
    said = owner.found.annotations.get(POLICY, "")
    return "" if said in _BY_NAME else said


def _rule(number: int, args: StickyNodeArgs) -> _Rule:
    rule = args.namespaces[number]
    grace = args.grace_period if rule.grace_period is None else rule.grace_period
    return _Rule(rule.selector, Applied(rule.policy, grace, f"namespaces[{number}]"))
