"""``homeport ui``: which Homeport a browser is sent to."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from app.__main__ import kubectl, main
from app.commands.sources import NOTHING_RUNS
from tests.apiserver import ApiServer, kubeconfig
from tests.kubeserver import kube_server


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that the browser opened."""
    addresses: list[str] = []

    def record(address: str) -> bool:
        addresses.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", record)
    return addresses


def test_the_page_of_a_server_is_opened(opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["ui", "--server", "http://homeport.example.com/prefix/"])

    address = "http://homeport.example.com/prefix/ui/"
    assert (0, f"{address}\n", [address]) == (code, capsys.readouterr().out, opened)


def test_without_a_browser_the_address_is_printed(opened: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["ui", "--no-browser", "--server", "http://127.0.0.1:1"])

    assert (0, "http://127.0.0.1:1/ui/\n", []) == (code, capsys.readouterr().out, opened)


def test_without_a_homeport_the_report_is_offered(
    opened: list[str], nobodys_cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with kube_server(ApiServer()) as server:
        code = kubectl(["ui", "--kubeconfig", str(kubeconfig(nobodys_cluster, server.url))])

    assert (3, f"homeport: no ready pod of Homeport\nhomeport: {NOTHING_RUNS}\n", []) == (
        code,
        capsys.readouterr().err,
        opened,
    )
