"""Annotation ``controller.kubernetes.io/pod-deletion-cost``: a ReplicaSet prefers to remove pods with a lower cost.

Source of the rules: ``pkg/apis/core/helper`` of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.meta_v1 import parse_map

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

_KEY: Final = DELETION_COST.encode()
_NUMBER: Final = re.compile("-[0-9]+|0|[1-9][0-9]*")
_LONGEST_NUMBER: Final = 32
"""Maximum characters of a number. A longer text is treated as invalid.

Go accepts such a text only if it is a minus, many zeros, and a number.
"""

_LONGEST_TEXT: Final = 64
"""Maximum characters of ``DeletionCost.invalid``."""

_INT32: Final = range(-(2**31), 2**31)
_MOST_SHARED: Final = 1024
"""Maximum number of cached ``DeletionCost`` objects, which pods with equal annotations share."""


class DeletionCost(Struct, frozen=True, gc=False):
    """Deletion cost of a pod. ``value`` is ``None`` if the annotation is absent or not a 32-bit integer.

    ``invalid``: if the annotation is not a 32-bit integer, its first 64 characters, or ``(empty)`` for an empty text.
    The ReplicaSet controller treats such an annotation as 0.
    """

    value: int | None = None
    invalid: str = ""


NO_COST: Final = DeletionCost()


@lru_cache(_MOST_SHARED)
def cost_of(text: str) -> DeletionCost:
    """Return the deletion cost for a value of the annotation."""
    if len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text) and int(text) in _INT32:
        return DeletionCost(int(text))
    return DeletionCost(invalid=text[:_LONGEST_TEXT] or "(empty)")


def deletion_cost_of(annotations: Raw) -> DeletionCost:
    """Return the deletion cost in a pod's annotations. They are decoded only if they contain ``DELETION_COST``.

    Raises ``msgspec.ValidationError``.
    """
    data = bytes(annotations)
    if _KEY not in data:
        return NO_COST
    try:
        decoded = parse_map(data) or {}
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"metadata.annotations: {error}") from None
    return cost_of(decoded[DELETION_COST] or "") if DELETION_COST in decoded else NO_COST
