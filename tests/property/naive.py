"""What the kept counts must equal: counted anew by walking every pod, from JSON objects and nothing of ours.

Written from the semantics reference, section 2.2, without a look at the code under test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

JsonObject = dict[str, Any]

ANYWHERE: Final[JsonObject] = {}


class Question(Struct, frozen=True):
    """Whose pods are counted, by which domains; a policy that is ignored is ``None``.

    ``affinity`` is a pod spec's ``nodeSelector`` and ``affinity``; ``tolerations`` its tolerations.
    """

    namespace: str
    selector: JsonObject
    key: str
    required: frozenset[str]
    affinity: JsonObject | None
    tolerations: tuple[JsonObject, ...] | None


def pods_by_node(pods: Iterable[JsonObject], namespace: str, selector: JsonObject) -> dict[str, int]:
    """Counted pods, by the node they name."""
    found: dict[str, int] = {}
    for pod in pods:
        if is_counted(pod) and pod["metadata"]["namespace"] == namespace and selects(selector, labels_of(pod)):
            name = pod["spec"]["nodeName"]
            found[name] = found.get(name, 0) + 1
    return found


def domains(nodes: Iterable[JsonObject], pods: Iterable[JsonObject], asked: Question) -> dict[str, int]:
    """Every domain that exists with its count."""
    on_node = pods_by_node(pods, asked.namespace, asked.selector)
    found: dict[str, int] = {}
    for node in nodes:
        value = domain_of(node, asked)
        if value is not None:
            found[value] = found.get(value, 0) + on_node.get(node["metadata"]["name"], 0)
    return found


def domain_of(node: JsonObject, asked: Question) -> str | None:
    labels = labels_of(node)
    if any(key not in labels for key in asked.required):
        return None
    if asked.affinity is not None and not affinity_admits(asked.affinity, node):
        return None
    if asked.tolerations is not None and not taints_admit(asked.tolerations, node):
        return None
    return str(labels.get(asked.key, ""))


def is_counted(pod: JsonObject) -> bool:
    finished = pod["status"].get("phase") in ("Succeeded", "Failed")
    terminating = pod["metadata"].get("deletionTimestamp") is not None
    return bool(pod["spec"].get("nodeName")) and not finished and not terminating


def labels_of(found: JsonObject) -> Mapping[str, str]:
    return found["metadata"].get("labels") or {}


def selects(selector: JsonObject, labels: Mapping[str, str]) -> bool:
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(expression_holds(it, labels) for it in selector.get("matchExpressions") or ())


def expression_holds(wanted: JsonObject, labels: Mapping[str, str]) -> bool:
    key, operator, values = wanted["key"], wanted["operator"], wanted.get("values") or []
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    raise NotImplementedError(operator)


def affinity_admits(spec: JsonObject, node: JsonObject) -> bool:
    labels = labels_of(node)
    for key, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return required is None or any(term_holds(term, node) for term in required["nodeSelectorTerms"])


def term_holds(term: JsonObject, node: JsonObject) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    name = {"metadata.name": node["metadata"]["name"]}
    return all(expression_holds(it, labels_of(node)) for it in expressions) and all(
        expression_holds(it, name) for it in fields
    )


def taints_admit(tolerations: Iterable[JsonObject], node: JsonObject) -> bool:
    for taint in node["spec"].get("taints") or ():
        if taint["effect"] == "PreferNoSchedule":
            continue
        if not any(not it.get("key") or it["key"] == taint["key"] for it in tolerations):
            return False
    return True
