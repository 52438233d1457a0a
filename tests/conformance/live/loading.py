"""Puts a generated case into a real API server, as it is, and takes it out again.

Generated objects are such as an API server would have stored, so that some have to be brought about: a pod is
terminating because it was deleted, and a label differs from a merged matchLabelKeys because it was changed.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.conformance.draft import NAMESPACES
from tests.conformance.live.recorder import Json
from tests.controlplane.client import RESOURCES, Client
from tests.controlplane.objects import namespace

FINALIZER: Final = "homeport.test/hold"
MADE: Final = ("Pod", "Service", "ReplicaSet", "StatefulSet", "ReplicationController", "Node")
ADMISSION: Final = "ServiceAccount,TaintNodesByCondition,Priority,DefaultTolerationSeconds"
"""Disabled: what would change a case on its way in, or wait for a controller. A case says its priorities as numbers."""

APISERVER_FLAGS: Final = (f"--disable-admission-plugins={ADMISSION}",)
_NODE_NAME: Final = re.compile(r'"n(\d+)"')


class Unloadable(Exception):
    """No API server comes to hold this object; the message says why."""


@dataclass(frozen=True)
class Trial:
    """A case as this control plane has it: nodes have names of their own, so that none is taken for an earlier one.

    ``pod`` is created with the labels it has, and then gets ``labels`` if they differ. ``constraints`` are what the API
    server is to make of those it is created with.
    """

    nodes: frozenset[str]
    objects: tuple[Json, ...]
    pod: Json
    labels: Mapping[str, str] | None
    nominated: str
    constraints: Sequence[Json]
    expected: Json


def trial_of(case: Json, expected: Json, number: int, schedule_by: str) -> Trial:
    """Raises `Unloadable`."""
    case, expected = _renamed(case, number), _renamed(expected, number)
    pods = [it for it in case["objects"] if it["kind"] == "Pod"]
    for pod in (*pods, case["pod"]):
        _adapt(pod, case["config"]["schedulerName"], schedule_by)
    if any(map(_is_forgotten, pods)):
        raise Unloadable("kube-scheduler forgets the labels of a terminating pod that it has taken off its queue")
    pod = case["pod"]
    nominated = pod.pop("status", {}).get("nominatedNodeName", "")
    constraints = copy.deepcopy(pod["spec"].get("topologySpreadConstraints", []))
    labels = _bring_about(pod)
    nodes = frozenset(it["metadata"]["name"] for it in case["objects"] if it["kind"] == "Node")
    return Trial(nodes, tuple(case["objects"]), pod, labels, nominated, constraints, expected)


def _renamed(found: Json, number: int) -> Json:
    renamed: Json = json.loads(_NODE_NAME.sub(rf'"c{number}-n\1"', json.dumps(found)))
    return renamed


def _adapt(pod: Json, scheduler: str, schedule_by: str) -> None:
    """Never preempting: a refused pod that would evict nobody keeps its nomination. An empty priority counts as 0."""
    pod["spec"]["preemptionPolicy"] = "Never"
    if pod["spec"]["schedulerName"] == scheduler:
        pod["spec"]["schedulerName"] = schedule_by


def _is_forgotten(pod: Json) -> bool:
    """Its nomination counts while kube-scheduler has it in a queue: nobody can say how long."""
    waiting = not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates")
    return waiting and "deletionTimestamp" in pod["metadata"] and bool(pod["status"].get("nominatedNodeName"))


def _bring_about(pod: Json) -> Mapping[str, str] | None:
    """Take back what the API server merged for matchLabelKeys, so that it merges that again.

    It merges the labels that the pod has when it is created: the pod starts out with those, and gets its own later.
    """
    own: Mapping[str, str] = pod["metadata"].get("labels", {})
    then: dict[str, str | None] = {}
    for constraint in pod["spec"].get("topologySpreadConstraints", ()):
        keys = constraint.get("matchLabelKeys", ())
        if not keys or constraint.get("labelSelector") is None:
            continue
        expressions = constraint["labelSelector"].get("matchExpressions", [])
        merged = {it["key"]: it["values"][0] for it in expressions if it["key"] in keys}
        for key in keys:
            if then.setdefault(key, merged.get(key)) != merged.get(key):
                raise Unloadable(f"two constraints have merged different values of {key}")
        constraint["labelSelector"] = _without(constraint["labelSelector"], keys)
    before = {**own, **then}
    at_first = {key: value for key, value in before.items() if value is not None}
    if at_first == own:
        return None
    pod["metadata"]["labels"] = at_first
    return own


def _without(selector: Json, keys: Iterable[str]) -> Json:
    expressions = [it for it in selector.get("matchExpressions", ()) if it["key"] not in keys]
    kept = {key: value for key, value in selector.items() if key != "matchExpressions"}
    return {**kept, "matchExpressions": expressions} if expressions else kept


def prepare(client: Client) -> None:
    """The namespaces of all cases."""
    for name in NAMESPACES:
        if client.find("Namespace", name) is None:
            client.create(namespace(name))


def load(client: Client, trial: Trial) -> None:
    """Create all but the pod to be judged: owners and nodes first, pods last."""
    for found in sorted(trial.objects, key=lambda it: str(it["kind"]) == "Pod"):
        if found["kind"] == "Pod":
            _load_pod(client, found)
        else:
            client.create(found)


def _load_pod(client: Client, pod: Json) -> None:
    metadata, status = dict(pod["metadata"]), pod["status"]
    space, name = metadata["namespace"], metadata["name"]
    terminating = metadata.pop("deletionTimestamp", None)
    metadata.pop("deletionGracePeriodSeconds", None)
    if terminating:
        metadata["finalizers"] = [FINALIZER]
    client.create({**pod, "metadata": metadata})
    said = {key: value for key, value in status.items() if value not in ("Pending", "Running")}
    if pod["spec"].get("nodeName") or pod["spec"].get("schedulingGates"):
        # Of a bound pod the API server takes none. That of a gated pod kube-scheduler would count if it came later than
        # the pod itself, which is the only way here, and does not count after a restart, which is what vectors tell.
        said.pop("nominatedNodeName", None)
    if said:
        client.patch_status("Pod", name, said, space)
    if terminating:
        client.delete("Pod", name, space, grace_seconds=30)


def clear(client: Client) -> None:
    """Remove all that cases are made of."""
    for pod in client.list("Pod"):
        if pod["metadata"].get("finalizers"):
            change = {"metadata": {"finalizers": None}}
            client.patch("Pod", pod["metadata"]["name"], change, pod["metadata"]["namespace"])
    for kind in MADE:
        for space in NAMESPACES if RESOURCES[kind].namespaced else ("",):
            if kind == "Service":
                _clear_services(client, space)
            else:
                body = {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "gracePeriodSeconds": 0,
                    "propagationPolicy": "Background",
                }
                client.request("DELETE", RESOURCES[kind].path(space), body)


def _clear_services(client: Client, space: str) -> None:
    for service in client.list("Service", space):
        if service["metadata"]["name"] != "kubernetes":
            client.delete("Service", service["metadata"]["name"], space)
