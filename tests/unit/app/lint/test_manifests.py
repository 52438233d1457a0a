"""Reading of manifests: objects, lines, comments, and what is broken."""

from __future__ import annotations

import pytest

from app.config import document
from app.lint.manifests import read_manifests

TWO = """\
# Source: chart/templates/web.yaml
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: zone
--- # the second
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a}}
# homeport.dev/ignore: duplicate-key, unknown-key
- apiVersion: v1
  kind: Pod
  metadata:
    name: b # homeport.dev/ignore: min-domains
- apiVersion: v1
  kind: Pod
---
name: no object
"""


def test_objects_with_the_lines_of_their_fields() -> None:
    read = read_manifests(TWO, "f.yaml")

    assert [] == read.broken
    assert [2, 14, 16, 20] == [it.line for it in read.objects]
    first, _, third, _ = read.objects
    assert 8 == first.line_of(("spec", "topologySpreadConstraints", 0))
    assert 9 == first.line_of(("spec", "topologySpreadConstraints", 0, "topologyKey"))
    assert 8 == first.line_of(("spec", "topologySpreadConstraints", 0, "minDomains"))
    assert 19 == third.line_of(("metadata", "name"))
    assert 16 == third.line_of(("spec", "x"))


def test_comments_belong_to_their_object() -> None:
    ignored = [it.ignored for it in read_manifests(TWO, "f.yaml").objects]

    assert [set(), set(), {"duplicate-key", "unknown-key", "min-domains"}, set()] == ignored
    before = "kind: Pod\napiVersion: v1\n---\n# homeport.dev/ignore: min-domains\nkind: Pod\napiVersion: v1\n"
    assert [set(), {"min-domains"}] == [it.ignored for it in read_manifests(before, "f").objects]


def test_a_comment_without_ids_ends_with_its_line() -> None:
    text = "# homeport.dev/ignore:\nkind: Pod\napiVersion: v1\n# homeport.dev/ignore: min-domains,\n"

    assert [{"min-domains"}] == [it.ignored for it in read_manifests(text, "f").objects]


def test_a_typed_list_and_json() -> None:
    text = '{"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [{"metadata": {"name": "a"}}]}'

    assert [("apps/v1", "Deployment")] == [
        (it.value["apiVersion"], it.value["kind"]) for it in read_manifests(text, "f.json").objects
    ]


POD = "---\napiVersion: v1\nkind: Pod\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [1\n", "f.yaml:1: is not YAML: did not find expected ',' or ']'"),
        (f"{POD}---\na: b: c\n", "f.yaml:5: is not YAML: mapping values are not allowed in this context"),
        ("a: {{ .Values.x }}\n", "f.yaml:1: is not YAML: a key must be a string; it looks like a Helm template"),
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: a is set twice, also in line 1"),
        ("a: &a [*a]\n", "f.yaml:1: is not YAML: an alias refers to its own parent"),
        ("a: 2026-02-31\n", "f.yaml:1: is not YAML: day is out of range for month"),
        ("a: \x07\n", "f.yaml:1: is not YAML: "),
        ("[" * 200_000 + "\n", "f.yaml:1: is nested too deeply"),
        ("- " * 200_000 + "\n", "f.yaml:1: is nested too deeply"),
        ("".join(" " * 98 * it + "- " * 49 + "\n" for it in range(650)), "f.yaml:1: is nested too deeply"),
        ("{{" * 50_000 + "\n", "f.yaml:1: is nested too deeply"),
    ],
)
def test_a_broken_document_hides_no_other(text: str, told: str) -> None:
    read = read_manifests(f"{text}{POD}", "f.yaml")

    assert [str(it)[: len(told)] for it in read.broken] == [told]
    assert "Pod" == read.objects[-1].value["kind"]


def test_aliases_that_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MOST_PLACES", 1000)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{it}: &a{it} [{', '.join([f'*a{it - 1}'] * 8)}]" for it in range(1, 9)]

    read = read_manifests("\n".join(lines), "f.yaml")

    assert ["f.yaml:1: is not YAML: more than 1,000 keys and list items"] == [str(it) for it in read.broken]


CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: scheduler} # homeport.dev/ignore: spread-twice
data:
  other: text
  config.yaml: |
    apiVersion: kubescheduler.config.k8s.io/v1
    kind: KubeSchedulerConfiguration
    profiles: # homeport.dev/ignore: short-grace
    - schedulerName: a
  broken.yaml: |
    kind: HomeportConfiguration
    a: [
"""


def test_configurations_in_a_config_map() -> None:
    read = read_manifests(CONFIG_MAP, "f.yaml")
    holder, inner = read.objects

    assert ("KubeSchedulerConfiguration", holder) == (inner.value["kind"], inner.within)
    assert 10 == inner.line_of(("profiles", 0, "schedulerName"))
    assert {"spread-twice", "short-grace"} <= inner.ignored
    assert ["f.yaml:13: data.broken.yaml: is not YAML: did not find expected node content"] == [
        str(it) for it in read.broken
    ]


@pytest.mark.parametrize(
    ("key", "is_told"),
    [("a.yaml", True), ("a.yml", True), ("a.b.json", True), ("a.conf", True), ("config", True), ("README.md", False)],
)
def test_prose_in_a_config_map_need_not_be_yaml(key: str, is_told: bool) -> None:
    text = f"apiVersion: v1\nkind: ConfigMap\ndata:\n  {key}: |\n    kind: HomeportConfiguration\n    a: b: c\n"

    assert is_told == bool(read_manifests(text, "f.yaml").broken)
