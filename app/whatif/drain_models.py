"""Models of the bodies of ``POST /api/v1/drain``. Those of the answer only describe it in the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from app.homes.homes_page import ListedHome
from app.kube.names import LONGEST
from app.whatif.drain_plan import MOST_NODES
from app.whatif.models import SpreadChange, WaitingGroup, WhatIfAnswer, WhatIfRequest
from app.wire.cycle_v1 import CamelModel

DRAIN_PLAN: Final = "DrainPlan"


class DrainBody(WhatIfRequest):
    """Nodes to drain, one after the other."""

    nodes: list[Annotated[str, Field(min_length=1, max_length=LONGEST)]] = Field(
        min_length=1, max_length=MOST_NODES, description="In this order. A node can be gone: homes outlive nodes."
    )
    keep_cordoned: bool = Field(
        default=False,
        strict=True,
        description="Cordon all nodes first, like kubectl drain. Else a node is uncordoned before the next is drained.",
    )


class DrainedPod(CamelModel):
    """Pod that leaves a drained node, or that preemption evicts for such a pod."""

    namespace: str
    pod: str
    workload: str = Field(description="KIND/NAMESPACE/NAME; empty for a pod without a controller.")
    outcome: Literal["placed", "waiting", "lost", "blocked", "notJudged", "notReached"]
    then: str = Field(description="Outcome as text.")
    wave: int = Field(description="Wave in which it leaves. The pods of a wave leave together. 0: it does not leave.")
    preempted: bool = Field(description="It is on another node, and preemption evicts it.")
    waited_before: bool = Field(description="It has no node, and waits for its home on the drained node.")
    node_name: str = Field(description="Node of the new pod; empty if that has none.")
    ties: int = Field(description="Number of other nodes with the same score, of which kube-scheduler takes any.")
    victims: list[str] = Field(description="NAMESPACE/NAME of the pods that preemption evicts for it.")
    budgets: list[str] = Field(description="PodDisruptionBudgets that guard it.")
    home: ListedHome | None
    waits_for: str = Field(description="Home that it waits for, during its grace or forever; else empty.")
    could_run_on: list[str] | None = Field(
        description="The first 100 nodes that would fit it if its home were released; null: not checked."
    )
    could_run_on_count: int
    placed_later: str = Field(description="Node that takes it after the drained node is uncordoned; else empty.")


class PodLeftAlone(CamelModel):
    """Pod that a drain does not evict."""

    namespace: str
    pod: str
    why: str = Field(description="DaemonSet, static pod, or ends already.")


class DrainedBudget(CamelModel):
    """PodDisruptionBudget of pods on the node, as before the node is drained."""

    namespace: str
    name: str
    disruptions_allowed: int
    current_healthy: int
    desired_healthy: int
    pods: int = Field(description="Number of pods of the node that it guards.")
    waves: list[int] = Field(description="Waves in which pods that it guards leave.")
    blocked: int = Field(description="Number of pods whose eviction it never allows.")


class HomeLeft(ListedHome):
    """Home on the node whose pod does not run there."""

    then: str


class DrainedGroup(WaitingGroup):
    """Equal pods that wait after the drain."""

    fits_alone: bool | None = Field(
        description="True if a node would fit such a pod without the other new pods; null: not checked."
    )


class DrainedNode(CamelModel):
    """Drain of one node.

    The sum of ``evicted``, ``waitedBefore`` and ``preempted`` is the sum of the six outcomes, ``placed`` to
    ``notReached``.
    """

    node: str
    known: bool = Field(description="True if the node exists.")
    suggestion: str = Field(description="Similar names as text, if the node does not exist; else empty.")
    evicted: int = Field(description="Pods of the node that a drain evicts, or tries to.")
    waited_before: int = Field(description="Pods without a node that wait for their home on this node.")
    preempted: int = Field(description="Pods on other nodes that preemption evicts.")
    placed: int
    waiting: int
    lost: int = Field(description="Evicted pods that no controller creates again.")
    blocked: int = Field(description="Pods that are never evicted, because of a budget.")
    not_judged: int = Field(description="Pods that a plugin cannot judge.")
    not_reached: int = Field(description="Pods that were not tried, because the processor time was used up.")
    waves: int
    pods: list[DrainedPod]
    apart: list[PodLeftAlone]
    budgets: list[DrainedBudget]
    homes: list[HomeLeft] = Field(description="At most 1,000.")
    more_homes: int
    waiting_groups: list[DrainedGroup] = Field(description="Waiting pods, equal ones together.")
    spread: list[SpreadChange]


class DrainPlan(WhatIfAnswer):
    """Drain of nodes, one after the other."""

    kind: Literal["DrainPlan"]
    keep_cordoned: bool
    budgets_judged: bool = Field(description="False if the snapshot has no budgets, because no profile reads them.")
    items: list[DrainedNode]
