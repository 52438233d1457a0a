"""Conditions of pods. To save time, the list is decoded only if its text contains the name of the wanted type."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from app.kube.decoding import Decoder


class ConditionObject(Struct, rename="camel"):
    """Condition of a pod in JSON, reduced to the fields that are read."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    last_transition_time: str | None = None
    message: str | None = None


_NONE: Final = ConditionObject()
_DECODER: Final = Decoder[list[ConditionObject] | None](list[ConditionObject] | None)
_POD_SCHEDULED: Final = "PodScheduled"
_FALSE: Final = "False"
_GATED: Final = "SchedulingGated"
_LONGEST_TIME: Final = 64
"""Maximum number of characters of a condition's ``lastTransitionTime``; a longer time is ignored."""

LONGEST_MESSAGE: Final = 1024
"""Maximum number of characters of a condition's message; the rest is dropped."""


def condition_of(conditions: Raw, type_: str) -> ConditionObject:
    """Return the first condition of type ``type_``, as kube-scheduler does. Without one, return an empty condition.

    Raises ``msgspec.ValidationError`` if the text of ``conditions`` contains ``type_`` and is invalid.
    """
    data = bytes(conditions)
    if type_.encode() not in data:
        return _NONE
    try:
        decoded = _DECODER.decode(data) or ()
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"status.conditions: {error}") from None
    return next((it for it in decoded if it.type == type_), _NONE)


def unschedulable(conditions: Raw) -> tuple[str, str]:
    """Return the time (RFC 3339) since which the condition PodScheduled is False, and the condition's message.

    Both are empty if the condition is not False. Both are also empty for the reason SchedulingGated: kube-scheduler has
    not tried to place the pod yet. The time is empty if it is unset or too long, and a long message is cut. Raises
    ``msgspec.ValidationError``.
    """
    condition = condition_of(conditions, _POD_SCHEDULED)
    if condition.status != _FALSE or condition.reason == _GATED:
        return "", ""
    since = condition.last_transition_time or ""
    return since if len(since) <= _LONGEST_TIME else "", (condition.message or "")[:LONGEST_MESSAGE]
