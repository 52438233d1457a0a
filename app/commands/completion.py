"""Completion of ``kubectl homeport``, by the protocol of cobra that kubectl's shell scripts use.

kubectl calls ``kubectl_complete-homeport`` with the words typed so far, the last one possibly empty, and reads one
completion a line, then a directive.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from app.commands.arguments import kubectl_parser

_NO_FILES: Final = ":4"
"""Directive of cobra: the shell must not complete names of files."""


def completions(words: Sequence[str]) -> list[str]:
    """Return the completions of the last word, and the directive."""
    typed, last = [it for it in words[:-1] if not it.startswith("-")], words[-1] if words else ""
    parser: argparse.ArgumentParser = kubectl_parser()
    for word in typed:
        parser = _commands(parser).get(word, parser)
    known = _flags(parser) if last.startswith("-") else _commands(parser)
    return [*(word for word in known if word.startswith(last)), _NO_FILES]


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the subcommands, by name."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way to list them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001
        yield from action.option_strings
