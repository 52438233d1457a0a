"""Models of the request and the answer of a rebalancing. The server uses the answer's models only for the OpenAPI
document. The command ``rebalance`` checks answers with them.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from app.kube.names import LONGEST
from app.whatif.models import SpreadChange, WhatIfAnswer, WhatIfRequest
from app.whatif.rebalance_plan import DEFAULT_EVICTIONS, MOST_EVICTIONS
from app.wire.cycle_v1 import CamelModel

REBALANCE_PLAN: Final = "RebalancePlan"


class RebalanceBody(WhatIfRequest):
    """Workloads to rebalance: all, those of a namespace, or one."""

    namespace: str = Field(default="", max_length=LONGEST, description="Empty for all namespaces.")
    kind: str = Field(default="", max_length=LONGEST, description="Kind of one workload, with name and namespace.")
    name: str = Field(default="", max_length=LONGEST, description="Name of one workload, with kind and namespace.")
    most: int = Field(
        default=DEFAULT_EVICTIONS, ge=1, le=MOST_EVICTIONS, strict=True, description="Maximum number of evictions."
    )
    soft: bool = Field(default=False, strict=True, description="Improve ScheduleAnyway constraints too.")


class EvictionImproves(CamelModel):
    """Constraint that an eviction improves."""

    workload: str = Field(description="KIND/NAMESPACE/NAME.")
    topology_key: str
    leaves: str = Field(description="Domain of the evicted pod; empty if the constraint does not count its node.")
    enters: str = Field(description="Domain of the new pod; empty if the constraint does not count its node.")
    skew_before: int
    skew_after: int


class PlannedEviction(CamelModel):
    """Pod to evict. Evict the pods in this order, and wait until each new pod is ready before the next eviction."""

    namespace: str
    pod: str
    uid: str
    workload: str
    node_name: str
    goes_to: str = Field(description="Node of the new pod.")
    ties: int = Field(description="Number of other nodes with the same score. kube-scheduler can choose any of them.")
    improves: list[EvictionImproves]


class LeftReason(CamelModel):
    """Reason why pods are not evicted. ``count``: number of pods; 0 if the reason is not about certain pods."""

    count: int
    reason: str


class LeftConstraint(CamelModel):
    """Constraint whose skew stays above ``maxSkew``."""

    workload: str
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    max_skew: int
    skew: int
    why: list[LeftReason]


class RebalancePlan(WhatIfAnswer):
    """Few evictions after which constraints hold again. Homeport itself evicts no pod."""

    kind: Literal["RebalancePlan"]
    known: bool = Field(description="False if the namespace has no pods, or no such workload has pods.")
    suggestion: str = Field(description="Text with similar names, if the workload or namespace is not known.")
    budgets_judged: bool = Field(
        description="False if the snapshot has no PodDisruptionBudgets, because no profile reads them."
    )
    above: int = Field(description="Number of constraints whose skew is above maxSkew before the evictions.")
    evictions: list[PlannedEviction]
    spread: list[SpreadChange] = Field(description="Before and after, for the first 100 improved workloads.")
    left: list[LeftConstraint]
