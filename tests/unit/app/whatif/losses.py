"""Three zones that can be lost, and what is said of a loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.whatif.budget import Budget
from app.whatif.losing import LossRequest, Steps, lost
from app.whatif.scratch import ScratchCluster
from tests.builders import ZONE, JsonObject, controller, toleration
from tests.unit.app.whatif.scratches import node, pod

WEB: Final = {"app": "web"}
VARIANTS: Final = ("gone", "tainted", "full")
ZONES: Final = [node(f"{zone}1", zone=zone) for zone in "abc"]
NOT_READY: Final = {**toleration("node.kubernetes.io/unreachable", effect="NoExecute"), "tolerationSeconds": 300}


def web(name: str, where: str, **fields: Any) -> JsonObject:
    """A pod of ReplicaSet web on a node."""
    fields = {"labels": WEB, "owner": controller("ReplicaSet", "web"), "tolerations": [NOT_READY], **fields}
    return pod(name, node=where, **fields)


def replicas(**fields: Any) -> list[JsonObject]:
    return [web(f"web-{zone}", f"{zone}1", **fields) for zone in "abc"]


def lose(scratch: ScratchCluster, value: str | None = "c", key: str = ZONE) -> Mapping[str, Any]:
    return ended(lost(scratch, LossRequest(key, value), Budget(None)))


def ended(steps: Steps) -> Mapping[str, Any]:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Mapping[str, Any] = end.value
            return answer


def row(scratch: ScratchCluster, name: str = "web") -> Mapping[str, Any]:
    """What is said of one workload when zone c is lost."""
    (domain,) = lose(scratch)["domains"]
    (found,) = (it for it in domain["workloads"] if it["name"] == name)
    return dict(found)


def numbers(outcome: Mapping[str, Any]) -> tuple[int, int, int]:
    return outcome["lost"], outcome["placed"], outcome["waiting"]


def change(outcome: Mapping[str, Any]) -> tuple[str, str, int] | None:
    found = outcome["change"]
    return None if found is None else (found.field.rpartition(".")[2], found.value, found.waiting)
