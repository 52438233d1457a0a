"""Completion by the protocol that kubectl's shell scripts speak."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.__main__ import kubectl_complete
from app.commands.completion import completions
from app.kube.credentials import Login
from tests.apiserver import kubeconfig

pytestmark = pytest.mark.usefixtures("nobodys_cluster")

COMMANDS = ["explain", "pending", "skew", "homes", "lint", "drain", "simulate", "lose", "rebalance"]
COMMANDS += ["report", "ui", "version"]


def names(login: Login, path: str) -> list[str]:
    assert Login() == login
    *_, plural = path.split("/")
    namespace = f"@{path.split('/')[-2]}" if "/namespaces/" in path else ""
    return [f"{plural}{namespace}-{number}" for number in (1, 2)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], COMMANDS),
        ([""], COMMANDS),
        (["e"], ["explain"]),
        (["homes", ""], ["list", "move", "release", "keep"]),
        (["homes", "mo"], ["move"]),
        (["homes", "move", "--fo"], ["--force"]),
        (["-n", "shop", "pen"], ["pending"]),
        (["pending", "-A", "--no"], ["--no-headers"]),
        (["homes", "--orph"], ["--orphaned"]),
        (["pending", "-o", ""], ["table", "wide", "json", "yaml", "name"]),
        (["explain", "--output", "w"], ["wide"]),
        (["explain", "web", ""], []),
        (["explain", ""], ["pods@default-1", "pods@default-2"]),
        (["explain", "-n", "shop", "--node", "n1", "pods@shop-"], ["pods@shop-1", "pods@shop-2"]),
        (["explain", "pod/"], ["pod/pods@default-1", "pod/pods@default-2"]),
        (["explain", "shop/"], ["shop/pods@shop-1", "shop/pods@shop-2"]),
        (["explain", "--namespace=shop", "deploy/"], ["deploy/deployments@shop-1", "deploy/deployments@shop-2"]),
        (["skew", "sts/"], ["sts/statefulsets@default-1", "sts/statefulsets@default-2"]),
        (["skew", ""], []),
        (["skew", "nonsense/"], []),
        (["drain", "nodes-"], ["nodes-1", "nodes-2"]),
        (["drain", "--dry-run", "nodes-1", "nodes-"], ["nodes-1", "nodes-2"]),
        (["explain", "web", "--node", ""], ["nodes-1", "nodes-2"]),
        (["homes", "move", "vm/"], ["vm/virtualmachines@default-1", "vm/virtualmachines@default-2"]),
        (["homes", "move", "vm/db01", ""], ["nodes-1", "nodes-2"]),
        (["pending", "-n", "namespaces-1"], ["namespaces-1"]),
        (["homes", "--node", "nodes-2"], ["nodes-2"]),
        (["lint", ""], []),
        (["nonsense", "e"], ["explain"]),
    ],
)
def test_completions(words: list[str], expected: list[str]) -> None:
    *known, directive = completions(words, names)

    assert (sorted(expected), ":4") == (sorted(known), directive)


def test_the_program_prints_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == kubectl_complete(["homes", "k"])
    assert "keep\n:4\n" == capsys.readouterr().out


def test_the_login_is_that_of_the_flags() -> None:
    asked: list[tuple[Login, str]] = []

    def none(login: Login, path: str) -> list[str]:
        asked.append((login, path))
        return []

    flags = ["--kubeconfig", "file", "--context=east", "--as", "jane", "-n", "shop"]
    assert [":4"] == completions(["explain", *flags, "cj/"], none)
    assert [(Login("file", "east", "jane"), "/apis/batch/v1/namespaces/shop/cronjobs")] == asked


def test_without_an_api_server_there_are_no_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == kubectl_complete(["drain", ""])
    assert 0 == kubectl_complete(["explain", "--kubeconfig", "/nowhere", ""])
    assert (":4\n:4\n", "") == capsys.readouterr()


def test_a_silent_api_server_ends_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = kubeconfig(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        code = "from app.__main__ import kubectl_complete; kubectl_complete()"
        words = ["drain", "--kubeconfig", str(config), ""]
        run = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=False)

    assert (-signal.SIGALRM, b"", b"") == (run.returncode, run.stdout, run.stderr)
