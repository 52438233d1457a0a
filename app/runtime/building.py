"""Creation of a ``Framework`` from a resolved profile: each plugin is created once and registered at its extension
points.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from msgspec.structs import replace

from app.config.profile import ANY, POINTS, PluginRef
from app.framework.handle import Handle
from app.framework.points import Plugin
from app.framework.spec import Reads
from app.kube.kinds import Kind
from app.runtime.clock_reads import ClockReads
from app.runtime.declared import DeclaredObjects
from app.runtime.dry_run import DryRuns
from app.runtime.framework import Framework
from app.runtime.guard import Guard, PluginError
from app.runtime.profiles import DECIDING, ProfileErrors, ResolvedProfile
from app.runtime.slots import PluginSlot, overrides
from app.runtime.snapshot import Nominations, Snapshot
from app.runtime.waiting import PodsAtPermit

_Kinds: TypeAlias = Mapping[str, Sequence[Kind[Any]]]
"""Kinds that each plugin reads or writes, besides pods and nodes, by plugin name."""


def build(
    profile: ResolvedProfile,
    handle: Handle,
    *,
    served: Container[str],
    nominations: Nominations,
    snapshot: Snapshot,
    waiting: PodsAtPermit,
    guard: Guard,
) -> Framework:
    """Create the profile's plugins, and the ``Framework`` that runs them. Raises ``ProfileErrors``."""
    kinds: dict[str, list[Kind[Any]]] = {name: [] for name in profile.specs}
    for use in profile.uses():
        kinds[use.plugin].append(use.kind)
    dry_runs = DryRuns()
    reads = {name: ClockReads() for name, spec in profile.specs.items() if spec.reads is not Reads.CLUSTER}
    context = replace(handle.profile, dry_run=dry_runs, release=profile.release)
    plugins = _create_plugins(profile, replace(handle, profile=context), kinds, reads)
    slots = {point: _slots(profile, profile.at(point), plugins, kinds, reads) for point in POINTS}
    framework = Framework(
        profile.scheduler_name,
        slots,
        added_at_bind={it: _slots(profile, profile.added_at_bind(it), plugins, kinds, reads) for it in DECIDING},
        preset=profile.preset,
        preemption=profile.preemption,
        at_most=profile.at_most,
        pick=profile.pick,
        served=served,
        nominations=nominations,
        snapshot=snapshot,
        waiting=waiting,
        guard=guard,
    )
    dry_runs.filters = framework.filters
    return framework


def subscribe_plugins(
    profiles: Iterable[ResolvedProfile],
    frameworks: Mapping[str, Framework],
    on_change: Callable[[Kind[Any], Callable[[Any, Any], None]], None],
    guard: Guard,
) -> None:
    """Subscribe plugins to changes of objects of the kinds that they use.

    If several profiles have a plugin, only the first profile's instance is subscribed. Plugins that run only in the
    check before a bind are not subscribed. ``on_change`` registers a listener for a kind.
    """
    plugins: dict[str, Any] = {}
    for framework in frameworks.values():
        plugins = {**framework.plugins, **plugins}
    for name, kind in dict.fromkeys((use.plugin, use.kind) for it in profiles for use in it.uses()):
        if name in plugins and overrides(type(plugin := plugins[name]), Plugin, "object_changed"):
            on_change(kind, partial(_call_changed, guard, name, partial(plugin.object_changed, kind)))


def _call_changed(guard: Guard, plugin: str, changed: Callable[[Any, Any], None], old: Any, new: Any) -> None:
    with suppress(PluginError):  # the guard has logged the fault
        guard.call(plugin, "Changed", changed, old, new)


class _AllBut:
    """Set of all scheduler names except the given ones."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def __contains__(self, name: object) -> bool:
        return name not in self._names


def served_names(profile_names: Collection[str]) -> Container[str]:
    """Return the scheduler names of all pods that these profiles handle."""
    return _AllBut(()) if ANY in profile_names else frozenset(profile_names)


def names_of(profile_name: str, profile_names: Collection[str]) -> Container[str]:
    """Return the scheduler names of the pods that the profile ``profile_name`` handles. ``profile_names``: names of all
    profiles.
    """
    return _AllBut({*profile_names} - {ANY}) if profile_name == ANY else frozenset((profile_name,))


def _create_plugins(
    profile: ResolvedProfile, handle: Handle, kinds: _Kinds, reads: Mapping[str, ClockReads]
) -> dict[str, Any]:
    """Create every plugin with its own handle, and return the plugins by name. Raises ``ProfileErrors``."""
    plugins, faults = {}, []
    for name, spec in profile.specs.items():
        own_handle = replace(handle, objects=DeclaredObjects(name, kinds[name], handle.objects))
        if name in reads:
            counting = reads[name].counting
            clocks = {it: counting(getattr(handle.timing, it)) for it in ("clock", "wall_clock")}
            own_handle = replace(own_handle, timing=replace(handle.timing, **clocks))
        try:
            plugins[name] = spec.build(profile.args[name], own_handle)
        except Exception as fault:  # noqa: BLE001  # plugins are foreign code and can raise anything
            faults.append(profile.fault(name, "cannot be made", fault))
    if faults:
        raise ProfileErrors(faults)
    return plugins


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
