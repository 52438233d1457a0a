"""Registry of the plugins that a profile can name, and the in-tree plugins that run only in kube-scheduler."""

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
"""Base class that a plugin must inherit from, by extension point."""

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
"""First Kubernetes release in which a plugin is enabled by default. All other default plugins are enabled by default in
all supported releases.
"""

STAY_IN_SCHEDULER: Final = frozenset(
    {
        "GangScheduling",
    }
)
"""In-tree plugins of Kubernetes 1.36 that run only in kube-scheduler. A profile can enable one; Homeport ignores it
with a notice.
"""


class DuplicatePlugin(ValueError):
    """Error: two plugins have the same name, so a profile that names it is ambiguous."""


class Registry:
    """Plugin specs by name. ``defaults``: weights, by name, of the plugins that Homeport enables by default."""

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
        """Return the plugins that a preset enables at ``multiPoint``: names and weights, in order.

        ``complete`` enables kube-scheduler's default plugins in its order and with its weights, then the remaining
        plugins of ``defaults``. Any other preset enables ``defaults``. Plugins newer than ``release`` are left out.
        """
        enabled = self.defaults
        if preset == "complete":
            ours = {it: weight for it, weight in enabled.items() if it not in KUBE_SCHEDULER_DEFAULTS}
            enabled = {**KUBE_SCHEDULER_DEFAULTS, **ours}
        return _of_release(enabled, release)

    def get(self, name: str) -> PluginSpec[Any] | None:
        return self._specs.get(name)


def kube_scheduler_defaults(release: str) -> dict[str, int]:
    """Return the plugins of a kube-scheduler release's default profile, in order: weights by name. Plugins that
    Homeport lacks are included.
    """
    return _of_release(KUBE_SCHEDULER_DEFAULTS, release)


def _of_release(plugins: Mapping[str, int], release: str) -> dict[str, int]:
    return {name: weight for name, weight in plugins.items() if _DEFAULT_SINCE.get(name, "") <= release}
