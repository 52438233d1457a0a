"""Models of the answer of ``/api/v1/skew``. They only describe it in the OpenAPI document."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from app.wire.cycle_v1 import CamelModel

WORKLOAD_SKEW_LIST: Final = "WorkloadSkewList"


class SkewDomain(CamelModel):
    """Domain of a constraint."""

    name: str
    nodes: int = Field(description="Number of nodes that the constraint counts.")
    pods: int = Field(description="Number of pods that the constraint counts.")
    takes: bool = Field(description="True if the next pod may go there, or goes there if the constraint is soft.")


class WorkloadSkewItem(CamelModel):
    """Skew of one workload under one of its constraints."""

    namespace: str
    kind: str
    name: str
    pods: int = Field(description="Number of its pods, with those that wait.")
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    max_skew: int
    minimum: int = Field(description="Fewest pods of a domain; 0 with fewer domains than minDomains.")
    skew: int = Field(description="Most pods of a domain minus the minimum.")
    above: bool = Field(description="True if the skew is larger than maxSkew.")
    domains: list[SkewDomain] = Field(description="At most 50, those with the most pods first.")
    domain_count: int = Field(description="Number of all domains.")
    removed_first: str = Field(description="Pod that a scale-down removes first, as far as Homeport knows.")


class WorkloadSkewList(CamelModel):
    """Skews of workloads with spread constraints, by name; with above=true the largest excess over maxSkew first."""

    api_version: Literal["homeport.dev/v1alpha1"]
    kind: Literal["WorkloadSkewList"]
    items: list[WorkloadSkewItem] = Field(description="One for each constraint of at most 100 workloads.")
    total: int = Field(description="Number of workloads that match; with above=true, of skews.")
    counted_seconds_ago: float = Field(description="Seconds since the workloads were counted.")
    next: int | None = Field(description="start of the next page; null on the last one.")
