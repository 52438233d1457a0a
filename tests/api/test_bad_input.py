"""No input whatever makes an answer that kube-scheduler cannot read, or a verb raise."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from app.config.settings import Settings
from app.verbs.outcome import Verb
from tests.api.contract import breaches
from tests.api.mutations import mutated
from tests.api.recorded import CALLS
from tests.api.service import example, serving
from tests.api.small import filter_error, filtered, scored
from tests.api.test_recorded import cluster_for
from tests.builders import JsonObject, encoded

VERBS: tuple[Verb, ...] = ("filter", "prioritize", "preempt", "bind")
EXAMPLES = {
    "filter": ("filter-spread", "filter-home", "filter-first-boot"),
    "prioritize": ("prioritize-spread",),
    "preempt": ("preempt",),
    "bind": ("bind-spread", "bind-crowded", "bind-first-boot"),
}
REQUESTS = 500


@pytest.mark.parametrize("verb", VERBS)
async def test_mutated_requests_keep_the_contract(verb: Verb) -> None:
    """500 requests a verb: recorded ones and those of the sample cluster, each with something wrong."""
    random = Random(f"homeport {verb}")
    recorded = [call.request for call in CALLS if call.verb == verb]
    samples = [encoded(example(name)) for name in EXAMPLES[verb]]
    with capture_logs() as logged:
        async with serving() as api:
            for number in range(REQUESTS):
                body = mutated(random, random.choice((*recorded, *samples, *samples)))
                response = await api.http.post(f"/{verb}", content=body)
                assert [] == breaches(verb, body, response), (number, body[:2000], response.content[:2000])
            outcomes = api.outcomes(verb)
            check = await api.get("/api/v1/check")

    assert {"consistent": True, "differences": []} == check
    assert REQUESTS == sum(outcomes.values())
    assert [] == raised(logged)
    assert len(outcomes) > 1


@pytest.mark.parametrize("verb", VERBS)
async def test_mutated_requests_about_whole_nodes(verb: Verb, tmp_path: Path) -> None:
    """The same on a cluster that has the nodes of the recorded requests."""
    random = Random(f"nodes {verb}")
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": cluster_for(list(CALLS))}))
    recorded = [call.request for call in CALLS if call.verb == verb]
    with capture_logs() as logged:
        async with serving(Settings(cluster=str(path))) as api:
            for number in range(100):
                body = mutated(random, random.choice(recorded))
                response = await api.http.post(f"/{verb}", content=body)
                assert [] == breaches(verb, body, response), (number, body[:2000], response.content[:2000])
    assert [] == raised(logged)


def raised(logged: Iterable[Mapping[str, Any]]) -> list[str]:
    """What only the last resort caught. A plugin's own fault (a selector that is none) is said by its name."""
    return [entry["traceback"] for entry in logged if "traceback" in entry]


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
        pytest.param("filter", ASKED, answered(None), id="filter, null"),
        pytest.param("filter", ASKED, answered({}), id="filter, no list"),
        pytest.param("filter", ASKED, answered(filtered()), id="filter, null lists"),
        pytest.param("filter", ASKED, answered(filtered(["n1"])), id="filter, a node left out"),
        pytest.param("filter", ASKED, answered(filtered(["n1", "n9"], {"n2": "no"})), id="filter, a phantom node"),
        pytest.param(
            "filter", ASKED, answered(filtered(["n1"], {"n2": "no", "n9": "no"})), id="filter, a phantom refusal"
        ),
        pytest.param("filter", ASKED, answered({**GOOD, "FailedNodes": {"n2": "no"}}), id="filter, FailedNodes"),
        pytest.param("filter", ASKED, answered({**GOOD, "Error": "no"}), id="filter, an error beside a verdict"),
        pytest.param("filter", ASKED, answered(None, content=encoded(GOOD) + b"\n"), id="bytes after the value"),
        pytest.param("filter", ASKED, answered(None, content=encoded(GOOD) + b"{}"), id="a value after the value"),
        pytest.param("prioritize", ASKED, answered([]), id="prioritize, nothing scored"),
        pytest.param("prioritize", ASKED, answered(None), id="prioritize, null"),
        pytest.param("prioritize", ASKED, answered(scored(n1=0)), id="prioritize, a host left out"),
        pytest.param(
            "prioritize",
            ASKED,
            answered([{"Host": "n1", "Score": 1.5}, {"Host": "n2", "Score": 1}]),
            id="prioritize, a fraction",
        ),
        pytest.param("prioritize", ASKED, answered([], 500), id="prioritize, a 500 with a body"),
        pytest.param("prioritize", ASKED, answered(None, 503, b""), id="prioritize, another status"),
        pytest.param("preempt", EVICTION, answered({"NodeNameToMetaVictims": None}), id="preempt, null"),
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
        pytest.param("bind", {}, answered({}), id="bind, nothing"),
        pytest.param("bind", {}, answered({"Error": None}), id="bind, null"),
    ],
)
def test_the_contract_sees_every_breach(verb: Verb, asked: JsonObject, response: httpx.Response) -> None:
    assert [] != breaches(verb, encoded(asked), response)
