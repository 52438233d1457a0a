"""``kubectl homeport`` against an API server where no Homeport runs, and against API servers that answer otherwise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.__main__ import kubectl
from app.feeds import listing
from tests.apiserver import Answer, ApiServer, kubeconfig
from tests.builders import JsonObject, container, node_object, pod_object
from tests.kubeserver import Asked, Instead, kube_server, operator_service, pages_at, refusal

ROOM: JsonObject = {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}}
NODES = [node_object("n1", status=ROOM), node_object("n2", status=ROOM, unschedulable=True)]
HUGE = [container(resources={"requests": {"cpu": "64"}})]
MACHINE: JsonObject = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachine",
    "metadata": {
        "namespace": "default",
        "name": "db01",
        "uid": "uid-1",
        "annotations": {"homeport.dev/home": "n1", "homeport.dev/home-pod": "p"},
    },
    "spec": {},
}
GONE_SECONDS = 20

pytestmark = pytest.mark.usefixtures("nobodys_cluster")


def api() -> ApiServer:
    return ApiServer(*NODES, pod_object("fits"), pod_object("huge", containers=HUGE), MACHINE)


class Person:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def runs(self, server: ApiServer, *words: str, instead: Instead = lambda _: None) -> tuple[int, str, str]:
        """Exit code, output, errors. The address of the API server is URL."""
        with kube_server(server, instead) as served:
            code = kubectl([*words, "--kubeconfig", str(kubeconfig(self._folder, served.url))])
            out, err = self._capsys.readouterr()
            return code, out, err.replace(served.url, "URL")


@pytest.fixture
def person(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Person:
    return Person(tmp_path, capsys)


@pytest.mark.parametrize(
    ("words", "code", "begin"),
    [
        (["explain", "fits"], 0, "default/fits: 1 of 2 nodes fit\n"),
        (["explain", "huge"], 1, "default/huge: 0 of 2 nodes fit\n"),
        (["pending", "-o", "name"], 0, "pod/"),
        (["homes", "-o", "name"], 0, "virtualmachine.kubevirt.io/db01\n"),
        (["drain", "n1"], 0, "n1: 0 of 0 pods would be placed\n"),
    ],
)
def test_answers_and_exit_codes(person: Person, words: list[str], code: int, begin: str) -> None:
    found, out, err = person.runs(api(), *words, "-q")

    assert (code, "", True) == (found, err, out.startswith(begin)), out


def test_a_home_is_moved_by_the_persons_own_credentials(person: Person) -> None:
    server = api()

    told = "VirtualMachine default/db01: the home is n2 now, it was n1\n"
    assert (0, told, "") == person.runs(server, "homes", "move", "vm/db01", "n2", "-q")
    machine = server.get("VirtualMachine", "db01")
    assert machine is not None
    assert "n2" == machine["metadata"]["annotations"]["homeport.dev/home"]


def nodes(found: Answer) -> Instead:
    return lambda asked: found if asked.path == "/api/v1/nodes" else None


@pytest.mark.parametrize(
    ("instead", "told"),
    [
        pytest.param(
            nodes(refusal(403, "no")), "you have no permission to list nodes in all namespaces\n", id="forbidden"
        ),
        pytest.param(nodes(refusal(429, "slow down")), "v1 Node: the API server refused: slow down\n", id="throttled"),
        pytest.param(nodes(refusal(500, "etcd")), "v1 Node: the API server refused: etcd\n", id="an internal error"),
        pytest.param(
            nodes(Answer(200, b"<html>")),
            "v1 Node: the API server (URL) does not answer: list: JSON is malformed: invalid character (byte 0)\n",
            id="HTML",
        ),
        pytest.param(
            lambda _: Answer(503, b"<html>later</html>"),
            "v1 Node: the API server refused: <html>later</html>\n",
            id="HTML of a proxy",
        ),
        pytest.param(
            lambda _: refusal(401, "Unauthorized"),
            "the API server (URL) rejects the credentials: Unauthorized\n",
            id="not authenticated",
        ),
    ],
)
def test_an_api_server_that_gives_no_lists(
    person: Person, monkeypatch: pytest.MonkeyPatch, instead: Instead, told: str
) -> None:
    monkeypatch.setattr(listing, "_LONGEST_PAUSE", 0)

    assert (3, "", f"homeport: {told}") == person.runs(api(), "explain", "fits", "-q", instead=instead)


def test_a_cluster_beyond_the_bound(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MOST_PODS", 1)

    told = "homeport: the cluster has more than 1 pods: use a Homeport that runs in the cluster\n"
    assert (3, "", told) == person.runs(api(), "pending", "-q")


@pytest.mark.parametrize("ends_by", [signal.SIGPIPE, signal.SIGTERM])
def test_a_port_forward_ends_with_its_command(tmp_path: Path, nobodys_cluster: Path, ends_by: signal.Signals) -> None:
    """As ``kubectl homeport homes | head -1`` ends, or ``timeout 9 kubectl homeport homes -w``."""
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "namespace": "default", "slot": ""}
    homes = [{"owner": {**owner, "name": f"vm-{number:05}"}} for number in range(9000)]
    pages = {"/api/v1/status": {"feeds": {}}, "/api/v1/homes": {"items": homes, "continue": ""}}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    cluster = ApiServer(pod_object("homeport", namespace="homeport", status=ready))
    said = nobodys_cluster / "pid"
    with kube_server(cluster) as server, kube_server(ApiServer(), pages_at("", pages)) as homeport:
        program = nobodys_cluster / "kubectl"
        forwards = f"Forwarding from 127.0.0.1:{homeport.url.rpartition(':')[2]} -> 8889"
        program.write_text(
            f"#!{sys.executable}\nimport os, time\nopen({str(said)!r}, 'w').write(str(os.getpid()))\n"
            f"print({forwards!r}, flush=True)\ntime.sleep(600)\n"
        )
        program.chmod(0o755)
        config = str(kubeconfig(tmp_path, server.url))
        script = "import sys; from homeport import kubectl; sys.exit(kubectl())"
        command = [sys.executable, "-c", script, "homes", "-o", "name", "-q", "-w", "--kubeconfig", config]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            first = process.stdout.read(1)
            if ends_by == signal.SIGTERM:
                process.terminate()
            process.stdout.close()
            told = process.stderr.read()

    codes = {-signal.SIGPIPE, 128 + signal.SIGTERM} if ends_by == signal.SIGTERM else {-signal.SIGPIPE}
    assert (b"v", b"") == (first, told)
    assert process.returncode in codes
    ends = time.monotonic() + GONE_SECONDS
    while _is_there(int(said.read_text())) and time.monotonic() < ends:
        time.sleep(0.01)
    assert not _is_there(int(said.read_text()))


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_forbidden_proxy_does_not_hide_the_answer(person: Person) -> None:
    """Who may list everything and not use the proxy gets the answer of this process, and is told why."""
    server = ApiServer(*NODES, pod_object("fits"), operator_service())

    def instead(asked: Asked) -> Answer | None:
        return refusal(403, "cannot get services/proxy") if "/proxy/" in asked.path else None

    code, out, err = person.runs(server, "explain", "fits", instead=instead)

    assert (0, True) == (code, out.startswith("default/fits: 1 of 2 nodes fit\n"))
    cause = "Service homeport/homeport-operator: cannot get services/proxy; no ready pod of Homeport"
    assert err.startswith(f"homeport: {cause}: this process lists the cluster")
