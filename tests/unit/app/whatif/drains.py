"""Small clusters to drain, with budgets and homes, and a drain of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack

import msgspec

from app.whatif.budget import Budget
from app.whatif.drain_models import DRAIN_PLAN, DrainPlan
from app.whatif.drain_plan import OUTCOMES, DrainRequest, Steps, drained
from app.whatif.scratch import ScratchCluster
from app.wire.explain_v1 import API_VERSION
from tests.api.village import CONFIG, machine
from tests.builders import JsonObject, PodFields, container, controller
from tests.unit.app.whatif import scratches
from tests.unit.app.whatif.scratches import COMPLETE, node

READY: Final = {"conditions": [{"type": "Ready", "status": "True"}]}
HOMES: Final[JsonObject] = {**COMPLETE, "pluginConfig": CONFIG}

__all__ = ("node",)


def pod(name: str, cpu: str = "4", **fields: Unpack[PodFields]) -> JsonObject:
    """A ready pod of ReplicaSet ``web`` on n1, unless something else is said."""
    given: PodFields = {"node": "n1", "owner": controller("ReplicaSet", "web"), "status": READY, **fields}
    return scratches.pod(name, cpu, **given)


def budget(name: str = "web", allowed: int = 0, healthy: int = 0, desired: int = 0, **spec: Any) -> JsonObject:
    """A budget of the pods with the label app=web."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired},
    }


def home(name: str, at: str = "n1", policy: str = "hard", **fields: Unpack[PodFields]) -> list[JsonObject]:
    """A virtual machine with a home; its pod is on n1, unless something else is said."""
    given: PodFields = {
        "node": "n1",
        "containers": [container(resources={"requests": {"cpu": "4"}})],
        "status": READY,
        **fields,
    }
    virtual, *others = machine(name, at, **given)
    virtual["metadata"]["annotations"]["homeport.dev/policy"] = policy
    return [virtual, *others]


def run(steps: Steps) -> Mapping[str, Any]:
    """What the steps return at their end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # of a generator


def planned(scratch: ScratchCluster, *nodes: str, seconds: float | None = None, keep: bool = False) -> JsonObject:
    """The plan, which agrees with the model of the answer, and whose sums are right."""
    steps = drained(scratch, DrainRequest(nodes or ("n1",), keep), Budget(seconds))
    plan = run(steps)
    more = {"apiVersion": API_VERSION, "kind": DRAIN_PLAN, "stale": "", "notJudged": [], "incomplete": False}
    answer: JsonObject = msgspec.json.decode(msgspec.json.encode({**plan, **more}))
    assert DrainPlan.model_validate(answer).model_dump(by_alias=True) == answer
    for item in answer["items"]:
        leaving = item["evicted"] + item["waitedBefore"] + item["preempted"]
        assert leaving == len(item["pods"]) == sum(item[it] for it in OUTCOMES)
    return answer


def drain(*objects: JsonObject, **options: Any) -> JsonObject:
    """The plan of a drain of n1."""
    (item,) = planned(scratches.scratch_of(*objects, profile=HOMES), **options)["items"]
    return item  # type: ignore[no-any-return]  # the answer is JSON


def becomes(item: JsonObject) -> dict[str, str]:
    return {it["pod"]: it["then"] for it in item["pods"]}
