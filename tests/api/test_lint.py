"""``homeport lint`` as a command: folders, standard input, saved and live clusters, exit codes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.__main__ import main
from app.feeds import listing
from tests.api.service import SAMPLE
from tests.apiserver import SERVED, ApiServer, Resource, client_of, kubeconfig
from tests.builders import ZONE, JsonObject, constraint, node_object
from tests.unit.app.lint.examples import workload

KINDS: Final = (
    *SERVED,
    Resource("apps/v1", "Deployment", "deployments"),
    Resource("apps/v1", "DaemonSet", "daemonsets"),
    Resource("batch/v1", "Job", "jobs"),
    Resource("batch/v1", "CronJob", "cronjobs"),
    Resource("v1", "ConfigMap", "configmaps"),
)
SOUND: Final = workload(constraint(soft=True, app="web"))
WRONG: Final = workload(constraint(soft=True, app="wep"))
CLUSTER_RULES: Final = "unknown-key, min-domains, tainted-domains, zone-and-host, volume-zone"
PAIR_RULES: Final = (
    "homeport: skipped without a KubeSchedulerConfiguration and the HomeportConfiguration of its extender: "
    "spread-twice, spread-nowhere, costs-unwritten\n"
)
NEEDS: Final = (
    f"homeport: skipped without a cluster: {CLUSTER_RULES}\n"
    f"homeport: skipped without a cluster or a KubeSchedulerConfiguration: unknown-scheduler\n{PAIR_RULES}"
)


def ran(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main(["lint", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sound.yaml").write_text(yaml.safe_dump(SOUND))
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(WRONG))
    return tmp_path


def test_a_folder(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, out, err = ran(capsys, folder)

    message = (
        f"Deployment web: the selector of the constraint over {ZONE} does not match the pods' own labels "
        "(app is web), so the constraint does not change their scores"
    )
    assert 1 == code
    assert out.splitlines() == [
        f"{folder}/wrong.yaml:14: warning selector-mismatch: {message}",
        "    field: spec.template.spec.topologySpreadConstraints[0].labelSelector",
        "    fix:   use the labels of the pod template in the labelSelector",
    ]
    assert f"{NEEDS}homeport: objects: 2, findings: 1\n" == err


def test_no_findings(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert (0, "", f"{NEEDS}homeport: objects: 1, findings: 0\n") == ran(capsys, folder / "sound.yaml")
    assert (0, "", "") == ran(capsys, "-q", folder / "sound.yaml")


def test_a_broken_manifest_and_its_sound_and_wrong_neighbours(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "broken.yaml").write_text("kind: [")

    code, out, err = ran(capsys, "-q", "-o", "github", folder)

    assert 3 == code
    assert [f"::warning file={folder}/wrong.yaml,line=14", f"::error file={folder}/broken.yaml,line=1"] == [
        line.split(",title")[0] for line in out.splitlines()
    ]
    assert f"homeport: {folder}/broken.yaml:1: is not YAML: did not find expected node content\n" == err


def test_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = yaml.safe_dump(WRONG)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    code, out, _ = ran(capsys, "-o", "sarif", "-")

    (result,) = json.loads(out)["runs"][0]["results"]
    assert (1, "selector-mismatch") == (code, result["ruleId"])
    assert {"uri": "-"} == result["locations"][0]["physicalLocation"]["artifactLocation"]


def test_a_saved_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """The sample is a dump, so pods stand for their workloads."""
    code, out, err = ran(capsys, "-A", "--saved", SAMPLE, "-o", "json")

    told = json.loads(out)
    assert (1, 10, []) == (code, told["objects"], told["broken"])
    assert [("match-label-keys", "ReplicaSet", "shop", "web-7d4b9c", str(SAMPLE))] == [
        (it["id"], it["kind"], it["namespace"], it["name"], it["file"]) for it in told["findings"]
    ]
    assert f"{PAIR_RULES}homeport: objects: 10, findings: 1\n" == err
    assert 0 == ran(capsys, "-n", "machines", "--saved", SAMPLE)[0]


def test_manifests_beside_a_saved_cluster(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    rack = workload(constraint("example.com/rack", soft=True, app="web"))
    (folder / "rack.yaml").write_text(yaml.safe_dump(rack))

    code, out, err = ran(capsys, folder / "rack.yaml", "--saved", SAMPLE, "-o", "json")

    assert (1, ["unknown-key"]) == (code, [it["id"] for it in json.loads(out)["findings"]])
    assert PAIR_RULES == err.removesuffix("homeport: objects: 1, findings: 1\n")


def in_namespace(obj: JsonObject, namespace: str, name: str) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace, "name": name}}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    plane = ApiServer(
        node_object("n1", zone="a"),
        in_namespace(WRONG, "default", "here"),
        in_namespace(WRONG, "shop", "there"),
        served=KINDS,
    )
    monkeypatch.setattr(listing, "KubeClient", lambda _credentials: client_of(plane))
    return plane


def names(out: str) -> list[Any]:
    return [f"{it['id']} {it['namespace']}/{it['name']}" for it in json.loads(out)["findings"]]


def test_a_live_cluster(capsys: pytest.CaptureFixture[str], tmp_path: Path, api: ApiServer) -> None:
    config = ("--kubeconfig", kubeconfig(tmp_path), "-o", "json")

    code, out, _ = ran(capsys, *config)
    assert (1, ["selector-mismatch default/here"]) == (code, names(out))
    code, out, _ = ran(capsys, *config, "-n", "shop")
    assert (1, ["selector-mismatch shop/there"]) == (code, names(out))
    code, out, _ = ran(capsys, *config, "-A")
    assert (1, ["selector-mismatch default/here", "selector-mismatch shop/there"]) == (code, names(out))
    assert [] == [it for it in api.log if not it.startswith("GET")]


def test_missing_permissions(capsys: pytest.CaptureFixture[str], tmp_path: Path, api: ApiServer) -> None:
    api.down_at["/apis/apps/v1/deployments"] = 403

    code, out, err = ran(capsys, "-q", "--kubeconfig", kubeconfig(tmp_path))

    assert (3, "") == (code, out)
    assert "homeport: you have no permission to list deployments.apps in all namespaces\n" == err


HOMEPORT: Final = "apiVersion: homeport.dev/v1alpha1\nkind: HomeportConfiguration\n"
SCHEDULER: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}]
extenders: [{urlPrefix: "http://127.0.0.1:8888", filterVerb: filter, prioritizeVerb: prioritize}]
"""


def config_map(name: str, text: str) -> JsonObject:
    metadata = {"name": name, "namespace": "kube-system", "uid": name, "resourceVersion": "1"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": text}}


def test_configurations_of_a_live_cluster(capsys: pytest.CaptureFixture[str], tmp_path: Path, api: ApiServer) -> None:
    api.put(config_map("homeport", HOMEPORT))
    api.put(config_map("scheduler", SCHEDULER))
    config = ("--kubeconfig", kubeconfig(tmp_path), "-n", "kube-system")

    code, out, err = ran(capsys, *config)
    assert (1, "homeport: objects: 2, findings: 1\n") == (code, err)
    assert out.startswith("warning spread-twice: ConfigMap kube-system/scheduler: profile default-scheduler: ")

    api.down_at["/api/v1/configmaps"] = 403
    code, _, err = ran(capsys, *config)
    said = "homeport: not linted, because you have no permission to list configmaps: configurations in ConfigMaps\n"
    assert (0, f"{said}{PAIR_RULES}homeport: objects: 0, findings: 0\n") == (code, err)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--saved", ""], 2, "homeport: --saved is empty\n"),
        (["--saved", "/nowhere"], 2, "homeport: /nowhere: cannot be read: "),
        (["/nowhere.yaml"], 3, "homeport: /nowhere.yaml: cannot be read: "),
        (["-n", "a b", "x"], 2, "homeport: 'a b' cannot be the name of a namespace\n"),
        (["--kubeconfig", "/nowhere"], 3, "homeport: "),
    ],
)
def test_what_cannot_be_asked(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, told: str) -> None:
    answer = ran(capsys, "-q", *arguments)

    assert (code, "", told) == (*answer[:2], answer[2][: len(told)])


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        ran(capsys, "-o", "html")

    assert 2 == ended.value.code


def test_objects_of_a_cluster_that_cannot_be_decoded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad = in_namespace(workload(schedulerName=3), "default", "bad")
    good = in_namespace(WRONG, "default", "good")
    path = tmp_path / "saved.json"
    path.write_text(json.dumps({"kind": "List", "items": [node_object(zone="a"), bad, good]}))

    code, out, err = ran(capsys, "-q", "-A", "--saved", path, "-o", "json")

    assert (3, ["selector-mismatch default/good"]) == (code, names(out))
    assert "Deployment default/bad" in err
    assert "spec.template.spec.schedulerName: expected str, got int" in err
