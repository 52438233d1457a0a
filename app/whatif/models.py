"""Models of the requests and answers of simulations and losses, and parts that all what-ifs share.

The server uses the models of answers only for the OpenAPI document. The commands check answers with them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from app.kube.names import LONGEST
from app.wire.cycle_v1 import CamelModel
from app.wire.explain_v1 import PluginNotJudged, TriedRemedy

SIMULATION: Final = "Simulation"
LOSS_PLAN: Final = "LossPlan"

MOST_OBJECTS: Final = 5000
MOST_SCALES: Final = 100
MOST_REPLICAS: Final = 1_000_000
LONGEST_LABEL_KEY: Final = 317
"""Maximum characters of a label key: 253 of the prefix, a slash, and 63 of the name."""

LONGEST_LABEL_VALUE: Final = 63


class WhatIfRequest(BaseModel):
    """Base of the requests of what-ifs. A request with unknown fields is refused."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)


class ScaleRequest(WhatIfRequest):
    """Workload to scale."""

    namespace: str = Field(min_length=1, max_length=LONGEST)
    kind: str = Field(min_length=1, max_length=LONGEST)
    name: str = Field(min_length=1, max_length=LONGEST)
    replicas: int = Field(ge=0, le=MOST_REPLICAS, strict=True)


_SCALES: Final = {"type": "array", "maxItems": MOST_SCALES, "items": ScaleRequest.model_json_schema()}
"""JSON schema of ``scale``, written inline, because FastAPI adds only the models of answers to the document."""


class SimulateRequest(WhatIfRequest):
    """Changes to simulate: objects that are created, and workloads that are scaled."""

    objects: list[dict[str, Any]] = Field(
        default=[],
        max_length=MOST_OBJECTS,
        description="Kubernetes objects, as in manifests. Of a workload that scale names, only the template is used.",
    )
    scale: Annotated[list[ScaleRequest], WithJsonSchema(_SCALES)] = Field(default=[], max_length=MOST_SCALES)
    namespace: str = Field(
        default="default", min_length=1, max_length=LONGEST, description="Namespace of objects without one."
    )
    preempt: bool = Field(default=False, strict=True, description="Evict the victims of preemption in the simulation.")


class LoseRequest(WhatIfRequest):
    """Domain to lose: all nodes with this label value, or each domain of the label in turn."""

    key: str = Field(min_length=1, max_length=LONGEST_LABEL_KEY, description="Label key, such as a topology key.")
    value: str | None = Field(
        default=None, max_length=LONGEST_LABEL_VALUE, description="Lost value of the label; null compares all values."
    )


class SimulatedPlacement(CamelModel):
    """Pod of a simulation and its node."""

    namespace: str
    pod: str
    workload: str = Field(description="KIND/NAMESPACE/NAME; empty for a pod without a controller.")
    approximate: str = Field(description="Why the real pod can differ; empty for a pod that is simulated exactly.")
    node_name: str = Field(description="Empty if the pod waits.")
    ties: int = Field(description="Number of other nodes with the same score. kube-scheduler can choose any of them.")
    nominated_node_name: str = Field(description="Node on which preemption would make room; else empty.")
    victims: list[str] = Field(description="NAMESPACE/NAME of the pods that preemption would evict there.")


class RemovedPod(CamelModel):
    """Pod that a scale-down removes."""

    namespace: str
    pod: str
    node_name: str


class WaitingReason(CamelModel):
    """Reason of a plugin. ``count``: number of nodes that it rejects; 0 if the reason is not about nodes."""

    count: int
    plugin: str
    code: str
    reasons: list[str]


class WaitingGroup(CamelModel):
    """Equal pods that wait."""

    namespace: str
    count: int
    pods: list[str] = Field(description="The first 100 names.")
    reasons: list[WaitingReason]
    remedies: list[TriedRemedy] = Field(description="Changes that would open nodes; only for the eight largest groups.")


class SpreadChange(CamelModel):
    """Number of pods in each domain of a constraint, before and after the what-if."""

    workload: str
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    max_skew: int
    before: dict[str, int]
    after: dict[str, int]
    skew_before: int
    skew_after: int
    options: list[str] = Field(description="Options of the profile that change the constraint, as texts.")


class FullNode(CamelModel):
    """Node with new pods whose pods request at least 90 % of a resource."""

    name: str
    requested: dict[str, float] = Field(description="Requested part of each such resource, 0.9 to 1.")


class WhatIfAnswer(CamelModel):
    """Fields of every what-if."""

    api_version: Literal["homeport.dev/v1alpha1"]
    stale: str = Field(description="Why the snapshot is old; empty if it is current.")
    not_judged: list[PluginNotJudged] = Field(description="Default plugins of kube-scheduler that were not used.")
    incomplete: bool = Field(description="True if the processor time did not suffice for all parts of the answer.")


class Simulation(WhatIfAnswer):
    """Result of a simulation. Pods are in the order in which they were tried."""

    kind: Literal["Simulation"]
    placed: int
    waiting: int
    not_reached: int = Field(description="Number of pods that were not tried, because the processor time was used up.")
    ignored: list[str] = Field(description="KIND/NAMESPACE/NAME of objects without effect in a simulation.")
    notes: list[str] = Field(description="Assumptions of the simulation, as sentences.")
    pods: list[SimulatedPlacement]
    removed: list[RemovedPod]
    waiting_groups: list[WaitingGroup] = Field(description="Waiting pods, equal ones together.")
    spread: list[SpreadChange]
    full_nodes: list[FullNode]


class LostPods(CamelModel):
    """Numbers of pods after a loss.

    ``lost`` plus ``evicted`` is the sum of ``placed``, ``waiting``, ``notRecreated``, ``notEnded`` and
    ``notReached``.
    """

    lost: int
    evicted: int = Field(description="Pods on other nodes that are evicted to make room for lost pods.")
    placed: int = Field(description="Pods that were lost or evicted and are placed again.")
    after_grace: int = Field(description="Pods of placed that first wait for their home during its grace period.")
    ties: int = Field(
        description="Pods of placed for which other nodes have the same score. kube-scheduler can choose any of them."
    )
    waiting: int
    not_recreated: int = Field(description="Pods that no controller creates again on another node.")
    not_ended: int = Field(
        description="Pods that stay Terminating, until the nodes are deleted or get the out-of-service taint. Until "
        "then, their controller creates no others."
    )
    not_reached: int = Field(description="Pods that were not tried, because the processor time was used up.")


class HelpfulField(CamelModel):
    """Change of one field after which fewer pods of the workload wait. It is proved by placing these pods again."""

    field: str
    value: str
    topology_key: str = Field(description="Topology key of the changed constraint; else empty.")
    waiting: int = Field(description="Number of pods of the workload that wait after the change.")


class WorkloadOutcome(LostPods):
    """Outcome for one workload in one variant of the loss."""

    reasons: list[WaitingReason] = Field(description="Why pods wait, at most three reasons.")
    change: HelpfulField | None
    changes_tried: bool = Field(description="If true and change is null, no single field would help.")


class LostWorkload(CamelModel):
    """Workload with lost or evicted pods, and its outcome in each variant of the loss."""

    namespace: str
    kind: str
    name: str
    running: int = Field(description="Pods that run in the whole cluster before the loss.")
    running_in: dict[str, int] = Field(
        description="The same by domain: the 10 domains with the most pods. Nodes without the label have the domain ''."
    )
    tied_by_volume: int = Field(description="Pods in the domain with a volume that no other node can use.")
    gone: WorkloadOutcome | None
    tainted: WorkloadOutcome | None
    full: WorkloadOutcome | None


class DomainLoss(CamelModel):
    """Loss of one domain. A variant is null if the processor time did not suffice for it."""

    value: str
    nodes: int
    pods: int
    static_pods: int = Field(description="Static pods, which end with their node. They belong to no workload.")
    evicts_nothing: bool = Field(
        description="True if no node would be ready in the variant tainted. Then the node lifecycle controller stops "
        "all evictions."
    )
    gone: LostPods | None = Field(description="The nodes are deleted. The domain does not count for spread.")
    tainted: LostPods | None = Field(
        description="The nodes stay, unreachable and tainted. The domain counts, unless nodeTaintsPolicy is Honor."
    )
    full: LostPods | None = Field(description="The pods are lost. The nodes stay and count, but nothing fits there.")
    workloads: list[LostWorkload] = Field(
        description="The worst first, at most 500. If all values are compared: only those with pods that wait or stay "
        "Terminating, at most 20."
    )
    more_workloads: int = Field(description="Number of such workloads that are not listed.")


class LossPlan(WhatIfAnswer):
    """Loss of one domain of a node label, or of each of its domains, the worst first."""

    kind: Literal["LossPlan"]
    key: str
    value: str | None
    domains: list[DomainLoss]
    more_domains: int = Field(description="Number of domains that were not computed. At most 50 domains are.")
