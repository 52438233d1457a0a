"""Rules of PodTopologySpreadArgs: what kube-scheduler accepts, no more and no less (semantics §2.7)."""

import pytest
from pydantic import ValidationError

from app.kube.core_v1 import TopologySpreadConstraint
from plugins.in_tree.pod_topology_spread.args import PodTopologySpreadArgs
from tests.builders import HOSTNAME, ZONE, JsonObject

HARD: JsonObject = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
SOFT = HARD | {"whenUnsatisfiable": "ScheduleAnyway"}


def listed(*constraints: JsonObject) -> JsonObject:
    return {"defaultingType": "List", "defaultConstraints": list(constraints)}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            {},
            [
                TopologySpreadConstraint(3, HOSTNAME, "ScheduleAnyway"),
                TopologySpreadConstraint(5, ZONE, "ScheduleAnyway"),
            ],
            id="the system defaults: softly over hosts and zones",
        ),
        pytest.param(listed(), [], id="an empty list: no defaults"),
        pytest.param(
            listed(HARD, SOFT),
            [TopologySpreadConstraint(1, ZONE, "DoNotSchedule"), TopologySpreadConstraint(1, ZONE, "ScheduleAnyway")],
            id="a list",
        ),
        pytest.param(
            listed(HARD | {"minDomains": -5, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "nonsense"}),
            [TopologySpreadConstraint(1, ZONE, "DoNotSchedule", None, -5, "Ignore", "nonsense")],
            id="minDomains and the policies are used and not validated",
        ),
        pytest.param(
            listed(HARD | {"matchLabelKeys": ["rev"], "labelSelector": None}),
            [TopologySpreadConstraint(1, ZONE, "DoNotSchedule")],
            id="matchLabelKeys are lost with the selector they would be merged into",
        ),
        pytest.param(
            listed(HARD, SOFT | {"nodeTaintsPolicy": "Ignore"})
            | {"beyond": {"defaults": {"nodeTaintsPolicy": "Honor", "matchLabelKeys": ["rev"]}}},
            [
                TopologySpreadConstraint(1, ZONE, "DoNotSchedule", None, None, None, "Honor"),
                TopologySpreadConstraint(1, ZONE, "ScheduleAnyway", None, None, None, "Ignore"),
            ],
            id="the fields that they leave out",
        ),
    ],
)
def test_the_defaults_in_force(given: JsonObject, expected: list[TopologySpreadConstraint]) -> None:
    assert tuple(expected) == PodTopologySpreadArgs.model_validate(given).constraints()


@pytest.mark.parametrize(
    ("given", "at", "complaint"),
    [
        pytest.param(
            {"defaultConstraints": [HARD]},
            (),
            "defaultingType: System: when .defaultConstraints are not empty",
            id="System with a list",
        ),
        pytest.param(
            listed(HARD, HARD),
            (),
            "defaultConstraints: duplicate {topology.kubernetes.io/zone, DoNotSchedule}",
            id="a key twice in one mode",
        ),
        pytest.param(
            listed(HARD | {"topologyKey": "a b"}),
            ("defaultConstraints", 0, "topologyKey"),
            "not a valid label name",
            id="a key no label can have",
        ),
        pytest.param(
            listed(HARD | {"labelSelector": {}}),
            ("defaultConstraints", 0, "labelSelector"),
            "constraint must not define a selector, as they deduced for each pod",
            id="a selector, even an empty one",
        ),
        pytest.param(
            {"beyond": {"untoleratedDomains": "ignore"}},
            ("beyond", "untoleratedDomains"),
            "Input should be 'Count' or 'Ignore'",
            id="an option in another case",
        ),
        pytest.param(
            {"beyond": {"defaults": {"maxSkew": 2}}},
            ("beyond", "defaults", "maxSkew"),
            "Extra inputs are not permitted",
            id="a default of another field",
        ),
        pytest.param(
            {"beyond": {"defaults": {"matchLabelKeys": ["a b"]}}},
            ("beyond", "defaults", "matchLabelKeys", 0),
            "not a valid label name",
            id="a default key no label can have",
        ),
        pytest.param(
            {"beyond": {"defaults": {"matchLabelKeys": ["rev", "rev"]}}},
            ("beyond", "defaults", "matchLabelKeys"),
            "a key is given twice",
            id="a default key twice",
        ),
        pytest.param(
            {"beyond": {"defaults": {"matchLabelKeys": [f"k{number}" for number in range(9)]}}},
            ("beyond", "defaults", "matchLabelKeys"),
            "Tuple should have at most 8 items",
            id="many default keys",
        ),
        pytest.param(
            {"beyond": {"fallback": {"after": "1s"}}},
            ("beyond", "fallback", "after"),
            "greater than or equal to 10",
            id="a short fallback",
        ),
        pytest.param(
            {"beyond": {"domains": {HOSTNAME: ["n1"]}}}, ("beyond", "domains"), "hosts come and go", id="declared hosts"
        ),
        pytest.param(
            {"beyond": {"domains": {ZONE: []}}}, ("beyond", "domains", ZONE), "at least 1 item", id="no domain"
        ),
        pytest.param(
            {"beyond": {"domains": {ZONE: ["a", "a"]}}}, ("beyond", "domains", ZONE), "given twice", id="a domain twice"
        ),
        pytest.param(
            {"beyond": {"domains": {ZONE: ["a b"]}}},
            ("beyond", "domains", ZONE),
            "'a b' is not a valid label value",
            id="a domain that no node can have",
        ),
        pytest.param({"beyond": {"scaleDown": "Even"}}, ("beyond", "scaleDown"), "'Any' or 'Spread'", id="scaleDown"),
        pytest.param(
            {"beyond": {"rerank": True}}, ("beyond",), "rerank: true needs scaleDown: Spread", id="rerank without ranks"
        ),
        pytest.param(
            {"beyond": {"remember": "1s"}}, ("beyond", "remember"), "greater than or equal to 60", id="a short memory"
        ),
    ],
)
def test_what_is_refused(given: JsonObject, at: tuple[str | int, ...], complaint: str) -> None:
    with pytest.raises(ValidationError) as raised:
        PodTopologySpreadArgs.model_validate(given)

    (mistake,) = raised.value.errors()
    assert at == mistake["loc"]
    assert complaint in mistake["msg"]
