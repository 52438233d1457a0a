"""``kubectl homeport``, as it is installed, against a cluster without a Homeport, and against one with one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.certificates import Authority
from tests.controlplane import objects
from tests.controlplane.client import Client
from tests.controlplane.controlplane import ControlPlane
from tests.controlplane.processes import free_port
from tests.integration.roles import Account
from tests.integration.service import Homeport

KUBECTL_HOMEPORT: Final = Path(sys.executable).with_name("kubectl-homeport")
HOME: Final = "homeport.dev/home"
LOCAL: Final = (
    "homeport: no Service of Homeport; no ready pod of Homeport: this process lists the cluster and judges by the "
    "default profile\n"
)
READS: Final = {"verbs": ["get", "list"], "apiGroups": ["*"]}
SERVICES: Final = "/api/v1/namespaces/default/services"
ENDPOINTS: Final = "/api/v1/namespaces/default/endpoints"
PAGES: Final = ("--operator-host=0.0.0.0", "--open-reads", "--explain=complete")
COMPLETE: Final = """\
apiVersion: homeport.dev/v1alpha1
kind: HomeportConfiguration
profiles: [{schedulerName: "*", preset: complete}]
"""
SECONDS: Final = 120

Told = tuple[int, str, str]


class Person:
    """At a terminal with a kubeconfig, and no kubectl in PATH."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self._environment = {"HOME": str(folder), "PATH": str(folder), "KUBECONFIG": str(kubeconfig)}

    def runs(self, *words: str) -> Told:
        """Exit code, output, errors."""
        command = [str(KUBECTL_HOMEPORT), *words]
        environment = {**self._environment, "COVERAGE_PROCESS_START": os.environ.get("COVERAGE_PROCESS_START", "")}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def person(plane: ControlPlane, tmp_path: Path) -> Person:
    return Person(tmp_path, plane.kubeconfig)


def fill(client: Client) -> None:
    """Two nodes, one of them cordoned; a Deployment whose pods want more than a node has; a pod that runs; a VM."""
    for definition in objects.kubevirt_definitions():
        client.install(definition)
    client.create_node(objects.node("open", zone="a", cpu="2"))
    client.create_node(objects.node("cordoned", zone="b", cpu="2", unschedulable=True))
    deployment = client.create(objects.deployment("web", labels={"app": "web"}, replicas=2))
    labels = {"app": "web", "pod-template-hash": "5d4f"}
    owner = client.create(objects.replica_set("web-5d4f", owners=[objects.owner_reference(deployment)], labels=labels))
    for name in ("web-1", "web-2"):
        owners = [objects.owner_reference(owner)]
        client.create(objects.pod(name, labels=labels, owners=owners, requests={"cpu": "64"}))
    client.create(objects.pod("fits", requests={"cpu": "1"}))
    db = objects.owner_reference(client.create(objects.stateful_set("db")))
    client.create(objects.pod("db-0", node_name="open", owners=[db], requests={"cpu": "1"}))
    machine = objects.virtual_machine("db01")
    machine["metadata"]["annotations"] = {HOME: "open", f"{HOME}-pod": "heard-once"}
    client.create(machine)


def test_what_a_person_asks_where_no_homeport_runs(plane: ControlPlane, person: Person, tmp_path: Path) -> None:
    fill(plane.client)

    explained = person.runs("explain", "web-1")
    workload = person.runs("explain", "deploy/web")
    fits = person.runs("explain", "pod/fits", "-o", "name", "-q")
    by_labels = person.runs("explain", "-l", "app=web", "-o", "name", "-q")
    on_a_node = person.runs("explain", "default/fits", "--node", "cordoned", "-q")
    waiting = person.runs("pending", "-A", "-q")
    bare = person.runs("pending", "--no-headers", "-o", "wide", "-q")
    homes = person.runs("homes", "-q")
    config = tmp_path / "homeport.yaml"
    config.write_text(COMPLETE)
    drained = person.runs("drain", "open", "--config", str(config))

    assert (1, True) == (explained[0], explained[2].startswith(LOCAL))
    assert explained[1].startswith("default/web-1: 0 of 2 nodes fit")
    assert "no node is large enough: the pod requests 64 cpu" in explained[1]
    assert (1, True, True) == (
        workload[0],
        workload[2].startswith(LOCAL),
        workload[1].startswith("2 equal pods: web-1 web-2\n"),
    )
    assert [(0, "pod/fits\n", ""), (1, "pod/web-1\npod/web-2\n", "")] == [fits, by_labels]
    assert (0, True) == (on_a_node[0], "node cordoned: does not fit" in on_a_node[1])
    assert (0, "") == (waiting[0], waiting[2])
    head, *rows = waiting[1].splitlines()
    assert ["NAMESPACE", "NAME", "WAITS", "NODES", "REASON"] == head.split()
    assert {"web-1": "0/2", "web-2": "0/2", "fits": "1/2"} == {it.split()[1]: it.split()[3] for it in rows}
    assert (0, 3, True) == (bare[0], len(bare[1].splitlines()), "NAME" not in bare[1])
    assert (0, ["OWNER", "NODE", "STATE", "MACHINE", "POLICY"], "") == (homes[0], homes[1].split()[:5], homes[2])
    assert "VirtualMachine/db01  open  usable  idle     grace" == homes[1].splitlines()[1]
    judges = f"homeport: this process lists the cluster and judges by the profiles of {config}\n"
    assert (1, True) == (drained[0], drained[2].startswith(judges))
    assert drained[1].startswith("open: 0 of 1 pods would be placed, 1 would wait\n")


def test_formats_are_data(plane: ControlPlane, person: Person) -> None:
    fill(plane.client)

    as_json, as_yaml = (person.runs("explain", "web-1", "-q", "-o", it) for it in ("json", "yaml"))
    pending = person.runs("pending", "-q", "-o", "json")
    homes = person.runs("homes", "-A", "-q", "-o", "name")

    assert (1, "", 1, "") == (as_json[0], as_json[2], as_yaml[0], as_yaml[2])
    answers = json.loads(as_json[1]), yaml.safe_load(as_yaml[1])
    assert all(isinstance(it.pop("judgedAt"), str) for it in answers)  # the two runs list the cluster at other times
    assert answers[0] == answers[1]
    assert {"web-1", "web-2", "fits"} == {it["name"] for it in json.loads(pending[1])["items"]}
    assert (0, "virtualmachine.kubevirt.io/db01\n", "") == homes


def test_a_home_is_moved_where_no_homeport_runs(plane: ControlPlane, person: Person) -> None:
    fill(plane.client)

    moved = person.runs("homes", "move", "vm/db01", "cordoned", "-q")
    released = person.runs("homes", "release", "vm/db01", "-q")

    assert (0, "VirtualMachine default/db01: the home is cordoned now, it was open\n", "") == moved
    assert 0 == released[0], released
    assert HOME not in plane.client.get("VirtualMachine", "db01")["metadata"].get("annotations", {})


def test_what_is_not_there(plane: ControlPlane, person: Person) -> None:
    fill(plane.client)

    for words, told in (
        (("explain", "no"), 'pods "no" not found in namespace "default"'),
        (("explain", "fits", "-n", "other"), 'pods "fits" not found in namespace "other"'),
        (("drain", "no"), "there is no node 'no'"),
    ):
        code, _, err = person.runs(*words, "-q")
        assert (3, True) == (code, err.startswith(f"homeport: {told}")), err
    assert 2 == person.runs("explain")[0]
    assert 2 == person.runs("nonsense")[0]


def test_contexts_of_a_kubeconfig(plane: ControlPlane, tmp_path: Path) -> None:
    """The current one is of a server that does not answer; the namespace is that of the context."""
    fill(plane.client)
    config = json.loads(plane.kubeconfig.read_text())
    config["clusters"].append({"name": "away", "cluster": {"server": "https://127.0.0.1:1"}})
    config["contexts"] = [
        {"name": "away", "context": {"cluster": "away", "user": "admin"}},
        {"name": "here", "context": {"cluster": "test", "user": "admin", "namespace": "elsewhere"}},
    ]
    config["current-context"] = "away"
    file = tmp_path / "contexts"
    file.write_text(json.dumps(config))
    person = Person(tmp_path, file)

    away = person.runs("pending")
    here = person.runs("pending", "--context", "here", "-q")
    there = person.runs("pending", "--context=here", "-n", "default", "-o", "name", "-q")
    nowhere = person.runs("pending", "--context", "nowhere")

    assert (3, "") == away[:2]
    assert away[2].startswith("homeport: the API server (https://127.0.0.1:1) does not answer: ")
    assert (3, "", 'homeport: namespaces "elsewhere" not found\n') == here
    assert (0, {"pod/web-1", "pod/web-2", "pod/fits"}) == (there[0], set(there[1].split()))
    assert (3, "") == nowhere[:2]
    assert nowhere[2].startswith(f"homeport: kubeconfig {file}: ")
    assert "nowhere" in nowhere[2]


def test_missing_permissions_are_named(plane: ControlPlane, person: Person) -> None:
    """Also those of another user, as whom the requests are sent."""
    fill(plane.client)
    account = Account(plane, "kubectl-reader")
    name = "system:serviceaccount:default:kubectl-reader"
    account.may([{**READS, "resources": ["nodes", "services"]}])

    impersonated = person.runs("explain", "web-1", "--as", name, "-q")
    itself = Person(plane.folder, account.kubeconfig).runs("pending")
    account.may([{**READS, "resources": ["*"]}])
    allowed = person.runs("explain", "web-1", "--as", name, "-q")

    told = impersonated[2].removeprefix("homeport: you have no permission to list ")
    listed = told.removesuffix(" in all namespaces\n").split(", ")
    assert (3, "", True) == (impersonated[0], impersonated[1], told.endswith(" in all namespaces\n"))
    assert {"pods", "replicasets.apps", "virtualmachines.kubevirt.io"} <= set(listed)
    assert not {"nodes", "services"} & set(listed)
    assert (3, "") == itself[:2]
    assert "no pod of Homeport: pods is forbidden" in itself[2]
    assert "homeport: you have no permission to list pods, " in itself[2]
    assert 1 == allowed[0], allowed


def test_a_client_certificate_that_expired(tmp_path: Path) -> None:
    """It is refused like any unknown one, so that the time is said here."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("ann", "ann.example", not_after=datetime(2025, 6, 7, 8, 9, tzinfo=UTC))
    with ControlPlane(apiserver_flags=[f"--client-ca-file={authority.file}"]) as plane:
        config = json.loads(plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"client-certificate": str(certificate), "client-key": str(key)}
        file = tmp_path / "expired"
        file.write_text(json.dumps(config))

        code, out, err = Person(tmp_path, file).runs("pending")

    told = "rejects the credentials: the client certificate expired on 2025-06-07 08:09 UTC"
    assert (3, "", f"homeport: the API server ({plane.server}) {told}\n") == (code, out, err)


def address() -> str:
    """An address of this machine to which the API server's proxy connects; it refuses those on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


def operator_service(port: int, name: str = "homeport-operator") -> tuple[dict[str, Any], dict[str, Any]]:
    """A Service as the chart makes it, without a selector, and its endpoint: a pod of the same name."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default", "labels": {"homeport.dev/pages": "operator"}},
        "spec": {"ports": [{"name": "operator", "port": 8889, "targetPort": port, "appProtocol": "http"}]},
    }
    reference = {"kind": "Pod", "namespace": "default", "name": name}
    subset = {"addresses": [{"ip": address(), "targetRef": reference}], "ports": [{"name": "operator", "port": port}]}
    metadata = {"name": name, "namespace": "default"}
    return service, {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": [subset]}


@contextmanager
def in_the_cluster(client: Client, port: int) -> Iterator[None]:
    """The Service and a pod behind it that is a process of this machine, as long as they are needed."""
    client.create(objects.pod("homeport-operator", node_name="open"))
    client.patch_status("Pod", "homeport-operator", {"podIP": address(), "podIPs": [{"ip": address()}]})
    made = dict(zip((SERVICES, ENDPOINTS), operator_service(port), strict=True))
    for collection, thing in made.items():
        client.request("POST", collection, thing)
    try:
        yield
    finally:
        for collection, thing in reversed(made.items()):
            client.request("DELETE", f"{collection}/{thing['metadata']['name']}")


def test_a_homeport_in_the_cluster_answers_through_the_api_server(
    plane: ControlPlane, person: Person, tmp_path: Path
) -> None:
    client = plane.client
    fill(client)
    port = free_port()
    account = Account(plane, "kubectl-asker")
    account.may(
        [
            {"verbs": ["list"], "apiGroups": [""], "resources": ["services"]},
            {
                "verbs": ["get", "create"],
                "apiGroups": [""],
                "resources": ["services/proxy"],
                "resourceNames": ["http:homeport-operator:operator"],
            },
        ]
    )
    asker = Person(plane.folder, account.kubeconfig)

    with in_the_cluster(client, port), Homeport(plane.kubeconfig, tmp_path, PAGES, pages=port, plain=True):
        explained = person.runs("explain", "web-1")
        by_right = asker.runs("explain", "no-such-pod", "-q")
        drained = asker.runs("drain", "open", "-q")

    told = "homeport: the answer comes from Service default/homeport-operator, through the API server\n"
    assert (1, told) == (explained[0], explained[2])
    assert explained[1].startswith("default/web-1: ")
    assert (3, "", True) == (by_right[0], by_right[1], by_right[2].startswith('homeport: pods "no-such-pod" not found'))
    assert (1, True) == (drained[0], drained[1].startswith("open: 0 of 2 pods would be placed, 1 would wait, 1 lost"))
