"""The chart as a user installs it: restricted, ready, its roles and nothing else, and gone without a trace."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.cluster import images
from tests.cluster.cluster import Cluster
from tests.cluster.figures import FIGURES
from tests.cluster.release import Release
from tests.controlplane import objects
from tests.integration.test_home_stories import boot, home_of, install_kubevirt, shut_down

WEB = {"app": "web"}
SHOP = "shop"


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[Release]:
    """With KubeVirt's kinds in the cluster, as a homes-keeping Homeport meets them."""
    install_kubevirt(cluster.client)
    with Release(cluster, "homeport") as installed:
        FIGURES.seconds("helm upgrade --install --wait, 2 replicas", installed.installed_in)
        yield installed


@pytest.fixture
def shop(cluster: Cluster) -> Iterator[str]:
    """A namespace for the pods of a story."""
    cluster.apply(objects.namespace(SHOP, {"pod-security.kubernetes.io/enforce": "restricted"}))
    yield SHOP
    cluster.kubectl("delete", "namespace", SHOP, "--wait")


def workload(name: str, replicas: int, scheduler_name: str = "homeport") -> dict[str, object]:
    """A Deployment that really runs, spread hard over zones."""
    container = {
        "name": "main",
        "image": images.PAUSE,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "schedulerName": scheduler_name,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": [objects.spread(WEB)],
        "containers": [container],
    }
    made = objects.deployment(name, namespace=SHOP, labels=WEB, replicas=replicas)
    made["spec"]["template"]["spec"] = spec
    return made


def test_a_deployment_runs_spread_over_the_zones(cluster: Cluster, release: Release, shop: str) -> None:
    cluster.apply(workload("web", 6))
    cluster.kubectl("rollout", "status", "deployment/web", "--namespace", shop, "--timeout=60s")

    nodes = [pod["spec"]["nodeName"] for pod in cluster.client.list("Pod", shop)]
    told = cluster.client.list("Event", shop, fields="reason=Scheduled")

    assert {"node-a": 2, "node-b": 2, "node-c": 2} == Counter(nodes)
    assert {"homeport"} == {event["reportingComponent"] for event in told}
    assert 6 == release.get(release.leader(), "/api/v1/status")["profiles"][0].get("bound", 6)


def test_a_virtual_machine_comes_home(cluster: Cluster, release: Release) -> None:
    """Its launcher runs; shut down and booted again it is on the same node, although the others are emptier."""
    client = cluster.client
    machine = client.create(objects.virtual_machine("db01"))
    try:
        first = boot(client, machine, "first", scheduler_name="homeport")
        home = client.wait_bound(first)
        client.wait_for(lambda: home_of(client, "db01") == home, what="the home to be on the machine")
        shut_down(client, "db01", first)
        client.wait_for(lambda: client.find("Pod", first) is None, what="the first launcher to be gone")
        for number in range(4):
            client.create(objects.pod(f"crowd-{number}", node_name=home))
        second = boot(client, machine, "second", scheduler_name="homeport")
        assert home == client.wait_bound(second)
    finally:
        cluster.kubectl("delete", "pods,virtualmachineinstances,virtualmachines", "--all", "--grace-period=0", "--force")


def test_it_misses_no_right_and_has_no_other(cluster: Cluster, release: Release) -> None:
    """What `homeport rbac` prints in the pod is what its account may do; what it may not, it does not miss."""
    account = f"system:serviceaccount:{release.namespace}:{release.name}"
    may = {
        what: cluster.kubectl("auth", "can-i", *what.split(), "--as", account, "--namespace", release.namespace, check=False)
        for what in ("list secrets", "create pods", "delete nodes", "get secrets/sh.helm.release.v1.homeport.v1")
    }
    ready = [release.get(pod["metadata"]["name"], "/api/v1/status") for pod in release.pods()]

    assert {what: "no" for what in may} == {what: answer.strip() for what, answer in may.items()}
    assert [[], []] == [status["permissions"]["missing"] for status in ready]


def test_the_pods_are_restricted_and_in_zones_of_their_own(cluster: Cluster, release: Release) -> None:
    """Admission enforced it; here is what a container really has: nothing to write to, no right, no new one."""
    (pod, other) = release.pods()
    script = "import os; print(os.getuid(), open('/proc/self/status').read()); open('/opt/written', 'w')"
    told = cluster.kubectl(
        "exec",
        pod["metadata"]["name"],
        "--namespace",
        release.namespace,
        "--container=homeport",
        "--",
        "python",
        "-c",
        f"try:\n {script}\nexcept OSError as error: print('errno', error.errno)",
    )

    assert pod["spec"]["nodeName"] != other["spec"]["nodeName"]
    assert told.startswith("65532 ")
    assert "CapEff:\t0000000000000000" in told
    assert "NoNewPrivs:\t1" in told
    assert "Seccomp:\t" in told
    assert told.endswith("errno 30\n")


def test_an_uninstall_leaves_nothing(cluster: Cluster) -> None:
    """Neither in its namespace nor elsewhere; Leases are made by the programs, and go with the namespace."""
    before = everything(cluster)
    with Release(cluster, "passing") as installed:
        during = everything(cluster)
        installed.uninstall()
        left = everything(cluster, installed.namespace)
    after = everything(cluster)

    assert 10 < len(during - before)
    assert {"leases.coordination.k8s.io"} >= {kind for kind, _ in left if not _of_every_namespace(kind)}
    assert set() == after - before


def everything(cluster: Cluster, namespace: str = "") -> set[tuple[str, str]]:
    """Every object of every kind that can be listed: its resource, and its namespace and name."""
    asked = ("api-resources", "--verbs=list", "--output=name", f"--namespaced={'true' if namespace else 'false'}")
    kinds = [kind for kind in cluster.kubectl(*asked).split() if not kind.startswith("events")]
    if not namespace:
        kinds += ["rolebindings.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io"]
    scope = ["--namespace", namespace] if namespace else ["--all-namespaces"]
    found = json.loads(cluster.kubectl("get", ",".join(kinds), *scope, "--ignore-not-found", "--output=json") or "{}")
    return {
        (item["kind"], f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}")
        for item in found.get("items", [])
    }
