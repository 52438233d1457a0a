"""What topic ``soft`` of ``tests/conformance`` does not ask: a broken selector, and many constraints at once."""

import pytest

from app.kube.core_v1 import Node, Pod
from app.runtime.guard import PluginError
from plugins.in_tree.pod_topology_spread import scoring
from tests.builders import HOSTNAME, ZONE, JsonObject, constraint, expression, make_node, make_pod
from tests.harness import SPREAD, World, only

WEB = {"app": "web"}


def pending(*constraints: JsonObject) -> Pod:
    return make_pod("pending", labels=WEB, spread=constraints)


def test_a_selector_that_cannot_be_parsed_is_an_error() -> None:
    pod = pending(constraint(ZONE, soft=True, selector={"matchExpressions": [expression("app", "Is")]}))

    with pytest.raises(PluginError) as raised:
        World(make_node("n0"), profile=only(SPREAD)).spread_scores(pod)

    assert (
        'running PreScore plugin "PodTopologySpread": calculating preScoreState: obtaining pod\'s soft topology spread '
        'constraints: "Is" is not a valid label selector operator'
    ) == raised.value.status.message


@pytest.mark.parametrize("skew", [1, 3])
def test_many_constraints_are_summed_as_a_few_are(monkeypatch: pytest.MonkeyPatch, skew: int) -> None:
    """Node by node or class by class, some nodes without a key of a default: the same sums in the same order."""
    keys = [ZONE, HOSTNAME, *(f"example.com/k{number}" for number in range(4))]
    found: list[Node | Pod] = []
    for number in range(12):
        labels = {f"example.com/k{it}": f"v{number % (it + 2)}" for it in range(4)}
        found += [make_node(f"n{number}", zone=f"z{number % 3}", labels=labels)]
        found += [make_pod(f"web-{number}-{it}", node=f"n{number}", labels=WEB) for it in range((number * 7) % 5)]
    world = World(*found, make_node("bare"), profile=only(SPREAD))
    pod = pending(*(constraint(key, soft=True, skew=skew, app="web") for key in keys))

    by_node = world.spread_scores(pod)
    monkeypatch.setattr(scoring, "_FEW", 100)

    assert world.spread_scores(pod) == by_node
    assert len(set(by_node)) > 3
