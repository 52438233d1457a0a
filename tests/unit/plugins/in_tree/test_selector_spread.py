"""Rules of SelectorSpread: who counts as a peer, and what a zone is. That the Go plugin agrees: `tests/conformance`."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from app.kube.meta_v1 import LARGEST_PART
from app.runtime.guard import PluginError
from plugins.in_tree.selector_spread import SelectorSpread, SelectorSpreadArgs
from tests.builders import constraint, controller, make_node, make_pod, service_object, workload_object
from tests.harness import World, only

NAME: Final = "SelectorSpread"
WEB: Final = {"app": "web"}
POD: Final = make_pod("new", labels=WEB)
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
FORMER: Final = "failure-domain.beta.kubernetes.io/zone"
SERVICE: Final = service_object("web", WEB)


def world(
    *more: Any, nodes: Mapping[str, Mapping[str, str]] | None = None, count: tuple[int, ...] = (2, 1, 0)
) -> World:
    """Nodes with as many peers each."""
    labels = nodes or {"n1": {}, "n2": {}, "n3": {}}
    peers = (
        make_pod(f"{name}-{it}", labels=WEB, node=name)
        for name, of in zip(labels, count, strict=True)
        for it in range(of)
    )
    return World(*(make_node(name, labels=it) for name, it in labels.items()), *peers, *more, profile=only(NAME))


def scores(found: World, pod: Any = POD) -> list[int]:
    return list(found.score(pod)[NAME].values())


def test_nodes_with_fewer_peers_are_better() -> None:
    found = world(SERVICE)

    assert SelectorSpreadArgs() == SelectorSpreadArgs.model_validate({})
    assert isinstance(found.framework.plugins[NAME], SelectorSpread)
    assert [0, 50, 100] == scores(found)


def test_a_controller_makes_peers_too() -> None:
    owned = make_pod("new", labels=WEB, owner=controller("ReplicaSet", "web"))

    assert [0, 50, 100] == scores(world(workload_object("ReplicaSet", "web", {"matchLabels": WEB})), owned)


@pytest.mark.parametrize(
    ("more", "pod"),
    [
        pytest.param([], POD, id="nothing selects it"),
        pytest.param([SERVICE], make_pod("new", labels={"app": "db"}), id="another Service"),
        pytest.param([SERVICE], make_pod("new", labels=WEB, namespace="other"), id="another namespace"),
    ],
)
def test_without_peers_all_are_alike(more: list[Any], pod: Any) -> None:
    assert [100, 100, 100] == scores(world(*more), pod)


def test_one_that_terminates_is_no_peer() -> None:
    going = make_pod("going", labels=WEB, node="n3", terminating=True)

    assert [0, 50, 100] == scores(world(SERVICE, going))


def test_with_constraints_of_its_own_it_scores_nothing() -> None:
    assert [0, 0, 0] == scores(world(SERVICE), make_pod("new", labels=WEB, spread=[constraint(app="web")]))


def test_a_zone_weighs_twice_what_a_node_does() -> None:
    nodes = {"n1": {ZONE: "a"}, "n2": {ZONE: "a"}, "n3": {ZONE: "b"}, "n4": {}}

    assert [0, 16, 100, 100] == scores(world(SERVICE, nodes=nodes, count=(2, 1, 0, 0)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({ZONE: "a", REGION: "r"}, {ZONE: "a", REGION: "s"}, id="of two regions"),
        pytest.param({ZONE: "a", FORMER: "b"}, {ZONE: "a", FORMER: "c"}, id="the former label counts"),
        pytest.param({ZONE: "a", FORMER: ""}, {ZONE: "a"}, id="even if it is empty"),
    ],
)
def test_what_makes_two_zones(first: Mapping[str, str], second: Mapping[str, str]) -> None:
    assert 100 == scores(world(SERVICE, nodes={"n1": first, "n2": second}, count=(1, 0)))[1]


def test_what_is_too_long_to_be_read_is_not_judged() -> None:
    long = make_pod("new", labels={"app": "web", "x": "y" * (LARGEST_PART + 1)})

    assert {} == world(SERVICE).score(long)


def test_without_prescore_it_fails_in_kube_schedulers_words() -> None:
    profile = only(NAME)
    profile["plugins"]["preScore"] = {"disabled": [{"name": NAME}]}
    found = World(make_node("n1"), SERVICE, profile=profile)

    with pytest.raises(PluginError, match='reading "PreScoreSelectorSpread" from cycleState: not found'):
        found.score(POD)


@pytest.mark.parametrize(
    ("pod", "other", "expected"),
    [
        pytest.param(POD, make_pod("peer", labels=WEB), True, id="a peer"),
        pytest.param(POD, make_pod("db", labels={"app": "db"}), False, id="no peer"),
        pytest.param(POD, make_pod("peer", labels=WEB, namespace="other"), False, id="elsewhere"),
        pytest.param(make_pod("db", labels={"app": "db"}), make_pod("peer", labels=WEB), False, id="one without peers"),
        pytest.param(
            make_pod("n", labels=WEB, spread=[constraint()]), make_pod("peer", labels=WEB), False, id="its own"
        ),
    ],
)
def test_whose_place_matters(pod: Any, other: Any, expected: bool) -> None:
    assert expected == world(SERVICE).framework.scoring.score_depends_on(pod, other)
