"""What a person has after an installation: notes, the test of the release, alerts and the dashboard."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.certificates import Authority
from tests.chart.notes import notes_of
from tests.chart.rendering import CHART, HELMS, containers, rendered, the
from tests.controlplane.client import Json
from tests.controlplane.controlplane import ControlPlane
from tests.controlplane.processes import free_port
from tests.integration.service import Homeport

CALLER: Final = "homeport-scheduler"
ALL: Final = {it: {"enabled": True, "renderMode": "alwaysRender"} for it in ("podMonitor", "prometheusRule")}


@pytest.fixture
def called(plane: ControlPlane, tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs the test of a release of mode `service` against a Homeport, with the certificate of a caller."""
    authority = Authority(tmp_path)
    authority.issue("server", "localhost")
    flags = ["server.crt", "server.key", "ca.crt"]
    names = ("--tls-cert-file", "--tls-private-key-file", "--client-ca-file")
    secured = [f"{name}={tmp_path / file}" for name, file in zip(names, flags, strict=True)]
    pod = containers(the(rendered({"mode": "service"}), "Pod"))["homeport"]

    def call(caller: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / caller
        folder.mkdir()
        certificate, key = authority.issue(caller, common_name=caller)
        for name, file in (("ca.crt", authority.file), ("tls.crt", certificate), ("tls.key", key)):
            (folder / name).write_bytes(file.read_bytes())
        own = [*secured, f"--allowed-names={CALLER}"]
        with Homeport(plane.kubeconfig, tmp_path, own, pages=free_port()) as homeport:
            script, *_ = pod["args"]
            command = [sys.executable, *pod["command"][1:], script, str(folder), "localhost", str(homeport.port)]
            return subprocess.run(command, capture_output=True, text=True, check=False)

    return call


def test_the_test_of_a_release_passes_with_the_schedulers_certificate(
    called: Callable[[str], subprocess.CompletedProcess[str]],
) -> None:
    done = called(CALLER)

    assert (0, "") == (done.returncode, done.stderr)
    assert "200" in done.stdout


def test_the_test_of_a_release_fails_with_another(
    called: Callable[[str], subprocess.CompletedProcess[str]],
) -> None:
    done = called("somebody")

    assert 1 == done.returncode
    assert "none of the allowed names" in done.stdout


@pytest.mark.parametrize("helm", HELMS)
def test_notes_of_a_second_scheduler(plane: ControlPlane, helm: str) -> None:
    notes = notes_of(plane, {"schedulerName": "homes", "extraSchedulerNames": ["machines"]}, helm)

    assert "serve the pods of schedulerName homes, machines." in notes
    assert '{"spec":{"template":{"spec":{"schedulerName":"homes"}}}}' in notes
    assert "kubectl -n scheduling rollout status deployment/homeport" in notes
    assert "WARNING" not in notes


@pytest.mark.parametrize("helm", HELMS)
def test_notes_of_a_service(plane: ControlPlane, helm: str) -> None:
    notes = notes_of(plane, {"mode": "service", "image": {"registry": "registry.example.com"}}, helm)

    assert "https://homeport.scheduling.svc:8888" in notes
    assert "get secret homeport-client" in notes
    assert "with enableHTTPS and without an authority kube-scheduler verifies nothing" in notes
    assert "get service homeport -o jsonpath='{.spec.clusterIP}'" in notes
    assert "While no replica runs, none of them is scheduled" in notes
    assert "copy again within 8760h" in notes
    assert "WARNING" not in notes


@pytest.mark.parametrize("mode", ["scheduler", "service"])
def test_notes_say_who_reads_the_pages_where_there_is_a_service_of_them(plane: ControlPlane, mode: str) -> None:
    operator = {"enabled": True, "apiServerCIDRs": ["192.0.2.10/32"]}

    assert "bound to the role homeport-operator" in notes_of(plane, {"mode": mode, "operatorService": operator})
    assert "homeport-operator" not in notes_of(plane, {"mode": mode})


def test_files_are_copied_as_the_notes_say(plane: ControlPlane, tmp_path: Path) -> None:
    """Into a folder that need not be there, for nobody else to read; the shell goes on as it was."""
    notes = notes_of(plane, {"mode": "service"})
    folder = tmp_path / "kubernetes" / "homeport"
    copied = notes[notes.index("   mkdir ") : notes.index("   Copies do not follow")]
    copied = copied.replace("/etc/kubernetes/homeport", str(folder))
    script = f"kubectl() {{ echo pem; }}\numask 022\nset -eu\n{copied}\numask"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

    assert "0022" == done.stdout.strip()
    assert {"ca.crt": 0o600, "tls.crt": 0o600, "tls.key": 0o600} == {
        it.name: it.stat().st_mode & 0o777 for it in folder.iterdir()
    }


def test_notes_with_an_address_and_a_secret_of_ones_own(plane: ControlPlane) -> None:
    own = {"source": "existingSecret", "existingSecret": {"name": "pair"}}
    notes = notes_of(plane, {"mode": "service", "certificates": own, "service": {"clusterIP": "10.0.0.9"}})

    assert "urlPrefix: https://10.0.0.9:8888/lean" in notes
    assert "They are yours" in notes
    assert "get service" not in notes


def test_alerts_and_dashboard_are_the_files(plane: ControlPlane) -> None:
    """Braces of Prometheus and Grafana are no template of Helm."""
    found = rendered({"monitoring": {**ALL, "dashboard": {"enabled": True}}})
    alerts: Json = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    dashboard = (CHART / "files" / "dashboard.json").read_text()

    assert alerts == the(found, "PrometheusRule")["spec"]
    assert dashboard == the(found, "ConfigMap", "homeport-dashboard")["data"]["homeport.json"]
    assert json.loads(dashboard)["panels"]
