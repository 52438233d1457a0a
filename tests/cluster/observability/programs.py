"""Debian's prometheus package: its server and promtool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


class ProgramError(Exception):
    """A program is missing, or says that something is wrong; the message has its words."""


def program(name: str) -> str:
    """The path of ``prometheus`` or ``promtool``. Raises ``ProgramError``."""
    found = shutil.which(name)
    if found is None:
        raise ProgramError(f"{name} is not there: install Debian's package prometheus, as make cluster-test does")
    return found


def promtool(*arguments: str | Path, given: str = "") -> str:
    """What promtool prints, ``given`` on its standard input. Raises ``ProgramError`` where it is not content."""
    command = [program("promtool"), *map(str, arguments)]
    ran = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise ProgramError(f"{' '.join(command)}: {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout + ran.stderr
