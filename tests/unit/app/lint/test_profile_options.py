"""What lint knows of a profile's options for spread, if it gets the configuration."""

from __future__ import annotations

import pytest

from tests.builders import ZONE, JsonObject, constraint, node_object, taint
from tests.unit.app.lint.examples import cluster_of, ids, linted, workload

HASH = "pod-template-hash"


def configuration(beyond: JsonObject, name: str = "default-scheduler") -> JsonObject:
    args = [{"name": "PodTopologySpread", "args": {"beyond": beyond}}]
    profiles = [{"schedulerName": name, "pluginConfig": args}]
    return {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration", "profiles": profiles}


THREE = configuration({"domains": {ZONE: ["a", "b", "c"]}})


@pytest.mark.parametrize(
    ("spread", "expected"),
    [
        pytest.param(constraint(skew=2, app="web"), ["missing-min-domains"], id="none"),
        pytest.param(constraint(skew=2, min_domains=2, app="web"), ["missing-min-domains"], id="too few"),
        pytest.param(constraint(skew=2, min_domains=3, app="web"), [], id="enough"),
        pytest.param(constraint(soft=True, app="web"), [], id="soft"),
        pytest.param(constraint("rack", skew=2, app="web"), [], id="another key"),
    ],
)
def test_declared_domains(spread: JsonObject, expected: list[str]) -> None:
    assert ids([workload(spread), THREE]) == expected


def test_the_finding_names_the_domains_and_the_fix() -> None:
    (finding,) = linted([workload(constraint(skew=2, app="web")), THREE]).findings

    assert finding.message == (
        f"{ZONE} has 3 declared domains (a, b, c), and the constraint does not count those without a node: "
        "all pods can be in the others"
    )
    assert (finding.fix, finding.field) == (
        "set minDomains to 3",
        "spec.template.spec.topologySpreadConstraints[0].minDomains",
    )


def test_pods_of_another_profile_and_daemon_sets() -> None:
    spread = constraint(skew=2, app="web")

    assert ids([workload(spread, schedulerName="other"), THREE]) == []
    assert ids([workload(spread, schedulerName="other"), configuration({"domains": {ZONE: ["a", "b"]}}, "*")]) == [
        "missing-min-domains"
    ]
    assert ids([workload(spread, kind="DaemonSet", replicas=None), THREE]) == []


def test_fields_that_the_profile_fills_in_are_no_findings() -> None:
    spread = constraint(app="web")

    assert ids([workload(spread)]) == ["match-label-keys"]
    assert ids([workload(spread), configuration({"defaults": {"matchLabelKeys": [HASH]}})]) == []


@pytest.mark.parametrize(
    "beyond", [{"untoleratedDomains": "Ignore"}, {"defaults": {"nodeTaintsPolicy": "Honor"}}], ids=str
)
def test_tainted_domains_that_the_profile_leaves_out(beyond: JsonObject) -> None:
    nodes = [node_object("na", zone="a"), node_object("nb", zone="b", taints=[taint("x")])]
    spread = constraint(match_label_keys=[HASH], app="web")

    assert ids([workload(spread)], cluster_of(*nodes)) == ["tainted-domains"]
    assert ids([workload(spread), configuration(beyond)], cluster_of(*nodes)) == []


def test_options_that_are_wrong_are_not_used() -> None:
    assert ids([workload(constraint(skew=2, app="web")), configuration({"domains": {ZONE: "a"}})]) == []
