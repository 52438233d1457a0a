"""PodDisruptionBudgets, reduced to the fields that preemption and the Eviction API read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from app.kube.decoding import Decoder
from app.kube.meta_v1 import MetadataObject, ObjectKey, Oversized, required, shared
from app.kube.selectors import EVERYTHING, InvalidSelector, Selector, decode_selector

MOST_DISRUPTED: Final = 2000
"""Maximum number of names in ``status.disruptedPods``, like in the API server. If there are more, none is read."""

_LARGEST_DISRUPTED: Final = 1 << 20
"""Maximum bytes of ``status.disruptedPods``: about twice the size of ``MOST_DISRUPTED`` names of maximum length.

If there are more, no name is read.
"""

_ALWAYS_ALLOW: Final = "AlwaysAllow"

_Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]


class PodDisruptionBudget(Struct, frozen=True, gc=False):
    """PodDisruptionBudget. If its selector is null, empty or invalid, ``selector`` is ``None``.

    For preemption, an empty selector selects no pod. For the Eviction API, it selects every pod of the namespace, and
    ``guards_all`` is true. An oversized selector is replaced by one that selects every pod of the namespace, so that no
    protected pod is missed.

    ``disrupted_pods``: names of pods that are already being evicted. ``allows_unready``: true if the policy for
    unhealthy pods is AlwaysAllow. ``is_outdated``: true if the status belongs to an earlier version of the spec.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    selector: Selector | None
    disruptions_allowed: int
    disrupted_pods: frozenset[str] = frozenset()
    current_healthy: int = 0
    desired_healthy: int = 0
    allows_unready: bool = False
    guards_all: bool = False
    is_outdated: bool = False

    @property
    def key(self) -> ObjectKey:
        return (self.namespace, self.name)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether preemption treats a pod of the budget's namespace with these labels as protected.

        Return ``False`` for a pod without labels.
        """
        return bool(labels) and self.selector is not None and self.selector.matches(labels)

    def guards(self, labels: Mapping[str, str]) -> bool:
        """Return whether the Eviction API checks this budget before it evicts a pod with these labels.

        The pod is in the namespace of the budget.
        """
        return self.guards_all or (self.selector is not None and self.selector.matches(labels))


class _BudgetSpecObject(Struct, rename="camel"):
    selector: Raw = Raw()
    unhealthy_pod_eviction_policy: str | None = None


class _BudgetStatusObject(Struct, rename="camel"):
    disruptions_allowed: _Int32 | None = None
    disrupted_pods: Raw = Raw()
    current_healthy: _Int32 | None = None
    desired_healthy: _Int32 | None = None
    observed_generation: int | None = None


class _BudgetMetadataObject(MetadataObject):
    generation: int | None = None


class _BudgetObject(Struct):
    metadata: _BudgetMetadataObject
    spec: _BudgetSpecObject | None = None
    status: _BudgetStatusObject | None = None


_DECODER: Final = Decoder[_BudgetObject](_BudgetObject)
_DISRUPTED: Final[Decoder[dict[str, Raw] | None]] = Decoder(dict[str, Raw] | None)


def _parse_selector(data: bytes) -> tuple[Selector | None, bool]:
    """Return the selector (``None`` if it is null, empty or invalid), and whether it is empty."""
    try:
        selector = decode_selector(data)
    except InvalidSelector:
        return None, False
    return (None, True) if selector == EVERYTHING else (selector, False)


_selector_of: Final = shared("spec.selector", _parse_selector)


def _selector(raw: Raw) -> tuple[Selector | None, bool]:
    try:
        return _selector_of(raw)
    except Oversized:
        return EVERYTHING, False


def _disrupted(raw: Raw) -> frozenset[str]:
    data = bytes(raw) or b"null"
    if len(data) > _LARGEST_DISRUPTED:
        return frozenset()
    try:
        names = _DISRUPTED.decode(data) or {}
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"status.disruptedPods: {error}") from None
    return frozenset(names) if len(names) <= MOST_DISRUPTED else frozenset()


def decode_budget(raw: bytes | Raw) -> PodDisruptionBudget:
    """Decode one PodDisruptionBudget. Raises ``msgspec.DecodeError``."""
    budget = _DECODER.decode(raw)
    meta, spec, status = budget.metadata, budget.spec or _BudgetSpecObject(), budget.status or _BudgetStatusObject()
    selector, is_empty = _selector(spec.selector)
    return PodDisruptionBudget(
        namespace=sys.intern(meta.namespace or "default"),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        selector=selector,
        disruptions_allowed=status.disruptions_allowed or 0,
        disrupted_pods=_disrupted(status.disrupted_pods),
        current_healthy=status.current_healthy or 0,
        desired_healthy=status.desired_healthy or 0,
        allows_unready=spec.unhealthy_pod_eviction_policy == _ALWAYS_ALLOW,
        guards_all=is_empty,
        is_outdated=(status.observed_generation or 0) < (meta.generation or 0),
    )
