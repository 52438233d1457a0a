"""``--saved FILE`` in place of a running Homeport, and the file that ``homeport dump`` writes or leaves alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest

from app.__main__ import main
from tests.api.service import SAMPLE
from tests.api.test_explain_command import TOO_FULL
from tests.apiserver import kubeconfig

COMPLETE: Final = {
    "apiVersion": "homeport.dev/v1alpha1",
    "kind": "HomeportConfiguration",
    "profiles": [{"schedulerName": "*", "preset": "complete"}],
}


def ran(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main([*map(str, arguments), *([] if "dump" in arguments else ["-q"])])
    out, err = capsys.readouterr()
    return code, out, err


def test_explain_in_one_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert (0, TOO_FULL, "") == ran(capsys, "explain", "--saved", SAMPLE, "shop/web-7d4b9c-new01")


def test_by_the_profiles_of_a_configuration(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(COMPLETE))

    code, out, _ = ran(
        capsys, "explain", "--saved", SAMPLE, "--config", tmp_path / "config.json", "shop/web-7d4b9c-new01"
    )

    assert (0, False, True) == (code, "not judged" in out, " nodes fit\n" in out)


def test_homes_and_drains(capsys: pytest.CaptureFixture[str]) -> None:
    """Each asks for more than one page."""
    listed = ran(capsys, "homes", "-A", "-o", "name", "--saved", SAMPLE)
    drained = ran(capsys, "drain", "node-b2", "--dry-run", "-o", "name", "--saved", SAMPLE)
    moved = ran(capsys, "homes", "move", "vm/db01", "node-a1", "-n", "machines", "--saved", SAMPLE)

    names = "".join(f"virtualmachine.kubevirt.io/{it}\n" for it in ("cache01", "db01", "mail01"))
    assert (0, names, "") == listed
    assert (0, "pod/web-7d4b9c-r4x8m\npod/virt-launcher-db01-x7k2p\n", "") == drained
    assert (3, "") == moved[:2]
    assert moved[2].endswith("Homeport serves a saved cluster here, so there is no API server to write to\n")


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--saved", "/nowhere"], 2, "homeport: /nowhere: cannot be read: "),
        (
            ["--saved", SAMPLE, "-n", "shop"],
            3,
            'homeport: pods "x" not found in namespace "shop" (finished pods are not in the snapshot)\n',
        ),
        (
            ["--config", "x.yaml", "--server", "http://127.0.0.1:1"],
            2,
            "homeport: --config is for --saved and --local: a running Homeport has its own configuration\n",
        ),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], arguments: list[str | Path], code: int, told: str) -> None:
    exit_code, out, err = ran(capsys, "explain", "x", *arguments)

    assert (code, "", True) == (exit_code, out, err.startswith(told))


def test_a_dump_that_fails_leaves_the_file_as_it_was(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "cluster.json"
    file.write_text("before")
    unreachable = kubeconfig(tmp_path, "http://127.0.0.1:1")

    code, out, err = ran(capsys, "dump", "-o", file, "--kubeconfig", unreachable)

    assert (3, "") == (code, out)
    assert ["before"] == [it.read_text() for it in file.parent.iterdir()]
    assert err.startswith("homeport: v1 Node: the API server (http://127.0.0.1:1) does not answer: ")


def test_a_dump_without_credentials_has_no_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = ran(capsys, "dump", "-o", tmp_path / "cluster.json", "--kubeconfig", tmp_path / "missing")

    assert (3, "", []) == (code, out, list(tmp_path.iterdir()))
    assert err.endswith("there is no such file\n")


def test_a_dump_replaces_nothing_but_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As root, /dev/stdout would be replaced for every process of the container."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    assert (3, "", f"homeport: {pipe} is not a file: it cannot be replaced\n") == ran(capsys, "dump", "-o", pipe)
    assert pipe.is_fifo()
