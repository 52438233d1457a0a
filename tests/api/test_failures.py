"""When there is no answer: every row of the table in docs/wire.md, for all four verbs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from app.config.settings import Settings
from app.runtime.guard import plugin_error
from app.verbs.outcome import Verb
from plugins import DEFAULT_WEIGHTS, SHIPPED
from tests.api.faulty import FAULT, FAULTY, faulty, with_faulty
from tests.api.service import Api, Reply, serving
from tests.api.small import (
    FOREIGN,
    NAMES,
    NEW,
    OURS,
    binding,
    by_name,
    by_object,
    filter_error,
    filtered,
    request,
    saved,
    scored,
)
from tests.apiserver import kubeconfig
from tests.builders import encoded, pod_object

VERBS: Final[tuple[Verb, ...]] = ("filter", "prioritize", "preempt", "bind")
ALL_EQUAL: Final = scored(n1=0, n2=0, n3=0)


def told(verb: Verb, outcome: str, message: str, *, hosts_known: bool = True) -> Reply:
    """What each caller is told of a failure."""
    match verb:
        case "filter":
            return Reply(200, filter_error(message), outcome)
        case "bind":
            return Reply(200, {"Error": message}, outcome)
        case "prioritize" if hosts_known:
            return Reply(200, ALL_EQUAL, outcome)
    return Reply(500, None, outcome)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with serving(Settings(cluster=saved(tmp_path))) as api:
        yield api


@pytest.mark.parametrize("verb", VERBS)
class TestBadRequest:
    @pytest.mark.parametrize(
        ("body", "cause"),
        [
            pytest.param(b"{", "Input data was truncated", id="cut short"),
            pytest.param(b"[]", "Expected `object`, got `array`", id="a list"),
            pytest.param(b'{"a":' * 12_000, "Input data was truncated", id="nested without end"),
        ],
    )
    async def test_malformed(self, api: Api, verb: Verb, body: bytes, cause: str) -> None:
        expected = told(verb, "bad_request", f"homeport: malformed {verb} request: {cause}", hosts_known=False)

        assert expected == await api.post(verb, body)

    async def test_a_body_of_just_the_limit_is_read(self, tmp_path: Path, verb: Verb) -> None:
        body = encoded(request(verb)).ljust(4096)
        async with serving(Settings(cluster=saved(tmp_path), max_body_bytes=4096)) as api:
            assert "bad_request" != (await api.post(verb, body)).outcome


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_a_node_that_cannot_be_read_is_a_malformed_request(api: Api, verb: Verb) -> None:
    reply = await api.post(verb, by_object(NEW, [{"metadata": {"name": "n1", "labels": {"a": 5}}}]))

    assert ("bad_request", 200 if verb == "filter" else 500) == (reply.outcome, reply.status)


class TestNotReady:
    """A live cluster whose API server does not answer: the picture stays incomplete."""

    @pytest.fixture
    async def api(self, tmp_path: Path) -> AsyncIterator[Api]:
        async with serving(Settings(kubeconfig=str(kubeconfig(tmp_path, "http://127.0.0.1:1")), profiles=OURS)) as api:
            yield api

    @pytest.mark.parametrize("verb", VERBS)
    async def test_no_verb_guesses(self, api: Api, verb: Verb) -> None:
        problem = (await api.http.get("/readyz")).text.strip()

        reply = await api.post(verb, request(verb))

        assert problem.startswith("the snapshot of the cluster is not complete: waiting for v1 Node")
        assert ("not_ready", told(verb, "not_ready", "").status) == (reply.outcome, reply.status)
        assert verb in ("filter", "bind") or told(verb, "not_ready", "") == reply
        assert verb not in ("filter", "bind") or reply.answer["Error"].startswith("homeport: the snapshot")

    async def test_readyz_is_not_and_livez_is(self, api: Api) -> None:
        assert (503, 200) == ((await api.http.get("/readyz")).status_code, (await api.http.get("/livez")).status_code)

    @pytest.mark.parametrize(
        ("verb", "answer"),
        [
            pytest.param("filter", filtered(NAMES), id="filter: all pass"),
            pytest.param("prioritize", ALL_EQUAL, id="prioritize: all equal"),
            pytest.param(
                "preempt",
                {"NodeNameToMetaVictims": {"n2": request("preempt")["NodeNameToMetaVictims"]["n2"]}},
                id="preempt: as sent",
            ),
        ],
    )
    async def test_a_pod_of_no_profile_needs_no_picture(self, api: Api, verb: Verb, answer: Any) -> None:
        assert Reply(200, answer, "nothing_to_do") == await api.post(verb, request(verb, FOREIGN))


POINTS: Final[tuple[tuple[Verb, str, str], ...]] = (
    ("filter", "required_objects", "RequiredObjects"),
    ("filter", "pre_filter", "PreFilter"),
    ("filter", "filter", "Filter"),
    ("prioritize", "required_objects", "RequiredObjects"),
    ("prioritize", "pre_score", "PreScore"),
    ("prioritize", "score", "Score"),
    ("prioritize", "normalize", "NormalizeScore"),
    ("preempt", "required_objects", "RequiredObjects"),
    ("preempt", "pre_filter", "PreFilter"),
    ("preempt", "remove_pod", "PreFilterExtensionRemovePod"),
    ("preempt", "filter", "Filter"),
    ("bind", "required_objects", "RequiredObjects"),
    ("bind", "pre_filter", "PreFilter"),
    ("bind", "filter", "Filter"),
    ("bind", "reserve", "Reserve"),
    ("bind", "pre_bind", "PreBind"),
    ("bind", "bind", "Bind"),
)
NEEDED: Final = {"reserve": ("reserve", "unreserve"), "remove_pod": ("add_pod", "remove_pod")}


class TestFault:
    @pytest.mark.parametrize(("verb", "method", "point"), [pytest.param(*it, id=f"{it[0]}: {it[2]}") for it in POINTS])
    async def test_a_plugin_that_fails(self, tmp_path: Path, verb: Verb, method: str, point: str) -> None:
        request_ = request(verb)
        if method == "remove_pod":
            request_["NodeNameToMetaVictims"] = {"n1": request_["NodeNameToMetaVictims"]["n2"]}

        async with with_fault(tmp_path, method) as api:
            reply = await api.post(verb, request_)
            faults = await api.samples("homeport_plugin_faults_total")
            assumed = await api.samples("homeport_assumed_pods")

        assert told(verb, "fault", f"homeport: {plugin_error(FAULTY, point, FAULT)}") == reply
        assert 1 == faults[f'{{extension_point="{point}",plugin="{FAULTY}"}}']
        assert {"": 0} == assumed

    async def test_a_plugin_that_cannot_say_which_binds_matter_to_a_pod(self, tmp_path: Path) -> None:
        async with with_fault(tmp_path, "depends_on", "filter_certain") as api:
            assert "feasible" == (await api.post("filter", by_name())).outcome
            reply = await api.post("filter", by_name(pod_object("unspread")))

        assert told("filter", "fault", f'homeport: running DependsOn plugin "{FAULTY}": {FAULT}') == reply

    async def test_a_fault_after_the_bind_changes_nothing(self, tmp_path: Path) -> None:
        async with with_fault(tmp_path, "post_bind") as api:
            assert Reply(200, {"Error": ""}, "bound") == await api.post("bind", binding())

    async def test_a_score_out_of_range_counts_as_zero(self, tmp_path: Path) -> None:
        spec = faulty()
        spec.plugin.score = lambda *_: 101
        async with with_fault(tmp_path, spec=spec) as api:
            reply = await api.post("prioritize", by_name())

        assert Reply(200, ALL_EQUAL, "scored") == reply


def with_fault(folder: Path, *methods: str, spec: Any = None) -> Any:
    """The small cluster, with the faulty plugin in its profile."""
    needed = [it for method in methods for it in NEEDED.get(method, (method,))]
    settings = Settings(cluster=saved(folder), profiles=with_faulty(binds="bind" in methods), expected_bind_wait=0.1)
    return serving(settings, (*SHIPPED, spec or faulty(*needed)), DEFAULT_WEIGHTS)
