"""Conditions of pods, of which few are read: they are decoded where one of these is there."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder


class ConditionObject(Struct, rename="camel"):
    """A condition of a pod."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    last_transition_time: str | None = None


_NONE: Final = ConditionObject()
_DECODER: Final = Decoder[list[ConditionObject] | None](list[ConditionObject] | None)
_POD_SCHEDULED: Final = "PodScheduled"
_FALSE: Final = "False"
_GATED: Final = "SchedulingGated"
_LONGEST_TIME: Final = 64


def condition_of(conditions: Raw, type_: str) -> ConditionObject:
    """The first of the type, as in-tree; one without a status if there is none.

    Raises ``msgspec.ValidationError`` where they are none at all, and one of that type may be among them.
    """
    data = bytes(conditions)
    if type_.encode() not in data:
        return _NONE
    try:
        found = _DECODER.decode(data) or ()
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"status.conditions: {error}") from None
    return next((it for it in found if it.type == type_), _NONE)


def unschedulable_since(conditions: Raw) -> str:
    """Since when PodScheduled is False; empty where it is not, or nobody has said yet, or the time is overlong.

    A pod with scheduling gates is not tried yet, though the condition says False.
    """
    found = condition_of(conditions, _POD_SCHEDULED)
    since = (found.last_transition_time or "") if found.status == _FALSE and found.reason != _GATED else ""
    return since if len(since) <= _LONGEST_TIME else ""
