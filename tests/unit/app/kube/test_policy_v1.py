"""Rules of PodDisruptionBudgets: whom they protect, what they allow, and how much of them is read."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.kube.kinds import POD_DISRUPTION_BUDGETS
from app.kube.meta_v1 import LARGEST_PART
from app.kube.policy_v1 import MOST_DISRUPTED, PodDisruptionBudget, decode_budget
from app.kube.projection import projected
from app.kube.selectors import EVERYTHING, IN, Requirement, Selector
from tests.builders import JsonObject, encoded, expression

WEB = {"app": "web"}
LONG = {"matchExpressions": [expression("app", "In", *(f"{it:060}" for it in range(LARGEST_PART // 60)))]}
INVALID = {"matchExpressions": [expression("app", "Is")]}
OTHERS = {"matchExpressions": [expression("app", "DoesNotExist")]}


def budget(spec: JsonObject | None = None, status: JsonObject | None = None) -> PodDisruptionBudget:
    return decode_budget(encoded({"metadata": {"name": "b", "namespace": "shop"}, "spec": spec, "status": status}))


def test_a_budget_is_reduced_to_what_is_counted() -> None:
    found = decode_budget(
        encoded(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "b", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
                "spec": {
                    "minAvailable": "50%",
                    "selector": {"matchLabels": WEB},
                    "unhealthyPodEvictionPolicy": "AlwaysAllow",
                },
                "status": {
                    "disruptionsAllowed": 2,
                    "currentHealthy": 5,
                    "desiredHealthy": 3,
                    "disruptedPods": {"web-1": "2026-01-01T00:00:00Z"},
                },
            }
        )
    )

    selector = Selector((Requirement("app", IN, ("web",)),))
    assert PodDisruptionBudget("shop", "b", "u", "7", selector, 2, frozenset({"web-1"}), 5, 3, True) == found
    assert ("shop", "b") == found.key
    assert POD_DISRUPTION_BUDGETS.decode is decode_budget


@pytest.mark.parametrize(
    ("spec", "labels", "expected"),
    [
        pytest.param({"selector": {"matchLabels": WEB}}, WEB, True, id="selected"),
        pytest.param({"selector": {"matchLabels": WEB}}, {"app": "db"}, False, id="not selected"),
        pytest.param({"selector": {}}, WEB, False, id="an empty selector protects nobody"),
        pytest.param(None, WEB, False, id="no spec"),
        pytest.param({"selector": INVALID}, WEB, False, id="no selector at all"),
        pytest.param({"selector": OTHERS}, {}, False, id="no labels"),
        pytest.param({"selector": LONG}, WEB, True, id="a selector that is too long protects all of the namespace"),
    ],
)
def test_whom_it_protects(spec: JsonObject | None, labels: Mapping[str, str], expected: bool) -> None:
    assert expected == budget(spec).selects(labels)


@pytest.mark.parametrize(
    ("spec", "labels", "expected"),
    [
        pytest.param({"selector": {"matchLabels": WEB}}, WEB, True, id="selected"),
        pytest.param({"selector": {"matchLabels": WEB}}, {"app": "db"}, False, id="not selected"),
        pytest.param({"selector": {}}, {}, True, id="an empty selector guards every pod"),
        pytest.param({"selector": {"matchLabels": {}}}, WEB, True, id="another empty selector"),
        pytest.param({"selector": None}, WEB, False, id="null guards no pod"),
        pytest.param({"selector": INVALID}, WEB, False, id="invalid"),
        pytest.param({"selector": OTHERS}, {}, True, id="a pod without labels"),
    ],
)
def test_whose_eviction_it_guards(spec: JsonObject | None, labels: Mapping[str, str], expected: bool) -> None:
    """Unlike preemption, the Eviction API lets an empty selector select every pod."""
    assert expected == budget(spec).guards(labels)


def test_what_is_too_long_is_not_kept() -> None:
    many: dict[str, Any] = {f"web-{it}": "2026-01-01T00:00:00Z" for it in range(MOST_DISRUPTED)}

    assert EVERYTHING == budget({"selector": LONG}).selector
    assert MOST_DISRUPTED == len(budget(status={"disruptedPods": many}).disrupted_pods)
    assert frozenset() == budget(status={"disruptedPods": {**many, "one": None}}).disrupted_pods
    assert frozenset() == budget(status={"disruptedPods": {"x" * (1 << 20): None}}).disrupted_pods


@pytest.mark.parametrize(
    ("generation", "observed", "expected"),
    [
        ({"generation": 2}, {"observedGeneration": 1}, True),
        ({"generation": 2}, {"observedGeneration": 2}, False),
        ({"generation": 1}, {}, True),
        ({"generation": None}, {"observedGeneration": None}, False),
        ({}, {}, False),
    ],
)
def test_a_status_can_be_of_an_earlier_spec(generation: JsonObject, observed: JsonObject, expected: bool) -> None:
    found = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", **generation},
        "status": observed,
    }

    assert expected == decode_budget(encoded(found)).is_outdated
    assert expected == decode_budget(encoded(projected(POD_DISRUPTION_BUDGETS, found))).is_outdated, "as saved"


def test_what_is_not_said_allows_nothing() -> None:
    assert [0, 0, 0] == [budget(status=it).disruptions_allowed for it in (None, {}, {"disruptionsAllowed": None})]
