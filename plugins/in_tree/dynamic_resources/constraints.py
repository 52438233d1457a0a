"""Constraints between the devices of a claim: for an attribute, all devices must have the same value, or all different
values.

Source of the rules: ``structured/internal/incubating`` of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from app.kube.resource_v1 import AttributeValue, Device, DeviceConstraint
from plugins.in_tree.dynamic_resources.errors import AllocationError

_Value: TypeAlias = tuple[type, AttributeValue]
"""(type, value) of an attribute, so that ``True`` differs from ``1``."""


class ClaimConstraint(Protocol):
    """State of a claim's constraint during a search. It tracks the devices that the search has taken for the claim."""

    def add(self, request: str, subrequest: str, driver: str, device: Device) -> bool:
        """Record the device, if the constraint applies to the request. Return false if the device violates it."""
        ...

    def remove(self, request: str, subrequest: str) -> None:
        """Undo the last successful ``add`` for the request."""
        ...


def constraint_of(claim: str, index: int, constraint: DeviceConstraint) -> ClaimConstraint:
    """Create the search state of a constraint. Raises ``AllocationError`` if the type of the constraint is unknown.

    ``claim`` and ``index``: name of the claim and position of the constraint, for the error message only.
    """
    if constraint.match_attribute is not None:
        return MatchAttribute(constraint.requests, constraint.match_attribute)
    if constraint.distinct_attribute is not None:
        return _DistinctAttribute(constraint.requests, constraint.distinct_attribute)
    raise AllocationError(f"claim {claim}, constraint #{index}: empty constraint (unsupported constraint type?)")


class _AttributeConstraint:
    """Constraint on an attribute for the named ``requests``, or for all requests if none are named."""

    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        self._requests = frozenset(requests)
        self._attribute = attribute
        self._count = 0

    def concerns(self, request: str, subrequest: str) -> bool:
        """Return true if the constraint applies to a request, or to its alternative ``subrequest``."""
        if not self._requests or request in self._requests:
            return True
        return bool(subrequest) and f"{request}/{subrequest}" in self._requests

    def lookup(self, driver: str, device: Device) -> tuple[bool, AttributeValue]:
        """Return (true, value of the attribute), or (false, ``None``) if the device lacks the attribute.

        In the device, the name of an attribute can omit the domain if the domain is the driver's name.
        """
        name = self._attribute
        if name in device.attributes:
            return True, device.attributes[name]
        domain, _, local = name.partition("/")
        if domain == driver and local in device.attributes:
            return True, device.attributes[local]
        return False, None


class MatchAttribute(_AttributeConstraint):
    """Constraint ``matchAttribute``: all devices must have the same value of the attribute."""

    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._value: AttributeValue = None

    def add(self, request: str, subrequest: str, driver: str, device: Device) -> bool:
        if not self.concerns(request, subrequest):
            return True
        has, value = self.lookup(driver, device)
        if not has:
            return False
        if not self._count:
            self._value = value
        elif value is None or not _same(value, self._value):
            return False
        self._count += 1
        return True

    def remove(self, request: str, subrequest: str) -> None:
        if self.concerns(request, subrequest):
            self._count -= 1


class _DistinctAttribute(_AttributeConstraint):
    """Constraint ``distinctAttribute``: each device must have a different value of the attribute.

    As in kube-scheduler, only the value of the last device of each request is tracked.
    """

    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._values: dict[str, _Value] = {}
        self._held: set[_Value] = set()

    def add(self, request: str, subrequest: str, driver: str, device: Device) -> bool:
        if not self.concerns(request, subrequest):
            return True
        has, value = self.lookup(driver, device)
        if not has:
            return False
        typed = (type(value), value)
        if self._held and (value is None or typed in self._held):
            return False
        self._forget(request)
        self._values[request] = typed
        self._held.add(typed)
        self._count += 1
        return True

    def remove(self, request: str, subrequest: str) -> None:
        if self.concerns(request, subrequest):
            self._forget(request)
            self._count -= 1

    def _forget(self, request: str) -> None:
        if request in self._values:
            self._held.remove(self._values.pop(request))


def _same(a: AttributeValue, b: AttributeValue) -> bool:
    """Return true if two values are equal and of one type, so that ``True`` differs from ``1``."""
    return type(a) is type(b) and a == b
