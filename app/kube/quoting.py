"""Texts in quotes, as kube-scheduler's reasons have them: Go's ``%q``."""

from __future__ import annotations

import unicodedata
from typing import Final

_ESCAPED: Final = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    '"': r"\"",
    "\\": r"\\",
}
_PRINTED: Final = "LMNPS"
"""Categories of characters that are printed as they are: letters, marks, numbers, punctuation, symbols."""

_LONGEST_SHOWN: Final = 128
_TWO_DIGITS: Final = 0x80
_FOUR_DIGITS: Final = 0x10000


def quoted(text: str) -> str:
    """``text`` in double quotes, with escapes for what cannot be printed."""
    return f'"{text}"' if text.isalnum() and text.isascii() else f'"{"".join(map(_shown, text))}"'


def shortened(text: str) -> str:
    """``text`` for a line of a log or a page: as it is if it is short and plain, else quoted and cut."""
    if len(text) <= _LONGEST_SHOWN:
        return text if text.isascii() and text.isprintable() else quoted(text)
    return f"{quoted(text[:_LONGEST_SHOWN])}…"


def _shown(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character == " " or unicodedata.category(character)[0] in _PRINTED:
        return character
    code = ord(character)
    if code < _TWO_DIGITS:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _FOUR_DIGITS else f"\\U{code:08x}"


def not_found(resource: str, name: str) -> str:
    """What a lister of client-go says of an object that is not there."""
    return f"{resource} {quoted(name)} not found"
