"""Conditions of pods, decoded only if the list contains a wanted type, since few types are read."""

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
    """Return the first condition of a type, like kube-scheduler; an empty one if there is none.

    Raises ``msgspec.ValidationError`` if the text of the type occurs in ``conditions`` and they are invalid.
    """
    data = bytes(conditions)
    if type_.encode() not in data:
        return _NONE
    try:
        decoded = _DECODER.decode(data) or ()
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"status.conditions: {error}") from None
    return next((it for it in decoded if it.type == type_), _NONE)


def unschedulable_since(conditions: Raw) -> str:
    """Return the time since which PodScheduled is False; empty if it is not False, or its time is unset or overlong.

    Empty for a pod with scheduling gates: its condition is False, but scheduling has not been tried.
    """
    condition = condition_of(conditions, _POD_SCHEDULED)
    since = (condition.last_transition_time or "") if condition.status == _FALSE and condition.reason != _GATED else ""
    return since if len(since) <= _LONGEST_TIME else ""
