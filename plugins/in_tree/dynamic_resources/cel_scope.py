"""Environment of an evaluation: the variables, including the device, and the number of steps taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.kube.resource_v1 import AttributeValue, Device, Version
from plugins.in_tree.dynamic_resources.cel_functions import CelError
from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported
from plugins.in_tree.dynamic_resources.cel_values import QuantityValue, parse_semver

MAX_STEPS: Final = 5000
"""Maximum number of steps of a selector for one device, about 2 ms. A typical selector takes a dozen steps.

kube-scheduler limits evaluations to about 100 ms (``CELSelectorExpressionMaxCost``). Homeport does not reproduce
kube-scheduler's cost model. An expression that exceeds Homeport's limit raises ``Unsupported``.
"""

_DEVICE: Final = "device"


class StepBudget:
    """Number of steps that one evaluation has taken."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    def spend(self, steps: int = 1) -> None:
        """Count steps before they are taken. Raises ``Unsupported`` if their total exceeds ``MAX_STEPS``."""
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise Unsupported("an expression that takes too long")


class Scope:
    """Variables that a part of an expression can read, and the budget of the evaluation."""

    __slots__ = ("_budget", "step", "variables")

    def __init__(self, variables: dict[str, Any], budget: StepBudget) -> None:
        self.variables = variables
        self.step = budget.spend
        self._budget = budget

    def within(self, name: str, value: Any = None) -> Scope:
        """Return an inner scope with one more variable."""
        return Scope({**self.variables, name: value}, self._budget)


class ValuesByDomain(dict[str, Mapping[str, Any]]):
    """Attributes or capacities by domain.

    Looking up a missing domain returns an empty map, but ``in`` returns false for it.
    """

    def __missing__(self, key: str) -> Mapping[str, Any]:
        return {}


def device_variables(driver: str, device: Device) -> dict[str, Any]:
    """Return the variables with which selectors are evaluated for the device.

    Raises ``CelError`` if kube-scheduler cannot convert the device, or ``Unsupported`` for an invalid version.
    """
    attributes, capacity = ValuesByDomain(), ValuesByDomain()
    for name, value in device.attributes.items():
        domain, local = _qualified(name, driver)
        attributes.setdefault(domain, {})[local] = _native(name, value)  # type: ignore[index]  # the value is a dict
    for name, of_device in device.capacity.items():
        domain, local = _qualified(name, driver)
        capacity.setdefault(domain, {})[local] = QuantityValue(of_device.value)  # type: ignore[index]  # the value is a dict
    return {
        _DEVICE: {
            "driver": driver,
            "allowMultipleAllocations": device.shareable,
            "attributes": attributes,
            "capacity": capacity,
        }
    }


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, local = name.partition("/")
    return (domain, local) if slash else (driver, name)


def _native(name: str, value: AttributeValue) -> Any:
    if value is None:
        raise CelError(f"attribute {name}: unsupported attribute value")
    if isinstance(value, Version):
        version = parse_semver(value.text)
        if version is None:
            raise Unsupported("an invalid version")
        return version
    return value
