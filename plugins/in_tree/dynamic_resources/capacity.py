"""Consumable capacity: computes the amounts that a request takes from a device, and checks that the device has enough.

Source of the rules: ``structured/internal/incubating/consumable_capacity.go`` of Kubernetes 1.36. Amounts are integers
in billionths of a unit. Steps of a policy are counted in whole units, rounded up.
"""

from __future__ import annotations

from collections.abc import Mapping

from app.kube.resource_v1 import BILLION, Amount, Amounts, DeviceCapacity, RequestPolicy
from plugins.in_tree.dynamic_resources.errors import REASON_MALFORMED, CannotEvaluate


def fits(
    requested: Amounts | None, capacity: Mapping[str, DeviceCapacity], allocated: Amounts, allocating: Amounts
) -> bool:
    """Return true if a device has the requested capacities, enough is free, and its policies allow the amounts.

    ``requested``: amounts of the request by capacity name; ``None`` if it specifies none. ``capacity``: capacities of
    the device. ``allocated``: amounts taken by allocated claims. ``allocating``: amounts taken in this search. Raises
    ``CannotEvaluate`` for an invalid policy.
    """
    if requested and not requested.keys() <= capacity.keys():
        return False
    for name, of_device in capacity.items():
        taken = consumed_of(None if requested is None else requested.get(name), of_device)
        if _violates(taken, of_device.policy):
            return False
        if taken + allocated.get(name, 0) + allocating.get(name, 0) > of_device.value:
            return False
    return True


def consumed(requested: Amounts | None, capacity: Mapping[str, DeviceCapacity]) -> dict[str, Amount]:
    """Return the amount that a request takes of each capacity of a device, by name. Raises ``CannotEvaluate``."""
    return {name: consumed_of(None if requested is None else requested.get(name), it) for name, it in capacity.items()}


def consumed_of(requested: Amount | None, capacity: DeviceCapacity) -> Amount:
    """Return the amount that a request takes of one capacity.

    Without a requested amount, the request takes the default of the capacity's policy, or the whole capacity if there
    is no default. A requested amount is rounded up to the policy's minimum and step, or to its next valid value. If
    there is none, it stays unchanged. The maximum is not checked. Raises ``CannotEvaluate`` for an invalid step.
    """
    policy = capacity.policy
    if requested is None:
        return policy.default if policy is not None and policy.default is not None else capacity.value
    if policy is None:
        return requested
    if policy.has_range and policy.minimum is not None:
        return _rounded_to_range(requested, policy.minimum, policy.step)
    if policy.valid_values is not None:
        return next((it for it in policy.valid_values if requested <= it), requested)
    return requested


def _rounded_to_range(requested: Amount, minimum: Amount, step: Amount | None) -> Amount:
    if requested < minimum:
        return minimum
    if step is None:
        return requested
    least, each = _whole(minimum), _step(step)
    steps = -(-(_whole(requested) - least) // each)
    return (least + steps * each) * BILLION


def _violates(taken: Amount, policy: RequestPolicy | None) -> bool:
    """Return true if the policy of a capacity forbids the amount. Raises ``CannotEvaluate`` for an invalid policy."""
    if policy is None or taken == policy.default:
        return False
    if policy.has_range:
        if policy.maximum is not None and taken > policy.maximum:
            return True
        if policy.step is None:
            return False
        if policy.minimum is None:
            raise CannotEvaluate(REASON_MALFORMED)
        return (_whole(taken) - _whole(policy.minimum)) % _step(policy.step) != 0
    return bool(policy.valid_values) and taken not in (policy.valid_values or ())


def _whole(amount: Amount) -> int:
    """Round an amount up to whole units."""
    return -(-amount // BILLION)


def _step(amount: Amount) -> int:
    """Return the step of a policy in whole units. Raises ``CannotEvaluate`` if it is not positive."""
    step = _whole(amount)
    if step <= 0:
        raise CannotEvaluate(REASON_MALFORMED)
    return step
