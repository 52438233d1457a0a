"""Models of the answer of ``/api/v1/pending``, for the OpenAPI document and ``app.commands.answers``."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from app.wire.cycle_v1 import CamelModel

PENDING_POD_LIST: Final = "PendingPodList"


class PendingPodItem(CamelModel):
    """Pod that waits for a node, with the most important reason."""

    namespace: str
    name: str
    since: str = Field(description="RFC 3339: when kube-scheduler first failed to place it; else when it was created.")
    scheduler_name: str
    profile: str = Field(description="Profile that judged it; empty if no profile has its schedulerName.")
    gated: bool = Field(description="True if the pod has scheduling gates, so that kube-scheduler does not try it.")
    judged: bool = Field(description="False if there is no verdict yet. The fields below are then empty or 0.")
    feasible: int = Field(description="Number of nodes that fit.")
    total: int = Field(description="Number of nodes that were judged.")
    plugin: str = Field(
        description="Plugin that alone rejects the most nodes. If each node is rejected by several plugins, the one "
        "that rejects the most nodes. Empty if no node is rejected, or if the pod cannot be judged."
    )
    reasons: list[str] = Field(
        description="Reasons that this plugin gives for the most nodes, or why the pod cannot be judged."
    )
    opens: int = Field(description="Number of nodes that this plugin alone rejects.")
    not_judged: list[str] = Field(description="Default filters of kube-scheduler that were left out.")
    judged_seconds_ago: float = Field(description="Age of the verdict in seconds.")


class PendingPodList(CamelModel):
    """Pods that wait for a node, the longest wait first."""

    api_version: Literal["homeport.dev/v1alpha1"]
    kind: Literal["PendingPodList"]
    items: list[PendingPodItem]
    total: int = Field(description="Number of all pods that wait.")
    next: int | None = Field(description="Parameter start for the next page; null on the last page.")
