"""Rules about a configuration of kube-scheduler or of Homeport, and about two configurations that belong together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import ValidationError

from app.config.loading import API_VERSION, KIND, KUBE_SCHEDULER_KIND
from app.config.manifest_fields import BadField
from app.config.mistakes import NOTHING, Place, mistakes_in, value_at
from app.config.profile import ANY, DEFAULT_PROFILES, Profile
from app.config.settings import Settings
from app.homes.protocol import SHORTEST_GRACE
from app.kube.core_v1 import DEFAULT_SCHEDULER_NAME
from app.kube.durations import BadDuration, duration, parse_duration
from app.lint.manifests import ManifestObject
from app.lint.rules import COSTS_UNWRITTEN, SHORT_GRACE, SPREAD_NOWHERE, SPREAD_TWICE, Mistaken, Severity
from app.runtime.profiles import ProfileErrors, ResolvedProfile
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.runtime.resolving import resolve

_SPREAD: Final = "PodTopologySpread"
_STICKY: Final = "StickyNode"
_GROUP: Final = "kubescheduler.config.k8s.io/"
_VERBS: Final[Mapping[str, str]] = {"filter": "filterVerb", "score": "prioritizeVerb"}
"""Field of an extender's configuration that names its verb, by extension point."""

_EVERYWHERE: Final = "multiPoint"
_POINTS: Final = (_EVERYWHERE, "preFilter", "filter", "preScore", "score")
_REQUIRED: Final = ("PrioritySort", "DefaultBinder")
"""Plugins that a profile must have, and that do not matter for spread."""

_BIND_VERB: Final = "bindVerb"
_RESERVE: Final = "reserve"

_EFFECTS: Final[Mapping[str, str]] = {"filter": "hard constraints", "score": "soft constraints"}
"""Constraints that PodTopologySpread implements, by extension point, as text for messages."""


def is_scheduler(document: Mapping[str, Any]) -> bool:
    """Return true for a KubeSchedulerConfiguration."""
    return document.get("kind") == KUBE_SCHEDULER_KIND and str(document.get("apiVersion")).startswith(_GROUP)


def is_homeport(document: Mapping[str, Any]) -> bool:
    """Return true for a HomeportConfiguration."""
    return (document.get("apiVersion"), document.get("kind")) == (API_VERSION, KIND)


def scheduler_names(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the schedulerName of each profile; by default, that of kube-scheduler. Raises ``BadField``."""
    profiles = _profiles(document)
    for profile in profiles:
        name = profile.get("schedulerName")
        yield name if isinstance(name, str) and name else DEFAULT_SCHEDULER_NAME
    if not profiles:
        yield DEFAULT_SCHEDULER_NAME


def spread_options(document: Mapping[str, Any], registry: Registry) -> Iterator[tuple[str, Any]]:
    """Yield the schedulerName and the options ``beyond`` of PodTopologySpread, for each profile with such options.

    Raises ``BadField``.
    """
    for profile in _homeport_profiles(document):
        options = getattr(_resolved(profile, registry, ()).args.get(_SPREAD), "beyond", None)
        if options is not None:
            yield profile.scheduler_name, options


def of_grace(document: Mapping[str, Any]) -> Iterator[Mistaken]:
    """Yield the grace periods below ``SHORTEST_GRACE`` in the arguments of StickyNode. Raises ``BadField``."""
    for number, profile in enumerate(_profiles(document)):
        entries = profile.get("pluginConfig")
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict) and entry.get("name") == _STICKY:
                yield from _graces(document, ("profiles", number, "pluginConfig", index, "args"))


def _graces(document: Mapping[str, Any], args: Place) -> Iterator[Mistaken]:
    """Yield the grace periods below ``SHORTEST_GRACE`` in the arguments of one StickyNode."""
    rules = value_at(document, (*args, "namespaces"))
    within = ((*args, "namespaces", number) for number in range(len(rules) if isinstance(rules, list) else 0))
    for place in (args, *within):
        grace = value_at(document, (*place, "gracePeriod"))
        if grace in (NOTHING, None):
            continue
        try:
            seconds = parse_duration(grace)
        except BadDuration as error:
            raise BadField((*place, "gracePeriod"), str(error)) from None
        if isinstance(seconds, float) and seconds < SHORTEST_GRACE:
            yield Mistaken(
                SHORT_GRACE,
                Severity.WARNING,
                (*place, "gracePeriod"),
                f"a gracePeriod of {duration(seconds)} is over before the pods of a failed node are evicted, which "
                f"takes {SHORTEST_GRACE:g} s: after a node failure, homes are not waited for",
                f"set gracePeriod to {SHORTEST_GRACE:g}s or more, or the policy soft",
            )


class Pairing(Struct, frozen=True):
    """KubeSchedulerConfiguration and the HomeportConfiguration of its extender."""

    scheduler: ManifestObject
    homeport: ManifestObject


def pairings(schedulers: Sequence[ManifestObject], homeports: Sequence[ManifestObject]) -> Iterator[Pairing]:
    """Pair each scheduler's configuration with the Homeport configuration in its file, or else in any file.

    A scheduler is left out if there is no Homeport configuration to choose, or more than one.
    """
    for scheduler in schedulers:
        candidates = [it for it in homeports if it.file == scheduler.file] or homeports
        if len(candidates) == 1:
            yield Pairing(scheduler, candidates[0])


def of_pairing(pairing: Pairing, registry: Registry) -> Iterator[Mistaken]:
    """Yield the mistakes of each scheduler profile: ``SPREAD_TWICE``, ``SPREAD_NOWHERE`` and ``COSTS_UNWRITTEN``.

    Raises ``BadField``.

    Without an extender for Homeport in the scheduler's configuration, nothing is yielded. The places are paths in this
    configuration. ``registry``: all plugins of Homeport.
    """
    extender = _extender(pairing)
    if extender is None:
        return
    ours = _homeport_profiles(pairing.homeport.value)
    every = _profiles(pairing.scheduler.value)
    for number, document in enumerate(every or ({},)):
        place: Place = ("profiles", number) if every else ()
        profile = _scheduler_profile(document, place, registry)
        theirs = _spread_points(profile, registry, place)
        mine = next((it for it in ours if it.scheduler_name == profile.scheduler_name), None)
        mine = mine or next((it for it in ours if it.scheduler_name == ANY), None)
        points = _spread_points(mine, registry, ()) if mine is not None else set()
        if _RESERVE in points and not extender.get(_BIND_VERB):
            yield _unwritten(profile.scheduler_name, place)
        points = {it for it in points if it in _VERBS and extender.get(_VERBS[it])}
        yield from _compared(profile.scheduler_name, place, theirs, points)


def _unwritten(name: str, place: Place) -> Mistaken:
    """Return the mistake that the pods of a profile get no deletion costs."""
    return Mistaken(
        COSTS_UNWRITTEN,
        Severity.WARNING,
        place,
        f"profile {name}: the scheduler binds its pods itself, but Homeport's profile has scaleDown: Spread: the pods "
        "get no deletion costs, and a scale-down removes them without looking at domains",
        f"set {_BIND_VERB} of the extender",
    )


def _compared(name: str, place: Place, theirs: set[str], ours: set[str]) -> Iterator[Mistaken]:
    """Yield the mistakes that the pods of a profile are spread twice or not at all.

    ``theirs``: extension points at which the scheduler runs PodTopologySpread. ``ours``: those at which Homeport does.
    """
    twice = [point for point in _VERBS if point in theirs and point in ours]
    nowhere = [point for point in _VERBS if point not in theirs and point not in ours]
    if twice:
        yield Mistaken(
            SPREAD_TWICE,
            Severity.WARNING,
            place,
            f"profile {name}: the scheduler and Homeport both run {_SPREAD} ({', '.join(twice)}): the work is done "
            "twice, and where scores are added, spread weighs more than configured",
            f"disable {_SPREAD} in the scheduler's profile (plugins.multiPoint.disabled)",
        )
    if nowhere:
        effects = " and ".join(_EFFECTS[point] for point in nowhere)
        yield Mistaken(
            SPREAD_NOWHERE,
            Severity.ERROR,
            place,
            f"profile {name}: neither the scheduler nor Homeport runs {_SPREAD} ({', '.join(nowhere)}): {effects} of "
            "topology spread have no effect",
            f"enable {_SPREAD} in one of the two, and set {' and '.join(_VERBS[it] for it in nowhere)} of the extender",
        )


def _extender(pairing: Pairing) -> Mapping[str, Any] | None:
    """Return the first extender whose URL contains ``homeport``, or has the port of Homeport's configuration."""
    extenders = pairing.scheduler.value.get("extenders")
    port = pairing.homeport.value.get("port", Settings().port)
    for extender in extenders if isinstance(extenders, list) else ():
        url = extender.get("urlPrefix") if isinstance(extender, dict) else None
        if isinstance(url, str) and ("homeport" in url or _port(url) == port):
            return dict(extender)
    return None


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        return None


def _profiles(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    profiles = document.get("profiles")
    if profiles is None:
        return ()
    if not isinstance(profiles, list):
        raise BadField(("profiles",), "must be a list")
    for number, profile in enumerate(profiles):
        if not isinstance(profile, dict):
            raise BadField(("profiles", number), "must be a mapping")
    return profiles


def _homeport_profiles(document: Mapping[str, Any]) -> Sequence[Profile]:
    profiles = [_profile(it, ("profiles", number)) for number, it in enumerate(_profiles(document))]
    return profiles or DEFAULT_PROFILES


def _scheduler_profile(document: Mapping[str, Any], place: Place, registry: Registry) -> Profile:
    """Return a profile of kube-scheduler, reduced to the extension points ``_POINTS`` and to ``_known`` plugins."""
    plugins = document.get("plugins")
    sets = plugins if isinstance(plugins, dict) else {}
    reduced = {point: _known(sets[point], registry) for point in _POINTS if point in sets}
    everywhere = reduced.get(_EVERYWHERE)
    if isinstance(everywhere, dict):
        reduced[_EVERYWHERE] = _with_required(everywhere)
    return _profile({"schedulerName": document.get("schedulerName"), "preset": "complete", "plugins": reduced}, place)


def _known(plugin_set: Any, registry: Registry) -> Any:
    """Return the plugin set without enabled plugins that neither Homeport nor the default kube-scheduler has."""
    if not isinstance(plugin_set, dict):
        return plugin_set
    ours = [
        it for it in _named(plugin_set, "enabled") if registry.get(it["name"]) or it["name"] in KUBE_SCHEDULER_DEFAULTS
    ]
    return {**plugin_set, "enabled": ours}


def _with_required(everywhere: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the plugin set of ``multiPoint`` with ``_REQUIRED``. The profile can enable them outside ``_POINTS``."""
    enabled = [it for it in _named(everywhere, "enabled") if it["name"] not in _REQUIRED]
    disabled = [it for it in _named(everywhere, "disabled") if it["name"] not in _REQUIRED]
    return {"enabled": [*enabled, *({"name": it} for it in _REQUIRED)], "disabled": disabled}


def _named(plugin_set: Mapping[str, Any], field: str) -> Sequence[Mapping[str, Any]]:
    """Return those entries of a plugin set that have a name. ``field``: ``enabled`` or ``disabled``."""
    entries = plugin_set.get(field)
    every = entries if isinstance(entries, list) else ()
    return [it for it in every if isinstance(it, dict) and isinstance(it.get("name"), str)]


def _profile(document: Any, place: Place) -> Profile:
    try:
        return Profile.model_validate(document)
    except ValidationError as error:
        mistake = next(mistakes_in(error, Profile, place))
        raise BadField(next(iter(mistake.places), place), mistake.message) from None


def _spread_points(profile: Profile, registry: Registry, place: Place) -> set[str]:
    """Return those of the extension points filter, score and reserve at which a profile runs PodTopologySpread.

    The plugin runs at reserve only with ``scaleDown: Spread``.
    """
    resolved = _resolved(profile, registry, place)
    return {point for point in (*_VERBS, _RESERVE) if any(ref.name == _SPREAD for ref in resolved.at(point))}


def _resolved(profile: Profile, registry: Registry, place: Place) -> ResolvedProfile:
    try:
        return resolve([profile], registry)[0]
    except ProfileErrors as errors:
        raise BadField(place or ("profiles",), errors.messages[0]) from None
