"""What an error below /api/v1 is: a Status, of which kubectl shows the message and the causes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from app.server.failures import MOST_CAUSES, FailureCause, error_body, is_in_api, mistakes_body, sentence, status_body


@pytest.mark.parametrize(
    ("code", "reason"), [(403, "Forbidden"), (404, "NotFound"), (422, "Invalid"), (503, "ServiceUnavailable")]
)
def test_a_status_says_why_in_its_message_and_what_kind_in_its_reason(code: int, reason: str) -> None:
    expected = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "no node «ü»",
        "reason": reason,
        "code": code,
    }

    assert expected == json.loads(status_body(code, "no node «ü»"))


@pytest.mark.parametrize(
    ("path", "in_api"),
    [
        ("/api/v1/explain", True),
        ("/api/v1/", True),
        ("/api/v1", True),
        ("/api/v1beta1/explain", False),
        ("/api", False),
        ("/metrics", False),
        ("/elsewhere/api/v1/explain", False),
    ],
)
def test_other_paths_keep_their_form(path: str, in_api: bool) -> None:
    body = json.loads(error_body(path, 503, "busy"))

    assert in_api == is_in_api(path)
    assert ("Status" if in_api else None) == body.get("kind")
    assert in_api or {"detail": "busy"} == body


def mistake(*place: str | int, kind: str = "value_error", message: str = "no") -> Mapping[str, Any]:
    return {"type": kind, "loc": place, "msg": message}


@pytest.mark.parametrize(
    ("found", "cause", "told"),
    [
        (mistake("body", "pods", 0, "name"), ("FieldValueInvalid", "pods[0].name"), "pods[0].name: no"),
        (mistake("body", "node", kind="missing"), ("FieldValueRequired", "node"), "node: no"),
        (mistake("body", "bogus", kind="extra_forbidden"), ("FieldValueForbidden", "bogus"), "bogus: no"),
        (mistake("query", "machine", kind="enum"), ("FieldValueNotSupported", "machine"), "machine: no"),
        (mistake("body", "query"), ("FieldValueInvalid", "query"), "query: no"),
        (mistake("body"), ("FieldValueInvalid", "body"), "body: no"),
    ],
)
def test_a_mistake_is_a_cause_and_part_of_the_message(
    found: Mapping[str, Any], cause: tuple[str, str], told: str
) -> None:
    status = json.loads(mistakes_body(422, [found]))

    assert {"causes": [{"reason": cause[0], "message": "no", "field": cause[1]}]} == status["details"]
    assert ("Invalid", f"the request is invalid: {told}") == (status["reason"], status["message"])


def test_a_parameter_that_a_path_does_not_have() -> None:
    status = json.loads(mistakes_body(422, [mistake("query", "bogus", kind="extra_forbidden")]))

    assert "the request is invalid: bogus: the path has no such parameter" == status["message"]


@pytest.mark.parametrize("more", [0, 1, 500])
def test_the_message_counts_the_causes_that_are_left_out(more: int) -> None:
    status = json.loads(mistakes_body(422, [mistake("body", "nodes", it) for it in range(MOST_CAUSES + more)]))

    causes = [FailureCause(**it) for it in status["details"]["causes"]]
    assert [f"nodes[{number}]: no" for number in range(MOST_CAUSES)] == [sentence(it) for it in causes]
    assert status["message"].endswith("[19]: no" + (f"; and {more} more mistakes" if more else ""))
