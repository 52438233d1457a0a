"""Values of the settings and their sources: the command line, a variable, the file, or the default."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from pydantic import BaseModel

from app.config.document import Document
from app.config.flags import flag_at
from app.config.mistakes import NOTHING, Mistake, Place, default_at, field_names, value_at, written
from app.config.variables import Variables

_LONGEST_VALUE: Final = 80


class SettingSources(Struct, frozen=True):
    """Sources of the settings. ``flags`` and ``in_file`` map field names to values.

    Flags take precedence over variables, and variables over the file. A flag of a nested setting replaces only its own
    part, and keeps the other parts from variables or file.
    """

    model: type[BaseModel]
    flags: Mapping[str, Any]
    variables: Variables
    in_file: Mapping[str, Any]
    document: Document | None

    @property
    def values(self) -> dict[str, Any]:
        """Values after the sources are merged, by field name. Defaults are not included."""
        below = self.below_flags
        return {**below, **{name: _laid_over(below.get(name), it) for name, it in self.flags.items()}}

    @property
    def below_flags(self) -> dict[str, Any]:
        """Values from variables and file, by field name. Variables take precedence."""
        return {**self.in_file, **self.variables.values}

    def from_elsewhere(self, name: str) -> Any:
        """Return a field's value in variables or file, without the parts that flags set.

        ``None`` if a flag sets the whole field, or if neither variables nor file have it.
        """
        given, below = self.flags.get(name), self.below_flags.get(name)
        if isinstance(given, Mapping) and isinstance(below, Mapping):
            return {part: it for part, it in below.items() if part not in given}
        return None if name in self.flags and not isinstance(given, Mapping) else below

    def sentence(self, mistake: Mistake) -> str:
        """Return a mistake as text: the settings with their values and sources, then the message."""
        settings = ", ".join(self._described(place) for place in mistake.places)
        return f"{settings}: {mistake.message}" if settings else mistake.message

    def field(self, place: Place) -> str:
        """Return the name of the settings field that contains ``place``; empty if ``place`` is unknown or empty."""
        return field_names(self.model).get(str(place[0]), "") if place else ""

    def _described(self, place: Place) -> str:
        value = self._value(place)
        if value is not NOTHING:
            return f"{written(place)} {_shown(value)} ({self._origin(place)})"
        default = default_at(self.model, place)
        if default is not None:
            return f"{written(place)} {default} (default)"
        return f"{written(place)} ({self._origin(place)})"

    def _origin(self, place: Place) -> str:
        name = self.field(place)
        flags = [f"--{it}" for it in self._flags(name, place)]
        if flags:
            origin = f"flag{'s' if len(flags) > 1 else ''} {', '.join(flags)}"
            is_part = len(place) == 1 and isinstance(self.flags[name], Mapping) and name in self.below_flags
            return f"{self._below(name, place)}, and {origin}" if is_part else origin
        return self._below(name, place)

    def _below(self, name: str, place: Place) -> str:
        if name in self.variables.names:
            return f"variable {self.variables.names[name]}"
        if self.document is not None and (name in self.in_file or not name):
            return self.document.where(place)
        return "default"

    def _flags(self, name: str, place: Place) -> list[str]:
        """Return the flags that set the setting at ``place``, or a part of it. ``name``: the field of ``place``."""
        given = self.flags.get(name)
        if not isinstance(given, Mapping):
            return [flag_at(self.model, place)] if name in self.flags else []
        parts = place[1:2] if len(place) > 1 else tuple(given)
        return [flag_at(self.model, (place[0], part)) for part in parts if part in given]

    def _value(self, place: Place) -> Any:
        name = self.field(place)
        if name:
            return value_at(self.values[name], place[1:]) if name in self.values else NOTHING
        return value_at(self.document.value, place) if self.document is not None else NOTHING


def _laid_over(below: Any, given: Any) -> Any:
    """Return ``given``, except if it has parts of a nested setting and ``below`` is not ``None``.

    Then return ``below`` with these parts merged into it. If ``below`` is not a mapping, it is returned unchanged, so
    that validation reports it.
    """
    if isinstance(given, Mapping) and below is not None:
        return {**below, **given} if isinstance(below, Mapping) else below
    return given


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
