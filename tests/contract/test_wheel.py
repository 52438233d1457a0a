"""The wheel is complete, and an installed Homeport runs its own code or none."""

import configparser
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


@dataclass(frozen=True)
class Decoy:
    """A folder with an ``app`` and a ``plugins`` of somebody else, which leave a trace if any line of them runs."""

    folder: Path

    @property
    def trace(self) -> Path:
        return self.folder / "executed"

    def lay_out(self) -> None:
        source = f"open({str(self.trace)!r}, 'a').write(__name__)\n"
        for package in ("app", "plugins"):
            (self.folder / package).mkdir()
            for module in ("__init__.py", "__main__.py"):
                (self.folder / package / module).write_text(source, encoding="utf-8")


@pytest.fixture
def decoy(tmp_path: Path) -> Decoy:
    decoy = Decoy(tmp_path)
    decoy.lay_out()
    return decoy


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dist = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", dist, ROOT)
    return next(dist.glob("homeport-*.whl"))


@pytest.fixture(scope="module")
def venv(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that holds the wheel, and borrows its dependencies from this one."""
    venv = tmp_path_factory.mktemp("venv")
    _run(sys.executable, "-m", "venv", "--without-pip", venv)
    pip = (sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "--disable-pip-version-check")
    _run(*pip, "install", "--no-index", "--no-deps", wheel)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return venv


def test_the_wheel_holds_every_file_of_its_packages_and_no_other(wheel: Path) -> None:
    ours = {
        path.relative_to(ROOT).as_posix()
        for package in ("app", "homeport", "plugins")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    assert ours == packed


def test_the_types_of_what_authors_of_plugins_import_are_those_of_app(wheel: Path) -> None:
    """A type checker reads a package without ``py.typed`` as untyped, also where another one exports its names."""
    assert {"app/py.typed", "homeport/py.typed"} <= set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_says_under_which_licence_it_is_and_brings_its_text(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        folder = f"homeport-{VERSION}.dist-info"
        head = packed.read(f"{folder}/METADATA").decode().partition("\n\n")[0].splitlines()
        text = packed.read(f"{folder}/licenses/LICENSE")

    assert {"License-Expression: Apache-2.0", "License-File: LICENSE"} <= set(head)
    assert [] == [line for line in head if line.startswith("Classifier: License")]
    assert (ROOT / "LICENSE").read_bytes() == text
    assert b"Apache License\n                           Version 2.0, January 2004" in text


def test_the_wheel_has_the_program_the_plugin_of_kubectl_and_its_completion(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        text = packed.read(f"homeport-{VERSION}.dist-info/entry_points.txt").decode()
    scripts = configparser.ConfigParser()
    scripts.optionxform = str  # type: ignore[assignment,method-assign]  # names as they are written
    scripts.read_string(text)

    assert {
        "homeport": "homeport:main",
        "kubectl-homeport": "homeport:kubectl",
        "kubectl_complete-homeport": "homeport:kubectl_complete",
    } == dict(scripts["console_scripts"])


def test_the_installed_plugin_and_its_completion_run(venv: Path, tmp_path: Path) -> None:
    plugin = _in(venv, "kubectl-homeport", "--help", cwd=tmp_path)
    completion = _in(venv, "kubectl_complete-homeport", "ex", cwd=tmp_path)

    assert (0, "") == (plugin.returncode, plugin.stderr)
    assert plugin.stdout.startswith("usage: kubectl homeport ")
    assert (0, "explain") == (completion.returncode, completion.stdout.split()[0])


def test_the_console_script_does_not_care_where_it_is_started(venv: Path, decoy: Decoy) -> None:
    run = _homeport(venv, "version", cwd=decoy.folder)

    assert (0, True, "") == (run.returncode, VERSION in run.stdout, run.stderr)
    assert not decoy.trace.exists()


def test_a_decoy_on_pythonpath_is_refused_and_not_one_line_of_it_runs(venv: Path, decoy: Decoy) -> None:
    run = _homeport(venv, "version", cwd=decoy.folder, PYTHONPATH=str(decoy.folder))

    assert (2, "") == (run.returncode, run.stdout)
    assert str(decoy.folder / "app" / "__init__.py") in run.stderr
    assert str(venv) in run.stderr
    assert f"unset PYTHONPATH, or take {str(decoy.folder)!r} out of it" in run.stderr
    assert not decoy.trace.exists()


def test_the_module_runs_the_same_command_line(venv: Path, tmp_path: Path) -> None:
    run = _in(venv, "python", "-m", "homeport", "version", cwd=tmp_path)

    assert (0, VERSION + "\n", "") == (run.returncode, run.stdout, run.stderr)


@pytest.mark.parametrize("module", ["homeport.plugin", "homeport.testing"])
def test_what_authors_of_plugins_import_refuses_a_decoy_in_the_same_words(
    venv: Path, decoy: Decoy, module: str
) -> None:
    refused = _homeport(venv, "version", cwd=decoy.folder, PYTHONPATH=str(decoy.folder)).stderr
    statement = f"try: import {module}\nexcept ImportError as error: print(error, end='')"

    run = _in(venv, "python", "-c", statement, cwd=venv, PYTHONPATH=str(decoy.folder))

    assert (0, refused, "") == (run.returncode, run.stdout, run.stderr)
    assert not decoy.trace.exists()


def _homeport(venv: Path, *arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return _in(venv, "homeport", *arguments, cwd=cwd, **environ)


def _in(venv: Path, command: str, *arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HOMEPORT"))}
    return subprocess.run(
        [str(venv / "bin" / command), *arguments],
        cwd=cwd,
        env=clean | environ,
        capture_output=True,
        text=True,
        check=False,
    )


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
