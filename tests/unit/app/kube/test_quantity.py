"""Rules of quantities: what is read, how it is rounded, and that none costs more than it is worth.

What Go says of thousands of them is in ``tests/conformance/test_resources.py``.
"""

from decimal import Context, Decimal
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from app.kube import quantity
from app.kube.quantity import LONGEST, ZERO, MalformedQuantity, OverlongQuantity, Quantity, parse_quantity, quantity_of

POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "e3": 3, "E-2": -2}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}
EXACT = Context(prec=200)
GREATEST = 2**63 - 1

numbers = st.decimals(min_value=0, max_value=10**6, places=12, allow_nan=False, allow_infinity=False)
texts = st.builds(lambda number, suffix: f"{number:f}{suffix}", numbers, st.sampled_from((*POWERS, *BINARY)))


def exact(text: str) -> Decimal:
    """The number, worked out plainly; what is less than a billionth is one."""
    suffix = text.lstrip("0123456789.")
    number = Decimal(text.removesuffix(suffix))
    power = Decimal(2) ** BINARY[suffix] if suffix in BINARY else Decimal(10) ** POWERS[suffix]
    found = EXACT.multiply(number, power)
    return found.quantize(Decimal("1e-9"), rounding="ROUND_UP", context=EXACT)


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        pytest.param("0.1m", 1, 1, id="less than a thousandth"),
        pytest.param("1.5Gi", 3 << 29, 3 * 2**29 * 1000, id="a fraction of a power of two"),
        pytest.param("12e6", 12_000_000, 12_000_000_000, id="an exponent"),
        pytest.param("1E", 10**18, 0, id="more thousandths than 64 bits hold"),
        pytest.param("-1500m", -2, -1500, id="away from zero"),
        pytest.param("9Ei", GREATEST, -1000, id="the largest of a power of two"),
        pytest.param("1e30", 0, 0, id="more than 64 bits hold"),
    ],
)
def test_an_amount_is_rounded_up(text: str, value: int, milli: int) -> None:
    found = parse_quantity(text.encode())

    assert (value, milli) == (found.value(), found.milli_value())


@pytest.mark.parametrize("text", ["", "one", "1 1", "1K", "1e", "1.2.3", "--1", "0x1", "Ei", "1e99999999999999999999"])
def test_what_is_no_quantity_is_malformed(text: str) -> None:
    with pytest.raises(MalformedQuantity, match="quantity"):
        parse_quantity(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("1" * (LONGEST + 1), id="long"),
        pytest.param("1" * 1_000_000, id="without end"),
        pytest.param("1e1000", id="large"),
        pytest.param("1e-2147483647", id="small"),
        pytest.param("0e2147483647", id="nothing, at length"),
    ],
)
def test_what_would_cost_something_is_not_read(text: str) -> None:
    with pytest.raises(OverlongQuantity):
        parse_quantity(text.encode())
    with pytest.raises(OverlongQuantity):
        quantity_of(Raw(f'"{text}"'.encode()))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(b'"1"', Quantity(1), id="a string"),
        pytest.param(b"1", Quantity(1), id="a number"),
        pytest.param(b'" 1\xc2\xa0"', Quantity(1), id="with space around it"),
        pytest.param(b"null", ZERO, id="null"),
    ],
)
def test_a_quantity_in_json(raw: bytes, expected: Quantity) -> None:
    assert expected == quantity_of(Raw(raw))


@pytest.mark.parametrize("raw", [b"true", b"{}", b'["1"]', b'"null"', b'"\\u0031"', b'""'])
def test_what_else_json_has_is_none(raw: bytes) -> None:
    with pytest.raises(MalformedQuantity):
        quantity_of(Raw(raw))


def test_what_is_remembered_is_bounded() -> None:
    for number in range(20_000):
        quantity_of(Raw(f"{number}m".encode()))

    assert len(quantity._MEMO) < 3_000


@given(text=texts)
def test_no_amount_within_64_bits_is_rounded_down(text: str) -> None:
    found, plain = parse_quantity(text.encode()), exact(text)

    assert ceil(plain) == found.value()
    assert ceil(plain * 1000) == found.milli_value() or plain * 1000 > GREATEST


@given(one=texts, other=texts)
def test_sums_and_comparisons_are_exact(one: str, other: str) -> None:
    ours, theirs = parse_quantity(one.encode()), parse_quantity(other.encode())
    added = EXACT.add(exact(one), exact(other))

    assert ceil(added) == (ours + theirs).value() == (theirs + ours).value()
    assert (exact(one) > exact(other)) == ours.exceeds(theirs)


@given(text=st.one_of(st.binary(max_size=70), st.text("0123456789.eEimknGKT+-", max_size=70).map(str.encode)))
def test_any_text_is_a_quantity_or_none(text: bytes) -> None:
    try:
        found = parse_quantity(text)
    except (MalformedQuantity, OverlongQuantity):
        return

    assert -(2**63) <= found.value() < 2**63
    assert -(2**63) <= found.milli_value() < 2**63
