"""What the builder promises without building anything."""

import os
from pathlib import Path

import pytest

from tests.controlplane import binaries
from tests.controlplane.binaries import BinaryMissingError, BuildError

BROKEN_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.26.8; exit 0; fi
echo "no such module" >&2
exit 1
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONTROL_PLANE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def broken_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(BROKEN_GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}{os.pathsep}{os.environ['PATH']}")


def test_a_missing_binary_names_the_command_that_builds_it(cache: Path) -> None:
    command = "python -m tests.controlplane.binaries --kubernetes 1.36.3"
    with pytest.raises(BinaryMissingError, match=f"^kube-scheduler for Kubernetes 1.36.3 .*{command}$"):
        binaries.binary("kube-scheduler")
    assert not cache.exists()


def test_a_failing_tool_is_an_error_with_its_output(cache: Path, broken_go: None) -> None:
    """And leaves nothing that a later build would take for finished."""
    with pytest.raises(BuildError, match=r"go mod tidy ended with 1:\nno such module"):
        binaries.build("1.36.3")
    assert [path.name for path in (cache / "1.36.3").iterdir()] == [".etcd-module.unfinished"]


def test_a_program_that_cannot_be_built_is_an_error(cache: Path, tmp_path: Path, broken_go: None) -> None:
    """And is not there afterwards, though its module was."""
    (cache / "1.36.3" / "module").mkdir(parents=True)
    sources = tmp_path / "mine"
    sources.mkdir()
    (sources / "main.go").write_text("package main")

    with pytest.raises(BuildError, match=r"go build .*mine ended with 1:\nno such module"):
        binaries.program(sources, "mine-1")
    assert ["module"] == [path.name for path in (cache / "1.36.3").iterdir()]
    assert ["main.go"] == [path.name for path in (cache / "1.36.3" / "module" / "mine").iterdir()]


def test_the_callers_go_settings_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy or a flag of theirs is kept; no toolchain is ever downloaded."""
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOFLAGS", "-buildvcs=false")
    environment = binaries.Toolchain(Path("go")).environment()

    chosen = {name: environment[name] for name in ("GOPROXY", "GOFLAGS", "GOTOOLCHAIN")}
    assert chosen == {"GOPROXY": "off", "GOFLAGS": "-buildvcs=false -mod=mod", "GOTOOLCHAIN": "local"}
