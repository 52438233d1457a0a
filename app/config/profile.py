"""Format of profiles, which is that of KubeSchedulerConfiguration with some more fields.

A profile has ``schedulerName``, ``pluginConfig[].args``, and ``plugins.multiPoint|filter|score|…`` with ``enabled``,
``disabled``, ``*`` and weights. ``app.runtime.profiles`` implements their effect.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from app.kube.core_v1 import DEFAULT_SCHEDULER_NAME

POINTS: Final = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
"""Names of extension points in KubeSchedulerConfiguration, in the order in which a pod passes them."""

Release: TypeAlias = Literal["1.35", "1.36"]
"""Kubernetes releases that a profile can name. The in-tree plugins then behave like in that release."""

RELEASES: Final[tuple[str, ...]] = get_args(Release)

ANY: Final = "*"
"""``schedulerName`` of the profile for every pod whose own ``schedulerName`` no other profile has."""

LEAST_NAMES: Final = 100
"""Minimum value of ``atMost``. When kube-scheduler samples nodes, it also looks for at least 100 feasible ones."""

Preset: TypeAlias = Literal["delegated", "complete"]
"""Plugins with which a profile begins.

``delegated``: the plugins that kube-scheduler leaves to Homeport. ``complete``: all default plugins of kube-scheduler.
Both presets also have ``StickyNode``, Homeport's own plugin for homes.
"""


Preemption: TypeAlias = Literal["Never", "Own"]
"""Eviction of pods of lower priority for a pod that only topology spread rejects.

``Never``: the pod waits. ``Own``: Homeport evicts pods.
"""


class _ConfigurationModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, document: Any) -> Any:
        """Remove fields that are ``null``, because Go treats them like missing fields."""
        return {key: it for key, it in document.items() if it is not None} if isinstance(document, dict) else document


class PluginRef(_ConfigurationModel):
    """Reference to a plugin by its name. In ``disabled``, ``*`` means all default plugins."""

    name: str = Field(min_length=1)
    weight: int = Field(
        default=0,
        ge=0,
        description="Weight of its score; 0 or absent means 1, also if it replaces a default of another weight.",
    )


class PluginSet(_ConfigurationModel):
    """Changes to the default plugins of one extension point: plugins to enable and to disable."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()


class Plugins(_ConfigurationModel):
    """Plugin set of each extension point. ``multiPoint`` applies to every extension point that a plugin implements."""

    multi_point: PluginSet = PluginSet()
    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()

    def at(self, point: str) -> PluginSet:
        """Return the plugin set of an extension point, which is ``multiPoint`` or one of ``POINTS``."""
        plugin_set: PluginSet = getattr(self, "".join(f"_{c.lower()}" if c.isupper() else c for c in point))
        return plugin_set


class PluginConfig(_ConfigurationModel):
    """Arguments of the plugin with this name. The plugin itself validates them."""

    name: str
    args: dict[str, Any] = {}


class Profile(_ConfigurationModel):
    """Plugins for the pods with one ``spec.schedulerName``. The name ``*`` means all pods without another profile."""

    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    percentage_of_nodes_to_score: int | None = Field(
        default=None, description="Accepted in a KubeSchedulerConfiguration but not used: only kube-scheduler needs it."
    )
    release: Release = Field(
        default="1.36",
        description="Kubernetes release of the in-tree plugins; use the release of the calling scheduler.",
    )
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()
    preset: Preset = Field(
        default="delegated",
        description="Base of the profile. delegated: the plugins that kube-scheduler leaves to Homeport. complete: its "
        "whole default profile. Both include homes.",
    )
    preemption: Preemption = Field(
        default="Never",
        description="Eviction of pods of lower priority for a pod that only topology spread rejects. Never: it waits. "
        "Own: Homeport evicts; needs leaderElection.leaderElect, and not preset complete.",
    )
    bind_recheck: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="Plugins whose filter also runs in the check before a bind."
    )
    at_most: int | None = Field(
        default=None,
        ge=LEAST_NAMES,
        description="Maximum number of passing nodes in an answer below /lean, drawn at random. Default: all of them.",
    )
    pick: bool = Field(
        default=False,
        description="Below /lean, filter returns only the best node. The profile needs all of kube-scheduler's filters "
        "and scores.",
    )

    @field_validator("release", mode="before")
    @classmethod
    def _number_is_text(cls, value: Any) -> Any:
        """Accept ``1.36`` without quotes, which YAML parses as a number."""
        return str(value) if isinstance(value, float) else value

    @field_validator("scheduler_name")
    @classmethod
    def _empty_is_default(cls, value: str) -> str:
        """Replace an empty ``schedulerName`` by the default one, like kube-scheduler."""
        return value or DEFAULT_SCHEDULER_NAME


DEFAULT_PROFILES: Final = (Profile(scheduler_name=ANY),)
"""Profiles used if none is configured: one for the pods of all schedulers, so that no pod goes unchecked."""
