"""What preemption reads of a pod: whether it may make others go, since when it runs, and whether it goes for another.

Decoded on demand, and kept beside the spec of a pod and not in it: pods of one workload start at times of their own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Protocol, TypeAlias

from msgspec import Meta, Raw, Struct

from app.kube.conditions import condition_of

Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
"""``metav1.Time`` on the wire: RFC 3339."""

_NEVER: Final = "Never"
_DISRUPTION_TARGET: Final = "DisruptionTarget"
_TRUE: Final = "True"
_BY_SCHEDULER: Final = "PreemptionByScheduler"


class Disruption(Struct, frozen=True, gc=False):
    """``never_preempts``: its ``preemptionPolicy`` is Never · ``started``: ``status.startTime`` in seconds since 1970,
    ``None`` as long as no kubelet has started it · ``preempted``: its condition DisruptionTarget says that a scheduler
    makes it go for a pod of higher priority.
    """

    never_preempts: bool = False
    started: float | None = None
    preempted: bool = False


NO_DISRUPTION: Final = Disruption()


class SpecObject(Protocol):
    """The field of ``spec`` that is read."""

    preemption_policy: str | None


class StatusObject(Protocol):
    """The fields of ``status`` that are read."""

    start_time: Time | None
    conditions: Raw


def disruption_of(spec: SpecObject, status: StatusObject) -> Disruption:
    """What is read of a pod; one object for all that have none of it."""
    found = Disruption(
        spec.preemption_policy == _NEVER,
        None if status.start_time is None else status.start_time.timestamp(),
        _is_preempted(status.conditions),
    )
    return NO_DISRUPTION if found == NO_DISRUPTION else found


def _is_preempted(conditions: Raw) -> bool:
    found = condition_of(conditions, _DISRUPTION_TARGET)
    return found.status == _TRUE and found.reason == _BY_SCHEDULER
