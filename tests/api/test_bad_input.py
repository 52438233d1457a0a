"""No input whatever makes an answer that kube-scheduler cannot read, or a verb raise."""

from __future__ import annotations

import httpx
import pytest

from app.verbs.outcome import Verb
from tests.api.contract import breaches
from tests.api.small import filter_error, filtered, scored
from tests.builders import JsonObject, encoded

ASKED = {"NodeNames": ["n1", "n2"], "Nodes": None}
GOOD = filtered(["n1"], {"n2": "no"})


def answered(found: object, status: int = 200, content: bytes | None = None) -> httpx.Response:
    body = encoded(found) if content is None else content
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    return httpx.Response(status, content=body, headers=headers)


@pytest.mark.parametrize(
    ("verb", "asked", "response"),
    [
        pytest.param("filter", ASKED, answered(GOOD), id="filter"),
        pytest.param("filter", ASKED, answered(filter_error("no")), id="filter, an error"),
        pytest.param("prioritize", ASKED, answered(scored(n1=0, n2=100)), id="prioritize"),
        pytest.param("prioritize", ASKED, answered(None, 500, b""), id="prioritize, nothing"),
        pytest.param("bind", {}, answered({"Error": ""}), id="bind"),
    ],
)
def test_the_contract_lets_good_answers_through(verb: Verb, asked: JsonObject, response: httpx.Response) -> None:
    assert [] == breaches(verb, encoded(asked), response)


EVICTION = {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "a"}]}}}


@pytest.mark.parametrize(
    ("verb", "asked", "response"),
    [
        pytest.param("filter", ASKED, answered(None, 500, b""), id="filter, a 500"),
        pytest.param("filter", ASKED, answered(filtered()), id="filter, null lists"),
        pytest.param("filter", ASKED, answered(filtered(["n1"])), id="filter, a node left out"),
        pytest.param("filter", ASKED, answered(filtered(["n1", "n9"], {"n2": "no"})), id="filter, a phantom node"),
        pytest.param(
            "filter", ASKED, answered(filtered(["n1"], {"n2": "no", "n9": "no"})), id="filter, a phantom refusal"
        ),
        pytest.param("filter", ASKED, answered({**GOOD, "FailedNodes": {"n2": "no"}}), id="filter, FailedNodes"),
        pytest.param("filter", ASKED, answered({**GOOD, "Error": "no"}), id="filter, an error beside a verdict"),
        pytest.param("filter", ASKED, answered(None, content=encoded(GOOD) + b"{}"), id="a value after the value"),
        pytest.param("prioritize", ASKED, answered([]), id="prioritize, nothing scored"),
        pytest.param("prioritize", ASKED, answered(scored(n1=0)), id="prioritize, a host left out"),
        pytest.param(
            "prioritize",
            ASKED,
            answered([{"Host": "n1", "Score": 1.5}, {"Host": "n2", "Score": 1}]),
            id="prioritize, a fraction",
        ),
        pytest.param("prioritize", ASKED, answered(None, 503, b""), id="prioritize, another status"),
        pytest.param(
            "preempt", EVICTION, answered({"NodeNameToMetaVictims": {"n1": None}}), id="preempt, null victims"
        ),
        pytest.param(
            "preempt",
            EVICTION,
            answered({"NodeNameToMetaVictims": {"n1": {"Pods": [], "NumPDBViolations": 0}}}),
            id="preempt, no victims",
        ),
        pytest.param(
            "preempt",
            EVICTION,
            answered({"NodeNameToMetaVictims": {"n9": {"Pods": [{"UID": "a"}], "NumPDBViolations": 0}}}),
            id="preempt, a phantom node",
        ),
        pytest.param("bind", {}, answered({"Error": None}), id="bind, null"),
    ],
)
def test_the_contract_sees_every_breach(verb: Verb, asked: JsonObject, response: httpx.Response) -> None:
    assert [] != breaches(verb, encoded(asked), response)
