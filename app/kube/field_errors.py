"""Error messages for invalid fields. They equal those of ``apimachinery``, so that verdicts equal kube-scheduler's.

Source of the messages: ``pkg/util/validation/field``, ``pkg/util/errors`` and ``pkg/api/validate/content`` of
Kubernetes 1.36. A ``path`` names a field, for example ``[0].matchExpressions[1].key``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

from app.kube.selectors import is_label_key, is_label_value

_MOST_NAME: Final = 63
"""Maximum bytes of a label value, and of the part of a label key after the slash."""

_MOST_PREFIX: Final = 253
"""Maximum bytes of the part of a label key before the slash."""

_CHARACTERS: Final = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_KEY})?"
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"

_EMPTY: Final = "must be non-empty"
_TOO_LONG: Final = "must be no more than {} bytes"
_NO_KEY: Final = (
    f"must {_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_KEY}')"
)
_NO_VALUE: Final = (
    f"a valid label must be an empty string or {_CHARACTERS} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
)
_NO_SUBDOMAIN: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_TOO_MANY_PARTS: Final = (
    f"a valid label key {_NO_KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)

_ESCAPES: Final = {
    "\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\"",
}  # fmt: skip
_IN_JSON: Final = {ord(it): f"\\u{ord(it):04x}" for it in "<>&\u2028\u2029"}


def invalid(path: str, value: str | Sequence[str] | None, detail: str) -> str:
    """Return the error message for an invalid value: a text, a list (printed as JSON), or ``None`` (as ``null``)."""
    shown = _quoted(value) if isinstance(value, str) else _as_json(value)
    return f"{path}: Invalid value: {shown}: {detail}"


def not_supported(path: str, value: str, supported: Iterable[str]) -> str:
    """Return the error message for a value that is not one of ``supported``."""
    return f"{path}: Unsupported value: {_as_json(value)}: supported values: {', '.join(map(_quoted, supported))}"


def aggregate(messages: Iterable[str]) -> str:
    """Join several errors into one message, without duplicates."""
    distinct = list(dict.fromkeys(messages))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def label_key_flaws(key: str) -> list[str]:
    """Return the reasons why ``key`` is not a valid label key; empty if it is valid."""
    if is_label_key(key):
        return []
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [_TOO_MANY_PARTS]
    flaws = _prefix_flaws(prefix) if slash else []
    if not name:
        flaws.append(f"name part {_EMPTY}")
    elif len(name.encode()) > _MOST_NAME:
        flaws.append(f"name part {_TOO_LONG.format(_MOST_NAME)}")
    if not re.fullmatch(_KEY, name):
        flaws.append(f"name part {_NO_KEY}")
    return flaws


def _prefix_flaws(prefix: str) -> list[str]:
    if not prefix:
        return [f"prefix part {_EMPTY}"]
    flaws = [f"prefix part {_TOO_LONG.format(_MOST_PREFIX)}"] if len(prefix.encode()) > _MOST_PREFIX else []
    return flaws if re.fullmatch(_SUBDOMAIN, prefix) else [*flaws, f"prefix part {_NO_SUBDOMAIN}"]


def label_value_flaws(value: str) -> list[str]:
    """Return the reasons why ``value`` is not a valid label value; empty if it is valid."""
    if is_label_value(value):
        return []
    flaws = [_TOO_LONG.format(_MOST_NAME)] if len(value.encode()) > _MOST_NAME else []
    return flaws if re.fullmatch(_VALUE, value) else [*flaws, _NO_VALUE]


def _as_json(value: str | Sequence[str] | None) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_IN_JSON)


def _quoted(text: str) -> str:
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < ord(" ") or code == 0x7F:  # DEL
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # \u has four digits
