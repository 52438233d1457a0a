"""Rules of SelectorSpread: who counts as a peer, and what a zone is. That the Go plugin agrees: `tests/conformance`."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from app.kube.meta_v1 import LARGEST_PART
from app.runtime.guard import PluginError
from plugins.in_tree.selector_spread import SelectorSpread, SelectorSpreadArgs
from tests.builders import constraint, make_node, make_pod, service_object
from tests.harness import World, only

NAME: Final = "SelectorSpread"
WEB: Final = {"app": "web"}
POD: Final = make_pod("new", labels=WEB)
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


def test_with_constraints_of_its_own_it_scores_nothing() -> None:
    assert [0, 0, 0] == scores(world(SERVICE), make_pod("new", labels=WEB, spread=[constraint(app="web")]))


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
