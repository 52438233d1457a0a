"""The plugins that can be named in a profile, and the in-tree ones that stay in kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from app.config.profile import Preset, Release
from app.framework import points
from app.framework.spec import PluginSpec

POINT_METHODS: Final[Mapping[str, type[Any]]] = {
    "preEnqueue": points.PreEnqueuePlugin,
    "queueSort": points.QueueSortPlugin,
    "preFilter": points.PreFilterPlugin,
    "filter": points.FilterPlugin,
    "postFilter": points.PostFilterPlugin,
    "preScore": points.PreScorePlugin,
    "score": points.ScorePlugin,
    "reserve": points.ReservePlugin,
    "permit": points.PermitPlugin,
    "preBind": points.PreBindPlugin,
    "bind": points.BindPlugin,
    "postBind": points.PostBindPlugin,
}
"""Which protocol a plugin must fit to take part at an extension point."""

KUBE_SCHEDULER_DEFAULTS: Final[Mapping[str, int]] = {
    "SchedulingGates": 1,
    "PrioritySort": 1,
    "NodeUnschedulable": 1,
    "NodeName": 1,
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodePorts": 1,
    "NodeResourcesFit": 1,
    "VolumeRestrictions": 1,
    "NodeVolumeLimits": 1,
    "VolumeBinding": 1,
    "VolumeZone": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "DefaultPreemption": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "DefaultBinder": 1,
    "NodeDeclaredFeatures": 1,
}
"""``multiPoint`` of kube-scheduler 1.36 with default feature gates, in its order and with its weights."""

_DEFAULT_SINCE: Final[Mapping[str, str]] = {"NodeDeclaredFeatures": "1.36"}
"""Default plugins of kube-scheduler that an earlier release, of those that a profile can mean, does not run."""

STAY_IN_SCHEDULER: Final = frozenset(
    {
        "GangScheduling",
    }
)
"""In-tree plugins of Kubernetes 1.36 that run in the scheduler and not here: naming one is no mistake."""


class DuplicatePlugin(ValueError):
    """Two plugins of one name: nobody could say which of them a profile means."""


class Registry:
    """Plugin specs by name. ``defaults``: what a profile starts from that names no preset, by name, with weights."""

    def __init__(self, specs: Iterable[PluginSpec[Any]], defaults: Mapping[str, int]) -> None:
        self._specs: dict[str, PluginSpec[Any]] = {}
        self.defaults = defaults
        for spec in specs:
            if spec.name in self._specs:
                raise DuplicatePlugin(f'plugin "{spec.name}" is registered twice')
            self._specs[spec.name] = spec

    def __iter__(self) -> Iterator[PluginSpec[Any]]:
        return iter(self._specs.values())

    def preset(self, preset: Preset, release: Release) -> dict[str, int]:
        """The names and weights that a preset enables at ``multiPoint``, in order.

        ``complete``: those of kube-scheduler of a release, in its order and with its weights, then those of
        ``defaults`` that it lacks.
        """
        enabled = self.defaults
        if preset == "complete":
            ours = {it: weight for it, weight in enabled.items() if it not in KUBE_SCHEDULER_DEFAULTS}
            enabled = {**KUBE_SCHEDULER_DEFAULTS, **ours}
        return _of_release(enabled, release)

    def get(self, name: str) -> PluginSpec[Any] | None:
        return self._specs.get(name)


def kube_scheduler_defaults(release: str) -> dict[str, int]:
    """The default profile of kube-scheduler of a release: names and weights, in order, whether or not they are here."""
    return _of_release(KUBE_SCHEDULER_DEFAULTS, release)


def _of_release(plugins: Mapping[str, int], release: str) -> dict[str, int]:
    return {name: weight for name, weight in plugins.items() if _DEFAULT_SINCE.get(name, "") <= release}
