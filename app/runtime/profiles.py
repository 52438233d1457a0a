"""Gives a profile document its meaning: which plugins run at which extension point, in which order, how weighted.

Source of the rules: semantics of ``pkg/scheduler/apis/config`` and ``framework/runtime`` of Kubernetes 1.36. All
mistakes of all profiles are collected and raised together.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from pydantic import ValidationError

from app.config.profile import ANY, POINTS, PluginRef, PluginSet, Profile
from app.framework.interface import Handle, LookUpPlugin, PluginArgs, PluginSpec
from app.framework.uses import Use
from app.kube.kinds import Kind
from app.runtime.framework import Framework, Nominations, PluginSlot, has_form
from app.runtime.guard import Guard
from app.runtime.registry import POINT_METHODS, STAY_IN_SCHEDULER, Registry
from app.runtime.waiting import WaitingPods

_ALL: Final = "*"


class ProfileErrors(ValueError):
    """Everything that is wrong with the profiles, a sentence each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = tuple(mistakes)


class ResolvedProfile(Struct, frozen=True):
    """A checked profile: plugin sets merged with the defaults, arguments parsed, nothing built yet.

    ``absent`` are in-tree plugins it names that run in the scheduler and not here.
    """

    scheduler_name: str
    multi_point: tuple[PluginRef, ...]
    points: Mapping[str, PluginSet]
    args: Mapping[str, PluginArgs]
    specs: Mapping[str, PluginSpec[Any]]
    absent: tuple[str, ...]
    notices: tuple[str, ...]

    def uses(self) -> Iterable[Use]:
        """What its plugins do with objects of kinds beside pods and nodes."""
        for name, spec in self.specs.items():
            written = {it.kind: it.what for it in spec.writes(self.args[name])}
            looks_up = has_form(spec.plugin, LookUpPlugin)
            for kind in dict.fromkeys((*spec.kinds(self.args[name]), *written)):
                yield Use(name, kind, looks_up=looks_up, writes=written.get(kind, ""))

    def kinds(self) -> set[Kind[Any]]:
        """The kinds its plugins read beside pods and nodes."""
        return {use.kind for use in self.uses()}


def resolve(profiles: Sequence[Profile], registry: Registry) -> list[ResolvedProfile]:
    """Check all profiles. Raises ``ProfileErrors`` with every mistake found."""
    mistakes = list(_duplicate_names(profiles))
    resolved = [_resolve_one(profile, registry, mistakes) for profile in profiles]
    if mistakes:
        raise ProfileErrors(mistakes)
    return resolved


def build(
    profile: ResolvedProfile,
    handle: Handle,
    *,
    served: Container[str],
    nominations: Nominations,
    waiting: WaitingPods,
    guard: Guard,
) -> Framework:
    """Build every plugin once and put it at its extension points. Raises ``ProfileErrors``."""
    plugins = {name: spec.build(profile.args[name], handle) for name, spec in profile.specs.items()}
    slots = {point: _slots(profile, point, plugins) for point in POINTS}
    mistakes = list(_missing(profile, slots))
    if mistakes:
        raise ProfileErrors(mistakes)
    return Framework(
        profile.scheduler_name,
        slots,
        served=served,
        nominations=nominations,
        waiting=waiting,
        guard=guard,
    )


class _AllBut:
    """Every name except these."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def __contains__(self, name: object) -> bool:
        return name not in self._names


def served_names(profile_names: Collection[str]) -> Container[str]:
    """The scheduler names whose pods any of these profiles judges."""
    return _AllBut(()) if ANY in profile_names else frozenset(profile_names)


def names_of(profile_name: str, profile_names: Collection[str]) -> Container[str]:
    """The scheduler names whose pods one of these profiles judges."""
    return _AllBut({*profile_names} - {ANY}) if profile_name == ANY else frozenset((profile_name,))


def _duplicate_names(profiles: Sequence[Profile]) -> Iterable[str]:
    names = [profile.scheduler_name for profile in profiles]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f'profiles: schedulerName "{name}" is used by more than one profile'


def _resolve_one(profile: Profile, registry: Registry, mistakes: list[str]) -> ResolvedProfile:
    where = f'profile "{profile.scheduler_name}"'
    defaults = tuple(PluginRef(name=name, weight=weight) for name, weight in registry.defaults.items())
    multi_point = _merge(defaults, profile.plugins.multi_point)
    points = {point: profile.plugins.at(point) for point in POINTS}
    named = [*multi_point, *(ref for plugins in points.values() for ref in plugins.enabled)]
    specs, absent = _look_up(dict.fromkeys(ref.name for ref in named), registry, where, mistakes)
    notices = [f"{where}: {name} runs in your scheduler, not in Homeport" for name in absent]
    mistakes.extend(_repeated(profile, where))
    mistakes.extend(_misplaced(points, specs, where))
    args = _parse_args(profile, specs, registry, where, mistakes)
    if "PodTopologySpread" not in specs:
        notices.append(
            f"{where}: PodTopologySpread is disabled. In kube-scheduler's own configuration that delegates it to "
            "Homeport; here it means that nobody spreads these pods."
        )
    return ResolvedProfile(profile.scheduler_name, multi_point, points, args, specs, tuple(absent), tuple(notices))


def _merge(defaults: Sequence[PluginRef], custom: PluginSet) -> tuple[PluginRef, ...]:
    """Defaults less the disabled; a custom entry replaces its default in place, other custom entries follow."""
    disabled = {ref.name for ref in custom.disabled}
    replaced = {ref.name: ref for ref in custom.enabled}
    kept = [] if _ALL in disabled else [ref for ref in defaults if ref.name not in disabled]
    in_place = [replaced.get(ref.name, ref) for ref in kept]
    names = {ref.name for ref in kept}
    return (*in_place, *(ref for ref in custom.enabled if ref.name not in names))


def _look_up(
    names: Iterable[str], registry: Registry, where: str, mistakes: list[str]
) -> tuple[dict[str, PluginSpec[Any]], list[str]]:
    specs, absent = {}, []
    for name in names:
        spec = registry.get(name)
        if spec is not None:
            specs[name] = spec
        elif name in STAY_IN_SCHEDULER:
            absent.append(name)
        else:
            mistakes.append(f'{where}: plugin "{name}" does not exist')
    return specs, absent


def _repeated(profile: Profile, where: str) -> Iterable[str]:
    sets = {"multiPoint": profile.plugins.multi_point, **{point: profile.plugins.at(point) for point in POINTS}}
    for point, plugins in sets.items():
        names = [ref.name for ref in plugins.enabled]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f'{where}: plugin "{name}" is enabled twice at {point}'


def _misplaced(points: Mapping[str, PluginSet], specs: Mapping[str, PluginSpec[Any]], where: str) -> Iterable[str]:
    for point, plugins in points.items():
        for ref in plugins.enabled:
            if ref.name in specs and not has_point(specs[ref.name], point):
                yield f'{where}: plugin "{ref.name}" has no extension point {point}'


def has_point(spec: PluginSpec[Any], point: str) -> bool:
    """Whether the plugin takes part at ``point``."""
    protocol = POINT_METHODS.get(point)
    return protocol is not None and has_form(spec.plugin, protocol)


def _parse_args(
    profile: Profile,
    specs: Mapping[str, PluginSpec[Any]],
    registry: Registry,
    where: str,
    mistakes: list[str],
) -> dict[str, PluginArgs]:
    given: dict[str, Mapping[str, Any]] = {}
    for config in profile.plugin_config:
        if config.name in given:
            mistakes.append(f'{where}: pluginConfig "{config.name}" is repeated')
        if registry.get(config.name) is None and config.name not in STAY_IN_SCHEDULER:
            mistakes.append(f'{where}: pluginConfig "{config.name}" names a plugin that does not exist')
        given[config.name] = config.args
    parsed = {}
    for name, spec in specs.items():
        try:
            parsed[name] = spec.args.model_validate(given.get(name, {}))
        except ValidationError as found:
            mistakes.extend(f"{where}: pluginConfig {name}: {_sentence(it)}" for it in found.errors())
    return parsed


def _sentence(found: Any) -> str:
    at = ".".join(str(part) for part in found["loc"])
    return f"{at}: {found['msg']}" if at else str(found["msg"])


def _slots(profile: ResolvedProfile, point: str, plugins: Mapping[str, Any]) -> tuple[PluginSlot, ...]:
    """Explicit entries that are multiPoint too, then multiPoint, then the other explicit entries."""
    custom = profile.points[point]
    explicit = {ref.name: ref for ref in custom.enabled if ref.name in plugins}
    disabled = {ref.name for ref in custom.disabled}
    everywhere = {} if _ALL in disabled else {ref.name: ref for ref in profile.multi_point if ref.name in plugins}
    multi = {
        name: ref
        for name, ref in everywhere.items()
        if name not in disabled and name not in explicit and has_point(profile.specs[name], point)
    }
    both = {name for name in explicit if name in everywhere and name not in disabled}
    first = [ref for name, ref in explicit.items() if name in both]
    last = [ref for name, ref in explicit.items() if name not in both]
    return tuple(
        PluginSlot.of(
            ref.name,
            plugins[ref.name],
            weight=ref.weight or 1,
            reads_pods=profile.specs[ref.name].reads_pods,
        )
        for ref in (*first, *multi.values(), *last)
    )


def _missing(profile: ResolvedProfile, slots: Mapping[str, Sequence[PluginSlot]]) -> Iterable[str]:
    where = f'profile "{profile.scheduler_name}"'
    if len(slots["queueSort"]) != 1:
        yield f"{where}: exactly one queue sort plugin is required, found {len(slots['queueSort'])}"
    if not slots["bind"]:
        yield f"{where}: at least one bind plugin is required"
