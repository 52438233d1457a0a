"""``homeport explain`` against a served sample cluster: tables for a person, JSON for a pipe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from app.__main__ import main as homeport
from app.analysis.bound import STAYS
from app.commands import pending, service
from app.commands.targets import unknown_kind
from app.config.settings import Settings
from app.wire.explain_v1 import API_VERSION
from app.wire.pending_v1 import PENDING_POD_LIST
from tests.api.service import SAMPLE
from tests.apiserver import ApiServer
from tests.builders import ZONE, JsonObject, node_object, pod_object, taint
from tests.controlplane.processes import free_port
from tests.kubeserver import answer as found
from tests.kubeserver import kube_server
from tests.served import served

FINISHED = " (finished pods are not in the snapshot)"

HINT: Final = "homeport: use --server URL for the address of Homeport's pages, or --saved FILE to read a saved cluster"
NO_KUBECONFIG: Final = "homeport: kubeconfig ~/.kube/config: there is no such file"
ROOM: Final[JsonObject] = {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}}

NAMED: Final = "  schedulerName default-scheduler, judged by profile *\n"
NO_SPREAD: Final = "PodTopologySpread: node(s) didn't match pod topology spread constraints"
TAINTED: Final = "NodeUnschedulable: node(s) were unschedulable; TaintToleration: node(s) had untolerated taint(s)"

FULL: Final = "node-a1 node-a2 node-a3 node-b1 node-b2 node-b3 node-b4"
NEWEST: Final = "web-7d4b9c-k0x8m and web-7d4b9c-q1x8m"
OTHERS: Final = "node-a1 node-a2 node-a3 node-b1 node-b3 node-b4 node-c1 node-c2 and 2 more"

TOO_FULL: Final = f"""\
shop/web-7d4b9c-new01: 4 of 12 nodes fit
{NAMED}\
  fits: node-c1 node-c2 node-c3 node-c4

COUNT  REJECTED BY{" " * 160}NODES
7      {NO_SPREAD}{" " * 100}{FULL}
1      {NO_SPREAD}; {TAINTED}  node-a4

RESOURCE  REQUESTED  FREE ON ALL NODES  MOST FREE  ON NODE
cpu       250m       157250m            15500m     node-a4
memory    256Mi      758016Mi           62Gi       node-a4

PodTopologySpread: DoNotSchedule over topology.kubernetes.io/zone, maxSkew 1
DOMAIN  ELIGIBLE NODES  PODS  MINIMUM  SKEW  ALLOWED
eu-1a   4               3     1        3     no
eu-1b   4               2     1        2     no
eu-1c   4               1     1        1     yes

PodTopologySpread: ScheduleAnyway over kubernetes.io/hostname, maxSkew 1
DOMAIN   ELIGIBLE NODES  PODS
node-a1  1               1
node-a2  1               1
node-a3  1               1
node-a4  1               0
node-b1  1               1
node-b2  1               1
node-b3  1               0
node-b4  1               0
node-c1  1               1
node-c2  1               0
node-c3  1               0
node-c4  1               0

one of these changes opens nodes (each was tried on the snapshot):
- one pod less in {ZONE}=eu-1b (without web-7d4b9c-z3x8m): 4 nodes (node-b1 node-b2 node-b3 node-b4)
- maxSkew: 2 in the constraint over topology.kubernetes.io/zone: 4 nodes (node-b1 node-b2 node-b3 node-b4)
- 2 pods less in {ZONE}=eu-1a (without {NEWEST}): 3 nodes (node-a1 node-a2 node-a3)
- whenUnsatisfiable: ScheduleAnyway in the constraint over topology.kubernetes.io/zone: 7 nodes ({FULL})
"""

HOME: Final = f"""\
machines/virt-launcher-db01-x7k2p: 1 of 12 nodes fit
{NAMED}\
  fits: node-b2

COUNT  REJECTED BY{" " * 132}NODES
10     StickyNode: node(s) were not the pod's home{" " * 100}{OTHERS}
1      StickyNode: node(s) were not the pod's home; {TAINTED}  node-a4

RESOURCE  REQUESTED  FREE ON ALL NODES  MOST FREE  ON NODE
cpu       2          157250m            15500m     node-a4
memory    256Mi      758016Mi           62Gi       node-a4

StickyNode: home
KEPT BY                       NODE     POLICY           STATE                WHAT HAPPENS      GRACE  RECORDED  MADE BY
VirtualMachine machines/db01  node-b2  grace (default)  its node takes pods  only home passes         yes

one of these changes opens nodes (each was tried on the snapshot):
- release the home: 10 nodes ({OTHERS})
    homeport homes release VirtualMachine/db01 -n machines
"""

pytestmark = pytest.mark.usefixtures("nobodys_cluster")


def main(arguments: list[str]) -> int:
    """Exit code. Standard error has only what went wrong."""
    return homeport([*arguments, "-q"])


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with served(tmp_path_factory.mktemp("homeport"), "--cluster", SAMPLE) as http:
        yield http


@pytest.mark.parametrize(
    ("namespace", "pod", "expected"),
    [
        pytest.param("shop", "web-7d4b9c-new01", TOO_FULL, id="why a pod is spread"),
        pytest.param("machines", "virt-launcher-db01-x7k2p", HOME, id="why a machine comes home"),
    ],
)
def test_tables(
    http: httpx.Client, capsys: pytest.CaptureFixture[str], namespace: str, pod: str, expected: str
) -> None:
    code = main(["explain", pod, "-n", namespace, "--server", str(http.base_url)])

    assert (0, (expected, "")) == (code, capsys.readouterr())


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("complete")
    nodes = [
        node_object("open", status=ROOM),
        node_object("cordoned", status=ROOM, unschedulable=True),
        node_object("full", status={**ROOM, "allocatable": {**ROOM["allocatable"], "cpu": "0"}}),
    ]
    big: list[JsonObject] = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    pods = [
        pod_object("waits", scheduler="full", containers=big),
        pod_object("runs", scheduler="full", node="full", containers=big),
        pod_object("other", scheduler="\x1b[31mmine", containers=big),
    ]
    cluster = folder / "cluster.json"
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, *pods]}))
    profiles = [{"schedulerName": "full", "preset": "complete"}, {"schedulerName": "*"}]
    head = {"apiVersion": "homeport.dev/v1alpha1", "kind": "HomeportConfiguration"}
    config = folder / "config.json"
    config.write_text(json.dumps({**head, "profiles": profiles}))
    with served(folder, "--cluster", cluster, "--config", config) as http:
        yield http


class TestWhatIsJudged:
    """The verdict says who judged, and what nobody did."""

    @staticmethod
    def told(http: httpx.Client, capsys: pytest.CaptureFixture[str], pod: str) -> list[str]:
        assert 0 == main(["explain", pod, "-n", "default", "--server", str(http.base_url)])
        return capsys.readouterr().out.splitlines()

    def test_feasible_is_said_where_all_filters_run(
        self, complete: httpx.Client, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert ["default/waits: 1 of 3 nodes fit", "  fits: open"] == self.told(complete, capsys, "waits")[:2]

    def test_a_bound_pod(self, complete: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
        """Its node as it stands, and what would happen to it now."""
        lines = self.told(complete, capsys, "runs")

        assert [
            "default/runs: bound to full",
            "NodeResourcesFit would reject it there now",
            "if it were scheduled now, 1 of 3 nodes fit",
        ] == lines[0].split("; ")
        assert ["  fits: open", "  satisfied on full: NodeAffinity NodePorts"] == [lines[1], lines[2][:43]]
        assert ["  violated on full: NodeResourcesFit: Insufficient cpu", f"  {STAYS}"] == lines[5:7]

    def test_the_pod_of_another_scheduler(self, complete: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
        """Of a saved cluster, all default filters judge, also where the profile is ``delegated``."""
        lines = self.told(complete, capsys, "other")

        assert "default/other: 1 of 3 nodes fit" == lines[0]
        assert r"  schedulerName '\x1b[31mmine', judged by profile *" == lines[1]
        assert "  fits: open" == lines[2]


def test_json_is_the_answer_of_the_endpoint(http: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"namespace": "shop", "name": "web-7d4b9c-new01"}
    answer = http.post("/api/v1/explain", json=asked).json()

    code = main(["explain", "web-7d4b9c-new01", "-n", "shop", "--server", str(http.base_url), "-o", "json"])

    assert (0, answer) == (code, json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["pod/web-7d4b9c-new01", "-n", "shop"], id="as kubectl names it"),
        pytest.param(["shop/web-7d4b9c-new01"], id="with its namespace"),
    ],
)
def test_names_of_pods(http: httpx.Client, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert 0 == main(["explain", *arguments, "--server", str(http.base_url)])
    assert TOO_FULL == capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["shop/web", "-n", "other"], f"'shop/web' is in another namespace than -n other; or {unknown_kind('shop')}"),
        (["a/b/web"], "'a/b' cannot be the name of a namespace"),
        (["/web"], "'' cannot be the name of a namespace"),
    ],
)
def test_names_of_no_pod(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    assert (2, ("", f"homeport: {told}\n")) == (main(["explain", *arguments]), capsys.readouterr())


def test_a_pod_that_homeport_does_not_know(http: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explain", "x", "-n", "default", "--server", str(http.base_url)])

    assert (
        3,
        (
            "",
            'homeport: pods "x" not found in namespace "default", which has no pods' + FINISHED + "\n",
        ),
    ) == (
        code,
        capsys.readouterr(),
    )


def test_nobody_serves_there(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explain", "x", "-n", "default", "--server", "http://127.0.0.1:1/"])

    (out, err) = capsys.readouterr()
    refused, hint = err.splitlines()
    assert (3, "", HINT) == (code, out, hint)
    assert refused.startswith("homeport: http://127.0.0.1:1/api/v1/explain/default/x: ")


def test_somebody_else_serves_there(http: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    """Its 404 is told as it is."""
    elsewhere = f"{str(http.base_url).rstrip('/')}/elsewhere"
    code = main(["explain", "x", "-n", "default", "--server", elsewhere])

    told = f"homeport: {elsewhere}/api/v1/explain/default/x: 404 Not Found\n{HINT}\n"
    assert (3, ("", told)) == (code, capsys.readouterr())


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Where the verbs are, and where the pages."""
    port = free_port()
    with served(
        tmp_path_factory.mktemp("two"), "--cluster", SAMPLE, "--operator-port", str(port), ready_at=port
    ) as http:
        yield str(http.base_url).rstrip("/"), f"http://127.0.0.1:{port}"


class TestDefaultServers:
    """Without ``--server``: the port of the verbs, and where it has no pages that of the operator; then the cluster."""

    @pytest.mark.parametrize("first", ["without the page", "not there"])
    def test_the_second_is_asked_where_the_first_has_no_such_page(
        self, ports: tuple[str, str], first: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        verbs, pages = ports
        servers = (verbs if first == "without the page" else "http://127.0.0.1:1", pages)
        monkeypatch.setattr(service, "SERVERS", servers)

        assert (0, (TOO_FULL, "")) == (main(["explain", "web-7d4b9c-new01", "-n", "shop"]), capsys.readouterr())

    def test_what_the_first_says_of_a_pod_stands(
        self, http: httpx.Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(service, "SERVERS", (str(http.base_url), "http://127.0.0.1:1"))

        code = main(["explain", "x", "-n", "default"])

        assert (
            3,
            (
                "",
                'homeport: pods "x" not found in namespace "default", which has no pods' + FINISHED + "\n",
            ),
        ) == (
            code,
            capsys.readouterr(),
        )

    def test_where_neither_has_it_both_are_told(
        self, ports: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(service, "SERVERS", (ports[0], "http://127.0.0.1:1"))

        code = main(["explain", "x", "-n", "default"])

        (out, err) = capsys.readouterr()
        one, other, cluster, hint = err.splitlines()
        assert (3, "") == (code, out)
        assert f"homeport: {ports[0]}/api/v1/status: this listener does not serve the path" == one
        assert other.startswith("homeport: http://127.0.0.1:1/api/v1/status: ")
        assert (NO_KUBECONFIG, HINT) == (cluster, hint)

    def test_they_are_the_ports_that_are_listened_on_by_default_and_in_the_chart(self) -> None:
        assert ("http://127.0.0.1:8888", "http://127.0.0.1:8889") == service.SERVERS
        assert f"http://127.0.0.1:{Settings(cluster=str(SAMPLE)).port}" == service.SERVERS[0]


@pytest.mark.parametrize("answer", [{}, {"items": None, "next": None}, {"items": [{}], "next": None}], ids=str)
@pytest.mark.parametrize("command", [["explain", "-l", "app=web"], ["pending"], ["skew"], ["homes"]], ids=" ".join)
def test_an_answer_of_another_shape(capsys: pytest.CaptureFixture[str], command: list[str], answer: JsonObject) -> None:
    with kube_server(ApiServer(), lambda _: found(answer)) as server:
        code = homeport([*command, "-n", "shop", "--server", server.url, "-q"])

    assert (3, "") == (code, capsys.readouterr().out)


def test_a_fault_of_the_program_is_not_taken_for_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: object, **__: object) -> str:
        raise KeyError("ours")

    monkeypatch.setattr(pending, "listing", faulty)
    answer = {"apiVersion": API_VERSION, "kind": PENDING_POD_LIST, "items": [], "total": 0, "next": None, "newer": 1}
    with kube_server(ApiServer(), lambda _: found(answer)) as server, pytest.raises(KeyError, match="ours"):
        homeport(["pending", "-A", "--server", server.url, "-q"])


def test_an_answer_of_another_shape_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with kube_server(ApiServer(), lambda _: found({})) as server:
        homeport(["pending", "-A", "--server", server.url, "-q"])

    assert "homeport: the answer is not that of a Homeport of this version\n" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("nodes", "line"),
    [
        (2, "no single change of those that Homeport tries opens a node"),
        (3, "other changes that could open nodes were not tried"),
    ],
)
def test_nothing_is_ruled_out_that_was_not_tried(
    nodes: int, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each node has two taints of its own, and at most four taints are tried."""
    pairs = [[taint(f"example.com/{number}-{name}") for name in "ab"] for number in range(nodes)]
    items = [node_object(f"n{number}", taints=pair, status=ROOM) for number, pair in enumerate(pairs)]
    cluster = tmp_path / "cluster.json"
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*items, pod_object("stuck")]}))

    assert 1 == homeport(["explain", "stuck", "-n", "default", "--saved", str(cluster), "-q"])

    said = [it for it in capsys.readouterr().out.splitlines() if it.startswith(("no single", "other changes"))]
    assert [line] == said
