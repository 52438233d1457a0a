"""Models of the bodies of ``/api/v1/explain``.

The server uses the models of answers only for the OpenAPI document. The commands check answers with them. Answers are
encoded without these models, because the validation of 5,000 nodes would take too long.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from app.wire.cycle_v1 import CamelModel, PodRequest

API_VERSION: Final = "homeport.dev/v1alpha1"
EXPLANATION: Final = "Explanation"
EXPLANATION_LIST: Final = "ExplanationList"


class ExplainRequest(PodRequest):
    """Pod to explain, optionally with another profile."""

    scheduler_name: str | None = Field(default=None, description="Profile to use instead of the pod's own.")
    node: str = Field(default="", description="Name of a node: also give the verdict and score of each plugin there.")


class Rejection(CamelModel):
    """Rejection of a node by one plugin."""

    plugin: str
    code: str = Field(description="Unschedulable, UnschedulableAndUnresolvable or Pending.")
    reasons: list[str]


class NodeGroup(CamelModel):
    """Nodes that the same plugins reject for the same reasons."""

    count: int
    nodes: list[str]
    reasons: list[Rejection]


class ExplanationTable(CamelModel):
    """Table of facts on which a plugin's verdicts are based. Each row has one value per column."""

    title: str
    columns: list[str]
    rows: list[list[str | int | bool]]


class PluginExplanation(CamelModel):
    """Facts on which the verdicts of one plugin are based."""

    tables: list[ExplanationTable]
    unblock: list[str] = Field(description="Hints of the plugin. Unlike remedies, they have not been tried.")


class ResourceRoom(CamelModel):
    """Resource that the pod requests. Amounts are Kubernetes quantities, for example 500m or 2Gi."""

    name: str
    requested: str
    free: str = Field(description="Amount that is free on all nodes together.")
    most_free: str = Field(description="Largest amount that is free on one node.")
    node: str = Field(description="Node with the largest free amount; empty if nothing is free on any node.")


class TriedRemedy(CamelModel):
    """Change after which more nodes fit. Homeport evaluated the pod again with this change."""

    sort: str = Field(
        description="Kind of change: Uncordon, ReleaseHome, FewerPods, TaintsPolicy, MaxSkew, RequestLess, Tolerate, …"
    )
    change: str
    opens: int = Field(description="Number of nodes that fit after the change.")
    nodes: list[str] = Field(description="The first ten of these nodes.")
    pods: list[str] = Field(description="Pods that the change deletes, in the namespace of the explained pod.")


class ProvedRemedy(TriedRemedy):
    """Remedy in an explanation, with the scope of its proof."""

    proved_by: Literal["complete", "partial"] = Field(
        description="complete: by all filters. partial: the filters in notJudged can still reject these nodes."
    )


class PluginNotJudged(CamelModel):
    """Filter of kube-scheduler's default profile that was not evaluated here. It can reject a node that fits here."""

    plugin: str
    why: str


class VerdictOnNode(Rejection):
    """Verdict of one plugin on the node that the request names, or on the node of a bound pod. ``code`` is Success if
    the node passes.
    """


class NodeExplanation(CamelModel):
    """Verdicts and scores of all plugins on one node."""

    name: str
    fits: bool
    verdicts: list[VerdictOnNode]
    scores: dict[str, int] = Field(
        description="0..100 by plugin that was judged, before weights; empty if the node does not fit."
    )
    total: int | None = Field(description="Weighted sum of the profile's scores; null if the node does not fit.")


class BoundNodeExplanation(CamelModel):
    """Node of a bound pod, with the verdict of each plugin there if the pod were scheduled now.

    No scheduler moves a running pod, so it stays also where a plugin would reject it.
    """

    name: str
    fits: bool = Field(description="True if no plugin would reject the pod there now.")
    verdicts: list[VerdictOnNode] = Field(description="Empty if the node was not judged.")
    note: str = Field(description="What follows from a rejection, or why the node was not judged; else empty.")


class HomeOwnerReference(CamelModel):
    """Object that keeps the home."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    slot: str = Field(description="Ordinal of the pod, if each pod has a home; else empty.")


class PodHome(CamelModel):
    """Home of the pod, and what follows for this pod."""

    owner: HomeOwnerReference
    annotation: str = Field(description="Key of the annotation on the owner that records the home.")
    node: str = Field(description="Empty if there is no home yet.")
    state: str = Field(description="none, target, volume_elsewhere, other_machine, gone, leaving, away or usable.")
    cause: str = Field(description="Cause of the state, for example cordoned; else empty.")
    policy: Literal["off", "soft", "hard", "grace"]
    policy_source: str = Field(description="owner, pod, the rule of the configuration, or default.")
    effect: str = Field(description="What StickyNode does for this pod.")
    waits: bool = Field(description="True if the pod waits until its home takes pods again.")
    since: str = Field(
        description="RFC 3339: start of the grace period; empty if it has not started, or if there is none."
    )
    until: str = Field(
        description="RFC 3339: end of the grace period, after which other nodes are allowed; empty if since is."
    )
    recorded: bool = Field(description="False if the owner does not record the home yet, or if there is none.")


class SchedulerReasonCount(CamelModel):
    """Reason in kube-scheduler's message, and the number of nodes with this reason."""

    count: int
    reason: str


class SchedulerCondition(CamelModel):
    """Condition PodScheduled of the pod, as kube-scheduler wrote it."""

    since: str = Field(description="RFC 3339: since when the pod is unschedulable. The message can be newer.")
    message: str = Field(description="At most 1,024 characters.")
    nodes: int = Field(description="N in 0/N nodes are available; 0 if the message has another form.")
    reasons: list[SchedulerReasonCount]
    differences: list[str] = Field(description="Differences between this message and Homeport's verdict, as sentences.")


class PermitHold(CamelModel):
    """Node of a pod that waits at Permit, and the plugins that keep it waiting."""

    node: str = Field(description="Node to which the pod is bound once all plugins allow it.")
    plugins: list[str] = Field(description="Plugins that have not allowed it yet.")


class ExplainResponse(CamelModel):
    """Explanation for one pod: which nodes fit, why others do not, and which changes would make more nodes fit.

    A bound pod is judged as if it had no node, and it is left out of all counts. Homeport does not search for remedies.
    """

    api_version: Literal["homeport.dev/v1alpha1"]
    kind: Literal["Explanation"]
    pod: str = Field(description="namespace/name")
    scheduler_name: str = Field(description="schedulerName of the pod, or the one that the request names.")
    node_name: str = Field(description="Node that the pod is bound to; empty if it is not bound.")
    profile: str = Field(description="schedulerName of the profile; * for the profile of all other names.")
    preset: Literal["delegated", "complete"] = Field(description="Base of the profile.")
    judged_at: str = Field(description="RFC 3339: time of the snapshot that was judged; of a saved cluster, its file.")
    verdict: Literal["Bound", "HeldAtPermit", "Terminating", "Gated", "Fits", "NoNodeFits"]
    summary: str = Field(description="The verdict as a sentence.")
    held_at_permit: PermitHold | None = Field(description="Set if the pod waits at Permit in this replica.")
    gate: list[Rejection] = Field(description="Plugins that keep the pod from being scheduled at all.")
    total: int = Field(description="Number of nodes that were judged.")
    feasible: list[str] = Field(description="Nodes that pass every filter that was judged.")
    groups: list[NodeGroup] = Field(description="All other nodes, the largest group first.")
    judges: dict[str, Literal["Homeport", "kube-scheduler", "both"]] = Field(
        description="Program that runs each filter. both: kube-scheduler runs it, and Homeport checks it at bind."
    )
    not_judged: list[PluginNotJudged]
    plugins: dict[str, PluginExplanation]
    resources: list[ResourceRoom] = Field(description="Empty if resources were not judged.")
    remedies: list[ProvedRemedy] = Field(description="At most five, the one after which the most nodes fit first.")
    impossible: list[str] = Field(
        description="If no node fits: sentences about requirements that the cluster cannot meet, and about evictions "
        "for topology spread that would help."
    )
    incomplete: bool = Field(
        description="True if changes were not tried, because the time was over, or because there were too many and "
        "none of the first ones helps."
    )
    scheduler: SchedulerCondition | None = Field(description="What kube-scheduler wrote on the pod; null if nothing.")
    node: NodeExplanation | None = Field(description="Set if the request names a node.")
    bound: BoundNodeExplanation | None = Field(description="Set if the pod has a node.")
    home: PodHome | None = Field(description="Set if a plugin keeps the pod's home, or would make one.")
    home_taints: list[str] = Field(
        description="Taints of the home that the pod does not tolerate, without that of a cordon."
    )


class EqualPods(CamelModel):
    """Pods with equal inputs and, if bound, on the same node; and the explanation of the first one."""

    pods: list[str] = Field(description="Names of the pods.")
    explanation: ExplainResponse


class ExplanationList(CamelModel):
    """Explanations for the pods of a workload. Pods without a node come first."""

    api_version: Literal["homeport.dev/v1alpha1"]
    kind: Literal["ExplanationList"]
    items: list[EqualPods]
    total: int = Field(description="Number of all pods that match.")
    omitted: int = Field(description="Number of matching pods that are not explained; at most 50 are explained.")
