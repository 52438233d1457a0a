"""Constraints between the devices of a claim: the same value of an attribute, or each another.

Source of the rules: ``structured/internal/incubating`` of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from app.kube.resource_v1 import AttributeValue, Device, DeviceConstraint
from plugins.in_tree.dynamic_resources.unjudged import AllocationError

_Value: TypeAlias = tuple[type, AttributeValue]
"""True is not 1."""


class Constraint(Protocol):
    """Keeps book of the devices that a search has taken so far."""

    def add(self, request: str, subrequest: str, driver: str, device: Device) -> bool:
        """Whether one more may be taken; then it is."""
        ...

    def remove(self, request: str, subrequest: str) -> None:
        """It is given back."""
        ...


def constraint_of(claim: str, index: int, constraint: DeviceConstraint) -> Constraint:
    """Raises ``AllocationError``."""
    if constraint.match_attribute is not None:
        return Match(constraint.requests, constraint.match_attribute)
    if constraint.distinct_attribute is not None:
        return _Distinct(constraint.requests, constraint.distinct_attribute)
    raise AllocationError(f"claim {claim}, constraint #{index}: empty constraint (unsupported constraint type?)")


class _OfRequests:
    """``requests`` are those that the constraint is about, all if there are none."""

    def __init__(self, requests: tuple[str, ...], attribute: str) -> None:
        self._requests = frozenset(requests)
        self._attribute = attribute
        self._count = 0

    def concerns(self, request: str, subrequest: str) -> bool:
        """Whether it is about a request, or an alternative of it."""
        if not self._requests or request in self._requests:
            return True
        return bool(subrequest) and f"{request}/{subrequest}" in self._requests

    def lookup(self, driver: str, device: Device) -> tuple[bool, AttributeValue]:
        """Whether the device has the attribute, and its value; a driver may leave its own domain out."""
        name = self._attribute
        if name in device.attributes:
            return True, device.attributes[name]
        domain, _, local = name.partition("/")
        if domain == driver and local in device.attributes:
            return True, device.attributes[local]
        return False, None


class Match(_OfRequests):
    """All have the same value. The first may have any."""

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


class _Distinct(_OfRequests):
    """Each has another value. Upstream remembers one value a request, the last; so does this."""

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
    """True is not 1."""
    return type(a) is type(b) and a == b
