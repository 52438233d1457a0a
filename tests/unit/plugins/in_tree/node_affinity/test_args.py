"""Rules of NodeAffinityArgs: an affinity that cannot be parsed is told with its place, in kube-scheduler's words."""

from typing import Final

import pytest
from pydantic import ValidationError

from plugins.in_tree.node_affinity.args import NodeAffinityArgs
from tests.builders import JsonObject, expression, preferred_affinity, required_affinity, term, weighted

LABELS: Final = {"disk": "ssd"}
REQUIRED: Final = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
PREFERRED: Final = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"


def args(affinity: JsonObject | None) -> NodeAffinityArgs:
    """``affinity``: as a pod would have it."""
    return NodeAffinityArgs.model_validate({"addedAffinity": affinity and affinity["nodeAffinity"]})


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        pytest.param(None, None, id="nothing"),
        pytest.param({"nodeAffinity": {}}, None, id="an empty one"),
        pytest.param(required_affinity(), False, id="no term matches no node"),
        pytest.param(required_affinity(term()), False, id="nor does an empty one"),
        pytest.param(required_affinity(term(), term(expression("disk", "In", "ssd"))), True, id="one term is enough"),
        pytest.param(required_affinity(term(fields=[expression("metadata.name", "In", "n2")])), False, id="a name"),
    ],
)
def test_what_is_required_of_every_node(affinity: JsonObject | None, expected: bool | None) -> None:
    found = args(affinity).required()

    assert expected == (None if found is None else found.matches("n1", LABELS))


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        pytest.param(None, None, id="nothing"),
        pytest.param(required_affinity(), None, id="something else"),
        pytest.param(preferred_affinity(), None, id="no terms"),
        pytest.param(preferred_affinity(weighted(0, term(expression("!", "In")))), 0, id="weight 0 is not looked at"),
        pytest.param(
            preferred_affinity(weighted(7, term(expression("disk", "Exists"))), weighted(2, term())), 7, id="a term"
        ),
    ],
)
def test_what_is_liked_in_every_node(affinity: JsonObject | None, expected: int | None) -> None:
    found = args(affinity).preferences()

    assert expected == (None if found is None else found.score("n1", LABELS))


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        pytest.param(
            required_affinity(term(), term(expression("disk", "In"))),
            f"{REQUIRED}[1].matchExpressions[0].values: Invalid value: []: "
            "for 'in', 'notin' operators, values set can't be empty",
            id="required",
        ),
        pytest.param(
            preferred_affinity(weighted(1, term(fields=[expression("metadata.name", "Gt", "1")]))),
            f'{PREFERRED}[0].matchFields[0].operator: Unsupported value: "Gt": supported values: "In", "NotIn"',
            id="preferred",
        ),
    ],
)
def test_a_term_that_cannot_be_parsed_is_a_mistake(affinity: JsonObject, expected: str) -> None:
    with pytest.raises(ValidationError) as raised:
        args(affinity)

    assert [f"Value error, {expected}"] == [it["msg"] for it in raised.value.errors()]


@pytest.mark.parametrize(
    "affinity",
    [
        pytest.param({"requiredDuringScheduling": {}}, id="a field that there is none of"),
        pytest.param({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 2**31}]}, id="a weight too large"),
        pytest.param({"requiredDuringSchedulingIgnoredDuringExecution": []}, id="terms where a selector should be"),
    ],
)
def test_what_is_no_affinity_is_a_mistake_with_its_place(affinity: JsonObject) -> None:
    with pytest.raises(ValidationError) as raised:
        NodeAffinityArgs.model_validate({"addedAffinity": affinity})

    assert {"addedAffinity"} == {it["loc"][0] for it in raised.value.errors()}
