"""What docs/install.md has people put on a control plane node: taken by the API server, and enough to run on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from app.config.loading import load_settings
from tests.controlplane.controlplane import ControlPlane
from tests.controlplane.processes import free_port
from tests.integration.roles import Account, apply
from tests.integration.service import Homeport
from tests.integration.test_tls_stories import LEASE

FOLDER: Final = Path(__file__).parents[2] / "examples" / "kubeadm"
POD: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "homeport-pod.yaml").read_text())
CONFIG: Final = FOLDER / "homeport.yaml"
GUIDE: Final = (FOLDER.parents[1] / "docs" / "install.md").read_text()
LEASES: Final = LEASE.replace("/default/", "/kube-system/")
SECRET: Final = "homeport-authority"


def test_the_pod_is_a_pod_and_asks_where_the_configuration_listens(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    settings = load_settings({}, config=str(CONFIG))
    (container,) = POD["spec"]["containers"]

    path = "/api/v1/namespaces/kube-system/pods?dryRun=All&fieldValidation=Strict"
    taken = plane.client.request("POST", path, POD)

    assert "homeport" == taken["metadata"]["name"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert (settings.operator_host, settings.operator_port) == (asked["host"], asked["port"])
    assert "10.0.0.7:8890" == settings.advertised
    assert settings.kubeconfig is not None
    assert str(Path(settings.kubeconfig).parent) == container["volumeMounts"][0]["mountPath"]


def test_kube_scheduler_is_alive_as_long_as_the_homeport_of_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    settings = load_settings({}, config=str(CONFIG))
    patch = yaml.safe_load((FOLDER / "patches" / "kube-scheduler+strategic.yaml").read_text())

    ((container,), asked) = patch["spec"]["containers"], POD["spec"]["containers"][0]["livenessProbe"]["httpGet"]
    probe = container["livenessProbe"]
    assert "kube-scheduler" == container["name"]
    assert {**asked, "scheme": "HTTP"} == probe["httpGet"]
    assert settings.operator_tls is False
    assert probe["periodSeconds"] * probe["failureThreshold"] <= 15


def test_kubeadm_mounts_the_configuration_that_it_names() -> None:
    """Tried with kubeadm 1.36: it takes both parts, and the patch of the folder."""
    cluster, once = yaml.safe_load_all((FOLDER / "cluster-configuration.yaml").read_text())
    (argument,), (volume,) = cluster["scheduler"]["extraArgs"], cluster["scheduler"]["extraVolumes"]

    assert ["kubeadm.k8s.io/v1beta4"] * 2 == [cluster["apiVersion"], once["apiVersion"]]
    assert ["ClusterConfiguration", "InitConfiguration"] == [cluster["kind"], once["kind"]]
    assert ("config", argument["value"], argument["value"]) == (
        argument["name"],
        volume["mountPath"],
        volume["hostPath"],
    )
    for path in (argument["value"], once["patches"]["directory"]):
        assert path in GUIDE


def test_the_api_server_takes_the_flow_schemas_of_the_user(plane: ControlPlane) -> None:
    path = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas?dryRun=All&fieldValidation=Strict"
    schemas = list(yaml.safe_load_all((FOLDER / "flowschemas.yaml").read_text()))
    taken = [plane.client.request("POST", path, it)["spec"] for it in schemas]
    leases, rest = taken

    assert "--client-name homeport " in GUIDE
    assert "--user homeport " in GUIDE
    for it in taken:
        assert [{"kind": "User", "user": {"name": "homeport"}}] == it["rules"][0]["subjects"]
    assert ["leader-election", "workload-high"] == [it["priorityLevelConfiguration"]["name"] for it in taken]
    assert ["kube-system"] == leases["rules"][0]["resourceRules"][0]["namespaces"]
    assert leases["matchingPrecedence"] < rest["matchingPrecedence"]


def test_a_user_with_the_printed_rights_is_enough(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration as it is, but for ports and the path of the kubeconfig."""
    monkeypatch.setenv("POD_IP", "127.0.0.1")
    account = Account(plane, "static-homeport")
    user = f"system:serviceaccount:default:{account.name}"
    command = [sys.executable, "-m", "homeport", "rbac", f"--config={CONFIG}", f"--user={user}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    apply(plane.client, list(yaml.safe_load_all(done.stdout)))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": "kube-system"}}
    plane.client.create(secret)
    flags = [f"--config={CONFIG}", f"--peer-port={free_port()}", "--peer-host=127.0.0.1"]
    try:
        with Homeport(account.kubeconfig, tmp_path, flags, pages=free_port(), plain=True) as homeport:
            plane.client.wait_for(lambda: homeport.get("/api/v1/status")["leader"]["here"], 60, "it to lead")
            assert set(plane.client.get("Secret", SECRET, "kube-system")["data"]) == {"ca.crt", "ca.key"}
    finally:
        plane.client.delete("Secret", SECRET, "kube-system")
        if plane.client.find("Lease", "homeport", "kube-system") is not None:
            plane.client.request("DELETE", LEASES)
