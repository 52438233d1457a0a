"""``kubectl homeport`` from outside of the cluster: through the API server's proxy, or a port-forward.

Nothing here enforces a NetworkPolicy: tests/chart is about what the policy says, and here it is asserted that it names
the address from which this API server connects.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.namespaces import BRIDGE_ADDRESS
from tests.cluster.release import Release
from tests.controlplane import binaries, objects

NAME = "homeport-pages"
SERVICE = f"{NAME}-operator"
READER = "reader"
WAITING = "waits-for-a-disk"
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


def kubectl_homeport(cluster: Cluster, *arguments: str) -> Run:
    """kubectl runs the plugin that it finds in PATH, as a user's does."""
    kubectl = binaries.binary("kubectl")
    path = os.pathsep.join((str(Path(sys.executable).parent), str(kubectl.parent), os.environ["PATH"]))
    environment = {**cluster.environment(), "PATH": path}
    command = [str(kubectl), "homeport", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_pod_is_explained_through_the_api_server(cluster: Cluster, release: Release) -> None:
    run = kubectl_homeport(cluster, "explain", WAITING)

    assert (1, f"homeport: the answer comes from Service {NAME}/{SERVICE}\n") == (run.returncode, run.stderr)
    assert run.stdout.startswith(f"default/{WAITING}: ")
    assert "NodeAffinity" in run.stdout


def test_pods_that_wait_are_listed_through_the_api_server(cluster: Cluster, release: Release) -> None:
    run = kubectl_homeport(cluster, "pending", "-A", "-o", "name")

    assert (0, f"homeport: the answer comes from Service {NAME}/{SERVICE}\n") == (run.returncode, run.stderr)
    assert f"pod/{WAITING}" in run.stdout.splitlines()


def test_a_drain_is_posted_through_the_api_server(cluster: Cluster, release: Release) -> None:
    run = kubectl_homeport(cluster, "drain", "node-a", "-o", "json")

    assert f"homeport: the answer comes from Service {NAME}/{SERVICE}\n" == run.stderr
    assert "node-a" == json.loads(run.stdout)["node"]


def test_the_role_of_the_chart_is_enough(cluster: Cluster, release: Release) -> None:
    """And without it the same user gets no answer, neither there nor by the own list."""
    asked = ("explain", WAITING, "--as", READER, "--homeport-namespace", NAME)
    stranger = kubectl_homeport(cluster, *asked)
    binding = ("rolebinding", READER, "--namespace", NAME)
    cluster.kubectl("create", *binding, f"--role={SERVICE}", f"--user={READER}")
    reader = kubectl_homeport(cluster, *asked)
    cluster.kubectl("delete", *binding)

    assert (3, "") == (stranger.returncode, stranger.stdout)
    assert (1, f"homeport: the answer comes from Service {NAME}/{SERVICE}\n") == (reader.returncode, reader.stderr)


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
    assert run.stderr.startswith(f"homeport: the answer comes from port-forward to pod {NAME}/{NAME}-")
    assert "NodeAffinity" in run.stdout


def _route_to(address: str) -> str:
    """What the kernel of the API server's network says about packets to an address."""
    return subprocess.run(["ip", "-json", "route", "get", address], check=True, capture_output=True, text=True).stdout
