"""Normalizes the case of keys in extender/v1 requests, because Go accepts keys in any mix of upper and lower case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw, Struct, field

from app.kube.decoding import Decoder
from app.wire.extender_answers import ENCODER, NodeVictims, VictimUid

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class NodeVictimsObject(Struct, forbid_unknown_fields=True):
    """Victims on one node as in a request (a MetaVictims of extender/v1), in which lists and numbers can be null."""

    pods: list[VictimUid] | None = field(name="Pods", default=None)
    num_pdb_violations: Int64 | None = field(name="NumPDBViolations", default=None)

    def slim(self) -> NodeVictims:
        return NodeVictims(self.pods or [], self.num_pdb_violations or 0)


_OUTER: Final[Decoder[dict[str, Raw]]] = Decoder(dict[str, Raw])
_ANY: Final[Decoder[Any]] = Decoder(Any)

_MOST_FOLDED: Final = 4 << 20
"""Maximum bytes of the known fields of a request that is normalized: 4 MiB already block the event loop for up to half
a second.

Requests of kube-scheduler are not affected, because their keys have the usual case.
"""


def field_names(kind: type[Struct]) -> dict[str, str]:
    """Return the JSON names of a struct's fields. The keys of the result are these names in lower case."""
    return {it.encode_name.lower(): it.encode_name for it in msgspec.structs.fields(kind)}


_VICTIMS: Final = field_names(NodeVictimsObject)
_NESTED: Final = {
    name.lower(): name
    for names in (
        ("metadata", "name", "namespace", "uid", "resourceVersion", "labels", "annotations", "ownerReferences"),
        ("creationTimestamp", "deletionTimestamp", "apiVersion", "kind", "controller", "items"),
        ("spec", "nodeName", "schedulerName", "priority", "schedulingGates", "nodeSelector", "tolerations"),
        ("key", "operator", "value", "values", "effect", "tolerationSeconds", "taints", "unschedulable"),
        ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"),
        ("matchExpressions", "matchFields", "matchLabels", "matchLabelKeys", "labelSelector"),
        ("topologySpreadConstraints", "topologyKey", "whenUnsatisfiable", "maxSkew", "minDomains"),
        ("nodeAffinityPolicy", "nodeTaintsPolicy", "status", "phase", "nominatedNodeName"),
        ("containers", "initContainers", "image", "restartPolicy", "ports", "hostPort", "hostIP", "protocol"),
        ("resources", "requests", "overhead", "volumes", "reference", "containerStatuses", "initContainerStatuses"),
        ("allocatedResources", "conditions", "type", "reason", "allocatable", "images", "names", "sizeBytes"),
        ("lastTransitionTime", "message", "nodeInfo", "systemUUID", "persistentVolumeClaim", "claimName", "ephemeral"),
    )
    for name in names
}
"""Keys within pods and nodes that are normalized, by the key in lower case.

Other keys are read only in their usual case, for example ``podAffinity``.
"""

_VICTIM_MAPS: Final = frozenset({"NodeNameToVictims", "NodeNameToMetaVictims"})
"""Fields of a preempt request that map node names to victims."""

_OBJECTS: Final = frozenset({"Pod", "Nodes"})
"""Fields of a request that are Kubernetes objects."""

_USER_KEYS: Final = frozenset(
    {
        "labels",
        "annotations",
        "nodeSelector",
        "matchLabels",
        "requests",
        "overhead",
        "allocatedResources",
        "allocatable",
    }
)
"""Keys of maps that are not normalized, because the keys in these maps are data, such as label keys."""


def folded(body: bytes | memoryview, known: Mapping[str, str]) -> bytes:
    """Return a request as JSON with all known keys in their usual case, and without unknown keys of the outer object.

    ``known``: keys of the outer object in their usual case, by the key in lower case. Raises ``msgspec.DecodeError`` if
    the known fields have more than 4 MiB together, or if the request is not JSON; this or ``RecursionError`` if
    it is nested too deeply.
    """
    fields = _OUTER.at_once(body)
    outer = {name: value for key, value in fields.items() if (name := known.get(key.lower())) is not None}
    if sum(memoryview(value).nbytes for value in outer.values()) > _MOST_FOLDED:
        raise msgspec.ValidationError("the request has keys in unusual case, and is longer than 4 MiB")
    return ENCODER.encode({name: _fold_top(name, _ANY.at_once(value)) for name, value in outer.items()})


def _fold_top(name: str, value: Any) -> Any:
    """Normalize the value of the field ``name`` of the outer object."""
    if name in _OBJECTS:
        return _fold(value)
    if name in _VICTIM_MAPS and isinstance(value, dict):
        fold = _fold_meta_victim if name == "NodeNameToMetaVictims" else _fold
        return {node: _fold_victims(victims, fold) for node, victims in value.items()}
    if name == "NodeNames" and isinstance(value, list):
        return ["" if it is None else it for it in value]
    return value


def _fold_victims(value: Any, fold: Callable[[Any], Any]) -> Any:
    if not isinstance(value, dict):
        return value
    folded = {name: value for key, value in value.items() if (name := _VICTIMS.get(key.lower())) is not None}
    pods = folded.get("Pods")
    if isinstance(pods, list):
        folded["Pods"] = [fold(pod) for pod in pods if pod is not None]
    return folded


def _fold_meta_victim(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    uids = [value or "" for key, value in value.items() if key.lower() == "uid"]
    return {"UID": uids[-1]} if uids else {}


def _fold(value: Any) -> Any:
    if isinstance(value, list):
        return [_fold(it) for it in value]
    if not isinstance(value, dict):
        return value
    folded = {}
    for key, part in value.items():
        name = _NESTED.get(key.lower(), key)
        folded[name] = part if name in _USER_KEYS else _fold(part)
    return folded
