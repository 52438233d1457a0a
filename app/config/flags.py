"""Command-line flags of the settings, including nested settings.

If kube-scheduler has a flag for a setting, the flag has the same name, for example ``--leader-elect-lease-duration``.
Lists of mappings have no flag. So profiles can be set only in the file, or as JSON in an environment variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.config.mistakes import Place, as_model, bare, field_names

_PREFIXES: Final = {"leader_election": "leader-elect"}
"""Prefix of the flags of a nested setting, by field, where kube-scheduler's prefix differs from the field's name."""


class Flag(Struct, frozen=True):
    """Flag of the command line and the setting that it sets. ``name`` has no leading dashes.

    ``place`` is the path of the setting in the file. ``setting`` is the name of the field in the model; for a
    nested setting, that of its parent.
    """

    name: str
    place: Place
    setting: str
    info: FieldInfo

    @property
    def switches(self) -> bool:
        """True for the flag of a Boolean setting. Without a value, the flag sets it to true."""
        return bare(self.info.annotation)[0] is bool


def flags_of(model: type[BaseModel]) -> Iterator[Flag]:
    """Yield the flags of a model's settings, in the order of its fields."""
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
    """Return the settings that flags set, by field name. A nested setting is a mapping with the names in the file.

    ``values`` maps names of flags to their values; ``None`` if a flag is not given.
    """
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
    """Return the name of the flag that sets the setting at ``place`` or one of its parents; empty if no flag does."""
    return next((it.name for it in flags_of(model) if it.place == place[: len(it.place)]), "")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _holds_mappings(info: FieldInfo) -> bool:
    kind = bare(info.annotation)[0]
    return get_origin(kind) is tuple and as_model(get_args(kind)[0]) is not None
