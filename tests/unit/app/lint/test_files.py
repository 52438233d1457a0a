"""Files, folders and standard input."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from app.lint import files
from app.lint.files import read_paths

POD = "apiVersion: v1\nkind: Pod\n"


def test_a_folder(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.txt", ".hidden.yaml", "sub/d.json", ".git/e.yaml", "values.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("a: 1\n" if name == "values.yaml" else '{"apiVersion": "v1", "kind": "Pod"}')

    read, notes = read_paths([str(tmp_path)])

    assert ["a.yaml", "b.yml", "sub/d.json"] == [str(Path(it.file).relative_to(tmp_path)) for it in read.objects]
    assert ([], []) == (read.broken, notes)


def test_only_regular_files_of_a_folder_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(POD)
    (tmp_path / "b.yaml").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "c.yaml")

    read, _ = read_paths([str(tmp_path)])

    assert [str(tmp_path / "a.yaml")] == [it.file for it in read.objects]
    assert [str(tmp_path / "b.yaml")] == [it.file for it in read.broken]


def test_folders_that_cannot_be_read_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.yaml").write_text(POD)
    (tmp_path / "sub").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)  # root can read any folder
    read, _ = read_paths([str(tmp_path)])

    assert [str(tmp_path / "a.yaml")] == [it.file for it in read.objects]
    assert [f"{tmp_path / 'sub'}: cannot be read: Permission denied"] == [str(it) for it in read.broken]


def test_templates_of_a_chart_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "a.yaml").write_text("a: {{ .Values.a }}")
    (tmp_path / "Chart.yaml").write_text("name: a\n")

    read, notes = read_paths([str(tmp_path)])

    assert [f"{tmp_path}: a Helm chart, whose templates are not read: lint the output of helm template"] == notes
    assert [f"{tmp_path}: no manifests in this folder"] == [str(it) for it in read.broken]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(POD.encode())))

    assert ["-"] == [it.file for it in read_paths(["-"])[0].objects]


def test_what_cannot_be_read_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)
    content = {"good": POD.encode(), "text": b"hello", "bytes": b"\xff", "large": b"#" * ((1 << 20) + 1)}
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)

    read, _ = read_paths([str(tmp_path / it) for it in ("none", *content)])

    assert [str(tmp_path / "good")] == [it.file for it in read.objects]
    told = {Path(it.file).name: it.message for it in read.broken}
    beginnings = {
        "none": "cannot be read: [Errno 2]",
        "text": "no Kubernetes objects in it",
        "bytes": "cannot be read: 'utf-8' codec",
        "large": "larger than 1 MiB: read a saved cluster with --saved",
    }
    assert beginnings.keys() == told.keys()
    assert [] == [name for name, text in beginnings.items() if not told[name].startswith(text)]
