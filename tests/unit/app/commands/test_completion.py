"""Completion by the protocol that kubectl's shell scripts speak."""

from __future__ import annotations

import pytest

from app.__main__ import kubectl_complete
from app.commands.completion import completions

COMMANDS = ["explain", "pending", "skew", "homes", "lint", "drain", "simulate", "rebalance", "version"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], COMMANDS),
        ([""], COMMANDS),
        (["e"], ["explain"]),
        (["homes", ""], ["list", "move", "release", "keep"]),
        (["homes", "mo"], ["move"]),
        (["homes", "move", "--fo"], ["--force"]),
        (["-n", "shop", "pen"], ["pending"]),
        (["pending", "-A", "--no"], ["--no-headers"]),
        (["homes", "--orph"], ["--orphaned"]),
        (["pending", "-o", ""], ["table", "wide", "json", "yaml", "name"]),
        (["explain", "--output", "w"], ["wide"]),
        (["explain", "web", ""], []),
        (["nonsense", "e"], ["explain"]),
    ],
)
def test_completions(words: list[str], expected: list[str]) -> None:
    *known, directive = completions(words)

    assert (sorted(expected), ":4") == (sorted(known), directive)


def test_the_program_prints_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == kubectl_complete(["homes", "k"])
    assert "keep\n:4\n" == capsys.readouterr().out
