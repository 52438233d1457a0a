"""What a part of an expression is evaluated with: variables, among them the device, and the steps that are left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.kube.resource_v1 import AttributeValue, Device, Version
from plugins.in_tree.dynamic_resources.cel_functions import CelError
from plugins.in_tree.dynamic_resources.cel_syntax import Unsupported
from plugins.in_tree.dynamic_resources.cel_values import Amounting, parse_semver

MOST_STEPS: Final = 5000
"""Parts of an expression that are looked at for one device: some 2 ms. A selector has a dozen.

A scheduler ends an evaluation too (``CELSelectorExpressionMaxCost``), after some 100 ms. What that is counted in would
have to be counted just as it does for a verdict to be the same; what takes longer than this is not judged instead.
"""

_DEVICE: Final = "device"


class Budget:
    """The steps of one evaluation."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    def spend(self, steps: int = 1) -> None:
        """To be called before they are taken. Raises ``Unsupported``."""
        self.steps += steps
        if self.steps > MOST_STEPS:
            raise Unsupported("an expression that takes too long")


class Scope:
    """The variables of a part of an evaluation, and what it is part of."""

    __slots__ = ("_budget", "step", "variables")

    def __init__(self, variables: dict[str, Any], budget: Budget) -> None:
        self.variables = variables
        self.step = budget.spend
        self._budget = budget

    def within(self, name: str, value: Any = None) -> Scope:
        """The same with one variable more."""
        return Scope({**self.variables, name: value}, self._budget)


class Domains(dict[str, Mapping[str, Any]]):
    """Attributes or capacity by domain. One that a device has nothing of reads as empty, but is not in it."""

    def __missing__(self, key: str) -> Mapping[str, Any]:
        return {}


def device_variables(driver: str, device: Device) -> dict[str, Any]:
    """What a selector sees. Raises ``CelError`` for a device of which a scheduler cannot make anything."""
    attributes, capacity = Domains(), Domains()
    for name, value in device.attributes.items():
        domain, local = _qualified(name, driver)
        attributes.setdefault(domain, {})[local] = _native(name, value)  # type: ignore[index]  # what was put there is a dict
    for name, of_device in device.capacity.items():
        domain, local = _qualified(name, driver)
        capacity.setdefault(domain, {})[local] = Amounting(of_device.value)  # type: ignore[index]  # the same
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
            raise Unsupported("a version that is none")
        return version
    return value
