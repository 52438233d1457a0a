"""Pods are equal if everything is equal that a verdict depends on."""

from __future__ import annotations

from typing import Any

import pytest

from app.analysis.pending import inputs_of
from tests.builders import controller, make_pod

SET = controller("StatefulSet", "db")
REPLICAS = controller("ReplicaSet", "web-abc12")


@pytest.mark.parametrize(
    ("name", "fields", "equal"),
    [
        pytest.param("web-2", {}, True, id="the same"),
        pytest.param("web-2", {"owner": REPLICAS}, False, id="another owner"),
        pytest.param("web-2", {"labels": {"app": "web"}}, False, id="other labels"),
        pytest.param("web-2", {"annotations": {"homeport.dev/policy": "soft"}}, False, id="another policy of homes"),
        pytest.param("web-2", {"annotations": {"example.com/note": "x"}}, True, id="annotations that nothing reads"),
        pytest.param("web-2", {"status": {"nominatedNodeName": "n1"}}, False, id="a nomination"),
        pytest.param("web-2", {"created": "2026-11-01T08:00:00Z"}, True, id="another age"),
    ],
)
def test_two_pods(name: str, fields: dict[str, Any], equal: bool) -> None:
    assert equal == (inputs_of(make_pod("web-1")) == inputs_of(make_pod(name, **fields)))


def test_the_ordinal_matters_but_for_a_replica_set() -> None:
    """Each pod of a StatefulSet can have a home of its own."""
    ordinals = [inputs_of(make_pod(f"db-{number}", owner=SET)) for number in (0, 1)]
    replicas = [inputs_of(make_pod(f"web-abc12-{suffix}", owner=REPLICAS)) for suffix in ("22222", "44444")]

    assert (False, True) == (ordinals[0] == ordinals[1], replicas[0] == replicas[1])
