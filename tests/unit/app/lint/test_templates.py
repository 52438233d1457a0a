"""Rules about a pod template alone: each finds the mistake, and nothing in its sound twin."""

from __future__ import annotations

from typing import Any

import pytest

from app.lint.rules import Severity
from tests.builders import HOSTNAME, ZONE, JsonObject, constraint, expression
from tests.unit.app.lint.examples import ids, linted, workload

SOFT = constraint(soft=True, app="web")
REVISION = ["pod-template-hash"]
POLICY = "homeport.dev/policy"


@pytest.mark.parametrize(
    ("spread", "severity", "problem"),
    [
        (constraint(match_label_keys=REVISION, app="wep"), "error", "(app is web), so these pods are not spread"),
        (constraint(soft=True, tier="x"), "warning", "(tier is not set), so the constraint does not change"),
        (constraint(soft=True, selector=None), "warning", "has no labelSelector"),
        (constraint(soft=True, selector={}), "warning", "has an empty labelSelector"),
        (
            constraint(soft=True, selector={"matchExpressions": [expression("app", "NotIn", "web")]}),
            "warning",
            "app is",
        ),
    ],
)
def test_a_selector_that_misses_its_own_pods(spread: JsonObject, severity: str, problem: str) -> None:
    finding, *more = linted([workload(spread)]).findings

    assert [] == more
    assert ("selector-mismatch", Severity(severity)) == (finding.id, finding.severity)
    assert finding.field == "spec.template.spec.topologySpreadConstraints[0].labelSelector"
    assert problem in finding.message


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("Deployment", "pod-template-hash"),
        ("StatefulSet", "apps.kubernetes.io/pod-index"),
        ("DaemonSet", "controller-revision-hash"),
    ],
)
def test_labels_that_a_controller_adds_are_not_missed(kind: str, key: str) -> None:
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": [expression(key, "Exists")]}
    spread = constraint(soft=True, selector=selector)

    assert [] == ids([workload(spread, kind=kind)])
    other = "StatefulSet" if kind == "Deployment" else "Deployment"
    assert ["selector-mismatch"] == ids([workload(spread, kind=other)])


@pytest.mark.parametrize(("key", "expected"), [("pod-template-hash", []), ("app", []), ("tier", ["selector-mismatch"])])
def test_match_label_keys_are_merged_into_an_empty_selector(key: str, expected: list[str]) -> None:
    assert expected == ids([workload(constraint(soft=True, selector={}, match_label_keys=[key]))])


def test_labels_of_a_virtual_machine() -> None:
    machine = workload(constraint(soft=True, selector={"matchLabels": {"kubevirt.io": "virt-launcher", "app": "web"}}))
    machine |= {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine"}

    assert [] == ids([machine])
    assert ["selector-mismatch"] == ids([{**machine, "apiVersion": "apps/v1", "kind": "StatefulSet"}])


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (SOFT, [("duplicate-key", Severity.ERROR)]),
        (constraint(match_label_keys=REVISION, app="web"), [("duplicate-key", Severity.WARNING)]),
        (constraint(HOSTNAME, soft=True, app="web"), []),
    ],
)
def test_two_constraints_with_one_key(second: JsonObject, expected: list[Any]) -> None:
    found = linted([workload(SOFT, second)]).findings

    assert expected == [(it.id, it.severity) for it in found]
    assert all(it.field == "spec.template.spec.topologySpreadConstraints[1].topologyKey" for it in found)
    assert all(f"constraints 0 and 1 both have the topologyKey {ZONE}" in it.message for it in found)


HARD = constraint(app="web")
RECREATE = {"strategy": {"type": "Recreate"}}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (workload(HARD), ["match-label-keys"]),
        (workload(constraint(match_label_keys=REVISION, app="web")), []),
        (workload(constraint(skew=2, app="web")), []),
        (workload(SOFT), []),
        (workload(HARD, more=RECREATE), []),
        (workload(HARD, kind="StatefulSet"), []),
    ],
)
def test_a_rollout_counts_the_previous_revision(obj: JsonObject, expected: list[str]) -> None:
    assert expected == ids([obj])


@pytest.mark.parametrize(("policy", "expected"), [("hard", []), ("of", ["unknown-policy"]), ("", ["unknown-policy"])])
def test_an_unknown_policy(policy: str, expected: list[str]) -> None:
    own = workload(annotations={POLICY: policy})
    templated = workload()
    templated["spec"]["template"]["metadata"]["annotations"] = {POLICY: policy}

    assert expected == ids([own])
    found = linted([templated]).findings
    assert [(it, "spec.template.metadata.annotations.homeport.dev/policy") for it in expected] == [
        (it.id, it.field) for it in found
    ]


@pytest.mark.parametrize(
    ("value", "expected"), [("never", []), ("Never", ["unknown-fallback"]), ("", ["unknown-fallback"])]
)
def test_the_annotation_that_keeps_constraints_hard(value: str, expected: list[str]) -> None:
    assert ids([workload(pod_annotations={"homeport.dev/fallback": value})]) == expected
