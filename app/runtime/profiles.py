"""Checked profile: the plugins at each extension point, their order and weights, and the access that they need.

Source of the rules: ``framework/runtime`` of Kubernetes 1.36.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from app.config.mistakes import Mistake, Place
from app.config.profile import PluginRef, PluginSet, Preemption, Preset
from app.framework.parts import Part, extras_of
from app.framework.points import Plugin
from app.framework.spec import Needs, PluginArgs, PluginSpec
from app.framework.uses import Use
from app.kube.core_decoding import CoreV1, core_v1
from app.kube.kinds import Kind
from app.runtime.registry import POINT_METHODS
from app.runtime.slots import declares, overrides

DECIDING: Final = ("preFilter", "filter")
"""Extension points that determine which nodes a pod can use."""

CHOOSING: Final = ("preEnqueue", *DECIDING, "postFilter", "preScore", "score")
"""Extension points up to the choice of a node, without ``queueSort``."""

EVERY_PLUGIN: Final = "*"
"""Name in ``disabled`` that stands for all plugins."""


class ProfileErrors(ValueError):
    """Error: the profiles have mistakes. ``mistakes``: the mistakes, with their paths in the document. ``messages``:
    their texts without the paths.
    """

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        self.messages = tuple(it.message for it in mistakes)
        super().__init__("\n".join(self.messages))


class ResolvedProfile(Struct, frozen=True):
    """Checked profile: plugin sets merged with the defaults and arguments parsed, but no plugin created yet.

    ``place``: path of the profile in the document. ``absent``: enabled in-tree plugins that run only in the scheduler.
    ``bind_recheck``: plugins named for the check before a bind. ``at_most``: maximum number of nodes in a lean answer
    (an answer of a path below ``/lean``), 0 for all. ``pick``: True if a lean answer names only the best node.
    ``not_judged``: filters of kube-scheduler's default profile that this profile does not run. ``lacking``: registered
    plugins of that default profile, each with its weight there, that this profile leaves out at one or more points of
    ``CHOOSING``.
    """

    place: Place
    scheduler_name: str
    release: str
    multi_point: tuple[PluginRef, ...]
    points: Mapping[str, PluginSet]
    args: Mapping[str, PluginArgs]
    specs: Mapping[str, PluginSpec[Any]]
    absent: tuple[str, ...]
    notices: tuple[str, ...]
    preset: Preset = "delegated"
    preemption: Preemption = "Never"
    bind_recheck: tuple[str, ...] = ()
    at_most: int = 0
    pick: bool = False
    not_judged: tuple[str, ...] = ()
    lacking: Mapping[str, tuple[PluginSpec[Any], int]] = {}

    def at(self, point: str) -> tuple[PluginRef, ...]:
        """Return the plugins at an extension point, in order.

        The order is: plugins that both the point and multiPoint enable, other plugins of multiPoint, other plugins of
        the point.
        """
        custom = self.points[point]
        explicit = {ref.name: ref for ref in custom.enabled if ref.name in self.specs}
        disabled = {ref.name for ref in custom.disabled}
        everywhere = (
            {} if EVERY_PLUGIN in disabled else {ref.name: ref for ref in self.multi_point if ref.name in self.specs}
        )
        multi = {
            name: ref
            for name, ref in everywhere.items()
            if name not in disabled and name not in explicit and has_point(self.specs[name], point)
        }
        both = {name for name in explicit if name in everywhere and name not in disabled}
        first = [ref for name, ref in explicit.items() if name in both]
        last = [ref for name, ref in explicit.items() if name not in both]
        return (*first, *multi.values(), *last)

    def added_at_bind(self, point: str) -> tuple[PluginRef, ...]:
        """Return the plugins that run at ``point``, one of ``DECIDING``, only in the check before a bind.

        They are in the order of ``bindRecheck``.
        """
        if not self.bind_recheck:
            return ()
        runs = {ref.name for ref in self.at(point)}
        names = [it for it in self.bind_recheck if it not in runs and has_point(self.specs[it], point)]
        return tuple(PluginRef(name=name) for name in names)

    def with_defaults(self) -> ResolvedProfile:
        """Return a profile with more plugins: those in ``lacking`` and those in ``bind_recheck``.

        The added plugins run after the profile's own, and only at the points of ``CHOOSING``. Plugins in ``lacking``
        get their default weights, and their default arguments unless ``args`` has arguments for them.
        """
        specs = {**{name: spec for name, (spec, _) in self.lacking.items()}, **self.specs}
        weights = {name: weight for name, (_, weight) in self.lacking.items()}
        points = dict(self.points)
        for point in CHOOSING:
            runs = {ref.name for ref in self.at(point)}
            names = [it for it in dict.fromkeys((*self.lacking, *self.bind_recheck)) if it not in runs]
            added = tuple(PluginRef(name=it, weight=weights.get(it, 0)) for it in names if has_point(specs[it], point))
            points[point] = PluginSet(enabled=(*points[point].enabled, *added), disabled=points[point].disabled)
        args = {name: spec.args() for name, (spec, _) in self.lacking.items()} | dict(self.args)
        lost = tuple(it for it in self.not_judged if it not in self.lacking)
        return replace(self, specs=specs, points=points, args=args, bind_recheck=(), not_judged=lost, lacking={})

    def uses(self) -> Iterable[Use]:
        """Yield each plugin's access to each kind besides pods and nodes. Raises ``ProfileErrors`` if ``needs`` of a
        plugin fails.
        """
        for name in self.specs:
            yield from self._uses_of(name)

    def _uses_of(self, name: str) -> Iterator[Use]:
        needs = self._needs_of(name)
        looks_up = overrides(self.specs[name].plugin, Plugin, "required_objects")
        written = {it.kind: it for it in needs.writes}
        for kind in dict.fromkeys((*needs.kinds, *written)):
            writes = written.get(kind)
            what, whole = (writes.what, writes.whole) if writes is not None else ("", False)
            yield Use(name, kind, looks_up=looks_up, writes=what, whole=whole)

    def parts(self) -> set[Part]:
        """Return the parts of pods and nodes that the profile's plugins declare. Raises ``ProfileErrors`` if ``needs``
        of a plugin fails.
        """
        return {part for name, it in self.specs.items() for part in (*(it.parts or ()), *self._needs_of(name).parts)}

    def node_annotations(self) -> set[str]:
        """Return the keys of node annotations that the profile's plugins declare. Raises ``ProfileErrors`` if ``needs``
        of a plugin fails.
        """
        return {key for name in self.specs for key in self._needs_of(name).node_annotations}

    def undeclared(self) -> Iterable[Mistake]:
        """Yield a mistake for each plugin with valid arguments whose ``needs`` fails."""
        for name in self.args:
            try:
                self._needs_of(name)
            except ProfileErrors as error:
                yield from error.mistakes

    def _needs_of(self, plugin: str) -> Needs:
        """Return ``needs`` of a plugin for its arguments. Converts any exception into ``ProfileErrors``, because
        plugins are foreign code.
        """
        try:
            return self.specs[plugin].needs(self.args[plugin])
        except Exception as fault:
            raise ProfileErrors([self.fault(plugin, "cannot say what it needs", fault)]) from fault

    def kinds(self) -> set[Kind[Any]]:
        """Return the kinds that its plugins read or write, besides pods and nodes. Raises ``ProfileErrors`` if
        ``needs`` of a plugin fails.
        """
        return {use.kind for use in self.uses()}

    def fault(self, plugin: str, what: str, fault: Exception) -> Mistake:
        """Return a mistake that names the profile, the plugin, and the exception that it raised."""
        message = f'profile "{self.scheduler_name}": plugin "{plugin}" {what}: {describe_exception(fault)}'
        return Mistake((self.place,), message)


def core_for(profiles: Iterable[ResolvedProfile]) -> CoreV1:
    """Return decoders of pods and nodes for all parts and annotations that plugins of ``profiles`` declare."""
    every = tuple(profiles)
    return core_v1(
        extras_of(part for profile in every for part in profile.parts()),
        {key for profile in every for key in profile.node_annotations()},
    )


def kinds_of(profiles: Iterable[ResolvedProfile]) -> list[Kind[Any]]:
    """Return the kinds that plugins of ``profiles`` read or write, besides pods and nodes, each once."""
    return list(dict.fromkeys(kind for profile in profiles for kind in sorted(profile.kinds(), key=repr)))


def describe_exception(fault: Exception) -> str:
    """Describe an exception: its type, its message, and the file and line that raised it, if there is a traceback."""
    frames = traceback.extract_tb(fault.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(fault).__name__}: {' '.join(str(fault).split())}{where}"


def has_point(spec: PluginSpec[Any], point: str) -> bool:
    """Return True if the plugin has the extension point."""
    protocol = POINT_METHODS.get(point)
    return protocol is not None and declares(spec.plugin, protocol)
