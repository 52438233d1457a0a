"""Scores on the wire's scale."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config.settings import Settings
from app.feeds.saved import NullReader
from app.memory.expected_binds import ExpectedBinds
from app.memory.filter_results import FilterResultCache
from app.verbs.context import VerbContext
from app.verbs.outcome import VerbFailure
from app.verbs.prioritize import PrioritizeVerb, quantised
from tests.builders import HOSTNAME, ZONE, constraint, encoded, make_node, make_pod, node_object, pod_object
from tests.harness import SPREAD, World, only


@pytest.mark.parametrize(
    ("total", "weight", "most", "expected"),
    [
        pytest.param(0, 1, 10, 0, id="nothing"),
        pytest.param(100, 1, 10, 10, id="the best"),
        pytest.param(200, 2, 10, 10, id="the best of a heavy plugin"),
        pytest.param(44, 1, 10, 4, id="down"),
        pytest.param(45, 1, 10, 5, id="half up"),
        pytest.param(89, 2, 10, 4, id="just below a half"),
        pytest.param(90, 2, 10, 5, id="a half of two"),
        pytest.param(45, 1, 100, 45, id="every score on the scale of 100"),
        pytest.param(50, 1, 1, 1, id="the coarsest scale"),
        pytest.param(49, 1, 1, 0, id="the coarsest scale, below half"),
        pytest.param(96, 1, 10, 10, id="a scale of ten loses four points of a hundred"),
        pytest.param(96, 1, 20, 19, id="a scale of twenty keeps them"),
        pytest.param(1, 0, 10, 0, id="no plugin scored"),
    ],
)
def test_a_score(total: int, weight: int, most: int, expected: int) -> None:
    assert expected == quantised(total, weight, most)


def test_the_default_scale_tells_zones_of_eight_pods_from_one_of_nine() -> None:
    """In-tree scores of free nodes are 100 and 96 there, as in kube-scheduler's own test of 27 pods on 300 nodes."""
    peers = {"app": "web"}
    nodes = [make_node(f"{zone}{number}", zone=zone) for zone, number in product("abc", range(100))]
    homes = [*(f"{zone}{number}" for zone, number in product("abc", range(8))), "c8"]
    pods = [make_pod(f"on-{home}", node=home, labels=peers) for home in homes]
    spread = [constraint(HOSTNAME, soft=True, skew=3, app="web"), constraint(ZONE, soft=True, skew=5, app="web")]
    scores = World(*nodes, *pods, profile=only(SPREAD)).spread_scores(make_pod("new", labels=peers, spread=spread))
    free = [scores[number] for number, node in enumerate(nodes) if node.name in ("a99", "b99", "c99")]

    assert [100, 100, 96] == free
    assert [20, 20, 19] == [quantised(it, 1, Settings().max_priority) for it in free]


@given(st.integers(1, 1000), st.integers(1, 100), st.data())
def test_it_is_the_weighted_mean_rounded_half_up_and_never_reorders(
    weight: int, most: int, data: st.DataObject
) -> None:
    totals = sorted(data.draw(st.lists(st.integers(0, 100 * weight), min_size=2, max_size=5)))

    found = [quantised(total, weight, most) for total in totals]

    exact = [Fraction(total * most, 100 * weight) for total in totals]
    assert [int(it + Fraction(1, 2)) for it in exact] == found
    assert sorted(found) == found
    assert found[0] >= 0
    assert found[-1] <= most


async def test_a_malformed_node_that_changes_while_the_request_waits_is_a_bad_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A whole node is decoded only if the snapshot does not have its version."""
    world = World(node_object("a1"))
    due = ExpectedBinds(world.clock, wait_seconds=0, observe=lambda _: None)
    context = VerbContext(world.cluster, {"default-scheduler": world.framework}, NullReader(), str, due)

    async def change(*_: object) -> None:
        world.cluster.delete_node("a1")

    monkeypatch.setattr(VerbContext, "look_up_missing", change)
    node = {**node_object("a1"), "spec": {"taints": 5}}
    body = encoded({"Pod": pod_object("web"), "Nodes": {"items": [node]}, "NodeNames": None})

    with pytest.raises(VerbFailure, match=r"malformed prioritize request: Nodes\.items"):
        await PrioritizeVerb(context, FilterResultCache())(body)
