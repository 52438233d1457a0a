"""Models of the answers that the page ``/ui/`` reads, for the OpenAPI document and ``app.commands.answers``."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from app.wire.cycle_v1 import CamelModel
from app.wire.pending_v1 import PendingPodItem
from app.wire.skew_v1 import WorkloadSkewItem

OVERVIEW: Final = "Overview"
NODE_MAP: Final = "NodeMap"
NODE_DETAIL: Final = "NodeDetail"
WORKLOAD: Final = "WorkloadDetail"


class PendingPart(CamelModel):
    """Pods that wait for a node: the first ones of ``/api/v1/pending``."""

    total: int = Field(description="Number of all pods that wait.")
    items: list[PendingPodItem] = Field(description="At most 100, the longest wait first.")


class SkewPart(CamelModel):
    """Skews larger than maxSkew."""

    total: int
    items: list[WorkloadSkewItem] = Field(description="At most 100, the largest excess first.")


class HomesPart(CamelModel):
    """Homes that pods cannot start on now: the node accepts no pods, is gone or replaced, or the owner is gone."""

    total: int
    items: list[dict[str, Any]] = Field(description="At most 100, with the fields of /api/v1/homes.")


class Overview(CamelModel):
    """Pods that wait, workloads above their maxSkew, and homes that are away or gone.

    The header Age has the age of the answer in seconds, and Homeport-Snapshot-Age the age of the snapshot. If no
    decision is possible, the header Homeport-Problem says why, percent-encoded.
    """

    api_version: Literal["homeport.dev/v1alpha1"]
    kind: Literal["Overview"]
    nodes: str = Field(description="ETag of /api/v1/nodes.")
    homes: HomesPart
    pending: PendingPart
    skews: SkewPart


class MapZone(CamelModel):
    """Zone with its nodes, sorted by name."""

    name: str = Field(description="Empty for nodes without a zone.")
    nodes: list[tuple[str, int | None, int | None, int, str]] = Field(
        description="For each node: name, requested CPU and memory in percent of the allocatable amounts, number of "
        "pods, and condition: ready, cordoned, notReady or tainted. Percentages are null with explain: profile."
    )


class NodeMap(CamelModel):
    """All nodes by zone. The header Age has the age of the answer in seconds."""

    api_version: Literal["homeport.dev/v1alpha1"]
    kind: Literal["NodeMap"]
    zone_key: str = Field(description="Label of the zones.")
    total: int = Field(description="Number of nodes.")
    zones: list[MapZone]


class NodeResource(CamelModel):
    """Resource of a node. Amounts are Kubernetes quantities, for example 500m or 2Gi."""

    name: str
    requested: str
    allocatable: str


class PodOnNode(CamelModel):
    """Pod on a node, and the outermost workload that it belongs to."""

    namespace: str
    name: str
    workload_kind: str = Field(description="Pod if the pod has no controller.")
    workload: str = Field(description="Name of the workload, or of the pod if it has no controller.")


class NodeDetail(CamelModel):
    """One node and its pods."""

    api_version: Literal["homeport.dev/v1alpha1"]
    kind: Literal["NodeDetail"]
    name: str
    zone: str = Field(description="Empty if the node has no zone.")
    condition: str = Field(description="ready, cordoned, notReady or tainted.")
    taints: list[str] = Field(description="In kubectl's notation.")
    labels: dict[str, str]
    resources: list[NodeResource] = Field(description="Empty with explain: profile.")
    pods: list[PodOnNode] = Field(description="At most 500, sorted by namespace and name.")
    pod_count: int = Field(description="Number of all pods on the node.")


class WorkloadPod(CamelModel):
    """Pod of a workload."""

    name: str
    node: str = Field(description="Empty if the pod waits for a node.")
    created: str = Field(description="RFC 3339: time of creation.")


class WorkloadDetail(CamelModel):
    """Workload with its skews, its pods, and their nodes."""

    api_version: Literal["homeport.dev/v1alpha1"]
    kind: Literal["WorkloadDetail"]
    namespace: str
    workload_kind: str
    name: str
    skews: list[WorkloadSkewItem] = Field(description="One for each spread constraint.")
    pods: list[WorkloadPod] = Field(description="At most 500, in the order in which a scale-down removes them.")
    pod_count: int = Field(description="Number of all pods.")
    nodes: dict[str, int] = Field(description="Number of these pods by node.")
