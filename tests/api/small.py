"""A small cluster and the requests about it.

Three nodes in three zones; ``web-1`` runs on n1 and is spread hard over zones, so that ``web-new`` may go to n2 and n3
only; ``batch`` runs on n1 too, in nobody's way; ``foreign`` waits for a scheduler that has no profile among ``OURS``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from app.config.profile import Profile
from app.verbs.outcome import Verb
from tests.builders import JsonObject, constraint, node_object, pod_object

WEB: Final = {"app": "web"}
SPREAD: Final = [constraint(app="web")]
OURS: Final = (Profile(),)
ROOM: Final[JsonObject] = {"allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"}}
NODES: Final = [node_object(f"n{number}", zone=f"z{number}", status=ROOM) for number in (1, 2, 3)]
NEW: Final = pod_object("web-new", labels=WEB, spread=SPREAD)
FOREIGN: Final = pod_object("foreign", labels=WEB, spread=SPREAD, scheduler="volcano")
PODS: Final = [
    pod_object("web-1", labels=WEB, spread=SPREAD, node="n1"),
    pod_object("batch", labels={"app": "batch"}, node="n1", uid="uid-batch"),
    NEW,
    FOREIGN,
]
NAMES: Final = ["n1", "n2", "n3"]
TOO_MANY: Final = "node(s) didn't match pod topology spread constraints"
UNKNOWN_NODE: Final = "node(s) were not known to Homeport yet"
VICTIMS: Final = {"Pods": [{"UID": "uid-batch"}], "NumPDBViolations": 1}


def saved(folder: Path, *objects: JsonObject) -> str:
    """The path of a saved cluster: this one, with ``objects`` in it."""
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*NODES, *PODS, *objects]}))
    return str(path)


def by_name(pod: JsonObject = NEW, names: list[str] = NAMES) -> JsonObject:
    return {"Pod": pod, "Nodes": None, "NodeNames": names}


def by_object(pod: JsonObject = NEW, nodes: list[JsonObject] = NODES) -> JsonObject:
    return {"Pod": pod, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}


def eviction(pod: JsonObject = NEW, **victims: JsonObject) -> JsonObject:
    return {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}


def binding(pod: JsonObject = NEW, node: str = "n2") -> JsonObject:
    it = pod["metadata"]
    return {"PodName": it["name"], "PodNamespace": it["namespace"], "PodUID": it["uid"], "Node": node}


def request(verb: Verb, pod: JsonObject = NEW) -> JsonObject:
    """An ordinary request of each verb."""
    match verb:
        case "preempt":
            return eviction(pod, n2=VICTIMS)
        case "bind":
            return binding(pod)
        case _:
            return by_name(pod)


def filtered(
    names: list[str] | None = None, failed: dict[str, str] | None = None, *, nodes: list[JsonObject] | None = None
) -> JsonObject:
    """The filter answer of either form."""
    listed: Any = None if nodes is None else {"metadata": {}, "items": nodes}
    return {
        "Nodes": listed,
        "NodeNames": names,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": failed or {},
        "Error": "",
    }


def filter_error(message: str) -> JsonObject:
    return {**filtered(), "Error": message}


def scored(**scores: int) -> list[JsonObject]:
    return [{"Host": host, "Score": score} for host, score in scores.items()]


def evicted(**victims: JsonObject) -> JsonObject:
    return {"NodeNameToMetaVictims": victims}
