"""What is left out is kept by kind and key, and raised where a decision would rest on it. What verbs say: tests/api."""

from __future__ import annotations

import pytest

from app.cache.left_out import LeftOut
from app.framework.objects import Unreadable
from app.kube.kinds import NODES, PODS, SERVICES

WEB = ("default", "web")


@pytest.fixture
def found() -> LeftOut:
    it = LeftOut()
    it.add(SERVICES, WEB, "odd")
    it.add(SERVICES, ("other", "db"), "too long")
    it.add(NODES, ("", "n1"), "odd")
    return it


def test_by_kind_with_the_cause(found: LeftOut) -> None:
    assert ({WEB: "odd", ("other", "db"): "too long"}, {}) == (found.of(SERVICES), found.of(PODS))
    assert ({"n1"}, set()) == (found.names(NODES), found.names(PODS))


def test_the_last_cause_counts(found: LeftOut) -> None:
    found.add(SERVICES, WEB, "odder")

    assert {WEB: "odder", ("other", "db"): "too long"} == found.of(SERVICES)


def test_it_is_empty_once_all_is_taken_back(found: LeftOut) -> None:
    for kind, key in ((SERVICES, WEB), (SERVICES, ("other", "db")), (NODES, ("", "n1")), (PODS, WEB)):
        assert found
        found.discard(kind, key)
        found.discard(kind, key)
        if kind is NODES:
            break

    assert (False, {}) == (bool(found), dict(found))


def test_one_that_is_asked_for_is_named(found: LeftOut) -> None:
    with pytest.raises(Unreadable, match=r"Service default/web cannot be read: odd"):
        found.require(SERVICES, *WEB)
    with pytest.raises(Unreadable, match=r"Node n1 cannot be read: odd"):
        found.require(NODES, "", "n1")


def test_so_is_one_of_a_namespace_that_is_asked_for(found: LeftOut) -> None:
    with pytest.raises(Unreadable, match=r"Service other/db cannot be read: too long"):
        found.require_all(SERVICES, "other")


@pytest.mark.parametrize(
    ("namespace", "name"),
    [pytest.param("default", "db", id="a neighbour"), pytest.param("third", "web", id="elsewhere")],
)
def test_others_are_not_in_its_way(found: LeftOut, namespace: str, name: str) -> None:
    found.require(SERVICES, namespace, name)
    found.require_all(PODS, namespace)

    assert (namespace, name) not in found.of(SERVICES)
