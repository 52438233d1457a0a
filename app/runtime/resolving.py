"""Check of profile documents, which merges plugin sets with the defaults and parses arguments.

All mistakes in all profiles are collected and raised together. Source of the rules: ``pkg/scheduler/apis/config`` of
Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from app.config.mistakes import Mistake, Place, checked, meant, misread, written
from app.config.profile import POINTS, PluginRef, PluginSet, Profile
from app.framework.spec import PluginArgs, PluginSpec
from app.runtime.profiles import (
    CHOOSING,
    DECIDING,
    EVERY_PLUGIN,
    ProfileErrors,
    ResolvedProfile,
    describe_exception,
    has_point,
)
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, STAY_IN_SCHEDULER, Registry, kube_scheduler_defaults
from app.runtime.slots import flaws, has_unknown_inputs

_UNDECLARED: Final = "declares neither PluginSpec.reads nor ClusterFilterPlugin as a base"
_PLAIN: Final = (
    f'{{}}: plugin "{{}}" {_UNDECLARED}: its filter runs on every node of every request, its rejections are not '
    "cached, and no bind is certain while other binds are in flight"
)
_PLAIN_AT_BIND: Final = (
    f'{{}}: bindRecheck: plugin "{{}}" {_UNDECLARED}: no bind is certain while other binds are in flight'
)
_LACKING: Final = (
    "{}: preset complete: {} of kube-scheduler's default profile cannot run in this Homeport. Nodes that they would "
    "reject pass, unless the calling scheduler runs these plugins itself"
)
_RUNS_ANYWAY: Final = (
    '{}: bindRecheck: plugin "{}" has no effect here, because its filter is in the profile and so runs at bind too'
)
_NOT_HERE: Final = '{}: bindRecheck: plugin "{}" runs in your scheduler, not in Homeport, so it cannot run at bind'
_HAS_NO_FILTER: Final = '{}: bindRecheck: plugin "{}" has neither preFilter nor filter, so it cannot run at bind'
_PICKS_BLINDLY: Final = (
    "{}: pick: Homeport would pick the node without {} of kube-scheduler's default profile, and the scheduler would "
    "get no other node. Enable all plugins of preset complete, or remove pick"
)
_ONE_IS_FEW: Final = (
    "{}: atMost and pick: with pick, the answer has one node, so atMost has no effect. Give one of them"
)

_BOTH_PREEMPT: Final = (
    "{}: preemption: Own is for preset delegated without pick. With preset complete, the calling scheduler evicts the "
    "victims that Homeport names"
)
_CANNOT_PREEMPT: Final = "{}: preemption: Own needs the plugins PodTopologySpread and DefaultPreemption; {} is disabled"

_PREEMPTING: Final = ("PodTopologySpread", "DefaultPreemption")

_SCORING: Final = (*DECIDING, "preScore", "score")
"""Extension points at which a profile with ``pick`` must run kube-scheduler's default plugins."""

_EVERYWHERE: Final = "multiPoint"

_Mention: TypeAlias = tuple[str, str, Place]
"""Extension point, plugin, and path of the entry in the document that enables the plugin at the point."""


def resolve(profiles: Sequence[Profile], registry: Registry) -> list[ResolvedProfile]:
    """Check all profiles. Raises ``ProfileErrors`` with every mistake."""
    mistakes = list(_duplicate_names(profiles))
    resolved = [
        _resolve_one(profile, ("profiles", number), registry, mistakes) for number, profile in enumerate(profiles)
    ]
    if mistakes:
        raise ProfileErrors(mistakes)
    return resolved


def _duplicate_names(profiles: Sequence[Profile]) -> Iterable[Mistake]:
    places: dict[str, list[Place]] = {}
    for number, profile in enumerate(profiles):
        places.setdefault(profile.scheduler_name, []).append(("profiles", number, "schedulerName"))
    for name, places_of_name in sorted(places.items()):
        if len(places_of_name) > 1:
            yield Mistake(tuple(places_of_name), f'profiles: schedulerName "{name}" is used by more than one profile')


def _resolve_one(profile: Profile, place: Place, registry: Registry, mistakes: list[Mistake]) -> ResolvedProfile:
    where = f'profile "{profile.scheduler_name}"'
    enabled = registry.preset(profile.preset, profile.release)
    if profile.preemption == "Own":
        enabled = {**enabled, "DefaultPreemption": 0}
    defaults = tuple(PluginRef(name=name, weight=weight) for name, weight in enabled.items())
    multi_point = _merge(defaults, profile.plugins.multi_point)
    points = {point: profile.plugins.at(point) for point in POINTS}
    mentions = list(_mentions(profile, place))
    named = [ref.name for ref in multi_point] + [name for point, name, _ in mentions if point != _EVERYWHERE]
    specs, absent = _look_up(dict.fromkeys(named), registry, where, mentions, mistakes)
    rechecked = _rechecked(profile, place, registry, mistakes)
    mistakes.extend(_repeated(mentions, where))
    in_args: list[Mistake] = []
    args = _parse_args(profile, place, {**specs, **rechecked}, registry, in_args)
    every = {name: it.for_args(args[name]) if name in args else it for name, it in {**specs, **rechecked}.items()}
    mistakes.extend((*_misplaced(mentions, every, where), *in_args))
    resolved = ResolvedProfile(
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
        preemption=profile.preemption,
        bind_recheck=tuple(rechecked),
        at_most=profile.at_most or 0,
        pick=profile.pick,
    )
    mistakes.extend(_flawed(resolved))
    mistakes.extend(_missing(resolved, mentions, registry))
    mistakes.extend(resolved.undeclared())
    if profile.preemption == "Own":
        mistakes.extend(_against_preempting(resolved))
    if profile.pick:
        mistakes.extend(_against_picking(profile, resolved, registry))
    runs = {ref.name for ref in resolved.at("filter")}
    in_tree = kube_scheduler_defaults(profile.release)
    not_judged = tuple(name for name in in_tree if _can_have(registry.get(name), "filter") and name not in runs)
    return replace(
        resolved,
        notices=tuple(_notices(resolved, {name for _, name, _ in mentions}, where)),
        not_judged=not_judged,
        lacking={
            name: (spec, weight)
            for name, weight in in_tree.items()
            if (spec := registry.get(name)) is not None and _lacks(resolved, spec)
        },
    )


def _lacks(profile: ResolvedProfile, spec: PluginSpec[Any]) -> bool:
    """Return True if the plugin has a point of ``CHOOSING`` at which the profile does not run it."""
    return any(
        has_point(spec, point) and spec.name not in {ref.name for ref in profile.at(point)} for point in CHOOSING
    )


def _against_picking(profile: Profile, resolved: ResolvedProfile, registry: Registry) -> Iterable[Mistake]:
    """Yield the mistakes of a profile with ``pick``: default plugins of kube-scheduler that it lacks, and ``atMost`` if
    it is set.
    """
    where, at = f'profile "{resolved.scheduler_name}"', (*resolved.place, "pick")
    runs = {point: {ref.name for ref in resolved.at(point)} for point in _SCORING}
    lacking = {
        name: [it for it in _SCORING if _can_have(registry.get(name), it) and name not in runs[it]]
        for name in kube_scheduler_defaults(profile.release)
    }
    if names := ", ".join(f"{name} ({', '.join(points)})" for name, points in lacking.items() if points):
        yield Mistake((at,), _PICKS_BLINDLY.format(where, names))
    if profile.at_most is not None:
        yield Mistake(((*resolved.place, "atMost"), at), _ONE_IS_FEW.format(where))


def _against_preempting(profile: ResolvedProfile) -> Iterable[Mistake]:
    where, at = f'profile "{profile.scheduler_name}"', ((*profile.place, "preemption"),)
    if profile.preset == "complete" or profile.pick:
        yield Mistake(at, _BOTH_PREEMPT.format(where))
    runs = {ref.name for point in ("filter", "postFilter") for ref in profile.at(point)}
    yield from (Mistake(at, _CANNOT_PREEMPT.format(where, name)) for name in _PREEMPTING if name not in runs)


def _can_have(spec: PluginSpec[Any] | None, point: str) -> bool:
    """Return True if a plugin has the extension point. An unregistered plugin is assumed to have only ``filter``."""
    return point == "filter" if spec is None else has_point(spec, point)


def _rechecked(
    profile: Profile, place: Place, registry: Registry, mistakes: list[Mistake]
) -> dict[str, PluginSpec[Any]]:
    """Return the plugins of ``bindRecheck`` that can run at a bind. Each other entry is a mistake: a repeated name, a
    plugin that is not registered, or one without PreFilter and Filter.
    """
    where = f'profile "{profile.scheduler_name}"'
    rechecked: dict[str, PluginSpec[Any]] = {}
    for number, name in enumerate(profile.bind_recheck):
        at = ((*place, "bindRecheck", number),)
        spec = registry.get(name)
        if name in rechecked:
            mistakes.append(Mistake(at, f'{where}: bindRecheck: plugin "{name}" is named twice'))
        elif spec is None and _is_in_tree(name):
            mistakes.append(Mistake(at, _NOT_HERE.format(where, name)))
        elif spec is None:
            guess = meant(name, (it.name for it in registry))
            mistakes.append(Mistake(at, f'{where}: bindRecheck: plugin "{name}" does not exist{guess}'))
        elif not any(has_point(spec, point) for point in DECIDING):
            mistakes.append(Mistake(at, _HAS_NO_FILTER.format(where, name)))
        else:
            rechecked[name] = spec
    return rechecked


def _notices(resolved: ResolvedProfile, mentioned: Container[str], where: str) -> Iterable[str]:
    """Yield notices about settings that are valid but might be unintended. ``mentioned``: plugins that the profile
    enables by name.
    """
    if lacking := [name for name in resolved.absent if name not in mentioned]:
        yield _LACKING.format(where, ", ".join(lacking))
    for name in resolved.absent:
        if name in mentioned:
            yield f"{where}: {name} runs in your scheduler, not in Homeport"
    added = {ref.name for point in DECIDING for ref in resolved.added_at_bind(point)}
    yield from (_RUNS_ANYWAY.format(where, name) for name in resolved.bind_recheck if name not in added)
    for name, spec in resolved.specs.items():
        if has_unknown_inputs(spec.plugin, spec.reads):
            yield (_PLAIN_AT_BIND if name in added else _PLAIN).format(where, name)
    if "PodTopologySpread" not in resolved.specs:
        yield (
            f"{where}: PodTopologySpread is disabled. In kube-scheduler's own configuration, that delegates it to "
            "Homeport. In a profile of Homeport, it means that these pods are not spread."
        )


def _is_in_tree(name: str) -> bool:
    """Return True if kube-scheduler has a plugin of this name, whether or not it is registered here."""
    return name in STAY_IN_SCHEDULER or name in KUBE_SCHEDULER_DEFAULTS


def _mentions(profile: Profile, place: Place) -> Iterable[_Mention]:
    sets = {_EVERYWHERE: profile.plugins.multi_point, **{point: profile.plugins.at(point) for point in POINTS}}
    for point, plugins in sets.items():
        for number, ref in enumerate(plugins.enabled):
            yield point, ref.name, (*place, "plugins", point, "enabled", number, "name")


def _merge(defaults: Sequence[PluginRef], custom: PluginSet) -> tuple[PluginRef, ...]:
    """Merge ``defaults`` with a profile's plugin set.

    Disabled defaults are removed. A default that the set enables keeps its position and gets the set's entry. The other
    entries of the set follow.
    """
    disabled = {ref.name for ref in custom.disabled}
    replaced = {ref.name: ref for ref in custom.enabled}
    remaining = [] if EVERY_PLUGIN in disabled else [ref for ref in defaults if ref.name not in disabled]
    in_place = [replaced.get(ref.name, ref) for ref in remaining]
    names = {ref.name for ref in remaining}
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
    places_of: dict[tuple[str, str], list[Place]] = {}
    for point, name, place in mentions:
        places_of.setdefault((point, name), []).append(place)
    for (point, name), places in places_of.items():
        if len(places) > 1:
            yield Mistake(tuple(places), f'{where}: plugin "{name}" is enabled twice at {point}')


def _misplaced(mentions: Iterable[_Mention], specs: Mapping[str, PluginSpec[Any]], where: str) -> Iterable[Mistake]:
    for point, name, place in mentions:
        if point != _EVERYWHERE and name in specs and not has_point(specs[name], point):
            yield Mistake((place,), f'{where}: plugin "{name}" has no extension point {point}')


def _parse_args(
    profile: Profile,
    place: Place,
    specs: Mapping[str, PluginSpec[Any]],
    registry: Registry,
    mistakes: list[Mistake],
) -> dict[str, PluginArgs]:
    where = f'profile "{profile.scheduler_name}"'
    args_by_name: dict[str, tuple[Mapping[str, Any], Place]] = {}
    for number, config in enumerate(profile.plugin_config):
        at = (*place, "pluginConfig", number)
        if config.name in args_by_name:
            mistakes.append(Mistake(((*at, "name"),), f'{where}: pluginConfig "{config.name}" is repeated'))
        if registry.get(config.name) is None and not _is_in_tree(config.name):
            message = f'{where}: pluginConfig "{config.name}" names a plugin that does not exist'
            mistakes.append(Mistake(((*at, "name"),), message + meant(config.name, (it.name for it in registry))))
        args_by_name[config.name] = config.args, (*at, "args")
    parsed = {}
    for name, spec in specs.items():
        args, at = args_by_name.get(name, ({}, place))
        try:
            misread_args = list(misread(spec.args, args))
            valid, invalid = checked(spec.args, args, {it for mistake in misread_args for it in mistake.places})
            wrong = misread_args + invalid
            mistakes.extend(_of_args(f"{where}: pluginConfig {name}", at, mistake) for mistake in wrong)
            if valid is not None and not wrong:
                parsed[name] = valid
        except Exception as fault:  # noqa: BLE001  # the plugin's own validator can raise anything
            mistakes.append(Mistake((at,), f"{where}: pluginConfig {name}: {describe_exception(fault)}"))
    return parsed


def _of_args(where: str, at: Place, mistake: Mistake) -> Mistake:
    """Return ``mistake`` with paths that begin at the document; its own paths begin at a plugin's arguments.

    The message gets ``where`` and the names of the wrong arguments as a prefix. ``at``: path of the arguments.
    """
    names = ", ".join(filter(None, map(written, mistake.places)))
    places = tuple((*at, *place) for place in mistake.places) or (at,)
    return Mistake(places, f"{where}: {names}: {mistake.message}" if names else f"{where}: {mistake.message}")


def _flawed(profile: ResolvedProfile) -> Iterable[Mistake]:
    for name, spec in profile.specs.items():
        where = f'profile "{profile.scheduler_name}": plugin "{name}"'
        yield from (Mistake((profile.place,), f"{where} {flaw}") for flaw in flaws(spec.plugin, spec.reads))


def _missing(profile: ResolvedProfile, mentions: Sequence[_Mention], registry: Registry) -> Iterable[Mistake]:
    """Yield a mistake if the profile has no QueueSort plugin or more than one, and another if it has no Bind plugin.

    A point at which the profile names an unknown plugin is not checked, because that is a mistake already.
    """
    where = f'profile "{profile.scheduler_name}"'
    at = ((*profile.place, "plugins"),)
    unknown = {point for point, name, _ in mentions if registry.get(name) is None and not _is_in_tree(name)}
    queue_sorts = len(profile.at("queueSort"))
    if queue_sorts != 1 and unknown.isdisjoint((_EVERYWHERE, "queueSort")):
        yield Mistake(at, f"{where}: exactly one queue sort plugin is required, found {queue_sorts}")
    if not profile.at("bind") and unknown.isdisjoint((_EVERYWHERE, "bind")):
        yield Mistake(at, f"{where}: at least one bind plugin is required")
