"""Values, schema, README and templates name the same things."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from pydantic import BaseModel

from app.homes.protocol import Policy
from plugins.sticky_node.args import MaintenanceMarker, NamespaceRule, OwnerRule, StickyNodeArgs
from tests.chart.rendering import CHART, CI_VALUES, ROOT, RefusedError, containers, pod_of, rendered, rendered_once
from tests.cluster.image import default_image
from tests.controlplane import tools

TEMPLATES: Final = sorted((CHART / "templates").rglob("*.*"))
OPEN: Final = {
    "plugins.podTopologySpread.args",
    "plugins.stickyNode.args",
    "certificates.certManager.issuerRef",
    "monitoring.kubeSchedulerAuthorization",
    "kubeScheduler.plugins",
    "kubeScheduler.featureGates",
    "config",
}
"""Values that are a mapping of the user's own, whole."""

MOST: Final = ("everything-values", "service-cert-manager-values")
BASES: Final = sorted(CI_VALUES, key=lambda it: it.stem not in MOST)
"""Files of values, those first that take the most."""

DISABLED: Final = {"multiPoint": {"disabled": [{"name": "NodeAffinity"}]}}
OTHERS: Final[dict[str, Any]] = {
    "mode": "service",
    "extraSchedulerNames": ["other"],
    "extender.port": 9000,
    "extender.weight": 8,
    "extender.maxPriority": 5,
    "extender.atMost": 200,
    "plugins.podTopologySpread.args": {"defaultingType": "List"},
    "plugins.podTopologySpread.preemption": "Own",
    "plugins.stickyNode.owners": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "resource": "statefulsets"}],
    "plugins.stickyNode.args": {"failback": True},
    "config": {"logLevel": "warning"},
    "kubeScheduler.plugins": DISABLED,
    "kubeScheduler.pluginConfig": [{"name": "NodeAffinity", "args": {}}],
    "kubeScheduler.featureGates": {"AllBeta": False},
    "kubeScheduler.percentageOfNodesToScore": 70,
    "kubeScheduler.leaderElection.retryPeriod": "1s",
    "kubeScheduler.leaderElection.renewDeadline": "11s",
    "leaderElection.leaseDuration": "16s",
    "leaderElection.renewDeadline": "11s",
    "leaderElection.retryPeriod": "1s",
    "certificates.certManager.duration": "2161h",
    "image.pullPolicy": "Never",
    "image.digest": f"sha256:{'1' * 64}",
    "kubeScheduler.image.pullPolicy": "Never",
    "kubeScheduler.image.digest": f"sha256:{'1' * 64}",
    "certificates.source": "certManager",
    "certificates.extraDnsNames": ["other.example.com"],
    "certificates.certManager.issuerRef": {"name": "other"},
    "listenAddress": "::",
    "networkPolicy.apiServerPorts": [8443],
    "operatorService.apiServerCIDRs": ["192.0.2.99/32"],
    "monitoring.kubeSchedulerAuthorization": {"credentials": {"name": "other", "key": "token"}},
    "service.clusterIP": "10.0.0.77",
    "topologySpreadConstraints": [],
    **{it: ["--other"] for it in ("extraArgs", "kubeScheduler.extraArgs")},
    **dict.fromkeys(("updateStrategy.rollingUpdate.maxSurge", "updateStrategy.rollingUpdate.maxUnavailable"), "50%"),
    **{f"monitoring.{it}.renderMode": "skipIfMissing" for it in ("podMonitor", "serviceMonitor", "prometheusRule")},
}
"""Other values where it takes more than another number or word."""

REFUSING: Final = {"certificates.certManager.renderMode", "image.allowLocal"}
"""Values that only decide whether something is refused: `test_refusals` is about them."""


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return found


def chart() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return found


def paths(found: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Every value's path; a mapping of the user's own counts as one."""
    for key, value in found.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and path not in _free_mappings():
            yield from paths(value, f"{path}.")
        else:
            yield path


def _free_mappings() -> set[str]:
    return {path for path, it in _schema_paths(schema()) if it.get("type") == "object" and "properties" not in it}


def _schema_paths(at: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for key, it in at.get("properties", {}).items():
        resolved = _resolved(it)
        yield f"{prefix}{key}", resolved
        if f"{prefix}{key}" != "config":  # that is of Homeport's settings, and no values of the chart
            yield from _schema_paths(resolved, f"{prefix}{key}.")


def _resolved(it: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema()["$defs"][it["$ref"].removeprefix("#/$defs/")] if "$ref" in it else it
    return found


def test_every_value_that_a_template_names_is_there() -> None:
    """Whole paths alone are looked at; what is relative to a `with` may be a field of an object."""
    known = set(paths(values()))
    prefixes = {path.rsplit(".", depth)[0] for path in known for depth in range(path.count(".") + 1)}
    named: set[str] = set()
    for template in TEMPLATES:
        named |= set(re.findall(r"\.Values\.([A-Za-z0-9.]*[A-Za-z0-9])", template.read_text()))

    assert len(named) > 60
    free = _free_mappings() | OPEN
    assert [] == sorted(it for it in named - known - prefixes if not any(it.startswith(f"{each}.") for each in free))


@pytest.mark.parametrize("path", sorted(set(paths(values())) - REFUSING))
def test_every_value_takes_something(path: str) -> None:
    """Another value for it changes what is rendered, with one of the files of values at least."""
    other = OTHERS.get(path, _other(path))

    assert other != _at(values(), path)
    assert any(_changes(file, path, other) for file in BASES)


def _other(path: str) -> Any:
    """A value of the same type that the schema allows."""
    value = _at(values(), path)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return "33m" if re.fullmatch(r"\d+[smh]", value) else "other"
    return [{"name": "other"}] if isinstance(value, list) else {"other": "other"}


def _changes(file: Path, path: str, other: Any) -> bool:
    given = yaml.safe_load(file.read_text()) or {}
    value = _at(values(), path) if _at(given, path) == other else other
    try:
        return rendered(_set(given, path, value)) != list(rendered_once(file))
    except RefusedError:
        return False


def _set(found: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    first, _, rest = path.partition(".")
    return {**found, first: _set(found.get(first) or {}, rest, value) if rest else value}


def test_the_schema_knows_exactly_the_values() -> None:
    known = {path for path, it in _schema_paths(schema()) if "properties" not in it}

    assert set(paths(values())) - OPEN == known - OPEN - {
        it for it in known if any(it.startswith(f"{each}.") for each in OPEN)
    }


def test_the_schema_is_closed_wherever_its_keys_are_named() -> None:
    open_ones = [
        path
        for path, it in _every_schema(schema())
        if "properties" in it and it.get("additionalProperties") is not False
    ]

    assert ["#/$defs/.../items"] != open_ones
    assert ["#/properties/global"] == open_ones
    assert "https://json-schema.org/draft/2020-12/schema" == schema()["$schema"]
    assert sorted(schema()["properties"].keys() - _newer()) == schema()["required"]


def _newer() -> set[str]:
    """Values that a former chart did not have. An upgrade with --reuse-values does not have them either."""
    former: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "releases" / "0.1.0-defaults.yaml").read_text())
    return values().keys() - former.keys()


def _every_schema(at: Any, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(at, dict):
        if isinstance(at.get("properties"), dict):
            yield path, at
        for key, it in at.items():
            yield from _every_schema(it, f"{path}/{key}")
    elif isinstance(at, list):
        for it in at:
            yield from _every_schema(it, path)


def test_the_schema_knows_every_argument_of_sticky_node() -> None:
    """`owners` is a value of its own, where each owner says its plural too."""
    known = schema()["properties"]["plugins"]["properties"]["stickyNode"]["properties"]
    args, owner = known["args"]["properties"], known["owners"]["items"]["properties"]

    assert args.keys() == aliases(StickyNodeArgs) - {"apiVersion", "kind", "owners"}
    assert owner.keys() == aliases(OwnerRule) | {"resource"}
    assert args["namespaces"]["items"]["properties"].keys() == aliases(NamespaceRule)
    assert args["maintenance"]["items"]["properties"].keys() == aliases(MaintenanceMarker)
    assert {*Policy, False} == set(_resolved(args["policy"])["enum"])


def aliases(model: type[BaseModel]) -> set[str]:
    return {str(it.alias) for it in model.model_fields.values()}


def test_every_value_is_explained() -> None:
    rows = [it for it in (CHART / "README.md").read_text().splitlines() if it.startswith("| ")]

    assert [] == [it for it in rows if it.endswith("|  |")]


def test_the_readme_is_made_from_the_values(tmp_path: Path) -> None:
    """`make chart-docs` makes it anew."""
    copied = tmp_path / "homeport"
    shutil.copytree(CHART, copied)
    tools.document(copied)

    assert (copied / "README.md").read_text() == (CHART / "README.md").read_text()


def test_make_image_makes_the_image_that_the_chart_asks_for() -> None:
    container = containers(pod_of(rendered({})))["homeport"]

    assert default_image() == container["image"]
    assert f"{default_image()} " in (ROOT / "docs" / "image.md").read_text()


def test_the_values_of_this_version_are_kept_for_the_next_ones() -> None:
    kept = Path(__file__).parent / "releases" / f"{chart()['version']}-values.yaml"

    assert kept.is_file()


def test_nothing_is_looked_up_in_the_cluster() -> None:
    """A rendering without a cluster would differ, and so would the next one."""
    for template in TEMPLATES:
        code = re.sub(r"\{\{-? */\*.*?\*/ *-?\}\}", "", template.read_text(), flags=re.DOTALL)
        assert not re.search(r"\blookup\b|\bgenCA\b|\bgenSignedCert\b|\brand\w+\b|\bnow\b|\buuidv4\b", code), template


def test_the_namespace_comes_from_its_helper() -> None:
    for template in TEMPLATES:
        text = template.read_text()
        expected = 1 if template.name == "_helpers.tpl" else 0
        assert expected == text.count(".Release.Namespace"), template
        if template.suffix == ".yaml" and "kind: " in text:
            heads = re.findall(r"^metadata:\n  name: .*\n(.*)\n", text, flags=re.MULTILINE)
            cluster_wide = len(re.findall(r"^kind: (?:ClusterRole|ClusterRoleBinding|FlowSchema)$", text, re.MULTILINE))
            placed = [it for it in heads if it.startswith("  namespace: ")]
            assert len(heads) == len(placed) + cluster_wide, template


ELSEWHERE: Final = {"skipIfMissing", "failIfMissing", "Never", "System", "grace", "name", "wait"}
"""Choices that `test_refusals` is about, or that are as if nothing were said."""


def test_every_feature_has_a_file_of_values() -> None:
    """Of each switch both ways, of each choice every one."""
    chosen = [yaml.safe_load(it.read_text()) or {} for it in CI_VALUES]
    flat = [dict(_leaves(it)) for it in chosen]
    for path, it in _schema_paths(schema()):
        default = _at(values(), path)
        if it.get("type") == "boolean":
            assert any(each.get(path, default) is not default for each in flat), path
        if "enum" in it:
            missing = set(it["enum"]) - {each.get(path, default) for each in flat}
            assert missing <= ELSEWHERE, path


def _leaves(found: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _at(found: Any, path: str) -> Any:
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found
