"""Rules of things by label: what a node may use is found, in order, without what it cannot."""

from typing import Any

import pytest

from app.kube.node_affinity import NodeSelectorRequirement, NodeSelectorTerm, RequiredNodeAffinity
from app.kube.selectors import EVERYTHING, of_labels, requirement, selector
from plugins.volume_binding.by_label import ANYWHERE, ByLabel, places_of_affinity, places_of_selector


def term(*requirements: tuple[str, str, tuple[str, ...]]) -> NodeSelectorTerm:
    return NodeSelectorTerm(tuple(NodeSelectorRequirement(*it) for it in requirements))


ZONE = term(("zone", "In", ("a", "b")))
HOST = term(("disk", "Exists", ()), ("host", "In", ("n1",)))


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param(None, ANYWHERE, id="no affinity"),
        pytest.param((ZONE,), [("zone", ("a", "b"))], id="a zone"),
        pytest.param((ZONE, HOST), [("zone", ("a", "b")), ("host", ("n1",))], id="one of two"),
        pytest.param((ZONE, term(("disk", "Exists", ()))), ANYWHERE, id="a term of which nothing is known"),
        pytest.param((), None, id="no term"),
        pytest.param((term(("-", "In", ("a",))),), None, id="a term that makes no sense"),
        pytest.param((term(), ZONE), [("zone", ("a", "b"))], id="an empty term"),
    ],
)
def test_what_a_volume_asks_of_any_node(terms: Any, expected: Any) -> None:
    assert expected == places_of_affinity(RequiredNodeAffinity(terms=terms))


def test_what_a_selector_asks_of_any_node() -> None:
    found = selector([requirement("disk", "Exists"), requirement("zone", "In", ["a"])])

    assert [(("zone", ("a",)),), ANYWHERE, (("zone", ("b",)),)] == [
        places_of_selector(it) for it in (found, EVERYTHING, of_labels({"zone": "b"}))
    ]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({}, [2], id="nothing"),
        pytest.param({"zone": "a"}, [0, 1, 2, 3], id="a zone"),
        pytest.param({"zone": "b", "host": "n1"}, [1, 2, 3, 5], id="a zone and a host"),
        pytest.param({"zone": "c"}, [2], id="another zone"),
        pytest.param({"host": "n1", "zone": "a"}, [0, 1, 2, 3, 5], id="each once"),
    ],
)
def test_what_is_near_comes_in_order(labels: dict[str, str], expected: list[int]) -> None:
    places: list[Any] = [
        [("zone", ("a",))],
        [("zone", ("a", "b", "b"))],
        ANYWHERE,
        [("host", ("n1",)), ("zone", ("a",))],
        None,
        [("host", ("n1",))],
    ]

    found = indexed(dict(enumerate(places)))
    assert [(it, str(it)) for it in expected] == list(found.near(labels))
    assert [(it, str(it)) for it in expected if it >= 2] == list(found.near(labels, 2))


def indexed(places: dict[int, Any]) -> ByLabel[str]:
    """In another order than that of their ranks."""
    found: ByLabel[str] = ByLabel()
    for rank in sorted(places, key=lambda it: it % 3):
        found.add(rank, str(rank), places[rank], [f"key-{rank}"])
    return found


def test_what_goes_is_no_longer_near() -> None:
    places: dict[int, Any] = {0: ANYWHERE, 1: [("zone", ("a", "b"))], 2: [("zone", ("a",)), ("host", ("n1",))], 3: None}
    found, labels = indexed(places), {"zone": "a", "host": "n1"}
    assert {"key-0", "key-1", "key-2"} == found.keys.keys()
    said = []
    for rank in (1, 3, 0, 2):
        found.discard(rank, places[rank], [f"key-{rank}"])
        said.append([it for it, _ in found.near(labels)])

    assert [[0, 2], [0, 2], [2], []] == said
    assert (False, {}) == (bool(found), found.keys)
