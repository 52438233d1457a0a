"""Objects for tests: as JSON would have them (``…_object``), and slim, through the decoders production uses.

    make_pod("web-1", labels={"app": "web"}, node="n1", spread=[constraint(ZONE, app="web")])

A builder fills in what the API server would, so that a test says only what its rule is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict, Unpack

import msgspec

from app.cache.cluster import Cluster
from app.kube.apps_v1 import Workload, decode_workload
from app.kube.core_decoding import PLAIN
from app.kube.core_v1 import Node, Pod
from app.kube.services import Service, decode_service

JsonObject = dict[str, Any]
Labels = Mapping[str, str | None]

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
DELETED_AT: Final = "2026-11-21T10:00:00Z"

_UNSET: Final[Any] = object()


class PodFields(TypedDict, total=False):
    """What a test may say of a pod. ``more`` is added to its spec as it is, ``status`` to its status."""

    namespace: str
    uid: str
    resource_version: str
    labels: Labels | None
    annotations: Labels
    owner: JsonObject
    node: str
    nominated: str
    terminating: bool
    created: str
    phase: str
    scheduler: str
    priority: int
    gated: bool
    node_selector: Mapping[str, str]
    affinity: JsonObject
    tolerations: Sequence[JsonObject]
    spread: Sequence[JsonObject]
    containers: Sequence[JsonObject]
    more: JsonObject
    status: JsonObject


class NodeFields(TypedDict, total=False):
    """What a test may say of a node. ``zone`` and the hostname are labels; ``hostname=None`` leaves that one out."""

    uid: str
    resource_version: str
    labels: Labels
    zone: str | None
    hostname: str | None
    taints: Sequence[JsonObject]
    unschedulable: bool
    status: JsonObject


def encoded(found: object) -> bytes:
    """``found`` as JSON."""
    return msgspec.json.encode(found)


def pod_object(name: str = "web-1", **fields: Unpack[PodFields]) -> JsonObject:
    """A Pod of the namespace ``default``, waiting for a node unless ``node`` is given."""
    namespace = fields.get("namespace", "default")
    metadata = _present(
        name=name,
        namespace=namespace,
        uid=fields.get("uid", f"uid-{namespace}-{name}"),
        resourceVersion=fields.get("resource_version", "1"),
        labels=fields.get("labels", {}),
        annotations=fields.get("annotations", _UNSET),
        ownerReferences=[fields["owner"]] if "owner" in fields else _UNSET,
        creationTimestamp=fields.get("created", _UNSET),
        deletionTimestamp=DELETED_AT if fields.get("terminating") else _UNSET,
    )
    spec = _present(
        nodeName=fields.get("node", _UNSET),
        schedulerName=fields.get("scheduler", "default-scheduler"),
        priority=fields.get("priority", 0),
        schedulingGates=[{"name": "example.com/wait"}] if fields.get("gated") else _UNSET,
        nodeSelector=fields.get("node_selector", _UNSET),
        affinity=fields.get("affinity", _UNSET),
        tolerations=fields.get("tolerations", _UNSET),
        topologySpreadConstraints=fields.get("spread", _UNSET),
        containers=fields.get("containers", [{"name": "main", "image": "registry.example/web:1"}]),
    ) | fields.get("more", {})
    status = _present(
        phase=fields.get("phase", "Running" if fields.get("node") else "Pending"),
        nominatedNodeName=fields.get("nominated", _UNSET),
    ) | fields.get("status", {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def make_pod(name: str = "web-1", **fields: Unpack[PodFields]) -> Pod:
    return PLAIN.decode_pod(encoded(pod_object(name, **fields)))


def node_object(name: str = "n1", **fields: Unpack[NodeFields]) -> JsonObject:
    """A Node with its name as hostname label."""
    hostname, zone = fields.get("hostname", name), fields.get("zone")
    own = {HOSTNAME: hostname, ZONE: zone}
    labels = {key: value for key, value in own.items() if value is not None} | dict(fields.get("labels", {}))
    metadata = {
        "name": name,
        "uid": fields.get("uid", f"uid-{name}"),
        "resourceVersion": fields.get("resource_version", "1"),
        "labels": labels,
    }
    spec = _present(taints=fields.get("taints", _UNSET), unschedulable=fields.get("unschedulable", _UNSET))
    status = {"status": fields["status"]} if "status" in fields else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, **status}


def make_node(name: str = "n1", **fields: Unpack[NodeFields]) -> Node:
    return PLAIN.decode_node(encoded(node_object(name, **fields)))


def constraint(
    key: str = ZONE,
    *,
    soft: bool = False,
    skew: int = 1,
    selector: JsonObject | None = _UNSET,
    min_domains: int | None = None,
    affinity_policy: str | None = None,
    taints_policy: str | None = None,
    match_label_keys: Sequence[str] | None = None,
    **labels: str,
) -> JsonObject:
    """One topology spread constraint, hard unless ``soft``; ``labels`` are its matchLabels."""
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway" if soft else "DoNotSchedule",
        "labelSelector": {"matchLabels": labels} if selector is _UNSET else selector,
        "minDomains": min_domains,
        "nodeAffinityPolicy": affinity_policy,
        "nodeTaintsPolicy": taints_policy,
        "matchLabelKeys": match_label_keys,
    }


def expression(key: str, operator: str, *values: str) -> JsonObject:
    """A requirement of a label selector or of a node selector term."""
    return {"key": key, "operator": operator, "values": list(values)}


def required_affinity(*terms: JsonObject) -> JsonObject:
    """``spec.affinity`` that demands one of the node selector ``terms``."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def preferred_affinity(*terms: JsonObject) -> JsonObject:
    """``spec.affinity`` that prefers what these terms match, each with its weight."""
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def weighted(weight: int, preference: JsonObject) -> JsonObject:
    return {"weight": weight, "preference": preference}


def term(*expressions: JsonObject, fields: Sequence[JsonObject] = ()) -> JsonObject:
    return {"matchExpressions": list(expressions), "matchFields": list(fields)}


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> JsonObject:
    return {"key": key, "effect": effect, "value": value}


def toleration(key: str = "", operator: str = "Exists", value: str = "", effect: str = "") -> JsonObject:
    return {"key": key, "operator": operator, "value": value, "effect": effect}


def controller(kind: str, name: str, *, api_version: str = "apps/v1", controls: bool = True) -> JsonObject:
    """One entry of ``metadata.ownerReferences``."""
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": controls}


def container(name: str = "main", *, image: str = "registry.example/web:1", **fields: Any) -> JsonObject:
    """A container; ``requests`` are those of its resources, other fields are as JSON has them."""
    requests = fields.pop("requests", None)
    resources = {} if requests is None else {"resources": {"requests": requests}}
    return {"name": name, "image": image, **resources, **fields}


def service_object(
    name: str = "web", selector: Labels | None = None, *, namespace: str = "default", kind: str = "Service"
) -> JsonObject:
    """A Service, or a ReplicationController, which has the same kind of selector."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {"selector": selector}}


def make_service(name: str = "web", selector: Labels | None = None, *, namespace: str = "default") -> Service:
    return decode_service(encoded(service_object(name, selector, namespace=namespace)))


def workload_object(
    kind: str = "ReplicaSet",
    name: str = "web",
    selector: JsonObject | None = None,
    *,
    namespace: str = "default",
    resource_version: str = "1",
) -> JsonObject:
    """A ReplicaSet or StatefulSet."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "resourceVersion": resource_version,
    }
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"selector": selector}}


def make_workload(name: str = "web", selector: JsonObject | None = None, *, resource_version: str = "1") -> Workload:
    return decode_workload(encoded(workload_object("ReplicaSet", name, selector, resource_version=resource_version)))


def storage_object(api_version: str, kind: str, name: str, *, namespace: str = "", **fields: Any) -> JsonObject:
    """An object that volumes rest on; ``labels``, ``annotations`` and the like are its metadata's."""
    own = ("labels", "annotations", "ownerReferences", "deletionTimestamp", "uid", "resourceVersion")
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    metadata |= {key: fields.pop(key) for key in own if key in fields}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def claim_object(
    name: str = "data",
    *,
    volume: str = "",
    class_name: str | None = None,
    size: str | None = "1Gi",
    modes: Sequence[str] = ("ReadWriteOnce",),
    phase: str = "",
    node: str | None = None,
    more: JsonObject | None = None,
    **metadata: Any,
) -> JsonObject:
    """A PersistentVolumeClaim of ``default``, bound to ``volume`` if that is given; ``node`` is the selected one."""
    annotations = dict(metadata.pop("annotations", {}))
    if volume:
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    if node is not None:
        annotations["volume.kubernetes.io/selected-node"] = node
    spec: JsonObject = {"accessModes": list(modes), **(more or {})}
    if size is not None:
        spec["resources"] = {"requests": {"storage": size}}
    if volume:
        spec["volumeName"] = volume
    if class_name is not None:
        spec["storageClassName"] = class_name
    status = {"phase": phase or ("Bound" if volume else "Pending")}
    metadata.setdefault("namespace", "default")
    return storage_object(
        "v1", "PersistentVolumeClaim", name, annotations=annotations, spec=spec, status=status, **metadata
    )


def volume_object(
    name: str = "pv-1",
    *,
    class_name: str = "",
    size: str = "1Gi",
    modes: Sequence[str] = ("ReadWriteOnce",),
    claim: str = "",
    zone: str = "",
    phase: str = "",
    more: JsonObject | None = None,
    **metadata: Any,
) -> JsonObject:
    """A PersistentVolume of a CSI driver; ``claim`` of ``default`` has it, ``zone`` is its node affinity."""
    spec: JsonObject = {"accessModes": list(modes), "capacity": {"storage": size}, "storageClassName": class_name}
    if claim:
        spec["claimRef"] = {"namespace": "default", "name": claim, "uid": f"uid-{claim}"}
    if zone:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term(expression(ZONE, "In", zone))]}}
    spec |= {"csi": {"driver": "a.example.com", "volumeHandle": f"handle-{name}"}} if more is None else more
    status = {"phase": phase or ("Bound" if claim else "Available")}
    return storage_object("v1", "PersistentVolume", name, spec=spec, status=status, **metadata)


def class_object(
    name: str = "later", *, provisioner: str = "a.example.com", mode: str | None = "WaitForFirstConsumer", **fields: Any
) -> JsonObject:
    """A StorageClass."""
    return storage_object(
        "storage.k8s.io/v1", "StorageClass", name, provisioner=provisioner, volumeBindingMode=mode, **fields
    )


def csi_node_object(name: str = "n1", *, migrated: str = "", **limits: int | None) -> JsonObject:
    """A CSINode; ``limits`` by driver, underscores for dots."""
    drivers = [
        {"name": driver.replace("_", "."), "allocatable": None if count is None else {"count": count}}
        for driver, count in limits.items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    return storage_object("storage.k8s.io/v1", "CSINode", name, annotations=annotations, spec={"drivers": drivers})


def mounting(*claims: str, ephemeral: Sequence[str] = (), **sources: JsonObject) -> JsonObject:
    """``more`` of a pod: volumes of ``claims``, of ``ephemeral`` ones by their name, and of other ``sources``."""
    volumes: list[JsonObject] = [
        {"name": f"v{index}", "persistentVolumeClaim": {"claimName": name}} for index, name in enumerate(claims)
    ]
    volumes += [{"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}} for name in ephemeral]
    volumes += [{"name": f"in-line-{index}", key: value} for index, (key, value) in enumerate(sources.items())]
    return {"volumes": volumes}


def _present(**fields: Any) -> JsonObject:
    return {key: value for key, value in fields.items() if value is not _UNSET}


def bound_pods(cluster: Cluster) -> list[Pod]:
    """Pods on a node, less those that are only assumed there."""
    return [pod for pod in cluster.pods() if pod.node_name and cluster.assumed.get(pod.uid) is None]
