"""``homeport plugins``: lists the plugins that a profile can name. This module also loads third-party plugins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, get_args

from app.commands import table
from app.config.profile import Preset
from app.framework.handle import DEFAULT_RELEASE
from app.framework.spec import PluginSpec
from app.runtime.profiles import has_point
from app.runtime.registry import POINT_METHODS, Registry

GROUP: Final = "homeport.plugins"
"""Group of the entry points of third-party plugins. Each refers to a ``PluginSpec``, or a list or tuple of them."""


class PluginLoadError(Exception):
    """Raised if a third-party plugin cannot be loaded. The message names its entry point and distribution."""


def installed() -> list[PluginSpec[Any]]:
    """Load and return the plugins of all installed distributions. Raises ``PluginLoadError`` if one fails."""
    return [spec for entry in entry_points(group=GROUP) for spec in _load(entry)]


def _load(entry: EntryPoint) -> list[PluginSpec[Any]]:
    where = f"plugin {entry.name} ({entry.value}) of {entry.dist.name if entry.dist else 'an unknown distribution'}"
    try:
        loaded = entry.load()
    except Exception as error:  # third-party code can raise anything on import
        raise PluginLoadError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    specs = [loaded] if isinstance(loaded, PluginSpec) else list(loaded) if isinstance(loaded, list | tuple) else []
    if not specs or not all(isinstance(spec, PluginSpec) for spec in specs):
        raise PluginLoadError(f"{where} is neither a PluginSpec nor a sequence of them")
    return specs


def listing(in_tree: Iterable[PluginSpec[Any]], others: Iterable[PluginSpec[Any]], defaults: Mapping[str, int]) -> str:
    """Return a table with a row for each plugin, also for several of the same name, and its weight in each preset."""
    presets = {name: Registry((), defaults).preset(name, DEFAULT_RELEASE) for name in get_args(Preset)}
    origins = [(spec, "Homeport") for spec in in_tree] + [(spec, spec.plugin.__module__) for spec in others]
    rows = [(*_row(spec), *(_in_preset(spec, it) for it in presets.values()), origin) for spec, origin in origins]
    return "\n".join(table.lines(("name", "extension points", "arguments", *presets, "from"), rows))


def _in_preset(spec: PluginSpec[Any], weights: Mapping[str, int]) -> str:
    """Return the table cell of a plugin and a preset: the weight of the plugin's score in the preset.

    The cell is "yes" if the preset has the plugin and the plugin has no score, and "-" if the preset lacks the plugin.
    """
    if spec.name not in weights:
        return "-"
    return str(weights[spec.name]) if has_point(spec, "score") else "yes"


def _row(spec: PluginSpec[Any]) -> tuple[str, str, str]:
    points = ", ".join(point for point in POINT_METHODS if has_point(spec, point))
    arguments = ", ".join(
        field.alias or name for name, field in spec.args.model_fields.items() if name not in ("apiVersion", "kind")
    )
    return spec.name, points, arguments or "none"
