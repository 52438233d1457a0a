"""Pages of a Homeport in the cluster, by way of a fake API server and a fake kubectl."""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

from app.commands.cluster_pages import ClusterConnection, by_port_forward, by_service
from app.commands.service import CommandError
from app.kube.credentials import Login
from tests.apiserver import Answer, ApiServer, kubeconfig
from tests.builders import JsonObject, pod_object
from tests.kubeserver import OPERATOR, Instead, answer, kube_server, operator_service, pages_at, refusal

STATUS: Final = {"version": "1", "feeds": {}}
PAGES: Final = {"/api/v1/status": STATUS}
READY: Final[JsonObject] = {"conditions": [{"type": "Ready", "status": "True"}]}
GONE_SECONDS: Final = 20

pytestmark = pytest.mark.usefixtures("nobodys_cluster")


def login(folder: Path, url: str) -> Login:
    return Login(str(kubeconfig(folder, url)))


def homeport_pod(name: str, **more: Any) -> JsonObject:
    return pod_object(name, namespace="homeport", **more)


class TestService:
    def test_its_pages_are_read_through_the_api_server(self, tmp_path: Path) -> None:
        pages = {**PAGES, "/api/v1/homes": {"items": []}, "/api/v1/drain": {"node": "n1"}}
        missed: list[str] = []
        with kube_server(ApiServer(operator_service()), pages_at(OPERATOR, pages)) as server:
            found = by_service(ClusterConnection(login(tmp_path, server.url)), "", missed)
            assert found is not None
            said = found[0].get("/api/v1/homes", {"node": "n1"}), found[0].post("/api/v1/drain", {"node": "n1"})

        listed, _, read, posted = server.asked
        assert ("Service homeport/homeport-operator, through the API server", []) == (found[1], missed)
        assert ({"items": []}, {"node": "n1"}) == said
        assert ("/api/v1/services", "homeport.dev/pages=operator") == (listed.path, listed.query["labelSelector"])
        assert (f"{OPERATOR}/api/v1/homes", {"node": "n1"}) == (read.path, read.query)
        assert ("POST", {"node": "n1"}) == (posted.method, json.loads(posted.body))

    @pytest.mark.parametrize("port", [{"name": "https"}, {"appProtocol": "HTTPS", "name": "pages"}])
    def test_a_port_of_https_is_asked_by_https(self, tmp_path: Path, port: dict[str, str]) -> None:
        proxy = OPERATOR.replace("http:homeport-operator:http", f"https:homeport-operator:{port['name']}")
        with kube_server(ApiServer(operator_service(**port)), pages_at(proxy, PAGES)) as server:
            assert by_service(ClusterConnection(login(tmp_path, server.url)), "", []) is not None

    def test_it_is_searched_in_one_namespace_if_that_is_said(self, tmp_path: Path) -> None:
        missed: list[str] = []
        with kube_server(ApiServer(), lambda _: answer({"items": []})) as server:
            assert by_service(ClusterConnection(login(tmp_path, server.url)), "pro/xy", missed) is None

        assert (["/api/v1/namespaces/pro%2Fxy/services"], ["no Service of Homeport"]) == (server.paths(), missed)

    @pytest.mark.parametrize(
        ("failure", "told"),
        [
            (refusal(404, 'homeport: pods "x" not found in namespace "a"'), 'pods "x" not found in namespace "a"'),
            (refusal(503, "no endpoints available for service"), "no endpoints available for service"),
            (Answer(502, b"<html>bad gateway</html>"), "<html>bad gateway</html>"),
            (Answer(200, b"<html>hello</html>"), "JSON is malformed: invalid character (byte 0)"),
        ],
    )
    def test_a_failure_of_a_page_is_told_by_its_message(self, tmp_path: Path, failure: Answer, told: str) -> None:
        pages = {**PAGES, "/api/v1/homes": failure}
        with kube_server(ApiServer(operator_service()), pages_at(OPERATOR, pages)) as server:
            found = by_service(ClusterConnection(login(tmp_path, server.url)), "", [])
            assert found is not None
            with pytest.raises(CommandError) as raised:
                found[0].get("/api/v1/homes", {})

        assert told == str(raised.value)

    @pytest.mark.parametrize(
        ("instead", "told"),
        [
            pytest.param(
                lambda asked: refusal(403, "services is forbidden") if asked.path == "/api/v1/services" else None,
                "no Service of Homeport: services is forbidden (403) (--homeport-namespace searches one namespace)",
                id="not allowed to list",
            ),
            pytest.param(
                lambda asked: refusal(403, "you cannot get services/proxy") if "/proxy" in asked.path else None,
                "Service homeport/homeport-operator: you cannot get services/proxy",
                id="not allowed to ask",
            ),
            pytest.param(
                lambda asked: Answer(200, b"<html>") if asked.path == "/api/v1/services" else None,
                "no Service of Homeport: JSON is malformed: invalid character (byte 0)",
                id="HTML",
            ),
            pytest.param(
                lambda asked: answer({}) if "/proxy" in asked.path else None,
                "Service homeport/homeport-operator: the answer is not that of a Homeport of this version",
                id="another server",
            ),
        ],
    )
    def test_why_there_is_none(self, tmp_path: Path, instead: Instead, told: str) -> None:
        missed: list[str] = []
        with kube_server(ApiServer(operator_service()), instead) as server:
            assert by_service(ClusterConnection(login(tmp_path, server.url)), "", missed) is None

        assert [told] == missed

    def test_an_api_server_that_does_not_answer_ends_the_search(self, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match=r"^the API server \(http://127.0.0.1:1\) does not answer: "):
            by_service(ClusterConnection(login(tmp_path, "http://127.0.0.1:1")), "", [])

    def test_rejected_credentials_end_the_search(self, tmp_path: Path) -> None:
        with (
            kube_server(ApiServer(), lambda _: refusal(401, "Unauthorized")) as server,
            pytest.raises(CommandError) as raised,
        ):
            by_service(ClusterConnection(login(tmp_path, server.url)), "", [])

        assert f"the API server ({server.url}) rejects the credentials: Unauthorized" == str(raised.value)

    def test_services_in_several_namespaces_are_refused(self, tmp_path: Path) -> None:
        """One of them could be made by another user."""
        other = operator_service()
        other["metadata"] |= {"namespace": "a", "uid": "other"}
        with (
            kube_server(ApiServer(operator_service(), other)) as server,
            pytest.raises(CommandError, match=r"^Homeport has Services in several namespaces: use .* a or homeport$"),
        ):
            by_service(ClusterConnection(login(tmp_path, server.url)), "", [])

    def test_who_is_impersonated_is_sent(self, tmp_path: Path) -> None:
        with kube_server(ApiServer(operator_service()), pages_at(OPERATOR, PAGES)) as server:
            by_service(ClusterConnection(Login(str(kubeconfig(tmp_path, server.url)), impersonated="ann")), "", [])

        assert ["ann", "ann"] == [it.headers["Impersonate-User"] for it in server.asked]


def fake_kubectl(folder: Path, body: str) -> Path:
    """A kubectl in PATH that writes down its arguments and its process, and then does ``body``."""
    said = folder / "kubectl.said"
    program = folder / "kubectl"
    head = f"import json, os, sys, time\nopen({str(said)!r}, 'w').write(json.dumps([os.getpid(), *sys.argv[1:]]))\n"
    program.write_text(f"#!{sys.executable}\n{head}{body}\n")
    program.chmod(0o755)
    return said


def is_running(process: int) -> bool:
    state = Path(f"/proc/{process}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


class TestPortForward:
    def test_the_pages_of_a_ready_pod_are_read_until_nobody_needs_them(
        self, tmp_path: Path, nobodys_cluster: Path
    ) -> None:
        api = ApiServer(homeport_pod("a-starts"), homeport_pod("b-ready", status=READY))
        missed: list[str] = []
        with kube_server(api) as server, kube_server(ApiServer(), pages_at("", PAGES)) as homeport:
            port = homeport.url.rpartition(":")[2]
            forwards = f"print('Forwarding from 127.0.0.1:{port} -> 8889', flush=True)\ntime.sleep(600)"
            said = fake_kubectl(nobodys_cluster, forwards)
            asked_by = Login(str(kubeconfig(tmp_path, server.url)), "here", "ann")

            found = by_port_forward(ClusterConnection(asked_by), "", missed)

            assert found is not None
            assert ("pod homeport/b-ready, through kubectl port-forward", []) == (found[1], missed)
            assert STATUS == found[0].get("/api/v1/status", {})
            process, *arguments = json.loads(said.read_text())
            assert is_running(process)
            del found
            gc.collect()
            ends = time.monotonic() + GONE_SECONDS
            while is_running(process) and time.monotonic() < ends:
                time.sleep(0.01)

        assert not is_running(process)
        flags = ["--kubeconfig", asked_by.kubeconfig, "--context", "here", "--as", "ann", "-n", "homeport"]
        assert [*flags, "port-forward", "--address=127.0.0.1", "pod/b-ready", ":8889"] == arguments

    @pytest.mark.parametrize(
        ("kubectl", "told"),
        [
            ("", "kubectl is not in PATH"),
            (
                "print('error: unable to forward: pods is forbidden'); sys.exit(1)",
                "error: unable to forward: pods is forbidden",
            ),
            ("sys.exit(1)", "kubectl port-forward does not answer"),
        ],
    )
    def test_why_it_is_not_reached(self, tmp_path: Path, nobodys_cluster: Path, kubectl: str, told: str) -> None:
        if kubectl:
            fake_kubectl(nobodys_cluster, kubectl)
        missed: list[str] = []
        with kube_server(ApiServer(homeport_pod("web", status=READY))) as server:
            assert by_port_forward(ClusterConnection(login(tmp_path, server.url)), "", missed) is None

        assert [f"pod homeport/web: {told}"] == missed

    def test_one_that_forwards_nowhere_is_not_taken(self, tmp_path: Path, nobodys_cluster: Path) -> None:
        fake_kubectl(nobodys_cluster, "print('Forwarding from 127.0.0.1:1 -> 8889', flush=True); time.sleep(600)")
        missed: list[str] = []
        with kube_server(ApiServer(homeport_pod("web", status=READY))) as server:
            assert by_port_forward(ClusterConnection(login(tmp_path, server.url)), "", missed) is None

        assert ["pod homeport/web: http://127.0.0.1:1/api/v1/status: [Errno 111] Connection refused"] == missed

    def test_pods_in_several_namespaces_are_refused(self, tmp_path: Path) -> None:
        pods = homeport_pod("web", status=READY), pod_object("web", namespace="a", status=READY)
        with (
            kube_server(ApiServer(*pods)) as server,
            pytest.raises(CommandError, match=r"^Homeport has pods in several namespaces: use .* a or homeport$"),
        ):
            by_port_forward(ClusterConnection(login(tmp_path, server.url)), "", [])

    def test_without_a_pod_kubectl_is_not_started(self, tmp_path: Path, nobodys_cluster: Path) -> None:
        said = fake_kubectl(nobodys_cluster, "")
        missed: list[str] = []
        with kube_server(ApiServer(homeport_pod("a-starts"))) as server:
            assert by_port_forward(ClusterConnection(login(tmp_path, server.url)), "", missed) is None

        assert (["no ready pod of Homeport"], False) == (missed, said.exists())
        assert "app.kubernetes.io/name=homeport" in server.asked[0].query["labelSelector"]
