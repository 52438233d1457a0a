"""Quoting like Go's ``%q``, because kube-scheduler's messages use it."""

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
"""Unicode categories printed without escapes, except ``_ESCAPED``: letters, marks, numbers, punctuation, symbols."""

_LONGEST_SHOWN: Final = 128
"""Maximum number of characters that ``shortened`` keeps of a text."""

_TWO_DIGITS: Final = 0x80
_FOUR_DIGITS: Final = 0x10000


def quoted(text: str) -> str:
    """Return ``text`` in double quotes, with quotes, backslashes and unprintable characters escaped."""
    return f'"{text}"' if text.isalnum() and text.isascii() else f'"{"".join(map(_shown, text))}"'


def shortened(text: str) -> str:
    """Return ``text`` for a log line or a page: unchanged if it is short and printable ASCII; else quoted.

    A text of more than ``_LONGEST_SHOWN`` characters is truncated.
    """
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
    """Return the error text with which a client-go lister reports a missing object."""
    return f"{resource} {quoted(name)} not found"
