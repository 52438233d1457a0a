"""Gives a profile document its meaning: which plugins run at which extension point, in which order, how weighted.

Source of the rules: semantics of ``pkg/scheduler/apis/config`` and ``framework/runtime`` of Kubernetes 1.36. All
mistakes of all profiles are collected and raised together.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from app.config.mistakes import Mistake, Place, checked, meant, misread, written
from app.config.profile import ANY, POINTS, PluginRef, PluginSet, Preset, Profile
from app.framework.handle import Handle
from app.framework.parts import Part, extras_of
from app.framework.points import Plugin
from app.framework.spec import Needs, PluginArgs, PluginSpec, Reads
from app.framework.uses import Use
from app.kube.core_v1 import CoreV1, core_v1
from app.kube.kinds import Kind
from app.runtime.declared import DeclaredObjects
from app.runtime.dry_run import DryRuns
from app.runtime.framework import Framework
from app.runtime.guard import Guard
from app.runtime.picture import Nominations, Picture
from app.runtime.registry import (
    KUBE_SCHEDULER_DEFAULTS,
    POINT_METHODS,
    STAY_IN_SCHEDULER,
    Registry,
    kube_scheduler_defaults,
)
from app.runtime.slots import PluginSlot, declares, flaws, is_plain, overrides
from app.runtime.timed import ClockReads
from app.runtime.waiting import WaitingPods

_PLAIN: Final = (
    '{}: plugin "{}" says nothing of what its filter reads: it is asked about every node of every request, its '
    "rejections are not remembered, and no bind is certain while others are under way; PluginSpec.reads, or "
    "ClusterFilterPlugin as a base, says more"
)
_PLAIN_AT_BIND: Final = (
    '{}: bindRecheck: plugin "{}" says nothing of what its filter reads: no bind is certain while others are under way'
)
_LACKING: Final = (
    "{}: preset complete is not whole here: {} of kube-scheduler's default profile cannot run in this Homeport. What "
    "they would forbid is allowed, unless the calling scheduler asks them itself"
)
_RUNS_ANYWAY: Final = (
    '{}: bindRecheck: the filter of plugin "{}" runs in this profile, hence at bind too: naming it changes nothing'
)
_NOT_HERE: Final = '{}: bindRecheck: plugin "{}" runs in your scheduler, not in Homeport: it cannot be asked at bind'
_HAS_NO_FILTER: Final = '{}: bindRecheck: plugin "{}" has neither preFilter nor filter: there is nothing to ask at bind'
_PICKS_BLINDLY: Final = (
    "{}: pick: the node would be picked without {} of kube-scheduler's default profile, and nobody else is asked. "
    "Leave all of preset complete enabled, or the pick to the scheduler"
)
_ONE_IS_FEW: Final = "{}: atMost and pick: where one node is picked there are no others to answer. Give one of them"
_DECIDING: Final = ("preFilter", "filter")
"""The points at which plugins say which nodes a pod may use."""

_CHOOSING: Final = (*_DECIDING, "preScore", "score")
"""Those that make out to which node a pod goes."""

_ALL: Final = "*"
_EVERYWHERE: Final = "multiPoint"

_Mention: TypeAlias = tuple[str, str, Place]
"""Point, plugin, and where it is enabled there."""


_Kinds: TypeAlias = Mapping[str, Sequence[Kind[Any]]]
"""By plugin, the kinds that it reads beside pods and nodes."""


class ProfileErrors(ValueError):
    """Everything that is wrong with the profiles, a sentence each. ``found`` says with each where it stands."""

    def __init__(self, found: Sequence[Mistake]) -> None:
        self.found = tuple(found)
        self.mistakes = tuple(it.said for it in found)
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
        everywhere = {} if _ALL in disabled else {ref.name: ref for ref in self.multi_point if ref.name in self.specs}
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
        said = f'profile "{self.scheduler_name}": plugin "{plugin}" {what}: {_raised(fault)}'
        return Mistake((self.place,), said)


def core_for(profiles: Iterable[ResolvedProfile]) -> CoreV1:
    """How pods and nodes are decoded for all of ``profiles`` together."""
    every = tuple(profiles)
    return core_v1(
        extras_of(part for profile in every for part in profile.parts()),
        {key for profile in every for key in profile.node_annotations()},
    )


def resolve(profiles: Sequence[Profile], registry: Registry) -> list[ResolvedProfile]:
    """Check all profiles. Raises ``ProfileErrors`` with every mistake found."""
    mistakes = list(_duplicate_names(profiles))
    resolved = [
        _resolve_one(profile, ("profiles", number), registry, mistakes) for number, profile in enumerate(profiles)
    ]
    if mistakes:
        raise ProfileErrors(mistakes)
    return resolved


def build(
    profile: ResolvedProfile,
    handle: Handle,
    *,
    served: Container[str],
    nominations: Nominations,
    picture: Picture,
    waiting: WaitingPods,
    guard: Guard,
) -> Framework:
    """Build every plugin once and put it at its extension points. Raises ``ProfileErrors``."""
    kinds: dict[str, list[Kind[Any]]] = {name: [] for name in profile.specs}
    for use in profile.uses():
        kinds[use.plugin].append(use.kind)
    dry_runs = DryRuns()
    reads = {name: ClockReads() for name, spec in profile.specs.items() if spec.reads is not Reads.CLUSTER}
    context = replace(handle.profile, dry_run=dry_runs, release=profile.release)
    plugins = _built(profile, replace(handle, profile=context), kinds, reads)
    slots = {point: _slots(profile, profile.at(point), plugins, kinds, reads) for point in POINTS}
    framework = Framework(
        profile.scheduler_name,
        slots,
        added_at_bind={it: _slots(profile, profile.added_at_bind(it), plugins, kinds, reads) for it in _DECIDING},
        preset=profile.preset,
        at_most=profile.at_most,
        pick=profile.pick,
        not_judged=profile.not_judged,
        served=served,
        nominations=nominations,
        picture=picture,
        waiting=waiting,
        guard=guard,
    )
    dry_runs.filters = framework.filters
    return framework


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


def _built(profile: ResolvedProfile, handle: Handle, kinds: _Kinds, reads: Mapping[str, ClockReads]) -> dict[str, Any]:
    """Every plugin by name, each with a handle of its own."""
    plugins, found = {}, []
    for name, spec in profile.specs.items():
        its_own = replace(handle, objects=DeclaredObjects(name, kinds[name], handle.objects))
        if name in reads:
            counting = reads[name].counting
            clocks = {it: counting(getattr(handle.timing, it)) for it in ("clock", "wall_clock")}
            its_own = replace(its_own, timing=replace(handle.timing, **clocks))
        try:
            plugins[name] = spec.build(profile.args[name], its_own)
        except Exception as fault:  # noqa: BLE001  # foreign code: whatever it raises, say whose it is
            found.append(profile.fault(name, "cannot be made", fault))
    if found:
        raise ProfileErrors(found)
    return plugins


def _raised(fault: Exception) -> str:
    """What was raised, and the last line of code it came through."""
    frames = traceback.extract_tb(fault.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(fault).__name__}: {' '.join(str(fault).split())}{where}"


def _duplicate_names(profiles: Sequence[Profile]) -> Iterable[Mistake]:
    places: dict[str, list[Place]] = {}
    for number, profile in enumerate(profiles):
        places.setdefault(profile.scheduler_name, []).append(("profiles", number, "schedulerName"))
    for name, found in sorted(places.items()):
        if len(found) > 1:
            yield Mistake(tuple(found), f'profiles: schedulerName "{name}" is used by more than one profile')


def _resolve_one(profile: Profile, place: Place, registry: Registry, mistakes: list[Mistake]) -> ResolvedProfile:
    where = f'profile "{profile.scheduler_name}"'
    enabled = registry.preset(profile.preset, profile.release)
    defaults = tuple(PluginRef(name=name, weight=weight) for name, weight in enabled.items())
    multi_point = _merge(defaults, profile.plugins.multi_point)
    points = {point: profile.plugins.at(point) for point in POINTS}
    mentions = list(_mentions(profile, place))
    named = [ref.name for ref in multi_point] + [name for point, name, _ in mentions if point != _EVERYWHERE]
    specs, absent = _look_up(dict.fromkeys(named), registry, where, mentions, mistakes)
    rechecked = _rechecked(profile, place, registry, mistakes)
    mistakes.extend(_repeated(mentions, where))
    mistakes.extend(_misplaced(mentions, specs, where))
    every = {**specs, **rechecked}
    args = _parse_args(profile, place, every, registry, mistakes)
    found = ResolvedProfile(
        place=place,
        scheduler_name=profile.scheduler_name,
        multi_point=multi_point,
        points=points,
        args=args,
        specs=every,
        absent=tuple(absent),
        notices=(),
        preset=profile.preset,
        release=profile.release,
        bind_recheck=tuple(rechecked),
        at_most=profile.at_most or 0,
        pick=profile.pick,
    )
    mistakes.extend(_flawed(found))
    mistakes.extend(_missing(found, mentions, registry))
    mistakes.extend(found.undeclared())
    if profile.pick:
        mistakes.extend(_against_picking(profile, found, registry))
    runs = {ref.name for ref in found.at("filter")}
    in_tree = kube_scheduler_defaults(profile.release)
    return replace(
        found,
        notices=tuple(_notices(found, {name for _, name, _ in mentions}, where)),
        not_judged=tuple(name for name in in_tree if _may_have(registry.get(name), "filter") and name not in runs),
    )


def _against_picking(profile: Profile, found: ResolvedProfile, registry: Registry) -> Iterable[Mistake]:
    """What a pick would be made without, and what makes no sense beside one."""
    where, at = f'profile "{found.scheduler_name}"', (*found.place, "pick")
    runs = {point: {ref.name for ref in found.at(point)} for point in _CHOOSING}
    lacking = {
        name: [it for it in _CHOOSING if _may_have(registry.get(name), it) and name not in runs[it]]
        for name in kube_scheduler_defaults(profile.release)
    }
    if said := ", ".join(f"{name} ({', '.join(points)})" for name, points in lacking.items() if points):
        yield Mistake((at,), _PICKS_BLINDLY.format(where, said))
    if profile.at_most is not None:
        yield Mistake(((*found.place, "atMost"), at), _ONE_IS_FEW.format(where))


def _may_have(spec: PluginSpec[Any] | None, point: str) -> bool:
    """Whether a plugin takes part at a point. Of one that is not here it is only known that it is missed."""
    return point == "filter" if spec is None else has_point(spec, point)


def _rechecked(
    profile: Profile, place: Place, registry: Registry, mistakes: list[Mistake]
) -> dict[str, PluginSpec[Any]]:
    """The plugins of ``bindRecheck``. One that is not here is a mistake: who names it relies on it."""
    where = f'profile "{profile.scheduler_name}"'
    found: dict[str, PluginSpec[Any]] = {}
    for number, name in enumerate(profile.bind_recheck):
        at = ((*place, "bindRecheck", number),)
        spec = registry.get(name)
        if name in found:
            mistakes.append(Mistake(at, f'{where}: bindRecheck: plugin "{name}" is named twice'))
        elif spec is None and _is_in_tree(name):
            mistakes.append(Mistake(at, _NOT_HERE.format(where, name)))
        elif spec is None:
            guess = meant(name, (it.name for it in registry))
            mistakes.append(Mistake(at, f'{where}: bindRecheck: plugin "{name}" does not exist{guess}'))
        elif not any(has_point(spec, point) for point in _DECIDING):
            mistakes.append(Mistake(at, _HAS_NO_FILTER.format(where, name)))
        else:
            found[name] = spec
    return found


def _notices(found: ResolvedProfile, mentioned: Container[str], where: str) -> Iterable[str]:
    """What is no mistake, and may not be what was meant. ``mentioned``: plugins that the profile enables by name."""
    if lacking := [name for name in found.absent if name not in mentioned]:
        yield _LACKING.format(where, ", ".join(lacking))
    for name in found.absent:
        if name in mentioned:
            yield f"{where}: {name} runs in your scheduler, not in Homeport"
    added = {ref.name for point in _DECIDING for ref in found.added_at_bind(point)}
    yield from (_RUNS_ANYWAY.format(where, name) for name in found.bind_recheck if name not in added)
    for name, spec in found.specs.items():
        if is_plain(spec.plugin, spec.reads):
            yield (_PLAIN_AT_BIND if name in added else _PLAIN).format(where, name)
    if "PodTopologySpread" not in found.specs:
        yield (
            f"{where}: PodTopologySpread is disabled. In kube-scheduler's own configuration that delegates it to "
            "Homeport; here it means that nobody spreads these pods."
        )


def _is_in_tree(name: str) -> bool:
    """Whether kube-scheduler has a plugin of this name, which need not be here."""
    return name in STAY_IN_SCHEDULER or name in KUBE_SCHEDULER_DEFAULTS


def _mentions(profile: Profile, place: Place) -> Iterable[_Mention]:
    sets = {_EVERYWHERE: profile.plugins.multi_point, **{point: profile.plugins.at(point) for point in POINTS}}
    for point, plugins in sets.items():
        for number, ref in enumerate(plugins.enabled):
            yield point, ref.name, (*place, "plugins", point, "enabled", number, "name")


def _merge(defaults: Sequence[PluginRef], custom: PluginSet) -> tuple[PluginRef, ...]:
    """Defaults less the disabled; a custom entry replaces its default in place, other custom entries follow."""
    disabled = {ref.name for ref in custom.disabled}
    replaced = {ref.name: ref for ref in custom.enabled}
    kept = [] if _ALL in disabled else [ref for ref in defaults if ref.name not in disabled]
    in_place = [replaced.get(ref.name, ref) for ref in kept]
    names = {ref.name for ref in kept}
    return (*in_place, *(ref for ref in custom.enabled if ref.name not in names))


def _look_up(
    names: Iterable[str], registry: Registry, where: str, mentions: Sequence[_Mention], mistakes: list[Mistake]
) -> tuple[dict[str, PluginSpec[Any]], list[str]]:
    specs, absent = {}, []
    for name in names:
        spec = registry.get(name)
        if spec is not None:
            specs[name] = spec
        elif _is_in_tree(name):
            absent.append(name)
        else:
            places = tuple(place for _, mentioned, place in mentions if mentioned == name)
            guess = meant(name, (it.name for it in registry))
            mistakes.append(Mistake(places[:1], f'{where}: plugin "{name}" does not exist{guess}'))
    return specs, absent


def _repeated(mentions: Iterable[_Mention], where: str) -> Iterable[Mistake]:
    found: dict[tuple[str, str], list[Place]] = {}
    for point, name, place in mentions:
        found.setdefault((point, name), []).append(place)
    for (point, name), places in found.items():
        if len(places) > 1:
            yield Mistake(tuple(places), f'{where}: plugin "{name}" is enabled twice at {point}')


def _misplaced(mentions: Iterable[_Mention], specs: Mapping[str, PluginSpec[Any]], where: str) -> Iterable[Mistake]:
    for point, name, place in mentions:
        if point != _EVERYWHERE and name in specs and not has_point(specs[name], point):
            yield Mistake((place,), f'{where}: plugin "{name}" has no extension point {point}')


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


def _parse_args(
    profile: Profile,
    place: Place,
    specs: Mapping[str, PluginSpec[Any]],
    registry: Registry,
    mistakes: list[Mistake],
) -> dict[str, PluginArgs]:
    where = f'profile "{profile.scheduler_name}"'
    given: dict[str, tuple[Mapping[str, Any], Place]] = {}
    for number, config in enumerate(profile.plugin_config):
        at = (*place, "pluginConfig", number)
        if config.name in given:
            mistakes.append(Mistake(((*at, "name"),), f'{where}: pluginConfig "{config.name}" is repeated'))
        if registry.get(config.name) is None and not _is_in_tree(config.name):
            said = f'{where}: pluginConfig "{config.name}" names a plugin that does not exist'
            mistakes.append(Mistake(((*at, "name"),), said + meant(config.name, (it.name for it in registry))))
        given[config.name] = config.args, (*at, "args")
    parsed = {}
    for name, spec in specs.items():
        args, at = given.get(name, ({}, place))
        try:
            misread_args = list(misread(spec.args, args))
            valid, invalid = checked(spec.args, args, {it for mistake in misread_args for it in mistake.places})
            wrong = misread_args + invalid
            mistakes.extend(_of_args(f"{where}: pluginConfig {name}", at, mistake) for mistake in wrong)
            if valid is not None and not wrong:
                parsed[name] = valid
        except Exception as fault:  # noqa: BLE001  # a plugin's own validator: whatever it raises, say whose it is
            mistakes.append(Mistake((at,), f"{where}: pluginConfig {name}: {_raised(fault)}"))
    return parsed


def _of_args(where: str, at: Place, mistake: Mistake) -> Mistake:
    """With its place in the whole document, and the names of the arguments in its sentence."""
    names = ", ".join(filter(None, map(written, mistake.places)))
    places = tuple((*at, *place) for place in mistake.places) or (at,)
    return Mistake(places, f"{where}: {names}: {mistake.said}" if names else f"{where}: {mistake.said}")


def _slots(
    profile: ResolvedProfile,
    refs: Iterable[PluginRef],
    plugins: Mapping[str, Any],
    kinds: _Kinds,
    reads: Mapping[str, ClockReads],
) -> tuple[PluginSlot, ...]:
    return tuple(
        PluginSlot.of(
            ref.name,
            plugins[ref.name],
            weight=ref.weight or 1,
            reads=profile.specs[ref.name].reads,
            parts=profile.specs[ref.name].parts,
            kinds=tuple(kinds[ref.name]),
            clock_reads=reads.get(ref.name),
        )
        for ref in refs
    )


def _flawed(profile: ResolvedProfile) -> Iterable[Mistake]:
    for name, spec in profile.specs.items():
        where = f'profile "{profile.scheduler_name}": plugin "{name}"'
        yield from (Mistake((profile.place,), f"{where} {flaw}") for flaw in flaws(spec.plugin, spec.reads))


def _missing(profile: ResolvedProfile, mentions: Sequence[_Mention], registry: Registry) -> Iterable[Mistake]:
    """Points that need a plugin and have none; not if a name that does not exist could have been meant for them."""
    where = f'profile "{profile.scheduler_name}"'
    at = ((*profile.place, "plugins"),)
    unknown = {point for point, name, _ in mentions if registry.get(name) is None and not _is_in_tree(name)}
    queue_sorts = len(profile.at("queueSort"))
    if queue_sorts != 1 and unknown.isdisjoint((_EVERYWHERE, "queueSort")):
        yield Mistake(at, f"{where}: exactly one queue sort plugin is required, found {queue_sorts}")
    if not profile.at("bind") and unknown.isdisjoint((_EVERYWHERE, "bind")):
        yield Mistake(at, f"{where}: at least one bind plugin is required")
