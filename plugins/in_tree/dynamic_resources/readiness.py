"""Readiness of the devices of an allocation, by their binding conditions."""

from __future__ import annotations

import time
from datetime import datetime

from app.kube.resource_v1 import Allocation, ResourceClaim


def has_conditions(allocation: Allocation) -> bool:
    """Return true if an allocated device has binding conditions."""
    return any(it.binding_conditions for it in allocation.devices)


def is_ready(claim: ResourceClaim, allocation: Allocation) -> bool | None:
    """Return true if each device is ready: its binding conditions are all true, and no binding failure condition is.

    A device without binding conditions is ready. The first device that is not ready decides: ``None`` if one of its
    binding failure conditions is true, else ``False``.
    """
    for device in allocation.devices:
        if device.binding_conditions:
            status = next((status for status in claim.devices if status.device == device.device), None)
            if status is None:
                return False
            if not status.true_conditions.isdisjoint(device.binding_failure_conditions):
                return None
            if not status.true_conditions.issuperset(device.binding_conditions):
                return False
    return True


def _seconds_of(timestamp: str) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp() if timestamp else None
    except ValueError:
        return None


def is_late(allocation: Allocation, timeout: float) -> bool:
    """Return true if an allocation with binding conditions was made more than ``timeout`` seconds ago.

    The result is ``False`` if the allocation has no valid timestamp.
    """
    if all(it.binding_conditions is None for it in allocation.devices):
        return False
    since = _seconds_of(allocation.timestamp)
    return since is not None and since + timeout < time.time()
