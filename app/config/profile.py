"""Profiles in KubeSchedulerConfiguration's own words.

``profiles[].schedulerName``, ``plugins.multiPoint|filter|score|…`` with ``enabled``, ``disabled``, ``*`` and weights,
and ``pluginConfig[].args``. Only the words are here; ``app.runtime.profiles`` gives them meaning.
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
"""Extension points as KubeSchedulerConfiguration spells them, in the order of a cycle."""

Release: TypeAlias = Literal["1.35", "1.36"]
"""The Kubernetes releases whose in-tree plugins a profile can mean."""

RELEASES: Final[tuple[str, ...]] = get_args(Release)

ANY: Final = "*"
"""The schedulerName of the profile that takes the pods of all names without one of their own."""

LEAST_NAMES: Final = 100
"""Of an answer that is cut short: as many nodes as kube-scheduler looks for at least where it samples."""

Preset: TypeAlias = Literal["delegated", "complete"]
"""What a profile starts from: what a kube-scheduler leaves to Homeport, or its whole default profile, and homes."""


class _Words(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, found: Any) -> Any:
        """As in Go."""
        return {key: it for key, it in found.items() if it is not None} if isinstance(found, dict) else found


class PluginRef(_Words):
    """A plugin by name; ``*`` in ``disabled`` means all defaults."""

    name: str = Field(min_length=1)
    weight: int = Field(
        default=0,
        ge=0,
        description="Weight of its score; 0 or absent: 1, also where it replaces a default of another weight.",
    )


class PluginSet(_Words):
    """What is added to and taken from the default plugins of one extension point."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()


class Plugins(_Words):
    """Plugin sets by extension point; ``multiPoint`` stands for every point its plugins have."""

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
        """The set of one of ``POINTS``."""
        found: PluginSet = getattr(self, "".join(f"_{c.lower()}" if c.isupper() else c for c in point))
        return found


class PluginConfig(_Words):
    """Arguments of one plugin."""

    name: str
    args: dict[str, Any] = {}


class Profile(_Words):
    """Which plugins judge the pods of one ``spec.schedulerName``, or (``*``) of each that no other profile has."""

    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    percentage_of_nodes_to_score: int | None = Field(
        default=None, description="The scheduler's business: accepted in a KubeSchedulerConfiguration and not used."
    )
    release: Release = Field(
        default="1.36",
        description="The Kubernetes release whose in-tree plugins are meant: that of the scheduler that asks.",
    )
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()
    preset: Preset = Field(
        default="delegated",
        description="What it starts from: what a kube-scheduler delegates, or its whole default profile, and homes.",
    )
    bind_recheck: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="Plugins whose filter is asked once more at bind, and nowhere else."
    )
    at_most: int | None = Field(
        default=None,
        ge=LEAST_NAMES,
        description="Of the nodes that pass, so many drawn by lot are answered below /lean. Default: all of them.",
    )
    pick: bool = Field(
        default=False,
        description="Below /lean filter answers the best node alone: for a profile with all of kube-scheduler's "
        "filters and scores.",
    )

    @field_validator("release", mode="before")
    @classmethod
    def _number_is_text(cls, found: Any) -> Any:
        """YAML takes ``1.36`` without quotes for a number."""
        return str(found) if isinstance(found, float) else found

    @field_validator("scheduler_name")
    @classmethod
    def _empty_is_default(cls, found: str) -> str:
        """As kube-scheduler reads it."""
        return found or DEFAULT_SCHEDULER_NAME


DEFAULT_PROFILES: Final = (Profile(scheduler_name=ANY),)
"""Without configuration every pod is judged, whatever scheduler it is for: a name left out would go unchecked."""
