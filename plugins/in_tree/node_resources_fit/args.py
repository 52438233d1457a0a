"""Arguments of NodeResourcesFit, with kube-scheduler's validation."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from app.framework.allocation import CPU_AND_MEMORY, ResourceSpec
from app.framework.spec import PluginArgs
from app.kube.selectors import is_label_key

LEAST: Final = "LeastAllocated"
MOST: Final = "MostAllocated"
RATIO: Final = "RequestedToCapacityRatio"

_MOST_WEIGHT: Final = 100


class UtilizationShapePoint(BaseModel):
    """Point of a scoring function: ``score`` (0 to 10) of a resource at ``utilization`` (0 to 100 percent)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    utilization: Annotated[int, Field(ge=0, le=100)] = 0
    score: Annotated[int, Field(ge=0, le=10)] = 0


class RequestedToCapacityRatioParam(BaseModel):
    """Scoring function given by the points of ``shape``, with linear interpolation between them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    shape: Annotated[tuple[UtilizationShapePoint, ...], Field(min_length=1)]

    @field_validator("shape")
    @classmethod
    def _is_sorted(cls, shape: tuple[UtilizationShapePoint, ...]) -> tuple[UtilizationShapePoint, ...]:
        each = [it.utilization for it in shape]
        if any(one >= other for one, other in pairwise(each)):
            raise ValueError("utilization: values must be sorted in increasing order")
        return shape


class ScoringStrategy(BaseModel):
    """Scoring function (``type``), and the weighted resources whose usage it scores.

    ``ratio``: parameters of the type RequestedToCapacityRatio; ``None`` for the other types.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY
    ratio: RequestedToCapacityRatioParam | None = Field(default=None, alias="requestedToCapacityRatio")

    @field_validator("resources", mode="after")
    @classmethod
    def _weights(cls, resources: tuple[ResourceSpec, ...]) -> tuple[ResourceSpec, ...]:
        for resource in resources:
            if not 0 < resource.weight <= _MOST_WEIGHT:
                raise ValueError(f"resource weight of {resource.name} not in valid range (0, {_MOST_WEIGHT}]")
        return resources or CPU_AND_MEMORY

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.type == RATIO) != (self.ratio is not None):
            rule = "must be specified when type is" if self.ratio is None else "must be absent when type is not"
            raise ValueError(f"requestedToCapacityRatio {rule} {RATIO}")
        return self


class NodeResourcesFitArgs(PluginArgs):
    """Arguments as in ``kubescheduler.config.k8s.io/v1``.

    Filter does not check ignored extended resources; Score still includes them.
    """

    ignored_resources: tuple[str, ...] = Field(default=(), alias="ignoredResources")
    ignored_resource_groups: tuple[str, ...] = Field(default=(), alias="ignoredResourceGroups")
    scoring_strategy: ScoringStrategy | None = Field(default=None, alias="scoringStrategy")

    @field_validator("ignored_resources")
    @classmethod
    def _are_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        _all_names(names)
        return names

    @field_validator("ignored_resource_groups")
    @classmethod
    def _are_groups(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if "/" in name:
                raise ValueError(f"{name}: resource group name can't contain '/'")
        _all_names(names)
        return names

    @property
    def strategy(self) -> ScoringStrategy:
        """Configured scoring strategy; LeastAllocated by CPU and memory if none is configured."""
        return self.scoring_strategy or _DEFAULT


def _all_names(names: Iterable[str]) -> None:
    for name in names:
        if not is_label_key(name):
            raise ValueError(f"{name}: not a valid label name")


_DEFAULT: Final = ScoringStrategy(type=LEAST)
