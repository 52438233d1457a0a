"""Mode `service`: a stock kube-scheduler on a node calls Homeport through the Service, with certificates on both sides.

It is configured with what `helm get notes` prints, word for word.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.cluster import Cluster
from tests.cluster.figures import FIGURES
from tests.cluster.release import Release
from tests.cluster.stream import streaming
from tests.controlplane import binaries
from tests.controlplane.processes import Process

ADDRESS = "10.77.8.88"
FILES_IN_NOTES = "/etc/kubernetes/homeport"
NAME = "homeport-service"


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[Release]:
    """Behind an address that is known before, as a scheduler on the host network needs it."""
    with Release(cluster, NAME, "--set=mode=service", f"--set=service.clusterIP={ADDRESS}") as installed:
        yield installed


def noted(release: Release) -> dict[str, Any]:
    """The part of a KubeSchedulerConfiguration that the notes of the release print."""
    notes = release.cluster.helm("get", "notes", release.name, "--namespace", release.namespace)
    _, _, rest = notes.partition("3. Add this to the KubeSchedulerConfiguration of your kube-scheduler:")
    found: dict[str, Any] = yaml.safe_load(rest.partition("Never leave out")[0])
    return found


def write_pair(release: Release, folder: Path) -> None:
    """What the notes tell one to copy, key before certificate as a kubelet never would."""
    secret = release.cluster.client.get("Secret", f"{release.name}-client", release.namespace)
    for name in ("ca.crt", "tls.key", "tls.crt"):
        (folder / name).write_bytes(base64.b64decode(secret["data"][name]))


@contextmanager
def scheduler(release: Release, kubernetes: str) -> Iterator[Path]:
    """A kube-scheduler of this version on node-a; yields the folder with its authority and pair."""
    cluster = release.cluster
    folder = cluster.folder / f"scheduler-{kubernetes}"
    folder.mkdir()
    write_pair(release, folder)
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    own = {"clientConnection": {"kubeconfig": str(cluster.kubeconfig)}, "leaderElection": {"leaderElect": False}}
    text = json.dumps({**head, **own, **noted(release)}).replace(FILES_IN_NOTES, str(folder))
    (folder / "configuration.yaml").write_text(text)
    running: Process = cluster.nodes["node-a"].start(
        f"kube-scheduler-{kubernetes}",
        binaries.binary("kube-scheduler", kubernetes),
        f"--config={folder / 'configuration.yaml'}",
        f"--cert-dir={folder}",
        "--v=2",
    )
    try:
        yield folder
    finally:
        running.stop()


@pytest.mark.parametrize("kubernetes", ["1.36.3", "1.35.4"])
def test_it_is_called_through_the_service_and_certificates_change_on_the_way(
    cluster: Cluster, release: Release, kubernetes: str
) -> None:
    """Both replicas are restarted with the client's pair taken away: new ones on both sides, and no pod is lost."""
    secret = f"{release.name}-client"
    before = cluster.client.get("Secret", secret, release.namespace)["data"]
    with (
        scheduler(release, kubernetes) as folder,
        streaming(cluster, f"service-{kubernetes}".replace(".", "-")) as (stream, nodes),
    ):
        cluster.client.patch("Secret", secret, {"data": None}, release.namespace)
        cluster.kubectl("rollout", "restart", f"deployment/{release.name}", "--namespace", release.namespace)
        release.wait_ready()
        cluster.client.wait_for(
            lambda: cluster.client.get("Secret", secret, release.namespace).get("data"), what="a new pair", timeout=90
        )
        write_pair(release, folder)
        stream.until_bound(60)
        outcome = stream.finish()
        after = cluster.client.get("Secret", secret, release.namespace)["data"]

    FIGURES.seconds(f"service, {kubernetes}, certificates rotated: nothing was scheduled for", outcome.standstill)
    assert ([], []) == (outcome.lost, outcome.twice)
    assert outcome.skew(nodes.zones) <= 1
    assert before["ca.crt"] == after["ca.crt"]
    assert before["tls.crt"] != after["tls.crt"]


def test_without_a_certificate_nobody_is_answered(cluster: Cluster, release: Release) -> None:
    """A pod on the network is told why, and no more; probes and metrics are open on a listener of their own."""
    curl = (
        "import json, ssl, urllib.request as r; "
        "c = ssl._create_unverified_context(); "
        f"q = r.Request('https://{ADDRESS}:8888/bind', b'{{}}', {{'Content-Type': 'application/json'}}); "
        "print(json.loads(r.urlopen(q, context=c).read()))"
    )
    (pod, _) = [it["metadata"]["name"] for it in release.pods()]

    told = cluster.kubectl("exec", pod, "--namespace", release.namespace, "--", "python", "-c", curl)

    assert "client certificate" in told
