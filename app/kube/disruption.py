"""Optional parts of a pod that are stored outside its spec: its deletion cost, and what preemption and evictions read.

Most pods of a workload share one spec, but differ in these parts.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Protocol, TypeAlias

from msgspec import Meta, Raw, Struct

from app.kube.conditions import condition_of
from app.kube.deletion_cost import DeletionCost

Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
"""Type of a ``metav1.Time``, an RFC 3339 text on the wire."""

_NEVER: Final = "Never"
_DISRUPTION_TARGET: Final = "DisruptionTarget"
_READY: Final = "Ready"
_PENDING: Final = "Pending"
_TRUE: Final = "True"
_BY_SCHEDULER: Final = "PreemptionByScheduler"


class Lifecycle(Struct, frozen=True, gc=False):
    """Deletion ``cost`` of a pod; ``None`` if no plugin declares this part. ``Disruption`` adds the other fields."""

    cost: DeletionCost | None = None


class Disruption(Lifecycle, frozen=True, gc=False):
    """Fields of a pod that preemption and evictions read, in addition to those of ``Lifecycle``.

    ``never_preempts`` is true if the ``preemptionPolicy`` is Never. ``started`` is ``status.startTime`` (Unix time);
    ``None`` until a kubelet has accepted the pod. ``preempted`` is true if the condition DisruptionTarget is True with
    reason PreemptionByScheduler: the pod is a victim of preemption. ``ready`` is true if the condition Ready is True.
    ``pending`` is true in the phase Pending.
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
    """Return the ``Disruption`` of a pod without its cost; ``NO_DISRUPTION`` itself if all fields have their defaults.

    Raises ``msgspec.ValidationError`` for invalid conditions.
    """
    disruption = Disruption(
        never_preempts=spec.preemption_policy == _NEVER,
        started=None if status.start_time is None else status.start_time.timestamp(),
        preempted=_is_preempted(status.conditions),
        ready=condition_of(status.conditions, _READY).status == _TRUE,
        pending=status.phase == _PENDING,
    )
    return NO_DISRUPTION if disruption == NO_DISRUPTION else disruption


def _is_preempted(conditions: Raw) -> bool:
    condition = condition_of(conditions, _DISRUPTION_TARGET)
    return condition.status == _TRUE and condition.reason == _BY_SCHEDULER
