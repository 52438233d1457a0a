"""Both configurations that the chart writes are read by those they are for, and say the same of what they share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.config.settings import Settings, load_settings
from app.runtime.profiles import resolve
from app.runtime.registry import Registry
from plugins import DEFAULT_WEIGHTS, IN_TREE
from plugins.sticky_node.args import StickyNodeArgs
from plugins.sticky_node.table import Policy
from tests.certificates import Authority
from tests.chart.cluster import Cluster
from tests.chart.notes import notes_of
from tests.chart.rendering import CI_VALUES, RELEASES, ROOT, containers, files, pod_of, rendered, rendered_once
from tests.controlplane.binaries import RELEASES as KUBERNETES
from tests.controlplane.client import Json
from tests.controlplane.controlplane import ControlPlane

EVERY: Final = [*CI_VALUES, *RELEASES]
LEASES: Final = "leases"
"""Where these schedulers elect: not where other tests make the chart's own Leases."""

IN_NOTES: Final = "/etc/kubernetes/homeport"


def mode_of(values: Path) -> str:
    return str((yaml.safe_load(values.read_text()) or {}).get("mode", "scheduler"))


SCHEDULER: Final = [it for it in EVERY if mode_of(it) == "scheduler"]
SERVICE: Final = [it for it in EVERY if mode_of(it) == "service"]


@pytest.fixture(autouse=True)
def in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_IP", "10.244.0.5")


def settings_of(found: tuple[Json, ...] | list[Json], folder: Path) -> Settings:
    config = folder / "homeport.yaml"
    config.write_text(files(found)["homeport.yaml"])
    return load_settings({}, config=str(config))


@pytest.mark.parametrize("values", EVERY, ids=lambda it: it.stem)
def test_homeport_reads_its_configuration(values: Path, tmp_path: Path) -> None:
    found = rendered_once(values)
    settings = settings_of(found, tmp_path)
    resolve(settings.profiles, Registry(IN_TREE, DEFAULT_WEIGHTS))

    assert settings.leader_election.leader_elect
    assert not settings.insecure
    assert settings.hops_over_tls
    assert settings.operator_port is not None
    assert not settings.operator_serves_tls
    if mode_of(values) == "scheduler":
        assert ("127.0.0.1", False) == (settings.host, settings.serves_tls)
        assert settings.peer_port is not None
    else:
        assert settings.asks_for_certificates
        assert settings.allowed_names


@pytest.mark.parametrize("values", EVERY, ids=lambda it: it.stem)
def test_the_pod_has_the_ports_and_leases_and_secrets_that_the_configuration_names(
    values: Path, tmp_path: Path
) -> None:
    found = rendered_once(values)
    settings = settings_of(found, tmp_path)
    ports = {it["name"]: it["containerPort"] for it in containers(pod_of(found))["homeport"]["ports"]}
    names = {(it["kind"], it["metadata"]["namespace"], it["metadata"]["name"]) for it in found if _is_namespaced(it)}
    election = settings.leader_election

    named = {"verbs": settings.port} if mode_of(values) == "service" else {"peers": settings.peer_port}
    assert {**named, "operator": settings.operator_port} == ports
    lease = ("Lease", election.resource_namespace, election.resource_name)
    assert (lease in names) is (values.stem != "bare-values")
    if (own := settings.self_signed) is not None:
        secrets = {own.secret_name, *filter(None, (own.client_secret_name,))}
        assert {("Secret", own.secret_namespace, it) for it in secrets} == {it for it in names if it[0] == "Secret"}
    else:
        assert [] == [it for it in names if it[0] == "Secret"]
        (mount,) = [it for it in containers(pod_of(found))["homeport"]["volumeMounts"] if it["mountPath"] == "/tls"]
        assert "subPath" not in mount


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", SCHEDULER, ids=lambda it: it.stem)
def test_kube_scheduler_reads_its_configuration(
    plane: ControlPlane, cluster: Cluster, values: Path, version: str
) -> None:
    found = rendered_once(values)
    config = yaml.safe_load(files(found)["kube-scheduler.yaml"])
    config["leaderElection"]["resourceNamespace"] = LEASES
    cluster.make_namespace(LEASES)
    with plane.start_scheduler(config, version, _gates(found)) as scheduler:
        assert scheduler.process.alive


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", SERVICE, ids=lambda it: it.stem)
def test_kube_scheduler_reads_what_the_notes_say(
    plane: ControlPlane, tmp_path: Path, values: Path, version: str
) -> None:
    """With an authority and a pair where the notes have them put."""
    (tmp_path / "ca.crt").write_bytes(Authority(tmp_path, "other").file.read_bytes())
    Authority(tmp_path).issue("tls", common_name="scheduler")
    config = delegated(notes_of(plane, values))
    text = yaml.safe_dump(config).replace(IN_NOTES, str(tmp_path))
    with plane.start_scheduler(yaml.safe_load(text), version) as scheduler:
        assert scheduler.process.alive


@pytest.mark.parametrize("values", EVERY, ids=lambda it: it.stem)
def test_both_configurations_agree(plane: ControlPlane, values: Path, tmp_path: Path) -> None:
    found = rendered_once(values)
    settings = settings_of(found, tmp_path)
    text = files(found).get("kube-scheduler.yaml")
    config = yaml.safe_load(text) if text is not None else delegated(notes_of(plane, values))
    (extender,) = config["extenders"]
    weight = settings_of_values(values, "extender", "weight", 2)
    delegated_spread = any(_disabled(it, "PodTopologySpread") for it in config["profiles"])

    assert [it.scheduler_name for it in settings.profiles] == [it["schedulerName"] for it in config["profiles"]]
    assert settings.http_timeout == float(extender["httpTimeout"].removesuffix("s"))
    assert weight * 10 == extender["weight"] * settings.max_priority
    assert str(settings.port) == extender["urlPrefix"].removesuffix("/lean").rpartition(":")[2]
    assert not extender["ignorable"]
    assert extender["nodeCacheCapable"]
    assert all(delegated_spread == _disabled(it, "PodTopologySpread") for it in config["profiles"])
    for it in resolve(settings.profiles, Registry(IN_TREE, DEFAULT_WEIGHTS)):
        assert delegated_spread == ("PodTopologySpread" in it.specs)


@pytest.mark.parametrize("values", SERVICE, ids=lambda it: it.stem)
def test_a_caller_over_a_network_checks_who_answers_and_says_who_calls(
    plane: ControlPlane, values: Path, tmp_path: Path
) -> None:
    """Without a `caFile` kube-scheduler would check nothing."""
    settings = settings_of(rendered_once(values), tmp_path)
    (extender,) = delegated(notes_of(plane, values))["extenders"]
    tls = extender["tlsConfig"]

    assert extender["urlPrefix"].startswith("https://")
    assert extender["enableHTTPS"] is True
    assert {"caFile", "certFile", "keyFile", "serverName"} == tls.keys()
    if settings.self_signed is not None:
        assert tls["serverName"] in settings.self_signed.dns_names
        assert (settings.self_signed.client_name,) == settings.allowed_names


def test_homes_for_one_namespace_as_they_are_documented(tmp_path: Path) -> None:
    """With the right to read the labels of namespaces, and without it where nothing asks for them."""
    (example,) = re.findall(r"```yaml\n(pluginConfig:.*?)```", (ROOT / "docs" / "homes.md").read_text(), re.DOTALL)
    (documented,) = yaml.safe_load(example)["pluginConfig"]
    found = rendered({"plugins": {"stickyNode": {"args": documented["args"]}}})
    args = sticky_node(settings_of(found, tmp_path))

    assert (Policy.OFF, Policy.GRACE) == (args.policy, args.namespaces[0].policy)
    assert StickyNodeArgs.model_validate(documented["args"]) == args
    assert [["get", "list", "watch"]] == verbs_of(found, "namespaces")
    assert [] == verbs_of(rendered({}), "namespaces")


@pytest.mark.parametrize(
    ("values", "guarded"),
    [
        pytest.param({}, False, id="kube-scheduler looks at all nodes"),
        pytest.param({"mode": "service"}, False, id="as the notes tell the one behind a Service to"),
        pytest.param({"kubeScheduler": {"percentageOfNodesToScore": 70}}, True, id="it takes a sample"),
        pytest.param({"config": {"samplingGuard": True, "smallestSample": 1}}, True, id="behind another extender"),
    ],
)
def test_the_sampling_guard_is_on_where_there_is_a_sample(values: Json, guarded: bool, tmp_path: Path) -> None:
    assert guarded == settings_of(rendered(values), tmp_path).sampling_guard


def test_what_is_given_for_homes_is_what_homeport_reads(tmp_path: Path) -> None:
    """Also where it is false, which templates take for nothing said."""
    through = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "resource": "replicasets"}]
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "resource": "deployments", "through": through}
    given = {"policy": "soft", "gracePeriod": "1h", "adopt": False, "followMigration": False, "maintenance": []}
    found = rendered({"plugins": {"stickyNode": {"owners": [{**owner, "policy": False}], "args": given}}})
    args = sticky_node(settings_of(found, tmp_path))

    assert (Policy.OFF, 1) == (args.owners[0].policy, len(args.owners[0].through))
    assert StickyNodeArgs.model_validate({**given, "owners": args.owners}) == args


def sticky_node(settings: Settings) -> StickyNodeArgs:
    (profile,) = resolve(settings.profiles, Registry(IN_TREE, DEFAULT_WEIGHTS))
    args = profile.args["StickyNode"]
    assert isinstance(args, StickyNodeArgs)
    return args


def verbs_of(found: list[Json], resource: str) -> list[list[str]]:
    rules = [rule for it in found if it["kind"] == "ClusterRole" for rule in it["rules"]]
    return [it["verbs"] for it in rules if resource in it["resources"]]


def test_the_example_says_what_the_chart_says() -> None:
    """But for what the chart decides by itself: who elects where, and the name that is served."""
    example = yaml.safe_load((ROOT / "examples" / "kube-scheduler" / "homeport.yaml").read_text())
    chart = yaml.safe_load(files(rendered({}))["kube-scheduler.yaml"])
    example["profiles"][0]["schedulerName"] = chart["profiles"][0]["schedulerName"]

    for key in ("percentageOfNodesToScore", "profiles", "extenders"):
        assert example[key] == chart[key], key


def test_an_address_of_ipv6_stands_in_brackets(plane: ControlPlane) -> None:
    (extender,) = delegated(notes_of(plane, {"mode": "service", "service": {"clusterIP": "2001:db8::99"}}))["extenders"]

    assert "https://[2001:db8::99]:8888/lean" == extender["urlPrefix"]
    assert "homeport.scheduling.svc" == extender["tlsConfig"]["serverName"]


def delegated(notes: str) -> dict[str, Any]:
    """The part of a KubeSchedulerConfiguration that stands in the notes, indented."""
    lines = notes.splitlines()
    start = next(number for number, it in enumerate(lines) if it.strip().startswith("percentageOfNodesToScore:"))
    block = []
    for it in lines[start:]:
        if not it.strip():
            break
        block.append(it.removeprefix("   "))
    found: dict[str, Any] = yaml.safe_load("\n".join(block))
    return found


def settings_of_values(values: Path, group: str, name: str, default: int) -> int:
    return int((yaml.safe_load(values.read_text()) or {}).get(group, {}).get(name, default))


def _gates(found: tuple[Json, ...]) -> list[str]:
    arguments = containers(pod_of(found))["kube-scheduler"]["args"]
    return [it for it in arguments if it.startswith("--feature-gates")]


def _disabled(profile: Json, plugin: str) -> bool:
    disabled = profile.get("plugins", {}).get("multiPoint", {}).get("disabled", ())
    return any(it["name"] == plugin for it in disabled)


def _is_namespaced(thing: Json) -> bool:
    return "namespace" in thing["metadata"]
