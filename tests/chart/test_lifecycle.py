"""Releases on a real API server: installed, upgraded, rolled back and taken away by both majors of Helm."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.chart.cluster import Cluster
from tests.chart.rendering import ALLOW_LOCAL, CHART, CI_VALUES, HELMS, RELEASES, RefusedError, rendered_once, run_helm
from tests.controlplane.client import Json
from tests.controlplane.controlplane import ControlPlane

NAMESPACE: Final = "lifecycle"
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
LASTING: Final = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
"""What a namespace has by itself."""

FORMER_DEFAULTS: Final = Path(__file__).parent / "releases" / "0.1.0-defaults.yaml"
"""As they were before there were arguments of homes, and lots of names."""

HOLDER: Final = {"holderIdentity": "homeport-5d4f", "leaseDurationSeconds": 15}


class Release:
    """One release in a namespace of its own, by one major of Helm."""

    def __init__(self, plane: ControlPlane, cluster: Cluster, helm: str) -> None:
        self.cluster = cluster
        self._helm = helm
        self._environment = {"KUBECONFIG": str(plane.kubeconfig)}

    def install(self, values: Path) -> None:
        self.run("install", "homeport", str(CHART), f"--values={values}", *ALLOW_LOCAL)

    def upgrade(self, values: Path, *flags: str) -> None:
        self.run("upgrade", "homeport", str(CHART), f"--values={values}", *flags)

    def uninstall(self) -> None:
        self.run("uninstall", "homeport")

    def run(self, *arguments: str) -> str:
        return run_helm(self._helm, *arguments, f"--namespace={NAMESPACE}", environment=self._environment)

    def objects(self) -> list[Json]:
        """All that is in its manifest, as it is stored."""
        manifest = yaml.safe_load_all(self.run("get", "manifest", "homeport"))
        found = [self.cluster.find(it) for it in manifest if it]
        assert None not in found
        return [it for it in found if it is not None]

    def versions(self) -> Mapping[tuple[str, str], tuple[str, int | None]]:
        """What changes with any write to an object, and with one that makes new pods."""
        return {
            (it["kind"], it["metadata"]["name"]): (it["metadata"]["resourceVersion"], it["metadata"].get("generation"))
            for it in self.objects()
        }

    def object(self, kind: str, name: str) -> Json:
        (found,) = [it for it in self.objects() if (it["kind"], it["metadata"]["name"]) == (kind, name)]
        return found

    def left(self) -> set[tuple[str, str]]:
        """But for Events: the API server writes some of its own, as when it looks after the addresses of Services."""
        found = set(self.cluster.everything(NAMESPACE)) - LASTING
        return {(kind, name) for kind, name in found if kind != "Event"}


@pytest.fixture(params=HELMS)
def release(request: pytest.FixtureRequest, plane: ControlPlane, cluster: Cluster) -> Iterator[Release]:
    cluster.make_namespace(NAMESPACE)
    found = Release(plane, cluster, request.param)
    yield found
    if found.left():
        found.uninstall()


def lived_in(release: Release) -> None:
    """What Homeport and kube-scheduler write once they run: certificates, and who leads."""
    encoded = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()
    for it in release.objects():
        if it["kind"] == "Secret":
            release.cluster.replace({**it, "data": {"ca.crt": encoded, "tls.crt": encoded}})
        if it["kind"] == "Lease":
            release.cluster.replace({**it, "spec": HOLDER})


def values_in(folder: Path, **values: Any) -> Path:
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize("mode", ["scheduler", "service"])
def test_a_second_upgrade_changes_nothing(release: Release, tmp_path: Path, mode: str) -> None:
    """The authority is what every certificate rests on: neither an upgrade nor a rendering may take it away."""
    values = values_in(tmp_path, mode=mode)
    release.install(values)
    lived_in(release)
    before = release.versions()
    release.upgrade(values)
    release.upgrade(values)

    assert before == release.versions()
    assert {"Secret", "Lease"} <= {kind for kind, _ in before}
    assert all(it["data"] for it in release.objects() if it["kind"] == "Secret")
    assert all(it["spec"] == HOLDER for it in release.objects() if it["kind"] == "Lease")


def test_a_changed_setting_starts_the_pods_anew_and_a_rollback_as_well(release: Release, tmp_path: Path) -> None:
    release.install(values_in(tmp_path))
    lived_in(release)
    first = release.object("Deployment", "homeport")
    authority = release.object("Secret", "homeport-authority")
    release.upgrade(values_in(tmp_path, config={"logLevel": "debug"}))
    second = release.object("Deployment", "homeport")
    release.run("rollback", "homeport")
    third = release.object("Deployment", "homeport")

    assert [1, 2, 3] == [it["metadata"]["generation"] for it in (first, second, third)]
    assert first["spec"] == third["spec"]
    assert authority == release.object("Secret", "homeport-authority")


@pytest.mark.parametrize("values", [*CI_VALUES, *RELEASES], ids=lambda it: it.stem)
def test_nothing_is_left_of_a_release(release: Release, values: Path) -> None:
    rendered = [it for it in rendered_once(values) if it["kind"] != "Pod"]
    for it in rendered:
        if "namespace" in it["metadata"]:
            release.cluster.make_namespace(it["metadata"]["namespace"])
    release.install(values)
    lived_in(release)
    objects = release.objects()
    release.uninstall()

    assert len(objects) == len(rendered)
    assert [] == [it["metadata"]["name"] for it in objects if release.cluster.find(it) is not None]
    assert set() == release.left()


def test_a_lease_that_helm_did_not_make_is_in_the_way_until_it_is_deleted(release: Release, tmp_path: Path) -> None:
    """As docs/operations/troubleshooting.md says; Homeport makes one where the chart makes none."""
    client = release.cluster.plane.client
    metadata = {"name": "homeport", "namespace": NAMESPACE}
    client.request("POST", LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata})
    try:
        with pytest.raises(RefusedError, match="invalid ownership metadata"):
            release.install(values_in(tmp_path))
        release.install(values_in(tmp_path, leases={"create": False}))
        release.uninstall()
        assert ("Lease", "homeport") in release.left()
    finally:
        client.request("DELETE", f"{LEASES}/homeport")
    release.install(values_in(tmp_path))
    release.uninstall()

    assert set() == release.left()


@pytest.mark.parametrize("values", RELEASES, ids=lambda it: it.stem)
@pytest.mark.parametrize("flag", ["--reset-values", "--reuse-values", "--reset-then-reuse-values"])
def test_an_upgrade_from_the_values_of_a_former_release(
    release: Release, tmp_path: Path, values: Path, flag: str
) -> None:
    """With the values of before, or with none but those of now; the authority stays in each case."""
    release.install(values)
    lived_in(release)
    kept = {it["metadata"]["name"]: it["data"] for it in release.objects() if it["kind"] == "Secret"}
    release.upgrade(values_in(tmp_path, commonLabels={"upgraded": "yes"}), flag)

    assert kept == {it["metadata"]["name"]: it["data"] for it in release.objects() if it["kind"] == "Secret"}
    assert all(it["metadata"]["labels"]["upgraded"] == "yes" for it in release.objects())


def test_an_upgrade_from_the_defaults_of_a_former_chart(release: Release, tmp_path: Path) -> None:
    """Helm takes them over, too: to --reuse-values nothing is new."""
    former = shutil.copytree(CHART, tmp_path / "former")
    shutil.copy(FORMER_DEFAULTS, former / "values.yaml")
    release.run("install", "homeport", str(former), *ALLOW_LOCAL)
    assert "args" not in yaml.safe_load(release.run("get", "values", "homeport", "--all"))["plugins"]["stickyNode"]
    lived_in(release)
    before = release.versions()

    release.run("upgrade", "homeport", str(CHART), "--reuse-values")
    assert before == release.versions()
    release.run("upgrade", "homeport", str(CHART), "--reuse-values", "--set=plugins.stickyNode.args.policy=hard")
    (held,) = [it["data"]["homeport.yaml"] for it in release.objects() if "homeport.yaml" in it.get("data", {})]
    (config,) = yaml.safe_load(held)["profiles"][0]["pluginConfig"]
    assert ("StickyNode", "hard") == (config["name"], config["args"]["policy"])


def test_one_goes_over_from_certificates_to_others_and_from_mode_to_mode(release: Release, tmp_path: Path) -> None:
    """Secrets that cert-manager has made outlive their Certificates; nothing of this chart has their names."""
    manager = {"source": "certManager"}
    release.install(values_in(tmp_path))
    for mode in ("scheduler", "service"):
        release.upgrade(values_in(tmp_path, mode=mode, certificates=manager))
        made = [it["spec"]["secretName"] for it in release.objects() if it["kind"] == "Certificate"]
        for name in {*made} - {name for kind, name in release.left() if kind == "Secret"}:
            metadata = {"name": name, "namespace": NAMESPACE}
            release.cluster.plane.client.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
        release.upgrade(values_in(tmp_path, mode=mode))

    assert {"homeport-ca", "homeport-tls", "homeport-client-tls"} == {
        name for kind, name in release.left() if kind == "Secret" and not name.startswith("sh.helm.release")
    } - {"homeport-authority", "homeport-client"}
    for name in ("homeport-ca", "homeport-tls", "homeport-client-tls"):
        release.cluster.plane.client.delete("Secret", name, NAMESPACE)
