"""Throw-away virtual environments in which Homeport can be run with plugins of others."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def make_venv(folder: Path, *projects: Path) -> Path:
    """Installs the projects as anybody would; Homeport, its dependencies and hatchling are borrowed from here."""
    _run(sys.executable, "-m", "venv", "--without-pip", folder)
    borrowed = f"{ROOT}\n{sysconfig.get_path('purelib')}\n"
    (site_packages(folder) / "homeport.pth").write_text(borrowed, encoding="utf-8")
    if projects:
        pip = (sys.executable, "-m", "pip", "--python", python(folder), "--disable-pip-version-check")
        _run(*pip, "install", "--no-index", "--no-deps", "--no-build-isolation", *projects)
    return folder


def homeport(venv: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run one command of Homeport."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HOMEPORT"))}
    command = [str(python(venv)), "-m", "homeport", *arguments]
    return subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)


def python(venv: Path) -> Path:
    return venv / "bin" / "python"


def site_packages(venv: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(venv)}))


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
