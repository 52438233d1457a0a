"""docs/what-if.md shows what the commands print about the sample cluster."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from app.__main__ import main
from tests.api.service import ROOT, SAMPLE

PAGE: Final = Path(ROOT / "docs" / "what-if.md").read_text(encoding="utf-8")
EXAMPLES: Final = dict(re.findall(r"```console\n\$ homeport (.+)\n((?:.*\n)*?)```", PAGE))
"""Output of each command."""


def test_each_question_has_an_example() -> None:
    asked = re.findall(r"^\| .+ \| \[`homeport (\w+)`\]", PAGE, re.MULTILINE)

    assert asked
    assert asked == list(dict.fromkeys(command.split()[0] for command in EXAMPLES))


@pytest.mark.parametrize("command", EXAMPLES)
def test_what_is_printed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main([*shlex.split(command), "--saved", str(SAMPLE), "-q"])

    assert code in (0, 1)
    assert EXAMPLES[command] == capsys.readouterr().out
