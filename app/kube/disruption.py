"""Fields of a pod that preemption reads: whether it can preempt, its start time, and whether it is being preempted.

These fields are optional. They are stored outside the interned spec, because the pods of one workload start at
different times.
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
    """Preemption fields of a pod. ``never_preempts``: its ``preemptionPolicy`` is Never.

    ``started`` is ``status.startTime`` as a Unix time, ``None`` until a kubelet has started the pod. ``preempted``: its
    condition DisruptionTarget is True with reason PreemptionByScheduler.
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
    """Return the preemption fields of a pod; ``NO_DISRUPTION`` itself if all have their defaults."""
    disruption = Disruption(
        spec.preemption_policy == _NEVER,
        None if status.start_time is None else status.start_time.timestamp(),
        _is_preempted(status.conditions),
    )
    return NO_DISRUPTION if disruption == NO_DISRUPTION else disruption


def _is_preempted(conditions: Raw) -> bool:
    condition = condition_of(conditions, _DISRUPTION_TARGET)
    return condition.status == _TRUE and condition.reason == _BY_SCHEDULER
