"""Small clusters to rebalance."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from app.whatif.budget import Budget
from app.whatif.rebalance_models import REBALANCE_PLAN, RebalancePlan
from app.whatif.rebalance_plan import RebalanceRequest, rebalanced
from app.whatif.scratch import ScratchCluster
from app.wire.explain_v1 import API_VERSION
from tests.builders import JsonObject, constraint, controller
from tests.unit.app.whatif import drains
from tests.unit.app.whatif.drains import HOMES, READY, run
from tests.unit.app.whatif.scratches import node, scratch_of

ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"


def nodes(*zones: str, cpu: str = "8") -> list[JsonObject]:
    """Nodes n1, n2 …, one in each of the zones."""
    return [node(f"n{number}", cpu, zone=zone) for number, zone in enumerate(zones, start=1)]


def pod(name: str, at: str, cpu: str = "1", **fields: Any) -> JsonObject:
    """A ready pod of ReplicaSet ``web`` that is spread over zones, unless something else is said."""
    given = {
        "owner": controller("ReplicaSet", "web"),
        "labels": {"app": "web"},
        "spread": [constraint(ZONE, app="web")],
        "status": READY,
        **fields,
    }
    return drains.pod(name, cpu, node=at, **given)


def planned(scratch: ScratchCluster, seconds: float | None = None, **fields: Any) -> JsonObject:
    """The plan, which agrees with the model of the answer."""
    steps = rebalanced(scratch, RebalanceRequest(**fields), budget := Budget(seconds))
    plan = run(steps)
    more = {"apiVersion": API_VERSION, "kind": REBALANCE_PLAN, "stale": "", "notJudged": []}
    answer: JsonObject = msgspec.json.decode(msgspec.json.encode({**plan, **more, "incomplete": budget.was_over}))
    assert RebalancePlan.model_validate(answer).model_dump(by_alias=True) == answer
    return answer


def rebalance(*objects: JsonObject, **fields: Any) -> JsonObject:
    """The plan for a cluster with these objects."""
    return planned(scratch_of(*objects, profile=HOMES), **fields)


def evicted(plan: JsonObject) -> dict[str, str]:
    """Node to which each evicted pod goes, by name."""
    return {it["pod"]: it["goesTo"] for it in plan["evictions"]}
