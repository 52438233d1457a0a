"""What topic ``hard`` of ``tests/conformance`` does not ask: names of no node, assumed pods, and binds in flight."""

import pytest

from app.cache.counters import run_prepared
from app.framework.node_info import Candidates
from app.framework.status import SUCCESS
from app.kube.core_v1 import Pod
from app.runtime.filters import Recheck
from app.runtime.guard import PluginError
from plugins.in_tree.pod_topology_spread.filtering import CONSTRAINTS_NOT_MATCH
from tests.builders import ZONE, JsonObject, constraint, expression, make_node, make_pod
from tests.harness import SPREAD, World, only

WEB = {"app": "web"}
CROWDED = CONSTRAINTS_NOT_MATCH.by(SPREAD)


def zoned(*counts: int) -> World:
    """Nodes ``na``, ``nb``, … in zones ``a``, ``b``, …, with so many pods of the app each."""
    world = World(profile=only(SPREAD))
    for zone, count in zip("abc", counts, strict=False):
        world.add(make_node(f"n{zone}", zone=zone))
        world.add(*(make_pod(f"{zone}-{number}", node=f"n{zone}", labels=WEB) for number in range(count)))
    return world


def pending(spread: JsonObject | None = None) -> Pod:
    return make_pod("pending", labels=WEB, spread=[spread or constraint(app="web")])


@pytest.mark.parametrize("max_skew", [2, 0, -3])
def test_a_name_of_no_node_does_not_pass(max_skew: int) -> None:
    """No API server stores a ``maxSkew`` below 1; a client may send it."""
    world, pod = zoned(1, 0), pending(constraint(ZONE, app="web", skew=max_skew))
    asked = Candidates(["na", "gone", ""], world.cluster.nodes.__getitem__)

    found = run_prepared(lambda: world.framework.search.find_nodes_that_fit(pod, asked))

    assert ["na"] * (max_skew > 1) == [*found.passed]


def test_a_selector_that_cannot_be_parsed_is_an_error() -> None:
    pod = pending(constraint(ZONE, selector={"matchExpressions": [expression("app", "Is")]}))

    with pytest.raises(PluginError) as raised:
        zoned(0).filter(pod)

    assert (
        'running PreFilter plugin "PodTopologySpread": get constraints from pod: obtaining pod\'s hard topology '
        'spread constraints: "Is" is not a valid label selector operator'
    ) == raised.value.status.message


@pytest.mark.parametrize(
    ("counts", "in_flight", "node", "expected"),
    [
        pytest.param((1, 1, 0), "nc", "na", Recheck(SUCCESS, False), id="level only if the other bind succeeds"),
        pytest.param((1, 1, 0), "nc", "nc", Recheck(SUCCESS), id="level or emptiest, as the bind turns out"),
        pytest.param((1, 1, 1), "na", "nb", Recheck(SUCCESS), id="a bind elsewhere that only makes room"),
        pytest.param((1, 1, 1), "na", "na", Recheck(CROWDED), id="a bind to the same zone counts"),
    ],
)
def test_a_bind_is_certain_if_it_holds_whatever_becomes_of_the_others(
    counts: tuple[int, ...], in_flight: str, node: str, expected: Recheck
) -> None:
    """``tests/property`` proves for all subsets that it then does."""
    world = zoned(*counts)
    world.cluster.assume(make_pod("in-flight", labels=WEB), in_flight)

    assert expected == world.recheck(pending(), node)


def test_an_accepted_bind_is_certain() -> None:
    world, other = zoned(1, 1, 0), make_pod("x", labels=WEB)
    world.cluster.assume(other, "nc")
    world.cluster.accept(other.uid)

    assert Recheck(SUCCESS) == world.recheck(pending(), "na")
