"""Below ``/lean`` an answer holds what kube-scheduler needs to read, and decides the same."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import Settings
from app.verbs.outcome import Verb
from tests.api.service import Api, serving
from tests.api.small import (
    FOREIGN,
    NAMES,
    NEW,
    TOO_MANY,
    WEB,
    binding,
    by_name,
    by_object,
    filtered,
    request,
    saved,
)
from tests.builders import JsonObject, constraint, pod_object

SOFT = pod_object("web-soft", labels=WEB, spread=[constraint(app="web", soft=True)])
NOWHERE = pod_object("web-nowhere", labels=WEB, spread=[constraint("rack", app="web")])
MISSING = f"{TOO_MANY} (missing required label)"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with serving(Settings(cluster=saved(tmp_path, SOFT))) as api:
        yield api


async def lean(api: Api, verb: Verb, body: JsonObject | bytes) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = await api.http.post(f"/lean/{verb}", content=content)
    return json.loads(response.content) if response.content else response.status_code


async def test_refusals_are_left_out_where_a_node_passes(api: Api) -> None:
    answer = await lean(api, "filter", by_name())

    assert filtered(["n2", "n3"]) == {**answer, "NodeNames": sorted(answer["NodeNames"])}


async def test_where_no_node_passes_every_refusal_is_told(api: Api) -> None:
    assert filtered([], dict.fromkeys(NAMES, MISSING)) == await lean(api, "filter", by_name(NOWHERE))


async def test_scores_are_told_where_they_differ_from_the_commonest(api: Api) -> None:
    """In full: 0 for n1, which has a pod, and 10 for the others."""
    assert [{"Host": "n1", "Score": -20}] == await lean(api, "prioritize", by_name(SOFT))
    assert [{"Host": "n1", "Score": -20}] == await lean(api, "prioritize", by_object(SOFT))


async def test_a_host_nobody_knows_scores_as_in_full(api: Api) -> None:
    """It has 0, as n1 has: as many hosts as have 10."""
    answer = await lean(api, "prioritize", by_name(SOFT, [*NAMES, "n9"]))

    assert [{"Host": "n2", "Score": 20}, {"Host": "n3", "Score": 20}] == answer


@pytest.mark.parametrize("pod", [pytest.param(NEW, id="no soft constraint"), pytest.param(FOREIGN, id="foreign")])
async def test_hosts_that_score_alike_are_not_told(api: Api, pod: JsonObject) -> None:
    assert [] == await lean(api, "prioritize", by_name(pod))


@pytest.mark.parametrize("verb", ["preempt", "bind"])
async def test_other_verbs_answer_as_ever(api: Api, verb: Verb) -> None:
    asked = binding(node="n1") if verb == "bind" else request(verb)

    assert (await api.post(verb, asked)).answer == await lean(api, verb, asked)


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "bind"])
async def test_failures_are_told_as_ever(api: Api, verb: Verb) -> None:
    full = await api.http.post(f"/{verb}", content=b"{")
    told = await api.http.post(f"/lean/{verb}", content=b"{")

    assert (full.status_code, full.content) == (told.status_code, told.content)
