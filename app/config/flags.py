"""Command-line flags: one for each setting, including nested ones.

A setting with an equivalent flag in kube-scheduler has its name, as ``--leader-elect-lease-duration``. Lists of
mappings have no flag: profiles come from the file, or as JSON from the environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.config.mistakes import Place, as_model, bare, field_names

_PREFIXES: Final = {"leader_election": "leader-elect"}
"""Prefix of kube-scheduler's flags for a nested setting, if it differs from the setting's name."""


class Flag(Struct, frozen=True):
    """Flag and its setting. ``name`` has no leading dashes.

    ``place``: path in the file; ``setting``: name of the field.
    """

    name: str
    place: Place
    setting: str
    info: FieldInfo

    @property
    def switches(self) -> bool:
        """True for a Boolean flag, which can be given without a value and then means true."""
        return bare(self.info.annotation)[0] is bool


def flags_of(model: type[BaseModel]) -> Iterator[Flag]:
    """Yield the flags in the order of the settings."""
    for written, name in field_names(model).items():
        info = model.model_fields[name]
        inner = as_model(bare(info.annotation)[0])
        if inner is not None:
            yield from _nested(inner, written, name)
        elif not _holds_mappings(info):
            yield Flag(_dashed(name), (written,), name, info)


def _nested(model: type[BaseModel], at: str, setting: str) -> Iterator[Flag]:
    prefix = _PREFIXES.get(setting, _dashed(setting))
    for written, name in field_names(model).items():
        own = _dashed(name)
        yield Flag(own if own == prefix else f"{prefix}-{own}", (at, written), setting, model.model_fields[name])


def given_by(flags: Iterable[Flag], values: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the settings given by flags, by field; a nested setting as a mapping. ``values``: by flag."""
    settings: dict[str, Any] = {}
    for flag in flags:
        value = values.get(flag.name)
        if value is None:
            continue
        if len(flag.place) == 1:
            settings[flag.setting] = value
        else:
            settings.setdefault(flag.setting, {})[flag.place[1]] = value
    return settings


def flag_at(model: type[BaseModel], place: Place) -> str:
    """Return the name of the flag that sets a place or its parent; empty if there is none."""
    return next((it.name for it in flags_of(model) if it.place == place[: len(it.place)]), "")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _holds_mappings(info: FieldInfo) -> bool:
    kind = bare(info.annotation)[0]
    return get_origin(kind) is tuple and as_model(get_args(kind)[0]) is not None
