"""A checked profile: which plugins run at which extension point, in which order, how weighted, and what they need.

Source of the rules: ``framework/runtime`` of Kubernetes 1.36.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from app.config.mistakes import Mistake, Place
from app.config.profile import PluginRef, PluginSet, Preset
from app.framework.parts import Part, extras_of
from app.framework.points import Plugin
from app.framework.spec import Needs, PluginArgs, PluginSpec
from app.framework.uses import Use
from app.kube.core_decoding import CoreV1, core_v1
from app.kube.kinds import Kind
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, POINT_METHODS, Registry
from app.runtime.slots import declares, overrides

DECIDING: Final = ("preFilter", "filter")
"""The points at which plugins say which nodes a pod may use."""

EVERY_PLUGIN: Final = "*"


class ProfileErrors(ValueError):
    """Everything that is wrong with the profiles, a sentence each. ``found`` says with each where it stands."""

    def __init__(self, found: Sequence[Mistake]) -> None:
        self.found = tuple(found)
        self.mistakes = tuple(it.message for it in found)
        super().__init__("\n".join(self.mistakes))


class ResolvedProfile(Struct, frozen=True):
    """A checked profile: plugin sets merged with the defaults, arguments parsed, nothing built yet.

    ``absent`` are in-tree plugins it names that run in the scheduler and not here. ``place``: where it stands.
    ``bind_recheck``: plugins that decide at bind beside those that run, and nowhere else. ``at_most``: how many of the
    nodes that pass a lean answer names, 0 for all; ``pick``: whether it names the best one alone. ``not_judged``:
    filters of kube-scheduler's default profile that this profile does not run.
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
    bind_recheck: tuple[str, ...] = ()
    at_most: int = 0
    pick: bool = False
    not_judged: tuple[str, ...] = ()

    def at(self, point: str) -> tuple[PluginRef, ...]:
        """What runs at a point, in order: entries of it that are multiPoint too, then multiPoint, then its others."""
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
        """What takes part at a deciding point of a bind and nowhere else, in the order named."""
        if not self.bind_recheck:
            return ()
        runs = {ref.name for ref in self.at(point)}
        names = [it for it in self.bind_recheck if it not in runs and has_point(self.specs[it], point)]
        return tuple(PluginRef(name=name) for name in names)

    def uses(self) -> Iterable[Use]:
        """What its plugins do with objects of kinds beside pods and nodes. Raises ``ProfileErrors``."""
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
        """The parts of pods and nodes that its plugins name. Raises ``ProfileErrors`` for a plugin that cannot say."""
        return {part for name, it in self.specs.items() for part in (*(it.parts or ()), *self._needs_of(name).parts)}

    def node_annotations(self) -> set[str]:
        """The annotations of nodes that its plugins name. Raises ``ProfileErrors`` for a plugin that cannot say."""
        return {key for name in self.specs for key in self._needs_of(name).node_annotations}

    def undeclared(self) -> Iterable[Mistake]:
        """Yield a mistake for each plugin with valid arguments that cannot say what it needs."""
        for name in self.args:
            try:
                self._needs_of(name)
            except ProfileErrors as error:
                yield from error.found

    def _needs_of(self, plugin: str) -> Needs:
        """Raises ``ProfileErrors`` for whatever a plugin, which is foreign code, raises."""
        try:
            return self.specs[plugin].needs(self.args[plugin])
        except Exception as fault:
            raise ProfileErrors([self.fault(plugin, "cannot say what it needs", fault)]) from fault

    def kinds(self) -> set[Kind[Any]]:
        """The kinds its plugins read beside pods and nodes. Raises ``ProfileErrors`` for a plugin that cannot say."""
        return {use.kind for use in self.uses()}

    def fault(self, plugin: str, what: str, fault: Exception) -> Mistake:
        """What a plugin raised, and where."""
        said = f'profile "{self.scheduler_name}": plugin "{plugin}" {what}: {raised(fault)}'
        return Mistake((self.place,), said)


def core_for(profiles: Iterable[ResolvedProfile]) -> CoreV1:
    """How pods and nodes are decoded for all of ``profiles`` together."""
    every = tuple(profiles)
    return core_v1(
        extras_of(part for profile in every for part in profile.parts()),
        {key for profile in every for key in profile.node_annotations()},
    )


def raised(fault: Exception) -> str:
    """What was raised, and the last line of code it came through."""
    frames = traceback.extract_tb(fault.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(fault).__name__}: {' '.join(str(fault).split())}{where}"


def default_filters(registry: Registry) -> list[str]:
    """The filters of kube-scheduler's default profile that run here, in its order."""
    return [
        name
        for name in KUBE_SCHEDULER_DEFAULTS
        if (spec := registry.get(name)) is not None and has_point(spec, "filter")
    ]


def has_point(spec: PluginSpec[Any], point: str) -> bool:
    """Whether the plugin takes part at ``point``."""
    protocol = POINT_METHODS.get(point)
    return protocol is not None and declares(spec.plugin, protocol)
