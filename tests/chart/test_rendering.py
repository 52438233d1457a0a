"""Every values file of the chart, through both majors of Helm, kubeconform and a real API server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.chart.cluster import Cluster
from tests.chart.definitions import SPECS, whole
from tests.chart.rendering import (
    CHART,
    CI_VALUES,
    CLUSTER,
    HELMS,
    NAMESPACE,
    RELEASES,
    containers,
    of_kind,
    rendered,
    rendered_once,
    rendered_text,
    run_helm,
    the,
)
from tests.controlplane import tools
from tests.controlplane.client import Json

EVERY = [*CI_VALUES, *RELEASES]
API_SERVER_AND_DNS: Final = (443, 6443, 53)
every_values_file = pytest.mark.parametrize("values", EVERY, ids=lambda it: it.stem)


@pytest.mark.parametrize("helm", HELMS)
@every_values_file
def test_helm_lints_it_strictly(helm: str, values: Path) -> None:
    run_helm(helm, "lint", "--strict", "--quiet", f"--kube-version={CLUSTER}", f"--values={values}", str(CHART))


@every_values_file
def test_both_majors_of_helm_render_the_same(values: Path) -> None:
    three, four = (rendered_once(values, helm) for helm in HELMS)

    assert _sorted(three) == _sorted(four)


@every_values_file
def test_no_document_has_a_key_twice(values: Path) -> None:
    """A later one would win silently, here and in the configurations within."""
    text = run_helm("helm-3", "template", str(CHART), f"--kube-version={CLUSTER}", f"--values={values}")

    for it in yaml.load_all(text, Loader=_Unique):
        for file in ((it or {}).get("data") or {}).values():
            yaml.load(file, Loader=_Unique)


@pytest.mark.parametrize("helm", HELMS)
@pytest.mark.parametrize("mode", ["scheduler", "service"])
@pytest.mark.parametrize("source", ["selfSigned", "certManager", "existingSecret"])
def test_no_name_is_read_as_something_else(helm: str, mode: str, source: str) -> None:
    """What YAML 1.1 or 1.2 may take for a switch, a number or nothing stands in quotes, in the files within too."""
    for odd in ("n", "y", "on", "null", "123", "1e3", "0x1f"):
        named: dict[str, Any] = {
            "mode": mode,
            "schedulerName": "7001",
            "extraSchedulerNames": ["2e5"],
            "podSchedulerName": "7003",
            "nameOverride": odd,
            "serviceAccount": {"name": odd},
            "networkPolicy": {"enabled": True, "schedulers": [{"podSelector": {}}]},
            "monitoring": {
                it: {"enabled": True, "renderMode": "alwaysRender"} for it in ("podMonitor", "prometheusRule")
            },
            "certificates": {
                "source": source,
                "clientName": "7005",
                "certManager": {"renderMode": "alwaysRender"},
                **({"existingSecret": {"name": "7006", "clientName": "7007"}} if source == "existingSecret" else {}),
            },
            "priorityQuota": {"create": True},
            "priorityClassName": "7008",
        }
        if mode == "service" and odd[0].isdigit():
            named["fullnameOverride"] = "a"
        text = rendered_text(named, helm=helm, release=odd, namespace="456")
        names = {odd, "456", f"{odd}.456", "7001", "2e5", "7003", "7005", "7006", "7007", "7008"}
        assert [] == _plain(text, names)


def test_a_name_without_quotes_would_be_seen() -> None:
    assert ["on", "456"] == _plain("a: on\nb: 'on'\nc: 7\n---\ndata: {file: \"d: '456'\\ne: 456\\n\"}\n", {"on", "456"})


@every_values_file
def test_kubeconform_knows_every_field(values: Path, schemas: tuple[Path, Path]) -> None:
    text = run_helm("helm-3", "template", str(CHART), f"--kube-version={CLUSTER}", f"--values={values}")
    locations = [f"-schema-location={it}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json" for it in schemas]
    command = [str(tools.kubeconform()), "-strict", "-summary", "-output=json", *locations]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    summary = json.loads(done.stdout)["summary"]
    assert (0, 0, 0) == (summary["invalid"], summary["errors"], summary["skipped"]), done.stdout
    assert len(rendered_once(values)) == summary["valid"]


def test_kubeconform_would_see_a_wrong_field(schemas: tuple[Path, Path]) -> None:
    for wrong in (_with(["replicaz"], 2), _with(["template", "spec", "restartpolicy"], "Never")):
        locations = [f"-schema-location={it}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json" for it in schemas]
        command = [str(tools.kubeconform()), "-strict", *locations]
        done = subprocess.run(command, input=json.dumps(wrong), capture_output=True, text=True, check=False)

        assert 1 == done.returncode
        assert "additional properties" in done.stdout


@every_values_file
def test_the_api_server_accepts_every_object_without_a_warning(cluster: Cluster, values: Path) -> None:
    """Nothing unknown or twice, and no pod that is less than restricted."""
    for it in rendered_once(values):
        if "namespace" in it["metadata"]:
            cluster.make_namespace(it["metadata"]["namespace"])
        assert [] == cluster.would_create(it), it


def test_the_api_server_would_warn_of_a_pod_that_may_be_root(cluster: Cluster) -> None:
    cluster.make_namespace(NAMESPACE)
    deployment = the(rendered({"podSecurityContext": {"runAsNonRoot": False}}), "Deployment")

    (warning,) = cluster.would_create(deployment)
    assert "runAsNonRoot" in warning


@every_values_file
def test_all_objects_are_labelled_and_in_one_namespace(values: Path) -> None:
    given = yaml.safe_load(values.read_text()) or {}
    own = [it for it in rendered_once(values) if it["metadata"]["name"] != "home-more"]

    assert {given.get("namespaceOverride", NAMESPACE)} == {
        it["metadata"]["namespace"] for it in own if it["metadata"].get("namespace", "kube-system") != "kube-system"
    }
    for it in own:
        labels = it["metadata"]["labels"]
        assert "homeport" == labels["app.kubernetes.io/instance"]
        assert given.get("commonLabels", {}).items() <= labels.items()


@every_values_file
def test_selectors_find_the_pods_and_no_pod_of_a_test(values: Path) -> None:
    found = rendered_once(values)
    labels = the(found, "Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        *(it["spec"]["selector"] for it in of_kind(found, "Service")),
        *(it["spec"]["selector"]["matchLabels"] for it in of_kind(found, "PodDisruptionBudget")),
        *(it["spec"]["selector"]["matchLabels"] for it in of_kind(found, "PodMonitor")),
        *(it["spec"]["podSelector"]["matchLabels"] for it in of_kind(found, "NetworkPolicy")),
        the(found, "Deployment")["spec"]["selector"]["matchLabels"],
    ]
    for it in selectors:
        assert it.items() <= labels.items()
        for test in of_kind(found, "Pod"):
            assert not it.items() <= test["metadata"]["labels"].items()


@every_values_file
def test_probes_and_ports_that_are_named_are_there(values: Path) -> None:
    found = rendered_once(values)
    pod = the(found, "Deployment")["spec"]["template"]
    named = {port["name"] for it in containers(pod).values() for port in it["ports"]}
    numbered = {port["containerPort"] for it in containers(pod).values() for port in it["ports"]}
    for it in containers(pod).values():
        own = {port["name"] for port in it["ports"]}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert it[probe]["httpGet"]["port"] in own | numbered
    for service in of_kind(found, "Service"):
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= numbered
    for monitor in of_kind(found, "PodMonitor"):
        assert {it["port"] for it in monitor["spec"]["podMetricsEndpoints"]} <= named
    for policy in of_kind(found, "NetworkPolicy"):
        rules = (*policy["spec"].get("ingress", ()), *policy["spec"].get("egress", ()))
        ports = {port["port"] for rule in rules for port in rule.get("ports", ())}
        assert ports <= {*numbered, *API_SERVER_AND_DNS}


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of the release's own kinds, and of custom resources."""
    folder = tmp_path_factory.mktemp("schemas")
    for (group, kind, _), spec in SPECS.items():
        (folder / tools.schema_name(group, "v1", kind)).write_text(json.dumps(tools.closed(whole(spec))))
    return tools.schemas(), folder


def _plain(text: str, names: set[str]) -> list[str]:
    """Those of the names that stand in a text without quotes, and in the files of its ConfigMaps."""
    found = [
        it.value
        for it in yaml.parse(text)
        if isinstance(it, yaml.ScalarEvent) and it.style is None and it.value in names
    ]
    for it in yaml.safe_load_all(text):
        for name, file in ((it or {}).get("data") or {}).items():
            found += _plain(file, names) if not name.endswith(".json") else []
    return found


def _with(path: list[str], value: object) -> Json:
    found: Json = json.loads(json.dumps(the(rendered_once(CI_VALUES[0]), "Deployment")))
    place = found["spec"]
    for it in path[:-1]:
        place = place[it]
    place[path[-1]] = value
    return found


def _sorted(found: tuple[Json, ...]) -> list[str]:
    return sorted(json.dumps(it, sort_keys=True) for it in found)


class _Unique(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(found) == len(set(found)), f"a key stands twice: {found}"
        return super().construct_mapping(node, deep)
