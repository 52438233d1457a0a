"""Rules of soft constraints: how crowded a node's domains are (semantics §2.4-2.6)."""

from collections.abc import Collection

import pytest

from app.kube.core_v1 import Node, Pod
from app.runtime.guard import PluginError
from plugins.in_tree.pod_topology_spread import scoring
from tests.builders import HOSTNAME, ZONE, JsonObject, constraint, expression, make_node, make_pod, service_object
from tests.harness import SPREAD, World, only

WEB = {"app": "web"}
SERVICE = service_object("web", WEB)
Objects = list[Node | Pod | JsonObject]


def pods(prefix: str, node: str, count: int, **labels: str) -> list[Pod]:
    return [make_pod(f"{prefix}-{node}-{number}", node=node, labels=labels or WEB) for number in range(count)]


def hosts(*counts: int) -> Objects:
    """Nodes ``n0``, ``n1``, … with so many pods of the app each."""
    found: Objects = []
    for number, count in enumerate(counts):
        found += [make_node(f"n{number}"), *pods("web", f"n{number}", count)]
    return found


def pending(*constraints: JsonObject, labels: dict[str, str] | None = None) -> Pod:
    return make_pod("pending", labels=WEB if labels is None else labels, spread=constraints)


def soft(key: str = HOSTNAME, skew: int = 1, **labels: str) -> JsonObject:
    return constraint(key, soft=True, skew=skew, **(labels or WEB))  # type: ignore[arg-type]  # labels of the selector


def scores(objects: Objects, pod: Pod, among: Collection[str] | None = None) -> list[int]:
    return World(*objects, profile=only(SPREAD)).spread_scores(pod, among)


ZONES: Objects = [
    make_node("n0", zone="a"),
    make_node("n1", zone="a"),
    make_node("n2", zone="b"),
    *pods("web", "n0", 2),
    *pods("web", "n1", 4),
    *pods("web", "n2", 4),
]
TWO_LEVELS: Objects = [
    make_node("n0", zone="a"),
    make_node("n1", zone="b"),
    make_node("x0", zone="a"),
    make_node("x1", zone="b"),
    *pods("web", "n0", 2),
    *pods("web", "n1", 2),
    *pods("web", "x0", 1),
    *pods("web", "x1", 4),
]
TWO_KEYS: Objects = [
    make_node("n0", labels={"foo": "1", "bar": "1"}),
    make_node("n1", labels={"foo": "2", "bar": "2"}),
    *pods("foo", "n0", 3, of="foo"),
    *pods("foo", "n1", 3, of="foo"),
    *pods("bar", "n0", 2, of="bar"),
    *pods("bar", "n1", 1, of="bar"),
]


@pytest.mark.parametrize(
    ("objects", "pod", "among", "expected"),
    [
        pytest.param(hosts(2, 1, 0, 3), pending(soft()), None, [20, 60, 100, 0], id="hosts 2/1/0/3, maxSkew 1"),
        pytest.param(hosts(2, 1, 0, 3), pending(soft(skew=2)), None, [33, 66, 100, 16], id="hosts 2/1/0/3, maxSkew 2"),
        pytest.param(hosts(4, 3, 2, 1), pending(soft(skew=3)), None, [44, 66, 77, 100], id="hosts 4/3/2/1, maxSkew 3"),
        pytest.param(
            [SERVICE, *hosts(4, 3, 2, 1)],
            pending(),
            None,
            [44, 66, 77, 100],
            id="system defaults on nodes without zones, the same",
        ),
        pytest.param(
            hosts(4, 2, 1, 3),
            pending(soft()),
            ["n0", "n1", "n2"],
            [33, 83, 100],
            id="hosts 4/2/1, and 3 on a node that is no candidate",
        ),
        pytest.param(
            [*hosts(4, 2, 1, 3), make_node("n1", hostname=None)],
            pending(soft()),
            ["n0", "n1", "n2"],
            [16, 0, 100],
            id="hosts 4/-/1: a node without the key is last",
        ),
        pytest.param(ZONES, pending(soft(ZONE)), None, [75, 75, 100], id="zones 6/4 over three nodes"),
        pytest.param(
            TWO_LEVELS, pending(soft(ZONE), soft(HOSTNAME)), ["n0", "n1"], [100, 63], id="zones 3/6 and hosts 2/2"
        ),
        pytest.param(
            TWO_KEYS,
            pending(soft("foo", of="foo"), soft("bar", of="bar")),
            None,
            [85, 100],
            id="two keys of one's own: 3/3 and 2/1",
        ),
        pytest.param(
            hosts(2, 1, 0, 3),
            pending(constraint(HOSTNAME, soft=True, selector=None)),
            None,
            [100, 100, 100, 100],
            id="a null selector prefers nobody",
        ),
        pytest.param(
            hosts(2, 1, 0, 3),
            pending(constraint(ZONE, soft=True, selector={})),
            None,
            [0, 0, 0, 0],
            id="no node has the key",
        ),
    ],
)
def test_the_worked_values(objects: Objects, pod: Pod, among: Collection[str] | None, expected: list[int]) -> None:
    """The table of semantics §2.6, which was reproduced against the Go plugin."""
    assert expected == scores(objects, pod, among)


def test_a_selector_that_cannot_be_parsed_is_an_error() -> None:
    pod = pending(constraint(ZONE, soft=True, selector={"matchExpressions": [expression("app", "Is")]}))

    with pytest.raises(PluginError) as raised:
        scores(hosts(0, 0), pod)

    assert (
        'running PreScore plugin "PodTopologySpread": calculating preScoreState: obtaining pod\'s soft topology spread '
        'constraints: "Is" is not a valid label selector operator'
    ) == raised.value.status.message


@pytest.mark.parametrize("skew", [1, 3])
def test_many_constraints_are_summed_as_a_few_are(monkeypatch: pytest.MonkeyPatch, skew: int) -> None:
    """Node by node or class by class, some nodes without a key of a default: the same sums in the same order."""
    keys = [ZONE, HOSTNAME, *(f"example.com/k{number}" for number in range(4))]
    found: Objects = []
    for number in range(12):
        labels = {f"example.com/k{it}": f"v{number % (it + 2)}" for it in range(4)}
        found += [make_node(f"n{number}", zone=f"z{number % 3}", labels=labels)]
        found += pods("web", f"n{number}", (number * 7) % 5)
    world = World(*found, make_node("bare"), profile=only(SPREAD))
    pod = pending(*(constraint(key, soft=True, skew=skew, app="web") for key in keys))

    by_node = world.spread_scores(pod)
    monkeypatch.setattr(scoring, "_FEW", 100)

    assert world.spread_scores(pod) == by_node
    assert len(set(by_node)) > 3
