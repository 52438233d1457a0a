"""What each verb answers, in both forms."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import Settings
from app.verbs.outcome import Verb
from tests.api.service import NODES as SAMPLE_NODES
from tests.api.service import Api, Reply, example, serving
from tests.api.small import (
    FOREIGN,
    NEW,
    NODES,
    OURS,
    TOO_MANY,
    VICTIMS,
    WEB,
    binding,
    by_name,
    by_object,
    evicted,
    eviction,
    filtered,
    saved,
    scored,
)
from tests.builders import JsonObject, constraint, node_object, pod_object

REFUSED = {"n1": TOO_MANY}
UNSEEN = pod_object("web-unseen", labels=WEB, spread=[constraint(app="web")])
SOFT = pod_object("web-soft", labels=WEB, spread=[constraint(app="web", soft=True)])
UNKNOWN = node_object("n9", zone="z9")
OVERSIZED = node_object("n8", zone="z9", taints=[{"key": "x" * (64 << 10), "effect": "NoSchedule"}])
UNREADABLE = "node(s) could not be read by Homeport"
WHOLE_VICTIM = pod_object("batch", uid="uid-batch", node="n1")


def sent_as(name: str, *, zone: str | None) -> JsonObject:
    """A node in a version that the picture does not have."""
    return node_object(name, zone=zone, resource_version="9")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with serving(Settings(cluster=saved(tmp_path, SOFT), profiles=OURS)) as api:
        yield api


@pytest.mark.parametrize(
    ("verb", "request_", "answer", "outcome"),
    [
        pytest.param("filter", by_name(), filtered(["n2", "n3"], REFUSED), "feasible", id="some nodes pass"),
        pytest.param(
            "filter", by_name(names=["n3", "n1", "n3"]), filtered(["n3", "n3"], REFUSED), "feasible", id="a name twice"
        ),
        pytest.param("filter", by_name(names=["n1"]), filtered([], REFUSED), "no_fit", id="none"),
        pytest.param("filter", by_object(), filtered(None, REFUSED, nodes=NODES[1:]), "feasible", id="by whole nodes"),
        pytest.param(
            "filter",
            {"Pod": NEW, "NodeNames": ["n2"], "Nodes": {"items": NODES}},
            filtered(["n2"]),
            "feasible",
            id="by both forms: names win",
        ),
        pytest.param(
            "filter",
            by_object(nodes=[sent_as("n1", zone="z3"), sent_as("n2", zone="z1"), sent_as("n3", zone=None)]),
            filtered(
                None, {"n2": TOO_MANY, "n3": f"{TOO_MANY} (missing required label)"}, nodes=[sent_as("n1", zone="z3")]
            ),
            "feasible",
            id="by whole nodes whose labels differ from the picture's: what was sent counts",
        ),
        pytest.param(
            "filter", by_name(FOREIGN, ["n1", "n9"]), filtered(["n1", "n9"]), "nothing_to_do", id="no profile: all pass"
        ),
        pytest.param(
            "filter",
            by_object(FOREIGN, NODES),
            filtered(None, nodes=NODES),
            "nothing_to_do",
            id="by whole nodes, no profile: all pass",
        ),
        pytest.param("prioritize", by_name(SOFT), scored(n1=0, n2=20, n3=20), "scored", id="by name"),
        pytest.param("prioritize", by_object(SOFT), scored(n1=0, n2=20, n3=20), "scored", id="by whole nodes"),
        pytest.param(
            "prioritize",
            by_name(SOFT, ["n3", "n1", "n3"]),
            scored(n3=20, n1=0),
            "scored",
            id="a host twice is scored once",
        ),
        pytest.param(
            "prioritize", by_name(SOFT, ["n9", "n1"]), scored(n9=0, n1=20), "scored", id="a node we do not know"
        ),
        pytest.param(
            "prioritize",
            by_object(SOFT, [UNKNOWN, NODES[1]]),
            scored(n9=20, n2=20),
            "scored",
            id="a whole node we do not know is judged by what was sent",
        ),
        pytest.param(
            "prioritize",
            by_object(SOFT, [OVERSIZED, NODES[1]]),
            scored(n8=0, n2=20),
            "scored",
            id="a whole node with more taints than are read",
        ),
        pytest.param("prioritize", by_name(NEW), scored(n1=0, n2=0, n3=0), "scored", id="nothing to score by"),
        pytest.param("prioritize", by_name(SOFT, []), [], "nothing_to_do", id="none asked"),
        pytest.param(
            "prioritize", by_name(FOREIGN, ["n9", "n1"]), scored(n9=0, n1=0), "nothing_to_do", id="no profile"
        ),
        pytest.param(
            "preempt",
            eviction(n1=VICTIMS, n2=VICTIMS),
            evicted(n2=VICTIMS),
            "candidates",
            id="a node that would still be refused is left out",
        ),
        pytest.param(
            "preempt",
            {"Pod": NEW, "NodeNameToVictims": {"n2": {"Pods": [WHOLE_VICTIM], "NumPDBViolations": 1}}},
            evicted(n2=VICTIMS),
            "candidates",
            id="by whole pods is answered in meta form",
        ),
        pytest.param(
            "preempt",
            eviction(n1=VICTIMS, n2={"Pods": None}, n3={"Pods": [], "NumPDBViolations": 0}),
            evicted(),
            "no_fit",
            id="nodes without victims are left out",
        ),
        pytest.param(
            "preempt",
            eviction(FOREIGN, n1=VICTIMS, n9=VICTIMS),
            evicted(n1=VICTIMS, n9=VICTIMS),
            "nothing_to_do",
            id="no profile: as it was sent",
        ),
        pytest.param("bind", binding(), {"Error": ""}, "bound", id="bind"),
        pytest.param(
            "bind",
            binding(node="n1"),
            {"Error": f"homeport: no longer possible: {TOO_MANY}"},
            "bind_conflict",
            id="a hard constraint would break",
        ),
        pytest.param(
            "bind", binding(FOREIGN, "n1"), {"Error": ""}, "bound", id="no profile: really binds, without a re-check"
        ),
        pytest.param(
            "bind", binding(pod_object("web-1"), "n1"), {"Error": ""}, "already_bound", id="already bound there"
        ),
    ],
)
async def test_every_answer(api: Api, verb: Verb, request_: JsonObject, answer: Any, outcome: str) -> None:
    assert Reply(200, answer, outcome) == await api.post(verb, request_)


async def test_a_bound_pod_counts_at_once(api: Api) -> None:
    assert Reply(200, {"Error": ""}, "bound") == await api.post("bind", binding(node="n2"))
    assert Reply(200, filtered(["n3"], {"n1": TOO_MANY, "n2": TOO_MANY}), "feasible") == await api.post(
        "filter", by_name(UNSEEN)
    )
    assert Reply(200, {"Error": ""}, "already_bound") == await api.post("bind", binding(node="n2"))


async def test_max_priority_is_the_top_of_the_scale(tmp_path: Path) -> None:
    async with serving(Settings(cluster=saved(tmp_path, SOFT), max_priority=100)) as api:
        assert Reply(200, scored(n1=0, n2=100, n3=100), "scored") == await api.post("prioritize", by_name(SOFT))


class TestSampleCluster:
    """The stories that examples/curl.txt tells."""

    @pytest.mark.parametrize(
        ("name", "passes"),
        [
            pytest.param("filter-spread", ["node-c1", "node-c2", "node-c3", "node-c4"], id="only the third zone"),
            pytest.param("filter-home", ["node-b2"], id="only the home"),
            pytest.param("filter-first-boot", SAMPLE_NODES, id="anywhere"),
        ],
    )
    async def test_filter(self, name: str, passes: list[str]) -> None:
        async with serving() as api:
            reply = await api.post("filter", example(name))

        answer: Any = reply.answer
        assert (passes, "feasible") == (answer["NodeNames"], reply.outcome)

    async def test_the_first_bind_makes_the_home(self) -> None:
        async with serving() as api:
            assert Reply(200, {"Error": ""}, "bound") == await api.post("bind", example("bind-first-boot"))
            answer: Any = (await api.post("filter", example("filter-first-boot"))).answer

        assert ["node-a3"] == answer["NodeNames"]
