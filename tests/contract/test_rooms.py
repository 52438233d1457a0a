"""The rooms of the house and who may enter which: the contracts are in pyproject.toml."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def test_every_import_goes_from_a_higher_room_to_a_lower_one() -> None:
    lint = subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_every_room_says_what_must_not_live_in_it() -> None:
    rooms = sorted((ROOT / "app").glob("*/__init__.py"))

    assert rooms
    assert [] == [room.parent.name for room in rooms if "\nNot here: " not in room.read_text(encoding="utf-8")]
