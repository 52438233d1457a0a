"""``kubectl homeport`` from outside of the cluster: through the API server's proxy, or a port-forward.

Nothing here enforces a NetworkPolicy: tests/chart is about what the policy says, and here it is asserted that it names
the address from which this API server connects.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import krew
from tests.cluster.cluster import Cluster
from tests.cluster.namespaces import BRIDGE_ADDRESS
from tests.cluster.release import Release
from tests.controlplane import binaries, objects

NAME = "homeport-pages"
SERVICE = f"{NAME}-operator"
READER = "reader"
WAITING = "waits-for-a-disk"
FROM = f"homeport: the answer comes from Service {NAME}/{SERVICE}"
Run = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module", params=["scheduler", "service"])
def release(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Release]:
    """With the operator Service, in each mode, and a pod for which no node fits."""
    of_mode = (f"--set=mode={request.param}", f"--set=schedulerName={NAME}", "--set=config.explain=complete")
    service = ("--set=operatorService.enabled=true", f"--set=operatorService.apiServerCIDRs={{{BRIDGE_ADDRESS}/32}}")
    with Release(cluster, NAME, *of_mode, *service) as installed:
        cluster.apply(objects.pod(WAITING, scheduler_name=NAME, node_selector={"disk": "fast"}))
        yield installed
        cluster.kubectl("delete", "pod", WAITING, "--grace-period=0", "--force")


def environment(cluster: Cluster) -> dict[str, str]:
    """With kubectl and its plugin in PATH, as a user has them."""
    folders = (str(Path(sys.executable).parent), str(binaries.binary("kubectl").parent))
    return {**cluster.environment(), "PATH": os.pathsep.join((*folders, os.environ["PATH"]))}


def kubectl_homeport(cluster: Cluster, *arguments: str) -> Run:
    """kubectl runs the plugin that it finds in PATH."""
    command = [str(binaries.binary("kubectl")), "homeport", *arguments]
    return subprocess.run(command, env=environment(cluster), capture_output=True, text=True, check=False)


def test_a_pod_is_explained_through_the_api_server(cluster: Cluster, release: Release) -> None:
    run = kubectl_homeport(cluster, "explain", WAITING)

    assert (1, True) == (run.returncode, run.stderr.startswith(FROM))
    assert run.stdout.startswith(f"default/{WAITING}: ")
    assert "NodeAffinity" in run.stdout


def test_pods_that_wait_are_listed_through_the_api_server(cluster: Cluster, release: Release) -> None:
    run = kubectl_homeport(cluster, "pending", "-A", "-o", "name")

    assert (0, True) == (run.returncode, run.stderr.startswith(FROM))
    assert f"pod/{WAITING}" in run.stdout.splitlines()


def test_a_drain_is_posted_through_the_api_server(cluster: Cluster, release: Release) -> None:
    run = kubectl_homeport(cluster, "drain", "node-a", "-o", "json")

    assert run.stderr.startswith(FROM)
    assert "node-a" == json.loads(run.stdout)["items"][0]["node"]


def test_the_page_comes_through_the_api_server(cluster: Cluster, release: Release) -> None:
    """With its modules, and the JSON that they read by URLs relative to the page."""
    service = json.loads(cluster.kubectl("get", "service", SERVICE, "--namespace", NAME, "--output=json"))
    (port,) = service["spec"]["ports"]
    scheme = "https" if port.get("appProtocol") == "https" or port["name"] == "https" else "http"
    proxy = f"/api/v1/namespaces/{NAME}/services/{scheme}:{SERVICE}:{port['name']}/proxy"

    def read(path: str) -> str:
        return cluster.kubectl("get", "--raw", f"{proxy}{path}")

    page = read("/ui/")
    files = re.findall(r'(?:src|href)="([^"#]+)"', page)
    overview, nodes = json.loads(read("/api/v1/overview")), json.loads(read("/api/v1/nodes"))

    assert {"main.js", "style.css", "icon.svg"} == set(files)
    assert [True] * 3 == [bool(read(f"/ui/{it}")) for it in files]
    assert WAITING in json.dumps(overview)
    assert "node-a" in json.dumps(nodes)
    assert "node-a" in read("/api/v1/drain?node=node-a")


def test_the_plugin_for_krew_prints_the_same(cluster: Cluster, release: Release, tmp_path: Path) -> None:
    """With the kubectl of this cluster: what it sends as a body, and what it makes of an error."""
    krew.build(tmp_path, krew.URL)
    with tarfile.open(tmp_path / krew.archive_name()) as archive:
        archive.extract(krew.PROGRAM, tmp_path, filter="data")

    def plugin(*arguments: str) -> Run:
        command = [str(tmp_path / krew.PROGRAM), *arguments]
        return subprocess.run(command, env=environment(cluster), capture_output=True, text=True, check=False)

    for asked in (
        ("explain", WAITING),
        ("homes", "-A", "-o", "json"),
        ("drain", "node-a"),
        ("drain", "node-b", "-o", "name"),
    ):
        both = plugin(*asked), kubectl_homeport(cluster, *asked)
        assert 1 == len({(it.returncode, it.stdout) for it in both}), both
        assert [(True, True)] * 2 == [("homeport: " in it.stderr, SERVICE in it.stderr) for it in both]
    missing = plugin("explain", "nothing", "-q"), kubectl_homeport(cluster, "explain", "nothing", "-q")
    assert [3, 3] == [it.returncode for it in missing]
    assert missing[0].stderr == missing[1].stderr


def test_the_role_of_the_chart_is_enough(cluster: Cluster, release: Release) -> None:
    """And without it the same user gets no answer, neither there nor by the own list."""
    asked = ("explain", WAITING, "--as", READER, "--homeport-namespace", NAME)
    stranger = kubectl_homeport(cluster, *asked)
    binding = ("rolebinding", READER, "--namespace", NAME)
    cluster.kubectl("create", *binding, f"--role={SERVICE}", f"--user={READER}")
    reader = kubectl_homeport(cluster, *asked)
    cluster.kubectl("delete", *binding)

    assert (3, "") == (stranger.returncode, stranger.stdout)
    assert (1, True) == (reader.returncode, reader.stderr.startswith(FROM))


def test_the_policy_admits_the_address_of_the_api_server(cluster: Cluster, release: Release) -> None:
    """The peer of the connections that the API server's proxy opens to the Service, as a pod sees them."""
    policy = json.loads(cluster.kubectl("get", "networkpolicy", SERVICE, "--namespace", NAME, "--output=json"))
    (rule, _) = policy["spec"]["ingress"]
    addresses = {pod["status"]["podIP"] for pod in release.pods()}
    routes = {json.loads(_route_to(address))[0]["prefsrc"] for address in addresses}

    assert {f"{it}/32" for it in routes} == {it["ipBlock"]["cidr"] for it in rule["from"]}
    assert [{"port": 8889, "protocol": "TCP"}] == rule["ports"]


def test_without_the_service_a_port_is_forwarded(cluster: Cluster, release: Release) -> None:
    """Over loopback in the pod, where pages are open to whoever may forward a port to it."""
    release.upgrade("--set=operatorService.enabled=false")
    release.wait_ready()
    run = kubectl_homeport(cluster, "explain", WAITING)

    assert 1 == run.returncode
    assert ("port-forward" in run.stderr, f"pod {NAME}/{NAME}-" in run.stderr) == (True, True)
    assert "NodeAffinity" in run.stdout


def _route_to(address: str) -> str:
    """What the kernel of the API server's network says about packets to an address."""
    return subprocess.run(["ip", "-json", "route", "get", address], check=True, capture_output=True, text=True).stdout
