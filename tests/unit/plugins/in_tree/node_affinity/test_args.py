"""Rules of NodeAffinityArgs: an affinity that cannot be parsed is told with its place, in kube-scheduler's words."""

from typing import Final

import pytest
from pydantic import ValidationError

from plugins.in_tree.node_affinity.args import NodeAffinityArgs
from tests.builders import JsonObject, expression, preferred_affinity, required_affinity, term, weighted

REQUIRED: Final = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
PREFERRED: Final = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution"


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
        NodeAffinityArgs.model_validate({"addedAffinity": affinity["nodeAffinity"]})

    assert [f"Value error, {expected}"] == [it["msg"] for it in raised.value.errors()]
