"""docs/lint.md has an entry for each rule, with an example that the rule finds something in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.commands.common_flags import LINT_FORMATS
from app.lint.formats import FORMATS
from app.lint.rules import RULES, LintRule
from tests.builders import claim_object, node_object, taint, volume_object
from tests.contract.pages import rows, ticked
from tests.unit.app.lint.examples import cluster_of, linted, workload

PAGE: Final = (Path(__file__).parents[2] / "docs" / "lint.md").read_text(encoding="utf-8")
ENTRIES: Final = dict(re.findall(r"^### (\S+)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))

NODES: Final = [
    node_object("control", zone="a", taints=[taint("node-role.kubernetes.io/control-plane")]),
    *(
        node_object(f"{zone}{number}", zone=zone)
        for zone, hosts in (("a", 3), ("b", 3), ("c", 1))
        for number in range(hosts)
    ),
]
VOLUMES: Final = [
    it
    for number, zone in enumerate("aab")
    for it in (
        claim_object(f"data-web-{number}", volume=f"pv-{number}"),
        volume_object(f"pv-{number}", claim=f"data-web-{number}", zone=zone),
    )
]
CLAIMS: Final = {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}
HOMEPORT: Final = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}


def test_each_rule_has_an_entry() -> None:
    assert [it.id for it in RULES] == list(ENTRIES)
    assert [] == [name for name, entry in ENTRIES.items() if "**Fix:**" not in entry]


def test_the_table_names_each_rule() -> None:
    assert [(it.id, it.summary, it.need.value) for it in RULES] == [
        (ticked(name)[0], summary, need) for name, summary, need in rows(PAGE, "id")
    ]


def test_the_formats() -> None:
    assert list(FORMATS) == [ticked(name)[0] for name, _ in rows(PAGE, "`-o`")]
    assert FORMATS == LINT_FORMATS


@pytest.mark.parametrize("rule", RULES, ids=lambda it: it.id)
def test_the_rule_finds_the_mistake_in_its_example(rule: LintRule) -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```", ENTRIES[rule.id], re.MULTILINE | re.DOTALL)
    report = linted(_objects(rule.id, *yaml.safe_load_all(example)), cluster_of(*NODES, *VOLUMES))

    assert () == report.broken
    assert rule.id in {it.id for it in report.findings}


def _objects(rule: str, example: dict[str, Any], *beside: dict[str, Any]) -> list[dict[str, Any]]:
    """The example as whole objects; ``beside`` are those in which it is more than one."""
    if "kind" in example:
        return [{"apiVersion": "kubescheduler.config.k8s.io/v1", **example}, *(beside or (HOMEPORT,))]
    if "pluginConfig" in example:
        return [{**HOMEPORT, "profiles": [example]}]
    beyond = example.pop("beyond", None)
    args = [{"name": "PodTopologySpread", "args": {"beyond": beyond}}]
    profiles = [{**HOMEPORT, "profiles": [{"schedulerName": "*", "pluginConfig": args}]}] if beyond else []
    spread = example.pop("topologySpreadConstraints", [])
    selected = spread[0]["labelSelector"]["matchLabels"] if spread else {}
    own = {
        "labels": example.pop("labels", selected),
        "annotations": example.pop("annotations", None),
        "replicas": example.pop("replicas", 3),
        "pod_annotations": example.pop("podAnnotations", None),
    }
    is_set = rule == "volume-zone"
    return [
        *profiles,
        workload(
            *spread, kind="StatefulSet" if is_set else "Deployment", more=CLAIMS if is_set else None, **own, **example
        ),
    ]
