"""Completion of ``kubectl homeport``, by the protocol of cobra that kubectl's shell scripts use.

kubectl calls ``kubectl_complete-homeport`` with the words typed so far, of which the last can be empty. It reads one
completion per line, and then a directive.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Final

from app.commands.arguments import kubectl_parser

_NO_FILES: Final = ":4"
"""Directive of cobra: the shell must not offer names of files."""

_LIST: Final = "list"
"""Action of ``homes`` if the user gives no action."""


def completions(words: Sequence[str]) -> list[str]:
    """Return the completions of the last word, and the directive."""
    typed, last = words[:-1], words[-1] if words else ""
    parser: argparse.ArgumentParser = kubectl_parser()
    for word in typed:
        parser = _commands(parser).get(word, parser)
    return [*(word for word in _known(parser, typed[-1] if typed else "", last) if word.startswith(last)), _NO_FILES]


def _known(parser: argparse.ArgumentParser, before: str, last: str) -> Iterable[str]:
    """Return the words that can stand for ``last``: values of the flag ``before``, flags, or commands."""
    commands = _commands(parser)
    if last.startswith("-"):
        return _flags(commands.get(_LIST, parser))
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way to list them
        if before in action.option_strings and action.nargs != 0:
            return map(str, action.choices or ())
    return commands


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the subcommands, by name."""
    for action in parser._actions:  # noqa: SLF001  # see _known
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  # see _known
            return dict(action.choices)
    return {}


def _flags(parser: argparse.ArgumentParser) -> Iterable[str]:
    return [flag for action in parser._actions for flag in action.option_strings]  # noqa: SLF001  # see _known
