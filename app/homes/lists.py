"""Homes of all profiles, as the plugins that keep them list them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from app.homes.protocol import Home, HomesPlugin, Keeper
from app.kube.core_v1 import Pod
from app.runtime.asking import question, steps_of
from app.runtime.framework import Framework
from app.runtime.guard import Guard, WrongAnswer
from app.runtime.slots import declares

_POINT: Final = "Homes"
"""Name of these calls in metrics and messages."""


class HomeLists:
    """Homes of ``frameworks``. Every method raises ``PluginError``: half a list would look like all of it."""

    def __init__(self, frameworks: Iterable[Framework], guard: Guard) -> None:
        self._guard = guard
        self._frameworks = tuple(frameworks)
        for framework in self._frameworks:
            for name, _ in _keeping(framework):
                guard.expect(name, _POINT)

    def homes(self) -> Iterator[Home | None]:
        """Yield the homes of all profiles in short steps; a home that several profiles keep comes as often."""
        for framework in self._frameworks:
            for name, plugin in _keeping(framework):
                for found in steps_of(self._guard, name, _POINT, plugin.homes):
                    if found is not None and not isinstance(found, Home):
                        raise self._guard.wrong(name, _POINT, found, "a Home")
                    yield found

    def home_of(self, framework: Framework, pod: Pod) -> Home | None:
        """Return the home of one pod, by the profile's first plugin that keeps one for it; ``None`` without."""
        with question():
            for name, plugin in _keeping(framework):
                found = self._guard.call(name, _POINT, _home_of, plugin, pod)
                if found is not None:
                    return found
        return None

    def keepers(self) -> list[tuple[str, Keeper]]:
        """Return the kinds of objects that keep homes, each with its plugin's name, by profile."""
        with question():
            return [
                (name, it)
                for framework in self._frameworks
                for name, plugin in _keeping(framework)
                for it in self._guard.call(name, _POINT, _keepers_of, plugin)
            ]


def _keeping(framework: Framework) -> list[tuple[str, HomesPlugin]]:
    return [(name, it) for name, it in framework.plugins.items() if declares(type(it), HomesPlugin)]


def _home_of(plugin: HomesPlugin, pod: Pod) -> Home | None:
    found: object = plugin.home_of(pod)
    if found is not None and not isinstance(found, Home):
        raise WrongAnswer(f"returned a {type(found).__name__}, not a Home")
    return found


def _keepers_of(plugin: HomesPlugin) -> tuple[Keeper, ...]:
    found: tuple[Any, ...] = tuple(plugin.keepers())
    if not all(isinstance(it, Keeper) for it in found):
        raise WrongAnswer("returned something else than Keepers")
    return found
