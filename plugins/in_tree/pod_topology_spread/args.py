"""Arguments of PodTopologySpread, with exactly kube-scheduler's validation."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from app.framework.spec import PluginArgs
from app.kube.core_v1 import SCHEDULE_ANYWAY, TopologySpreadConstraint
from app.kube.selectors import is_label_key

NAME: Final = "PodTopologySpread"
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"

SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY),
)
"""Default constraints with ``defaultingType: System``."""


class DefaultConstraint(BaseModel):
    """Constraint for pods without constraints of their own. Its selector is derived for each pod."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)

    max_skew: Annotated[int, Field(gt=0)]
    topology_key: Annotated[str, Field(min_length=1)]
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []

    @field_validator("topology_key")
    @classmethod
    def _is_label_key(cls, value: str) -> str:
        if not is_label_key(value):
            raise ValueError("not a valid label name")
        return value

    @field_validator("label_selector", mode="before")
    @classmethod
    def _no_selector(cls, value: Any) -> None:
        if value is not None:
            raise ValueError("constraint must not define a selector, as they deduced for each pod")

    def slim(self) -> TopologySpreadConstraint:
        return TopologySpreadConstraint(
            max_skew=self.max_skew,
            topology_key=self.topology_key,
            when_unsatisfiable=self.when_unsatisfiable,
            min_domains=self.min_domains,
            node_affinity_policy=self.node_affinity_policy,
            node_taints_policy=self.node_taints_policy,
        )


class PodTopologySpreadArgs(PluginArgs):
    """Arguments as in ``kubescheduler.config.k8s.io/v1``.

    ``defaultingType: System`` prefers to spread the pods of a Service or controller over hosts and zones.
    ``defaultingType: List`` uses ``defaultConstraints`` instead, which can be empty.
    """

    default_constraints: tuple[DefaultConstraint, ...] = Field(default=(), alias="defaultConstraints")
    defaulting_type: Literal["System", "List"] = Field(default="System", alias="defaultingType")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultingType: System: when .defaultConstraints are not empty")
        seen = set()
        for constraint in self.default_constraints:
            pair = (constraint.topology_key, constraint.when_unsatisfiable)
            if pair in seen:
                raise ValueError(f"defaultConstraints: duplicate {{{pair[0]}, {pair[1]}}}")
            seen.add(pair)
        return self

    @property
    def system_defaulted(self) -> bool:
        return self.defaulting_type == "System"

    def constraints(self) -> tuple[TopologySpreadConstraint, ...]:
        """Return the default constraints of the configured ``defaultingType``."""
        return SYSTEM_DEFAULTS if self.system_defaulted else tuple(it.slim() for it in self.default_constraints)
