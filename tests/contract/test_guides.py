"""docs/plugins and docs/evaluate.md: what they show is run, and what there is they name."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from app.analysis.evaluate import Evaluator
from app.config.loading import load_settings
from app.framework import points
from app.framework.handle import Handle
from app.framework.spec import PluginSpec
from app.runtime.guard import Guard
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, POINT_METHODS, Registry
from app.telemetry.metrics import Metrics
from plugins import SHIPPED
from tests.builders import node_object, pod_object
from tests.contract.pages import blocks, rows, ticked
from tests.contract.venvs import ROOT, cells, homeport, make_venv

GUIDES: Final = ROOT / "docs" / "plugins"
FIRST_FILTER, FIRST_SCORE, REFERENCE = (
    (GUIDES / f"{name}.md").read_text(encoding="utf-8") for name in ("first-filter", "first-score", "reference")
)
EVALUATE: Final = (ROOT / "docs" / "evaluate.md").read_text(encoding="utf-8")


def modules(page: str) -> Mapping[str, str]:
    """The Python files that a page shows, by the name in their first line."""
    return {block.partition("\n")[0].removeprefix("# "): block for block in blocks(page, "python")}


def lay_out(folder: Path, page: str) -> Path:
    """Write the files that a page shows."""
    folder.mkdir()
    for name, text in (*modules(page).items(), *(("pyproject.toml", it) for it in blocks(page, "toml"))):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def exported(module: str) -> list[str]:
    """The names in ``__all__`` of a module of the package homeport."""
    source = ast.parse((ROOT / "homeport" / f"{module}.py").read_text(encoding="utf-8"))
    (names,) = [
        it.value for it in source.body if isinstance(it, ast.Assign) and ast.unparse(it.targets[0]) == "__all__"
    ]
    found: list[str] = ast.literal_eval(names)
    return found


class TestFirstPlugins:
    def test_the_tests_shown_pass(self, tmp_path: Path) -> None:
        for name, page in (("filter", FIRST_FILTER), ("score", FIRST_SCORE)):
            lay_out(tmp_path / name, page)
        command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path)]

        ran = subprocess.run(
            [*command, "-p", "no:cacheprovider"], cwd=tmp_path, capture_output=True, text=True, check=False
        )

        assert (0, True) == (ran.returncode, "3 passed" in ran.stdout), ran.stdout + ran.stderr

    def test_a_plain_plugin_is_ten_statements_of_which_one_imports(self) -> None:
        source = ast.parse(modules(FIRST_FILTER)["quiet_nodes.py"])
        statements = [it for it in ast.walk(source) if isinstance(it, ast.stmt)]

        assert 10 == len(statements)
        assert ["homeport.plugin"] == [it.module for it in statements if isinstance(it, ast.ImportFrom)]
        assert [] == [it for it in statements if isinstance(it, ast.Import)]

    @pytest.mark.long  # it makes a virtual environment; test_third_party.py installs another package the same way
    def test_the_package_is_installed_listed_and_judges(self, tmp_path: Path) -> None:
        venv = make_venv(tmp_path / "venv", lay_out(tmp_path / "project", FIRST_FILTER))
        enabled = [{"name": name} for name in ("PrioritySort", "QuietNodes", "DefaultBinder")]
        profile = {"plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}}}
        quiet, other = node_object("n1", labels={"example.com/quiet": ""}), node_object("n2")
        (tmp_path / "case").write_text(
            json.dumps({"pod": pod_object(), "objects": [quiet, other], "config": profile}), encoding="utf-8"
        )

        listed = homeport(venv, "plugins", cwd=tmp_path).stdout.splitlines()
        verdict = json.loads(homeport(venv, "evaluate", "case", cwd=tmp_path).stdout)

        assert ["QuietNodes", "filter", "label", "-", "-", "quiet_nodes"] == cells(listed[-1])
        assert {"n1": ["node(s) wanted quiet"], "n2": []} == {
            name: found["reasons"] for name, found in verdict["filter"].items()
        }

    @pytest.mark.parametrize(
        ("page", "enabled", "configured"),
        [
            pytest.param(
                FIRST_FILTER,
                ("QuietNodes", 0),
                [("QuietNodes", {"label": "example.com/quiet"})],
                id="first filter",
            ),
            pytest.param(FIRST_SCORE, ("FewNoisyPods", 3), [], id="first score"),
        ],
    )
    def test_the_profile_is_a_good_one(
        self, tmp_path: Path, page: str, enabled: tuple[str, int], configured: list[tuple[str, Any]]
    ) -> None:
        (tmp_path / "homeport.yaml").write_text(blocks(page, "yaml")[0])

        (profile,) = load_settings({}, config=str(tmp_path / "homeport.yaml")).profiles

        assert [enabled] == [(it.name, it.weight) for it in profile.plugins.multi_point.enabled]
        assert configured == [(it.name, it.args) for it in profile.plugin_config]


class TestReference:
    def test_every_extension_point_is_there_in_the_order_of_a_cycle(self) -> None:
        points = [row[0] for row in rows(REFERENCE, "point") if row[0]]

        assert list(POINT_METHODS) == points

    def test_every_method_of_a_base_is_there_and_no_other(self) -> None:
        protocols = [getattr(points, it) for it in exported("plugin") if it.endswith("Plugin")]
        methods = {name for it in protocols for name, had in vars(it).items() if callable(had) and name[0] != "_"}

        assert methods == set(shown_methods())

    def test_every_part_of_the_handle_and_of_a_spec_is_there(self) -> None:
        parts = [ticked(row[0])[0] for row in rows(REFERENCE, "part")]

        assert [*inspect.signature(PluginSpec).parameters, *Handle.__struct_fields__] == parts

    def test_every_name_is_there_once(self) -> None:
        names = [name for row in rows(REFERENCE, "name") for name in ticked(row[0])]

        assert sorted(names) == sorted((*exported("plugin"), *exported("testing")))

    def test_the_version_is_that_of_the_contract(self) -> None:
        source = (ROOT / "homeport" / "plugin.py").read_text(encoding="utf-8")
        (version,) = re.findall(r'^CONTRACT_VERSION: Final = "([0-9]+\.[0-9]+)"$', source, re.MULTILINE)

        assert f"`CONTRACT_VERSION` is `{version}`" in REFERENCE


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
    evaluator = Evaluator(Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))
    return json.loads(evaluator.evaluate(json.dumps(case).encode()))


def shown_methods() -> list[str]:
    """The methods in the tables of the reference."""
    by_point = [name for row in rows(REFERENCE, "point") for name in ticked(row[1])]
    return [*by_point, *(name for row in rows(REFERENCE, "method") for name in ticked(row[0]))]
