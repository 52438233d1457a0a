"""Fields of a pod that preemption and evictions read: start time, readiness, and whether it can or does preempt.

These fields are an optional part of a pod. They are stored outside the spec, because the pods of a workload share one
spec but start at different times.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Protocol, TypeAlias

from msgspec import Meta, Raw, Struct

from app.kube.conditions import condition_of

Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
"""Type of a ``metav1.Time``, an RFC 3339 text on the wire."""

_NEVER: Final = "Never"
_DISRUPTION_TARGET: Final = "DisruptionTarget"
_READY: Final = "Ready"
_PENDING: Final = "Pending"
_TRUE: Final = "True"
_BY_SCHEDULER: Final = "PreemptionByScheduler"


class Disruption(Struct, frozen=True, gc=False):
    """Fields of a pod that preemption and evictions read.

    ``never_preempts`` is true if the ``preemptionPolicy`` is Never. ``started`` is ``status.startTime`` (Unix time);
    ``None`` until a kubelet has accepted the pod. ``preempted`` is true if the condition DisruptionTarget is True with
    reason PreemptionByScheduler. ``ready`` is true if the condition Ready is True. ``pending`` is true in the phase
    Pending.
    """

    never_preempts: bool = False
    started: float | None = None
    preempted: bool = False
    ready: bool = False
    pending: bool = False


NO_DISRUPTION: Final = Disruption()


class SpecObject(Protocol):
    """Field of ``spec`` that ``disruption_of`` reads."""

    preemption_policy: str | None


class StatusObject(Protocol):
    """Fields of ``status`` that ``disruption_of`` reads."""

    phase: str | None
    start_time: Time | None
    conditions: Raw


def disruption_of(spec: SpecObject, status: StatusObject) -> Disruption:
    """Return the ``Disruption`` of a pod; ``NO_DISRUPTION`` itself if all fields have their defaults."""
    disruption = Disruption(
        spec.preemption_policy == _NEVER,
        None if status.start_time is None else status.start_time.timestamp(),
        _is_preempted(status.conditions),
        condition_of(status.conditions, _READY).status == _TRUE,
        status.phase == _PENDING,
    )
    return NO_DISRUPTION if disruption == NO_DISRUPTION else disruption


def _is_preempted(conditions: Raw) -> bool:
    condition = condition_of(conditions, _DISRUPTION_TARGET)
    return condition.status == _TRUE and condition.reason == _BY_SCHEDULER
