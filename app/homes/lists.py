"""Homes of all profiles, as listed by the plugins that keep homes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from app.homes.protocol import Home, HomesPlugin, Keeper
from app.kube.core_v1 import Pod
from app.runtime.framework import Framework
from app.runtime.guard import Guard, WrongAnswer
from app.runtime.read_only import read_only, read_only_steps
from app.runtime.slots import declares

_POINT: Final = "Homes"
"""Name under which metrics and messages show all calls of ``HomesPlugin`` methods."""


class HomeLists:
    """Homes that the plugins of ``frameworks`` list. There is one framework for each profile.

    Every method raises ``PluginError`` if a plugin fails, because callers cannot see that a list is incomplete.
    """

    def __init__(self, frameworks: Iterable[Framework], guard: Guard) -> None:
        self._guard = guard
        self._frameworks = tuple(frameworks)
        for framework in self._frameworks:
            for name, _ in _keeping(framework):
                guard.expect(name, _POINT)

    def homes(self) -> Iterator[Home | None]:
        """Yield the homes of all profiles, and ``None`` after each step. A home in several profiles is repeated."""
        for framework in self._frameworks:
            for name, plugin in _keeping(framework):
                for item in read_only_steps(self._guard, name, _POINT, plugin.homes):
                    if item is not None and not isinstance(item, Home):
                        raise self._guard.wrong_answer(name, _POINT, item, "a Home")
                    yield item

    def home_of(self, framework: Framework, pod: Pod) -> Home | None:
        """Return the home of a pod, from the first plugin whose ``home_of`` is not ``None``; else ``None``.

        ``framework``: framework of the pod's profile.
        """
        with read_only():
            for name, plugin in _keeping(framework):
                home = self._guard.call(name, _POINT, _home_of, plugin, pod)
                if home is not None:
                    return home
        return None

    def keepers(self) -> list[tuple[str, Keeper]]:
        """Return (name of a plugin that keeps homes, kind of its owners) for all profiles; pairs can be repeated."""
        with read_only():
            return [
                (name, it)
                for framework in self._frameworks
                for name, plugin in _keeping(framework)
                for it in self._guard.call(name, _POINT, _keepers_of, plugin)
            ]


def share_memory(framework: Framework, deciding: Framework) -> None:
    """Call ``share_memory`` of each plugin of ``framework`` that keeps homes, with the same plugin of ``deciding``."""
    for name, plugin in _keeping(deciding):
        framework.plugins[name].share_memory(plugin)


def _keeping(framework: Framework) -> list[tuple[str, HomesPlugin]]:
    """Return the plugins of a framework that keep homes, with their names."""
    return [(name, it) for name, it in framework.plugins.items() if declares(type(it), HomesPlugin)]


def _home_of(plugin: HomesPlugin, pod: Pod) -> Home | None:
    home: object = plugin.home_of(pod)
    if home is not None and not isinstance(home, Home):
        raise WrongAnswer(f"returned a {type(home).__name__}, not a Home")
    return home


def _keepers_of(plugin: HomesPlugin) -> tuple[Keeper, ...]:
    keepers: tuple[Any, ...] = tuple(plugin.keepers())
    if not all(isinstance(it, Keeper) for it in keepers):
        raise WrongAnswer("returned something else than Keepers")
    return keepers
