"""What authors of plugins import is complete: all that is handed to a plugin, or wanted of it, has a name there."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from typing import Any, Final

import pytest

from app.framework import points
from app.runtime.registry import POINT_METHODS
from homeport import plugin

EXPORTED: Final = {name: getattr(plugin, name) for name in plugin.__all__}
CONTRACT: Final = "app.framework."
"""The package of the contract; classes of ``app.kube`` are Kubernetes' models, and have parts for the engine."""

OF_THE_ENGINE: Final = {"Totals", "Fallbacks", "KnownDomains"}
"""Named in a signature and of no use to an author: totals are kept for nodes; the others serve PodTopologySpread."""


def test_every_base_of_a_plugin_is_exported() -> None:
    bases = {name for name in vars(points) if name.endswith("Plugin")}

    assert set() == bases - EXPORTED.keys()
    assert set(POINT_METHODS.values()) <= {it for it in EXPORTED.values() if isinstance(it, type)}


OF_THE_CONTRACT: Final = [
    name for name, it in EXPORTED.items() if isinstance(it, type) and it.__module__.startswith(CONTRACT)
]


@pytest.mark.parametrize("name", OF_THE_CONTRACT)
def test_every_class_in_the_signatures_of_one_is_exported(name: str) -> None:
    named = {it.__name__ for hint in hints(EXPORTED[name]) for it in classes(hint) if it.__module__.startswith("app.")}

    assert set() == named - EXPORTED.keys() - OF_THE_ENGINE


def hints(found: type[Any]) -> Iterator[Any]:
    """The types of fields, parameters and results, less what begins with an underscore."""
    yield from typing.get_type_hints(found).values()
    for name, it in vars(found).items():
        function = getattr(it, "fget", None) or getattr(it, "__func__", it)
        if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
            yield from typing.get_type_hints(function).values()


def classes(hint: Any) -> Iterator[type[Any]]:
    """The classes that a type names."""
    for part in hint if isinstance(hint, list | tuple) else typing.get_args(hint):
        yield from classes(part)
    origin = typing.get_origin(hint) or hint
    if isinstance(origin, type):
        yield origin
