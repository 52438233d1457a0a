"""Models of the answer of ``/api/v1/skew``, for the OpenAPI document and ``app.commands.answers``."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from app.wire.cycle_v1 import CamelModel

WORKLOAD_SKEW_LIST: Final = "WorkloadSkewList"


class SkewDomain(CamelModel):
    """Domain of a constraint: the nodes with one value of the topology key."""

    name: str = Field(description="Value of the topology key.")
    nodes: int = Field(description="Number of nodes that the constraint counts.")
    pods: int = Field(description="Number of pods that the constraint counts.")
    takes: bool = Field(
        description="True if the constraint allows the next pod there; for a soft constraint, if it prefers the domain."
    )


class WorkloadSkewItem(CamelModel):
    """Skew of one workload under one of its constraints."""

    namespace: str
    kind: str
    name: str
    pods: int = Field(description="Number of pods of the workload, including pods that wait.")
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    max_skew: int
    minimum: int = Field(description="Fewest pods of a domain; 0 with fewer domains than minDomains.")
    skew: int = Field(description="Most pods of a domain minus the minimum.")
    above: bool = Field(description="True if the skew is larger than maxSkew.")
    domains: list[SkewDomain] = Field(description="At most 50, sorted by the number of pods, the most first.")
    domain_count: int = Field(description="Number of all domains.")
    removed_first: str = Field(
        description="Pod that a scale-down removes first, as far as Homeport knows; empty if unknown."
    )


class WorkloadSkewList(CamelModel):
    """Skews of workloads with spread constraints, sorted by name; with above=true, by excess over maxSkew."""

    api_version: Literal["homeport.dev/v1alpha1"]
    kind: Literal["WorkloadSkewList"]
    items: list[WorkloadSkewItem] = Field(description="One for each constraint of at most 100 workloads.")
    total: int = Field(description="Number of matching workloads; with above=true, number of matching skews.")
    counted_seconds_ago: float = Field(description="Seconds since the workloads were counted.")
    next: int | None = Field(description="Parameter start for the next page; null on the last page.")
