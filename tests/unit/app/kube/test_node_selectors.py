"""Rules of node affinity on the wire: what a pod prefers, and in which words it is told that it cannot be parsed."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from app.kube.meta_v1 import LARGEST_PART, Oversized
from app.kube.node_affinity import PreferredNodeAffinity
from app.kube.node_selectors import preferred_affinity_of, required_terms_of
from tests.builders import JsonObject, encoded, expression, preferred_affinity, required_affinity, term, weighted


def read(affinity: Any) -> PreferredNodeAffinity:
    return preferred_affinity_of(Raw(encoded(affinity)))


def shape(affinity: PreferredNodeAffinity) -> list[tuple[int, int, int]] | None:
    """Of each term the weight, and how many expressions and fields it has."""
    terms = affinity.terms
    return None if terms is None else [(it.weight, len(it.term.expressions), len(it.term.fields)) for it in terms]


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        pytest.param({}, None, id="none of nodes"),
        pytest.param(required_affinity(term()), None, id="a required one alone"),
        pytest.param(preferred_affinity(), [], id="an empty list is one"),
        pytest.param(preferred_affinity(weighted(3, term(expression("a", "Exists")))), [(3, 1, 0)], id="a term"),
        pytest.param(preferred_affinity(weighted(0, term(expression("!", "Is")))), [], id="weight 0 is not looked at"),
        pytest.param(preferred_affinity(weighted(3, term())), [], id="an empty term matches nothing"),
        pytest.param(
            preferred_affinity(weighted(-1, term(fields=[expression("metadata.name", "In", "n1")]))),
            [(-1, 0, 1)],
            id="fields, and a weight that no API server takes",
        ),
    ],
)
def test_what_a_pod_prefers(affinity: Any, expected: list[tuple[int, int, int]] | None) -> None:
    assert expected == shape(read(affinity))


IN = 'supported values: "In", "NotIn"'
ALL = f'{IN}, "Exists", "DoesNotExist", "Gt", "Lt"'


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        pytest.param(expression("a", "Is"), f'operator: Unsupported value: "Is": {ALL}', id="an unknown operator"),
        pytest.param(
            expression("a", "In"),
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
            id="In without values",
        ),
        pytest.param(
            {"key": "a", "operator": "NotIn"},
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            id="NotIn, and no list",
        ),
        pytest.param(
            expression("a", "Exists", "b"),
            'values: Invalid value: ["b"]: values set must be empty for exists and does not exist',
            id="Exists with a value",
        ),
        pytest.param(
            expression("a", "Gt", "1", "2"),
            "values: Invalid value: [\"1\",\"2\"]: for 'Gt', 'Lt' operators, exactly one value is required",
            id="Gt with two",
        ),
        pytest.param(
            expression("a", "Lt", "x1"),
            "values[0]: Invalid value: \"x1\": for 'Gt', 'Lt' operators, the value must be an integer",
            id="Lt with a text",
        ),
    ],
)
def test_an_expression_that_cannot_be_parsed(requirement: JsonObject, expected: str) -> None:
    terms = (weighted(1, term(expression("fine", "Exists"))), weighted(2, term(requirement)))

    assert PreferredNodeAffinity((), f"[1].matchExpressions[0].{expected}") == read(preferred_affinity(*terms))


@pytest.mark.parametrize(
    ("requirement", "start"),
    [
        pytest.param(expression("a b", "Exists"), 'key: Invalid value: "a b": name part must', id="a key"),
        pytest.param(expression("a", "In", "b", "!"), 'values[1][a]: Invalid value: "!": a valid', id="a value"),
    ],
)
def test_keys_and_values_are_told_with_the_rule(requirement: JsonObject, start: str) -> None:
    found = read(preferred_affinity(weighted(1, term(requirement)))).invalid

    assert found.startswith(f"[0].matchExpressions[0].{start}")


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        pytest.param(
            expression("metadata.name", "Exists"), f'operator: Unsupported value: "Exists": {IN}', id="Exists"
        ),
        pytest.param(
            expression("metadata.name", "In", "a", "b"),
            'values: Invalid value: ["a","b"]: must have one element',
            id="two names",
        ),
    ],
)
def test_a_field_that_cannot_be_parsed(field: JsonObject, expected: str) -> None:
    found = read(preferred_affinity(weighted(1, term(fields=[field]))))

    assert PreferredNodeAffinity((), f"[0].matchFields[0].{expected}") == found


def test_all_that_is_wrong_is_told_at_once() -> None:
    terms = (weighted(1, term(expression("a", "Is"), fields=[expression("x", "Is")])), weighted(1, term(fields=[{}])))

    found = read(preferred_affinity(*terms))

    expected = (
        f'[[0].matchExpressions[0].operator: Unsupported value: "Is": {ALL}, '
        f'[0].matchFields[0].operator: Unsupported value: "Is": {IN}, '
        f'[1].matchFields[0].operator: Unsupported value: "": {IN}]'
    )
    assert PreferredNodeAffinity((), expected) == found


def test_what_is_told_of_it_is_bounded() -> None:
    found = read(preferred_affinity(*[weighted(1, term(expression("a" * 500, "Is")))] * 100)).invalid
    long = read(preferred_affinity(weighted(1, term(expression("a" * 20_000, "Exists"))))).invalid

    assert (64, 16 << 10) == (found.count("Unsupported value"), len(long))


def test_an_affinity_that_is_too_long_is_not_read() -> None:
    long = {"nodeAffinity": {}, "podAffinity": "x" * LARGEST_PART}

    for read_it in (required_terms_of, preferred_affinity_of):
        with pytest.raises(Oversized, match=r"spec\.affinity"):
            read_it(Raw(encoded(long)))


@pytest.mark.parametrize(
    ("affinity", "said"),
    [
        pytest.param(preferred_affinity({"weight": "heavy"}), r"\[0\]\.weight", id="a weight that is a text"),
    ],
)
def test_what_is_no_affinity_is_an_error_that_names_the_field(affinity: Any, said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=rf"^spec\.affinity: .*{said}"):
        read(affinity)
