"""docs/plugins.md and docs/evaluate.md: what they show is run, and what there is they name."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from app.config.settings import load_settings
from app.framework import interface
from app.framework.interface import Handle, PluginSpec
from app.runtime.guard import Guard
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, POINT_METHODS, Registry
from app.telemetry.metrics import Metrics
from app.verbs.evaluate import Evaluator
from plugins import IN_TREE
from tests.contract.venvs import ROOT, cells, homeport, make_venv

PLUGINS: Final = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
EVALUATE: Final = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def modules() -> Mapping[str, str]:
    """The Python shown, by the file name that its first line gives."""
    return {block.partition("\n")[0].removeprefix("# "): block for block in blocks(PLUGINS, "python")}


def lay_out(folder: Path) -> Path:
    """The guide's plugin as a project."""
    folder.mkdir()
    for name, text in (*modules().items(), ("pyproject.toml", blocks(PLUGINS, "toml")[0])):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


class TestWriteAPlugin:
    def test_the_first_test_passes_and_has_ten_lines(self, tmp_path: Path) -> None:
        project = lay_out(tmp_path / "project")
        command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(project)]

        ran = subprocess.run(
            [*command, "-p", "no:cacheprovider"], cwd=project, capture_output=True, text=True, check=False
        )

        assert (0, True) == (ran.returncode, "1 passed" in ran.stdout), ran.stdout + ran.stderr
        assert 10 == len(modules()["test_quiet_nodes.py"].splitlines()[1:])

    def test_the_package_is_installed_and_listed(self, tmp_path: Path) -> None:
        venv = make_venv(tmp_path / "venv", lay_out(tmp_path / "project"))

        listed = homeport(venv, "plugins", cwd=tmp_path).stdout.splitlines()

        assert ["QuietNodes", "filter", "label", "-", "-", "quiet_nodes"] == cells(listed[-1])

    def test_the_profile_is_a_good_one(self, tmp_path: Path) -> None:
        (tmp_path / "homeport.yaml").write_text(blocks(PLUGINS, "yaml")[0])

        (profile,) = load_settings({}, config=str(tmp_path / "homeport.yaml")).profiles

        assert [("QuietNodes", {"label": "example.com/quiet"})] == [(it.name, it.args) for it in profile.plugin_config]

    def test_every_extension_point_is_there_in_the_order_of_a_cycle(self) -> None:
        points = [row[0] for row in rows(PLUGINS, "point") if row[0]]

        assert list(POINT_METHODS) == points

    def test_every_method_of_a_plugin_is_there_and_no_other(self) -> None:
        protocols = [it for name, it in vars(interface).items() if name.endswith(("Plugin", "Extensions"))]
        methods = {name for it in protocols for name, had in vars(it).items() if callable(had) and name[0] != "_"}

        assert methods == set(shown_methods())

    def test_every_part_of_the_handle_and_of_a_spec_is_there(self) -> None:
        parts = [ticked(row[0])[0] for row in rows(PLUGINS, "part")]

        assert [*inspect.signature(PluginSpec).parameters, *Handle.__struct_fields__] == parts


class TestEvaluate:
    def test_the_case_gets_the_verdict_shown(self) -> None:
        case, verdict, _ = blocks(EVALUATE, "json")

        assert json.loads(verdict) == evaluated(json.loads(case))

    def test_a_case_without_a_pod_gets_the_error_shown(self) -> None:
        case, _, error = map(json.loads, blocks(EVALUATE, "json"))
        del case["pod"]

        assert error == evaluated(case)

    def test_every_field_of_a_case_and_of_a_verdict_is_there(self) -> None:
        case, verdict, error = map(json.loads, blocks(EVALUATE, "json"))

        assert {*case, "preempt", *verdict, *error} == {ticked(row[0])[0] for row in rows(EVALUATE, "field")}


def evaluated(case: Any) -> Any:
    evaluator = Evaluator(Registry(IN_TREE, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))
    return json.loads(evaluator.evaluate(json.dumps(case).encode()))


def rows(page: str, head: str) -> list[list[str]]:
    """The rows of every table whose first column is called so."""
    found = []
    for table in page.split(f"| {head} |")[1:]:
        for line in table.splitlines()[2:]:
            if not line.startswith("|"):
                break
            found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def shown_methods() -> list[str]:
    """The methods in the tables of the guide."""
    by_point = [name for row in rows(PLUGINS, "point") for name in ticked(row[1])]
    return [*by_point, *(name for row in rows(PLUGINS, "method") for name in ticked(row[0]))]


def ticked(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)
