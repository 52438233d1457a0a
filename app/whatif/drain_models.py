"""Models of the request and the answer of ``POST /api/v1/drain``.

The server uses the models of the answer only for the OpenAPI document. The command ``drain`` checks answers with them.
"""

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
        min_length=1,
        max_length=MOST_NODES,
        description="Nodes to drain, in this order. A node can be deleted already: homes outlive nodes.",
    )
    keep_cordoned: bool = Field(
        default=False,
        strict=True,
        description="Cordon all nodes first, and keep them cordoned. By default, a node is uncordoned before the next "
        "is drained.",
    )


class DrainedPod(CamelModel):
    """Pod that leaves a drained node, or that preemption evicts for such a pod."""

    namespace: str
    pod: str
    workload: str = Field(description="KIND/NAMESPACE/NAME; empty for a pod without a controller.")
    outcome: Literal["placed", "waiting", "lost", "blocked", "notJudged", "notReached"]
    then: str = Field(description="Outcome as text.")
    wave: int = Field(
        description="Wave in which it leaves, from 1. The pods of a wave leave together. 0: it is not evicted, or only "
        "by preemption."
    )
    preempted: bool = Field(description="True if it is on another node, and preemption evicts it.")
    waited_before: bool = Field(description="True if it has no node, and waits for its home on the drained node.")
    node_name: str = Field(description="Node of the new pod; empty if the new pod has none.")
    ties: int = Field(description="Number of other nodes with the same score. kube-scheduler can choose any of them.")
    victims: list[str] = Field(description="NAMESPACE/NAME of the pods that preemption evicts for it.")
    budgets: list[str] = Field(description="Names of the PodDisruptionBudgets that select it.")
    home: ListedHome | None
    waits_for: str = Field(
        description="Home node that it waits for, during a grace period or without end; empty without such a node."
    )
    could_run_on: list[str] | None = Field(
        description="The first 100 nodes that would fit it if its home were released; null: not checked."
    )
    could_run_on_count: int
    placed_later: str = Field(description="Node on which it starts after the drained node is uncordoned; else empty.")


class PodLeftAlone(CamelModel):
    """Pod that a drain does not evict."""

    namespace: str
    pod: str
    why: str = Field(description='"DaemonSet", "static pod", or "ends already" for a pod that is being deleted.')


class DrainedBudget(CamelModel):
    """PodDisruptionBudget that selects pods of the drain.

    ``disruptionsAllowed`` and ``currentHealthy`` are the values before the node is drained.
    """

    namespace: str
    name: str
    disruptions_allowed: int
    current_healthy: int
    desired_healthy: int
    pods: int = Field(description="Number of pods of the drain that it selects.")
    waves: list[int] = Field(description="Waves in which these pods leave.")
    blocked: int = Field(description="Number of these pods that are never evicted.")


class HomeLeft(ListedHome):
    """Home on the node whose pod does not run there."""

    then: str = Field(description="What the drain means for its pod, as text.")


class DrainedGroup(WaitingGroup):
    """Equal pods that wait after the drain."""

    fits_alone: bool | None = Field(
        description="True if such a pod would fit a node without the other new pods; null: not checked."
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
    not_judged: int = Field(description="Pods for which a plugin failed.")
    not_reached: int = Field(description="Pods that were not tried, because the processor time was used up.")
    waves: int
    pods: list[DrainedPod]
    apart: list[PodLeftAlone] = Field(description="Pods of the node that the drain leaves alone.")
    budgets: list[DrainedBudget]
    homes: list[HomeLeft] = Field(description="Homes on the node whose pod does not run there, at most 1,000.")
    more_homes: int = Field(description="Number of further such homes.")
    waiting_groups: list[DrainedGroup] = Field(description="Waiting pods, equal ones together.")
    spread: list[SpreadChange]


class DrainPlan(WhatIfAnswer):
    """Drain of nodes, one after the other."""

    kind: Literal["DrainPlan"]
    keep_cordoned: bool
    budgets_judged: bool = Field(description="False if the snapshot has no budgets, because no profile reads them.")
    items: list[DrainedNode]
