"""Runs over manifests and clusters: order, ignored and skipped rules, unknown ids."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.lint import linting
from app.lint.facts import ClusterFacts
from app.lint.linting import Linter
from app.lint.live import workloads_in
from app.lint.manifests import ManifestObject
from app.lint.rules import RULES, LintRule, Mistaken, Need
from app.lint.workloads import LintedWorkload, workload_of
from tests.builders import JsonObject, constraint, node_object, pod_object
from tests.unit.app.lint.examples import REGISTRY, cluster_of, linted, workload

WRONG = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  annotations: {homeport.dev/policy: of}
spec:
  template:
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}
"""


def needing(*needs: Need) -> list[LintRule]:
    return [it for it in RULES if it.need in needs]


def test_findings_have_file_line_and_object() -> None:
    first, second = linted(WRONG).findings

    assert ("unknown-policy", "web.yaml", 5) == (first.id, first.file, first.line)
    assert ("selector-mismatch", "web.yaml", 10) == (second.id, second.file, second.line)
    assert "Deployment web" == first.object_name == second.object_name


def test_rules_that_lack_their_input_are_named() -> None:
    without = needing(Need.CLUSTER, Need.SCHEDULERS, Need.BOTH_CONFIGURATIONS)

    assert without == list(linted(WRONG).skipped)
    assert needing(Need.BOTH_CONFIGURATIONS) == list(linted(WRONG, cluster_of(node_object())).skipped)
    assert len({it.id for it in RULES}) == len(RULES)


def test_comments_and_annotations_ignore_rules() -> None:
    comment = linted(f"# homeport.dev/ignore: selector-mismatch, unknown-policy\n{WRONG}")
    annotation = linted([workload(constraint(app="wep"), annotations={"homeport.dev/ignore": "selector-mismatch"})])
    another = linted(f"{WRONG}---\n# homeport.dev/ignore: selector-mismatch\n")

    assert ((), 2, 1) == (comment.findings, comment.ignored, comment.objects)
    assert ((), 1, 1) == (annotation.findings, annotation.ignored, annotation.objects)
    assert (2, 0) == (len(another.findings), another.ignored)


def test_an_unknown_id_is_told() -> None:
    notes = [str(it) for it in linted(f"# homeport.dev/ignore: selector-mismach\n{WRONG}").notes]

    assert [
        "web.yaml:2: homeport.dev/ignore: there is no rule selector-mismach; did you mean selector-mismatch?"
    ] == notes


def test_an_object_that_cannot_be_decoded_hides_no_other() -> None:
    report = linted(f"{WRONG.replace('maxSkew: 1', 'maxSkew: one')}---\n{WRONG}")

    place = "spec.template.spec.topologySpreadConstraints[0].maxSkew"
    assert [f"web.yaml:10: Deployment web: {place}: expected int, got str"] == [str(it) for it in report.broken]
    assert ([16, 21], 2) == ([it.line for it in report.findings], report.objects)


def test_an_unexpected_error_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(document: JsonObject) -> LintedWorkload:
        if document["metadata"]["name"] == "bad":
            raise TypeError("unexpected")
        return workload_of(document)

    monkeypatch.setattr(linting, "workload_of", fail)
    report = linted(f"{WRONG.replace('name: web', 'name: bad')}---\n{WRONG}")

    assert ["web.yaml:1: Deployment bad: cannot be judged: TypeError: unexpected"] == [str(it) for it in report.broken]
    assert [16, 21] == [it.line for it in report.findings]


def test_an_unexpected_error_about_a_workload_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(workload: LintedWorkload, _: ClusterFacts) -> list[Mistaken]:
        if workload.name == "good":
            return []
        raise TypeError("unexpected")

    monkeypatch.setattr(linting, "of_placement", fail)
    spread = [constraint(app="x")]
    pods = (pod_object(it, namespace="shop", spread=spread, labels={"app": "y"}) for it in ("bad", "good"))
    cluster = cluster_of(node_object(zone="a"), *pods)
    linter = Linter(REGISTRY, ClusterFacts(cluster))
    linter.add_workloads(workloads_in(cluster, ""))

    assert ["cluster: Pod shop/bad: cannot be judged: TypeError: unexpected"] == [
        str(it) for it in linter.report().broken
    ]
    assert {"bad", "good"} == {it.name for it in linter.report().findings}


def test_workloads_of_a_cluster() -> None:
    pod = pod_object("a", namespace="shop", spread=[constraint(app="x")])
    cluster = cluster_of(node_object(zone="a"), pod)
    linter = Linter(REGISTRY, ClusterFacts(cluster))
    linter.add_workloads(workloads_in(cluster, ""), "saved.yaml")
    (finding,) = linter.report().findings

    assert ("selector-mismatch", "saved.yaml", 0) == (finding.id, finding.file, finding.line)
    assert ("Pod shop/a", "spec.topologySpreadConstraints[0].labelSelector") == (finding.object_name, finding.field)


def test_manifests_without_a_namespace_count_in_that_of_the_command() -> None:
    """A pod of the namespace is in the tainted zone, so it holds no minimum."""
    tainted = node_object("b", zone="b", taints=[{"key": "x", "effect": "NoSchedule"}])
    there = pod_object("web-1", namespace="shop", labels={"app": "web"}, node="b")
    facts = ClusterFacts(cluster_of(node_object("a", zone="a"), tainted, there))
    obj = workload(constraint(app="web"), kind="StatefulSet")

    assert ["tainted-domains"] == _ids(Linter(REGISTRY, facts), obj)
    assert [] == _ids(Linter(REGISTRY, facts, "shop"), obj)


def _ids(linter: Linter, obj: dict[str, object]) -> list[str]:
    linter.add_manifests([ManifestObject("f", obj, (), {}, 1)])
    return [it.id for it in linter.report().findings]


WHOLE = workload(
    constraint(app="web"),
    affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    tolerations=[{"key": "a"}],
    volumes=[{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}],
    annotations={"homeport.dev/policy": "hard", "homeport.dev/ignore": "x"},
    more={"volumeClaimTemplates": [{"metadata": {"name": "d"}}], "ordinals": {"start": 1}, "strategy": {"type": "x"}},
)
PAIR = [
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "a", "plugins": {"filter": {"disabled": [{"name": "*"}]}}}],
        "extenders": [{"urlPrefix": "http://homeport", "filterVerb": "filter"}],
    },
    {
        "apiVersion": "homeport.dev/v1alpha1",
        "kind": "HomeportConfiguration",
        "profiles": [{"pluginConfig": [{"name": "StickyNode", "args": {"gracePeriod": "1s", "namespaces": [{}]}}]}],
    },
]
KINDS = ["Deployment", "StatefulSet", "CronJob", "Pod", "ConfigMap"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def places(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all values within ``value``."""
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [place for key, inner in items for place in ((*at, key), *places(inner, (*at, key)))]


@given(st.sampled_from([[WHOLE], PAIR]), st.data())
def test_no_value_of_a_manifest_ends_the_run(objects: list[JsonObject], data: st.DataObject) -> None:
    """Any value can be anywhere. A sound object beside it is still judged."""
    changed = deepcopy(objects)
    place = data.draw(st.sampled_from(places(changed)))
    inner: Any = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = data.draw(VALUES)
    if objects == [WHOLE] and len(place) > 1 and data.draw(st.booleans()):
        changed[0]["kind"] = data.draw(st.sampled_from(KINDS))

    report = linted([*changed, workload(constraint(app="wep"))], cluster_of(node_object(zone="a")))

    assert "selector-mismatch" in {it.id for it in report.findings}
