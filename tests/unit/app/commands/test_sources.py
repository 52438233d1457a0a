"""Who answers a command: the order of sources, and what is said about them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.commands import sources
from app.commands.arguments import kubectl_parser
from app.commands.progress import ProgressLine
from app.commands.service import CommandError, Pages, Server, UsageError
from app.kube.credential_sources import CredentialsError
from app.kube.credentials import Login
from tests.apiserver import Answer, ApiServer, kubeconfig
from tests.kubeserver import OPERATOR, KubeServer, kube_server, operator_service, pages_at, refusal

PAGES = {"/api/v1/status": {"version": "1", "feeds": {}}}
NOT_IN_CLUSTER = "no Service of Homeport; no ready pod of Homeport: "

pytestmark = pytest.mark.usefixtures("nobodys_cluster")


class Named:
    """Pages with a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        raise AssertionError(path, query)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        raise AssertionError(path, body)


def of_cluster(login: Login, _: ProgressLine) -> Pages:
    return Named(f"{login.kubeconfig} {login.context} {login.impersonated}".rstrip())


def chosen(*flags: str | Path, command: str = "pending", nearby: tuple[str, ...] = ()) -> Pages:
    arguments = kubectl_parser().parse_args([command, *map(str, flags)])
    return sources.source_of(arguments, Named, of_cluster, nearby=nearby)


def name(pages: Pages) -> str:
    return pages.name if isinstance(pages, Named) else str(getattr(pages, "url", type(pages).__name__))


def said(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert "" == out
    return err.removeprefix("homeport: ").rstrip("\n")


def test_the_server_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "http://there" == name(chosen("--server", "http://there", nearby=("http://127.0.0.1:1",)))
    assert "the answer comes from http://there" == said(capsys)


def test_its_certificates() -> None:
    flags = ("--certificate-authority", "ca", "--client-certificate", "crt", "--client-key", "key")

    assert Server("https://there", "ca", "crt", "key") == chosen("--server", "https://there", *flags)


def test_the_server_of_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag for another source takes precedence."""
    monkeypatch.setenv("HOMEPORT_SERVER", "http://env")

    found = [name(chosen(*flags)) for flags in ((), ("--server", "http://flag"), ("--saved", "file"), ("--local",))]

    assert ["http://env", "http://flag", "file", "None"] == found
    assert "the answer comes from http://env" == said(capsys).splitlines()[0]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "the answer comes from a.json, judged here by the default profile"),
        (["--config", "c.yaml"], "the answer comes from a.json, judged here by the profiles of c.yaml"),
    ],
)
def test_a_saved_cluster(capsys: pytest.CaptureFixture[str], flags: list[str], told: str) -> None:
    assert "a.json" == name(chosen("--saved", "a.json", *flags))
    assert told == said(capsys)


def test_a_homeport_nearby_before_the_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first URL has no Homeport; the cluster would have one."""
    api = ApiServer(operator_service())
    with kube_server(api, pages_at(OPERATOR, PAGES)) as kube, kube_server(ApiServer(), pages_at("", PAGES)) as near:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, kube.url)))
        assert near.url == name(chosen(nearby=("http://127.0.0.1:1", near.url)))

    assert (f"the answer comes from {near.url}", []) == (said(capsys), kube.asked)


def test_a_homeport_nearby_that_refuses_its_status(tmp_path: Path) -> None:
    """It is one all the same."""
    refuses = {"/api/v1/status": refusal(403, "no")}
    with kube_server(ApiServer(), pages_at("", refuses)) as near:
        assert near.url == name(chosen(nearby=(near.url,)))


def test_something_else_nearby_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = pages_at("", {"/api/v1/status": {}})
    with kube_server(ApiServer()) as kube, kube_server(ApiServer(), other) as near:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, kube.url)))
        assert name(chosen(nearby=(near.url,))) == name(chosen())


@pytest.mark.parametrize("more", [(), ("--context", "here"), ("--as", "ann")], ids=" ".join)
def test_a_cluster_that_is_named_comes_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """A Homeport at another address can belong to another cluster."""
    with kube_server(ApiServer()) as kube, kube_server(ApiServer(), pages_at("", PAGES)) as near:
        config = str(kubeconfig(tmp_path, kube.url))
        monkeypatch.setenv("HOMEPORT_SERVER", near.url)
        if more:
            monkeypatch.setenv("KUBECONFIG", config)

        assert "Named" == type(chosen(*(more or ("--kubeconfig", config)), nearby=(near.url,))).__name__


@pytest.mark.parametrize("flag", ["--server", "--saved", "--config"])
def test_a_flag_without_a_value_is_refused(flag: str) -> None:
    with pytest.raises(UsageError, match=f"^{flag} is empty$"):
        chosen(flag, "")


def test_variables_of_a_proxy_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    for variable in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)

    with kube_server(ApiServer(), pages_at("", PAGES)) as near:
        assert PAGES["/api/v1/status"] == Server(near.url).get("/api/v1/status", {})


def test_the_service_in_the_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kube_server(ApiServer(operator_service()), pages_at(OPERATOR, PAGES)) as kube:
        assert "ServiceProxy" == name(chosen("--kubeconfig", kubeconfig(tmp_path, kube.url)))

    assert "the answer comes from Service homeport/homeport-operator, through the API server" == said(capsys)
    assert "/api/v1/pods" not in kube.paths()


def test_only_in_the_namespace_that_is_named(tmp_path: Path) -> None:
    with kube_server(ApiServer()) as kube:
        chosen("--kubeconfig", kubeconfig(tmp_path, kube.url), "--homeport-namespace", "infra")

    assert ["/api/v1/namespaces/infra/services", "/api/v1/namespaces/infra/pods"] == kube.paths()


class TestInThisProcess:
    @pytest.fixture
    def kube(self, tmp_path: Path) -> Any:
        with kube_server(ApiServer()) as kube:
            kubeconfig(tmp_path, kube.url)
            yield kube

    @pytest.mark.parametrize(
        ("flags", "told"),
        [
            ([], f"{NOT_IN_CLUSTER}this process lists the cluster and judges by the default profile"),
            (["--local"], "this process lists the cluster and judges by the default profile"),
            (["--config", "c.yaml"], "this process lists the cluster and judges by the profiles of c.yaml"),
        ],
    )
    def test_where_no_homeport_runs_or_if_that_is_said(
        self, kube: KubeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], told: str
    ) -> None:
        config = str(tmp_path / "kubeconfig")
        found = chosen("--kubeconfig", config, "--context", "here", "--as", "ann", *flags)

        assert (f"{config} here ann", told) == (name(found), said(capsys))
        assert bool(flags) == (kube.asked == [])

    def test_by_the_configuration_of_the_environment(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("HOMEPORT_CONFIG", "env.yaml")
        chosen("--local")

        assert "this process lists the cluster and judges by the profiles of env.yaml" == said(capsys)

    @pytest.mark.parametrize("flags", [("--local",), ("--saved", "a.json"), ("--server", "http://there"), ()])
    def test_nothing_is_said_to_those_who_want_quiet(
        self, kube: KubeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
    ) -> None:
        chosen("--kubeconfig", tmp_path / "kubeconfig", "-q", *flags)

        assert "" == said(capsys)

    def test_a_watch_is_refused(self, kube: KubeServer, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"^--watch needs a running Homeport \(no Service of Homeport; no ready"):
            chosen("--kubeconfig", tmp_path / "kubeconfig", "--watch")

    def test_a_proxy_that_is_forbidden_is_told(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        instead = pages_at(OPERATOR, {"/api/v1/status": refusal(403, "cannot get services/proxy")})
        with kube_server(ApiServer(operator_service()), instead) as kube:
            chosen("--kubeconfig", kubeconfig(tmp_path, kube.url))

        cause = "Service homeport/homeport-operator: cannot get services/proxy; no ready pod of Homeport"
        assert f"{cause}: this process lists the cluster and judges by the default profile" == said(capsys)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--server", "http://there", "--config", "c"], "--config is for --saved and --local: a running Homeport has"),
        (["--saved", "file", "-w"], "--watch needs a running Homeport: a listed or saved cluster does not change"),
        (["--local", "-w"], "--watch needs a running Homeport: a listed or saved cluster does not change"),
    ],
)
def test_flags_that_do_not_fit_together(flags: list[str], told: str) -> None:
    with pytest.raises(UsageError) as raised:
        chosen(*flags)

    assert str(raised.value).startswith(told)


class TestNobodyAnswers:
    def test_the_urls_nearby_and_the_cluster_are_named(self) -> None:
        with pytest.raises(CommandError) as raised:
            chosen(nearby=("http://127.0.0.1:1", "http://127.0.0.1:2"))

        one, two, cluster, hint = str(raised.value).splitlines()
        assert "http://127.0.0.1:1/api/v1/status: [Errno 111] Connection refused" == one
        assert two.startswith("http://127.0.0.1:2/api/v1/status: ")
        assert ("kubeconfig ~/.kube/config: there is no such file", True) == (cluster, hint.startswith("use --server"))

    def test_without_a_kubeconfig(self) -> None:
        with pytest.raises(CredentialsError, match=r"^kubeconfig ~/.kube/config: there is no such file$"):
            chosen()

    def test_a_context_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(CredentialsError, match=r"kubeconfig: .*nowhere"):
            chosen("--kubeconfig", kubeconfig(tmp_path), "--context", "nowhere")

    def test_something_else_at_the_api_servers_address(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Whether it can be listed is seen by listing."""
        with kube_server(ApiServer(), lambda _: Answer(200, b"<html>")) as kube:
            chosen("--kubeconfig", kubeconfig(tmp_path, kube.url))

        malformed = "JSON is malformed: invalid character (byte 0)"
        assert said(capsys).startswith(f"no Service of Homeport: {malformed}; no pod of Homeport: {malformed}: this")
