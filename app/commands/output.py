"""Formats of answers on standard output: JSON, YAML, and colours on a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO

BAD: Final = "31"
GOOD: Final = "32"
BOLD: Final = "1"
"""Numbers of ANSI codes: red, green and bold."""


_COLOUR: Final = re.compile(r"(\x1b\[[0-9]+m)")


def escaped(text: str) -> str:
    """Return untrusted text with unprintable characters escaped, because a terminal could interpret them."""
    return text if text.isprintable() else "".join(it if it.isprintable() else _escape(it) for it in text)


def printable(text: str) -> str:
    """Return text of several lines with escapes for unprintable characters, except line ends and colours."""
    lines = text.split("\n")
    return "\n".join("".join(it if _COLOUR.fullmatch(it) else escaped(it) for it in _COLOUR.split(at)) for at in lines)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def structured(answer: Mapping[str, Any], output: str) -> str | None:
    """Return an answer as JSON or YAML if ``output`` is one of these formats, else ``None``."""
    if output == "json":
        return json.dumps(answer, indent=2)
    if output == "yaml":
        import yaml  # imported here, because the kubectl plugin for krew has neither this package nor the format YAML

        return str(yaml.safe_dump(dict(answer), sort_keys=False, allow_unicode=True)).rstrip("\n")
    return None


def coloured(text: str, colour: str, stream: TextIO | None = None) -> str:
    """Return the text in a colour if ``stream`` is a terminal; else unchanged. Default: standard output.

    The text is also unchanged if ``NO_COLOR`` is set and not empty, or if ``TERM`` is ``dumb``.
    """
    stream = sys.stdout if stream is None else stream
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return f"\x1b[{colour}m{text}\x1b[0m"
