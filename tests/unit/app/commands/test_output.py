"""Formats of answers, and colours on a terminal only."""

from __future__ import annotations

import io
import json

import pytest
import yaml

from app.commands.output import BAD, coloured, printable, structured

ANSWER = {"name": "wäb", "items": [{"node": "n1"}, {"node": None}], "more": 0}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_json_and_yaml_are_the_whole_answer() -> None:
    as_json, as_yaml = structured(ANSWER, "json"), structured(ANSWER, "yaml")

    assert as_json is not None
    assert as_yaml is not None
    assert ANSWER == json.loads(as_json) == yaml.safe_load(as_yaml)
    assert as_yaml.startswith("name: wäb\nitems:\n- node: n1\n")


@pytest.mark.parametrize("output", ["text", "table", "wide", "name"])
def test_other_formats_are_made_elsewhere(output: str) -> None:
    assert structured(ANSWER, output) is None


def test_a_terminal_has_colours() -> None:
    assert "\x1b[31mno\x1b[0m" == coloured("no", BAD, Terminal())


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_unless_its_user_wants_none(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)

    assert "no" == coloured("no", BAD, Terminal())


def test_a_pipe_has_none() -> None:
    assert "no" == coloured("no", BAD, io.StringIO())


def test_only_line_ends_and_colours_stay_as_they_are() -> None:
    assert "\x1b[31mä\x1b[0m\n\\x1b[2J\\t\\ud800" == printable("\x1b[31mä\x1b[0m\n\x1b[2J\t\ud800")
