"""Both configurations that the chart writes are read by those they are for, and say the same of what they share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.config.loading import load_settings
from app.config.settings import Settings
from app.homes.protocol import Policy
from app.runtime.registry import Registry
from app.runtime.resolving import resolve
from plugins import DEFAULT_WEIGHTS, SHIPPED
from plugins.sticky_node.args import StickyNodeArgs
from tests.certificates import Authority
from tests.chart.cluster import Cluster
from tests.chart.notes import notes_of
from tests.chart.rendering import CI_VALUES, RELEASES, ROOT, containers, files, pod_of, rendered, rendered_once
from tests.conformance.live.prioritize import DEFAULT_WEIGHTS as DEFAULT_SCORES
from tests.controlplane.binaries import RELEASES as KUBERNETES
from tests.controlplane.client import Json
from tests.controlplane.controlplane import ControlPlane, Scheduler

EVERY: Final = [*CI_VALUES, *RELEASES]
LEASES: Final = "leases"
"""Where these schedulers elect: not where other tests make the chart's own Leases."""

IN_NOTES: Final = "/etc/kubernetes/homeport"
FACTOR: Final = 5
"""Of all score weights in mode `scheduler`."""

BY_DEFAULT: Final = {"VolumeBinding": 5} | {name: FACTOR * weight for name, weight in DEFAULT_SCORES.items()}
"""VolumeBinding scores behind a feature gate, with weight 1."""


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
    resolve(settings.profiles, Registry(SHIPPED, DEFAULT_WEIGHTS))

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


@pytest.mark.parametrize(
    ("mode", "cluster", "tag", "release"),
    [
        ("scheduler", "v1.36.3", "", "1.36"),
        ("scheduler", "v1.34.1-eks-1", "", "1.35"),
        ("scheduler", "v1.36.3", "v1.35.4", "1.35"),
        ("scheduler", "v1.35.4", "v1.36.3", "1.36"),
        ("scheduler", "v1.35.4", "newest", "1.36"),
        ("service", "v1.35.4", "v1.36.3", "1.35"),
        ("service", "v1.37.0", "", "1.36"),
    ],
)
def test_the_plugins_have_the_release_of_the_kube_scheduler_that_calls(
    tmp_path: Path, mode: str, cluster: str, tag: str, release: str
) -> None:
    found = rendered({"mode": mode, "kubeScheduler": {"image": {"tag": tag}}}, cluster=cluster)

    assert [release] == [it.release for it in settings_of(found, tmp_path).profiles]


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
    own = of_values(values, "kubeScheduler", "plugins", {})
    config["profiles"].append({"schedulerName": "stock", "plugins": own})
    with plane.start_scheduler(config, version, _gates(found)) as scheduler:
        assert scheduler.process.alive
        in_effect = {it["schedulerName"]: _weights(it) for it in _profiles_in_effect(scheduler)}
    stock = in_effect.pop("stock")
    delegated_spread = {"PodTopologySpread"} if _disabled(config["profiles"][0], "PodTopologySpread") else set()
    for weights in in_effect.values():
        assert {it: FACTOR * stock.get(it, 1) for it in weights} == weights
        assert delegated_spread == stock.keys() - weights.keys()


@pytest.mark.parametrize(
    ("plugins", "enabled", "score"),
    [
        pytest.param({}, BY_DEFAULT, {}, id="the default profile"),
        pytest.param(
            {"multiPoint": {"disabled": [{"name": "ImageLocality"}]}},
            {name: weight for name, weight in BY_DEFAULT.items() if name != "ImageLocality"},
            {},
            id="one disabled",
        ),
        pytest.param(
            {"multiPoint": {"enabled": [{"name": "NodeAffinity", "weight": 7}, {"name": "Other"}]}},
            {**BY_DEFAULT, "NodeAffinity": 35, "Other": 5},
            {},
            id="one of another weight, and one without a weight, which is 1",
        ),
        pytest.param(
            {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeAffinity", "weight": 1}]}},
            {"NodeAffinity": 5},
            {},
            id="all disabled but one",
        ),
        pytest.param(
            {"score": {"enabled": [{"name": "NodeAffinity", "weight": 3}], "disabled": [{"name": "*"}]}},
            BY_DEFAULT,
            {"NodeAffinity": 15},
            id="score alone",
        ),
    ],
)
def test_mode_scheduler_multiplies_all_weights(plugins: Json, enabled: Json, score: Json) -> None:
    """So that the extender's least weight on a scale of 100 leaves the default balance."""
    config = yaml.safe_load(files(rendered({"kubeScheduler": {"plugins": plugins}}))["kube-scheduler.yaml"])
    (profile,) = config["profiles"]
    disabled = plugins.get("multiPoint", {}).get("disabled", [])

    assert enabled == _named(profile["plugins"]["multiPoint"])
    assert [*disabled, {"name": "PodTopologySpread"}] == profile["plugins"]["multiPoint"]["disabled"]
    assert score == _named(profile["plugins"].get("score", {}))


def test_mode_service_leaves_weights_as_they_are(plane: ControlPlane) -> None:
    plugins = {"multiPoint": {"enabled": [{"name": "NodeAffinity", "weight": 7}]}}
    config = delegated(notes_of(plane, {"mode": "service", "kubeScheduler": {"plugins": plugins}}))

    assert {"NodeAffinity": 7} == _named(config["profiles"][0]["plugins"]["multiPoint"])


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
    weight = of_values(values, "extender", "weight", 2)
    factor = FACTOR if mode_of(values) == "scheduler" else 1
    delegated_spread = any(_disabled(it, "PodTopologySpread") for it in config["profiles"])

    assert [it.scheduler_name for it in settings.profiles] == [it["schedulerName"] for it in config["profiles"]]
    assert settings.http_timeout == float(extender["httpTimeout"].removesuffix("s"))
    assert weight * 10 * factor == extender["weight"] * settings.max_priority
    assert str(settings.port) == extender["urlPrefix"].removesuffix("/lean").rpartition(":")[2]
    assert not extender["ignorable"]
    assert extender["nodeCacheCapable"]
    assert all(delegated_spread == _disabled(it, "PodTopologySpread") for it in config["profiles"])
    for it in resolve(settings.profiles, Registry(SHIPPED, DEFAULT_WEIGHTS)):
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
    (profile,) = resolve(settings.profiles, Registry(SHIPPED, DEFAULT_WEIGHTS))
    args = profile.args["StickyNode"]
    assert isinstance(args, StickyNodeArgs)
    return args


def verbs_of(found: list[Json], resource: str) -> list[list[str]]:
    rules = [rule for it in found if it["kind"] == "ClusterRole" for rule in it["rules"]]
    return [it["verbs"] for it in rules if resource in it["resources"]]


def test_the_example_says_what_the_chart_says() -> None:
    """But for what the chart decides by itself: who elects where, the name that is served, and in-tree weights."""
    example = yaml.safe_load((ROOT / "examples" / "kube-scheduler" / "homeport.yaml").read_text())
    chart = yaml.safe_load(files(rendered({}))["kube-scheduler.yaml"])
    example["profiles"][0]["schedulerName"] = chart["profiles"][0]["schedulerName"]
    del chart["profiles"][0]["plugins"]["multiPoint"]["enabled"]

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


def of_values(values: Path, group: str, name: str, default: Any) -> Any:
    return (yaml.safe_load(values.read_text()) or {}).get(group, {}).get(name, default)


def _profiles_in_effect(scheduler: Scheduler) -> list[Json]:
    """Merged with kube-scheduler's defaults, as its log has them."""
    (text,) = re.findall(r'"Using component config" config=<\n(.*?)\n >\n', scheduler.log(), re.DOTALL)
    found: list[Json] = yaml.safe_load(text.replace("\t", ""))["profiles"]
    return found


def _weights(profile: Json) -> dict[str, int]:
    """Those that are said, by plugin; `score` takes precedence."""
    plugins = profile["plugins"]
    named = {**_named(plugins["multiPoint"]), **_named(plugins["score"])}
    return {name: weight for name, weight in named.items() if weight}


def _named(point: Json) -> Json:
    """The weights of the plugins enabled at an extension point; 0 where none is said."""
    return {it["name"]: it.get("weight", 0) for it in point.get("enabled", ())}


def _gates(found: tuple[Json, ...]) -> list[str]:
    arguments = containers(pod_of(found))["kube-scheduler"]["args"]
    return [it for it in arguments if it.startswith("--feature-gates")]


def _disabled(profile: Json, plugin: str) -> bool:
    disabled = profile.get("plugins", {}).get("multiPoint", {}).get("disabled", ())
    return any(it["name"] == plugin for it in disabled)


def _is_namespaced(thing: Json) -> bool:
    return "namespace" in thing["metadata"]
