"""Selectors of devices: what is true, what is an error in a scheduler's words, and what is not read."""

from contextlib import suppress
from typing import Any, Final

import pytest

from app.kube.resource_v1 import BILLION, Device, DeviceCapacity, Version
from plugins.in_tree.dynamic_resources.cel import DeviceSelector
from plugins.in_tree.dynamic_resources.cel_functions import CelError
from plugins.in_tree.dynamic_resources.cel_scope import MAX_STEPS, StepBudget, device_variables
from plugins.in_tree.dynamic_resources.cel_syntax import (
    MAX_DEPTH,
    MAX_HEIGHT,
    MAX_LENGTH,
    MAX_NODES,
    Unsupported,
    parse,
)
from plugins.in_tree.dynamic_resources.cel_values import parse_quantity, parse_semver

GPU: Final = Device(
    "d0",
    {"model": "a100", "index": 1, "link": True, "version": Version("1.10.0"), "other.test/speed": 10},
    {"memory": DeviceCapacity(40 * 2**30 * BILLION)},
)


def said(expression: str, device: Device = GPU) -> Any:
    """True, false, the error, or that it is not read."""
    try:
        return DeviceSelector(expression).matches(device_variables("gpu.test", device), StepBudget())
    except CelError as error:
        return str(error)
    except Unsupported:
        return "not read"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        pytest.param("9223372036854775807 + 1 == 0", "integer overflow", id="more than 64 bits"),
        pytest.param("-7 / 2 == -3 && -7 % 2 == -1", True, id="towards zero"),
        pytest.param("device.attributes['gpu.test'].model.matches('(?=a)')", "not read", id="none of RE2's"),
        pytest.param("device.attributes['gpu.test'].model.split('1').size() == 2", "not read", id="another function"),
        pytest.param("nobody == 1", "not read", id="another variable"),
        pytest.param("1u == 1", "not read", id="an unsigned number"),
        pytest.param("device.driver ==", "not read", id="half an expression"),
    ],
)
def test_what_topic_dra_cel_does_not_ask(expression: str, expected: object) -> None:
    assert expected == said(expression)


def test_an_attribute_of_an_unknown_type_is_an_error_whatever_is_asked() -> None:
    assert "attribute x: unsupported attribute value" == said("true", Device("d", {"x": None}))


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(" " * MAX_LENGTH + "true", id="long"),
        pytest.param("(" * (MAX_DEPTH + 1) + "true" + ")" * (MAX_DEPTH + 1), id="deep"),
        pytest.param("&&".join(["true"] * (MAX_NODES + 1)), id="of many parts"),
    ],
)
def test_what_is_beyond_the_bounds_is_not_read(expression: str) -> None:
    with pytest.raises(Unsupported):
        parse(expression)


TEN: Final = "[0,1,2,3,4,5,6,7,8,9]"


def nested(inner: str) -> str:
    for name in "abcd":
        inner = f"{TEN}.all({name}, {inner})"
    return inner


def doubled(times: int) -> str:
    """A list of two that are each a list of two, and so on: as many items as 2 to that power."""
    expression = f"c{times} == c{times}"
    for number in range(times, 0, -1):
        expression = f"cel.bind(c{number}, [c{number - 1}, c{number - 1}], {expression})"
    return f"cel.bind(c0, [0, 0], {expression})"


def steps(expression: str) -> int:
    budget = StepBudget()
    with suppress(Unsupported):
        DeviceSelector(expression).matches(device_variables("gpu.test", GPU), budget)
    return budget.steps


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(nested("true"), id="items of items"),
        pytest.param(doubled(25), id="few lists that are compared as many"),
        pytest.param(f"{TEN}.all(a, {TEN}.all(b, !(-1 in [{'device.driver == 1,' * 50} a])))", id="membership"),
        pytest.param(f"{TEN}.all(a, {TEN}.all(b, '{'x' * 4000}'.contains('y') || true))", id="long texts"),
        pytest.param(
            f"{TEN}.all(a, {TEN}.all(b, !'{'a' * 500}'.matches('{'a?' * 30}b')))", id="a pattern with many ways"
        ),
    ],
)
def test_steps_are_bounded(expression: str) -> None:
    assert "not read" == said(expression)
    assert MAX_STEPS < steps(expression) < 2 * MAX_STEPS


def test_what_is_compared_in_few_steps_is_judged() -> None:
    assert said(doubled(5)) is True


def test_to_look_among_constants_takes_as_long_for_many_as_for_few() -> None:
    many = ",".join(map(str, range(400)))

    assert steps("device.driver in ['a']") == steps(f"device.driver in [{many}]")
    assert [True, True, False, False] == [
        said(f"{it} in [1, null, {many}]") for it in ("399.0", "null", "true", "device.attributes")
    ]


def test_a_chain_is_as_deep_as_it_is_long() -> None:
    assert said("+".join(["1"] * MAX_HEIGHT) + f" == {MAX_HEIGHT}") == "not read"
    assert said("+".join(["1"] * (MAX_HEIGHT - 1)) + f" == {MAX_HEIGHT - 1}") is True


@pytest.mark.parametrize(
    ("less", "more"), [("1.2.3", "1.10.0"), ("2.0.0-rc.1", "2.0.0"), ("1.0.0-1", "1.0.0-a"), ("1.0.0-a.1", "1.0.0-a.2")]
)
def test_versions_have_an_order(less: str, more: str) -> None:
    first, second = parse_semver(less), parse_semver(more)

    assert first is not None
    assert second is not None
    assert first.order() < second.order()


@pytest.mark.parametrize("text", ["1.2", "01.2.3", "1.2.3-01", "1.2.3-", "v1.2.3", ""])
def test_what_is_no_version(text: str) -> None:
    assert parse_semver(text) is None


def test_quantities() -> None:
    assert parse_quantity("1Ki") == parse_quantity("1024")
    assert parse_quantity("one") is None
    with pytest.raises(Unsupported):
        parse_quantity("1" * 99)
