"""The chart as a user installs it: restricted, ready, its roles and nothing else, and gone without a trace."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.cluster import images
from tests.cluster.cluster import Cluster, CommandError
from tests.cluster.figures import FIGURES
from tests.cluster.release import Release
from tests.controlplane import objects
from tests.integration.test_home_stories import boot, home_of, install_kubevirt, shut_down

WEB = {"app": "web"}
PASSING = {"events", "pods", "replicasets", "endpoints", "endpointslices", "controllerrevisions", "componentstatuses"}
OF_EVERY_NAMESPACE = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
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
    assert 6 == release.outcomes(release.leader(), "bind")["bound"]


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
        cluster.kubectl(
            "delete", "pods,virtualmachineinstances,virtualmachines", "--all", "--grace-period=0", "--force"
        )


def test_no_right_is_missing(cluster: Cluster, release: Release) -> None:
    """All stories here are played with the rendered roles and nothing else, and Homeport misses none of its rights."""
    found = [release.get(pod["metadata"]["name"], "/api/v1/status") for pod in release.pods()]

    assert [{"problem": "", "missing": []}] * 2 == [status["permissions"] for status in found]


@pytest.mark.parametrize(
    "asked", ["list secrets", "create pods", "delete nodes", "update configmaps", "escalate roles"]
)
def test_its_account_may_do_nothing_else(cluster: Cluster, release: Release, asked: str) -> None:
    account = f"system:serviceaccount:{release.namespace}:{release.name}"
    with pytest.raises(CommandError, match=r"ended with 1:\nno\n?"):
        cluster.kubectl("auth", "can-i", *asked.split(), "--as", account, "--namespace", release.namespace)


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
    """Neither in its namespace nor elsewhere."""
    before = everything(cluster)
    with Release(cluster, "homeport-passing") as installed:
        during = everything(cluster)
        installed.uninstall()
        left = everything(cluster) - before
    mine = {(kind, name.partition("/")[2]) for kind, name in left if name.startswith("homeport-passing/")}
    elsewhere = {(kind, name) for kind, name in left if not name.startswith("homeport-passing/")}

    assert {"ClusterRole", "ClusterRoleBinding", "Deployment", "Role", "RoleBinding", "Secret"} <= {
        kind for kind, _ in during - before
    }
    assert set() == mine - OF_EVERY_NAMESPACE
    assert {("Namespace", "/homeport-passing")} == elsewhere


@pytest.mark.parametrize("major", [3, 4])
def test_the_releases_own_test_passes(cluster: Cluster, major: int) -> None:
    """Installed by each Helm; the pod of the test is one that Homeport places."""
    name = f"homeport-by-{major}"
    with Release(cluster, name, f"--set=schedulerName={name}", helm=major):
        cluster.helm("test", name, "--namespace", name, "--timeout=60s", major=major)
        told = cluster.client.list("Event", name, fields="reason=Scheduled")

    placed = {event["involvedObject"]["name"]: event["reportingComponent"] for event in told}
    assert name == placed[f"{name}-test"]


def everything(cluster: Cluster) -> set[tuple[str, str]]:
    """Every object of every kind that can be listed: its kind, and its namespace and name. Not what comes and goes."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "--output=name").split()
    lasting = ",".join(kind for kind in kinds if kind.partition(".")[0] not in PASSING)
    found = json.loads(cluster.kubectl("get", lasting, "--all-namespaces", "--output=json"))
    named = {
        (item["kind"], f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}") for item in found["items"]
    }
    return {(kind, name) for kind, name in named if not name.startswith("kube-node-lease/")}
