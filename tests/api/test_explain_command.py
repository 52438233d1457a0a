"""``homeport explain`` against a served sample cluster: tables for a person, JSON for a pipe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from app.__main__ import main
from app.commands import service
from app.config.settings import Settings
from tests.api.service import SAMPLE
from tests.controlplane.processes import free_port
from tests.served import served

TOO_FULL: Final = """\
shop/web-7d4b9c-new01: feasible on 4 of 12 nodes
  node-c1 node-c2 node-c3 node-c4

NODES  REJECTED BY
8      PodTopologySpread: node(s) didn't match pod topology spread constraints

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

what would open more nodes:
- topology.kubernetes.io/zone=eu-1a takes the pod with 2 matching pods fewer, or with 1 more in eu-1b, 2 more in eu-1c
- topology.kubernetes.io/zone=eu-1b takes the pod with 1 matching pod fewer, or with 1 more in eu-1c
"""

HOME: Final = """\
machines/virt-launcher-db01-x7k2p: feasible on 1 of 12 nodes
  node-b2

NODES  REJECTED BY
11     StickyNode: node(s) were not the pod's home

StickyNode: home
KEPT BY                       NODE     POLICY           STATE                WHAT HAPPENS      GRACE  RECORDED  MADE BY
VirtualMachine machines/db01  node-b2  grace (default)  its node takes pods  only home passes         yes
"""


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


def test_json_is_the_answer_of_the_endpoint(http: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"namespace": "shop", "name": "web-7d4b9c-new01"}
    answer = http.post("/api/v1/explain", json=asked).json()

    code = main(["explain", asked["name"], "-n", "shop", "--server", str(http.base_url), "-o", "json"])

    assert (0, answer) == (code, json.loads(capsys.readouterr().out))


def test_a_pod_that_homeport_does_not_know(http: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explain", "x", "-n", "default", "--server", str(http.base_url)])

    assert (1, ("", 'homeport: pods "x" not found in namespace "default"\n')) == (code, capsys.readouterr())


def test_nobody_serves_there(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explain", "x", "-n", "default", "--server", "http://127.0.0.1:1/"])

    (out, err) = capsys.readouterr()
    assert (1, "", True) == (code, out, err.startswith("homeport: http://127.0.0.1:1/api/v1/explain: "))


def test_somebody_else_serves_there(http: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    """Its 404 is told as it is."""
    elsewhere = f"{str(http.base_url).rstrip('/')}/elsewhere"
    code = main(["explain", "x", "-n", "default", "--server", elsewhere])

    assert (1, ("", f"homeport: {elsewhere}/api/v1/explain: Not Found\n")) == (code, capsys.readouterr())


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Where the verbs are, and where the pages."""
    port = free_port()
    with served(
        tmp_path_factory.mktemp("two"), "--cluster", SAMPLE, "--operator-port", str(port), ready_at=port
    ) as http:
        yield str(http.base_url).rstrip("/"), f"http://127.0.0.1:{port}"


class TestDefaultServers:
    """Without ``--server``: the port of the verbs, and where it has no pages that of the operator."""

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

        assert (1, ("", 'homeport: pods "x" not found in namespace "default"\n')) == (code, capsys.readouterr())

    def test_where_neither_has_it_both_are_told(
        self, ports: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(service, "SERVERS", (ports[0], "http://127.0.0.1:1"))

        code = main(["explain", "x", "-n", "default"])

        (out, err) = capsys.readouterr()
        one, other = err.splitlines()
        assert (1, "", f"homeport: {ports[0]}/api/v1/explain: Not Found") == (code, out, one)
        assert other.startswith("homeport: http://127.0.0.1:1/api/v1/explain: ")

    def test_they_are_the_ports_that_are_listened_on_by_default_and_in_the_chart(self) -> None:
        assert ("http://127.0.0.1:8888", "http://127.0.0.1:8889") == service.SERVERS
        assert f"http://127.0.0.1:{Settings(cluster=str(SAMPLE)).port}" == service.SERVERS[0]
