"""What is left out is kept by kind and key. That it is raised where a decision would rest on it: test_cluster.py."""

from __future__ import annotations

import pytest

from app.cache.unreadable import UnreadableObjects
from app.kube.kinds import NODES, PODS, SERVICES

WEB = ("default", "web")


@pytest.fixture
def found() -> UnreadableObjects:
    it = UnreadableObjects()
    it.add(SERVICES, WEB, "odd")
    it.add(SERVICES, ("other", "db"), "too long")
    it.add(NODES, ("", "n1"), "odd")
    return it


def test_by_kind_with_the_cause(found: UnreadableObjects) -> None:
    assert ({WEB: "odd", ("other", "db"): "too long"}, {}) == (found.of(SERVICES), found.of(PODS))
    assert ({"n1"}, set()) == (found.names(NODES), found.names(PODS))
    found.add(SERVICES, WEB, "odder")
    assert "odder" == found.of(SERVICES)[WEB]


def test_it_is_empty_once_all_is_taken_back(found: UnreadableObjects) -> None:
    for kind, key in ((SERVICES, WEB), (SERVICES, ("other", "db")), (NODES, ("", "n1")), (PODS, WEB)):
        assert found
        found.discard(kind, key)
        found.discard(kind, key)
        if kind is NODES:
            break

    assert (False, {}) == (bool(found), dict(found))
