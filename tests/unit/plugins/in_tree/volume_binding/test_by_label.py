"""Rules of things by label: what a node may use is found, in order, without what it cannot."""

from typing import Any

import pytest

from app.kube.node_affinity import NodeSelectorRequirement, NodeSelectorTerm, RequiredNodeAffinity
from app.kube.selectors import EVERYTHING, of_labels, requirement, selector
from plugins.in_tree.volume_binding.by_label import ANYWHERE, ByLabel, places_of_affinity, places_of_selector


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


PLACES: Any = {
    0: [("zone", ("a",))],
    1: [("zone", ("a", "b", "b"))],
    2: ANYWHERE,
    3: [("host", ("n1",)), ("zone", ("a",))],
    4: None,
    5: [("host", ("n1",))],
}


def indexed() -> ByLabel[int]:
    found: ByLabel[int] = ByLabel()
    for name, places in PLACES.items():
        found.add(f"thing-{name}", name, places, [f"key-{name}"])
    return found


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({}, {2}, id="nothing"),
        pytest.param({"zone": "a"}, {0, 1, 2, 3}, id="a zone"),
        pytest.param({"zone": "b", "host": "n1"}, {1, 2, 3, 5}, id="a zone and a host"),
        pytest.param({"zone": "c"}, {2}, id="another zone"),
    ],
)
def test_near_is_what_a_node_may_be_able_to_use(labels: dict[str, str], expected: set[int]) -> None:
    assert expected == set(indexed().near(labels))


def test_what_goes_is_no_longer_near() -> None:
    found, labels = indexed(), {"zone": "a", "host": "n1"}
    assert {f"key-{name}" for name in (0, 1, 2, 3, 5)} == found.keys.keys()
    near = []
    for name in (1, 4, 2, 5, 3, 0):
        found.discard(f"thing-{name}", PLACES[name], [f"key-{name}"])
        near.append(set(found.near(labels)))

    assert [{0, 2, 3, 5}, {0, 2, 3, 5}, {0, 3, 5}, {0, 3}, {0}, set()] == near
    assert {} == found.keys
