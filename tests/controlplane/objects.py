"""Builders of the JSON that users, controllers and kubelet send to the API server.

Each returns a fresh dict that leaves out what the API server fills in. Only nodes come with a status: no kubelet is
there to report it. Owners come as created (`client.create(...)`), because an owner reference needs their uid.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

Json: TypeAlias = dict[str, Any]
Labels: TypeAlias = Mapping[str, str]
WhenUnsatisfiable: TypeAlias = Literal["DoNotSchedule", "ScheduleAnyway"]

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
KUBEVIRT: Final = "kubevirt.io"
KUBEVIRT_API: Final = f"{KUBEVIRT}/v1"
PAUSE_IMAGE: Final = "pause"
"""Nothing pulls it."""


def node(
    name: str,
    *,
    zone: str = "",
    cpu: str = "8",
    memory: str = "32Gi",
    pods: str = "110",
    labels: Labels | None = None,
    annotations: Labels | None = None,
    taints: Sequence[Json] = (),
    unschedulable: bool = False,
    extended: Labels | None = None,
    ready: bool = True,
) -> Json:
    """A node as its kubelet registers and reports it; `extended` are further resources, such as devices."""
    zone_label = {ZONE_LABEL: zone} if zone else {}
    resources = {"cpu": cpu, "memory": memory, "pods": pods, "ephemeral-storage": "100Gi", **(extended or {})}
    condition = {"type": "Ready", "status": "True" if ready else "False", "reason": "KubeletReady"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {HOSTNAME_LABEL: name, **zone_label, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {"capacity": resources, "allocatable": dict(resources), "conditions": [condition]},
    }


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Json:
    """A taint of a node."""
    return {"key": key, "value": value, "effect": effect}


def toleration(key: str, value: str = "", effect: str = "") -> Json:
    """A toleration of one taint; without a value of any value, without an effect of every effect."""
    wanted = {"operator": "Equal", "value": value} if value else {"operator": "Exists"}
    return {"key": key, **wanted, **({"effect": effect} if effect else {})}


def spread(
    labels: Labels,
    *,
    topology_key: str = ZONE_LABEL,
    max_skew: int = 1,
    when: WhenUnsatisfiable = "DoNotSchedule",
    **more: object,
) -> Json:
    """A topology spread constraint over pods with these labels; `more` are further fields in the API's spelling."""
    return {
        "maxSkew": max_skew,
        "topologyKey": topology_key,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": dict(labels)},
        **more,
    }


def owner_reference(owner: Json, *, controller: bool = True) -> Json:
    """What an object's metadata says about an owner that the API server has created."""
    return owner_reference_to(
        owner["apiVersion"], owner["kind"], owner["metadata"]["name"], owner["metadata"]["uid"], controller=controller
    )


def owner_reference_to(api_version: str, kind: str, name: str, uid: str, *, controller: bool = True) -> Json:
    """The same from its parts; a controller also blocks its deletion, as every controller in the field sets it."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": controller,
        "blockOwnerDeletion": controller,
    }


def pod(
    name: str,
    *,
    namespace: str = "default",
    labels: Labels | None = None,
    annotations: Labels | None = None,
    scheduler_name: str = "default-scheduler",
    spread_constraints: Sequence[Json] = (),
    priority_class_name: str = "",
    owners: Sequence[Json] = (),
    requests: Labels | None = None,
    node_selector: Labels | None = None,
    affinity: Json | None = None,
    tolerations: Sequence[Json] = (),
    gates: Sequence[str] = (),
    node_name: str = "",
    **spec: object,
) -> Json:
    """A pod of one container; `owners` are owner references, `spec` further fields of its spec in the API's spelling.

    A priority comes by its class alone: admission refuses a number that is not the one of the class.
    """
    optional = {
        "topologySpreadConstraints": list(spread_constraints),
        "priorityClassName": priority_class_name,
        "nodeSelector": dict(node_selector or {}),
        "affinity": affinity,
        "tolerations": list(tolerations),
        "schedulingGates": [{"name": gate} for gate in gates],
        "nodeName": node_name,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, namespace, labels, annotations, owners),
        "spec": {
            "schedulerName": scheduler_name,
            "terminationGracePeriodSeconds": 0,
            "containers": [_container(requests)],
            **{field: value for field, value in optional.items() if value},
            **spec,
        },
    }


def replica_set(
    name: str,
    *,
    namespace: str = "default",
    labels: Labels | None = None,
    replicas: int = 1,
    owners: Sequence[Json] = (),
) -> Json:
    """A ReplicaSet that selects and makes `labels` (`app: <name>` when none are given); nobody makes its pods."""
    chosen = dict(labels or {"app": name})
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": _metadata(name, namespace, chosen, None, owners),
        "spec": {"replicas": replicas, "selector": {"matchLabels": chosen}, "template": _template(chosen)},
    }


def service(name: str, labels: Labels, *, namespace: str = "default") -> Json:
    """A Service of the pods with these labels."""
    spec = {"selector": dict(labels), "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(name, namespace, None, None, ()), "spec": spec}


def deployment(name: str, *, namespace: str = "default", labels: Labels | None = None, replicas: int = 1) -> Json:
    """A Deployment that selects and makes `labels` (`app: <name>` when none are given); nobody makes its ReplicaSet."""
    chosen = dict(labels or {"app": name})
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(name, namespace, chosen, None, ()),
        "spec": {"replicas": replicas, "selector": {"matchLabels": chosen}, "template": _template(chosen)},
    }


def replica_set_pods(owner: Json, count: int, **fields: Any) -> list[Json]:
    """The pods a controller would make for a created ReplicaSet, `<name>-0` and on; `fields` are those of `pod`."""
    metadata = owner["metadata"]
    labels = owner["spec"]["template"]["metadata"]["labels"]
    common = {"namespace": metadata["namespace"], "labels": labels, "owners": [owner_reference(owner)], **fields}
    return [pod(f"{metadata['name']}-{number}", **common) for number in range(count)]


def namespace(name: str, labels: Labels | None = None) -> Json:
    """A namespace; nothing finishes its deletion."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}


def priority_class(name: str, value: int, *, preemption_policy: str = "PreemptLowerPriority") -> Json:
    """A priority class."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": preemption_policy,
    }


def stateful_set(name: str, *, owners: Sequence[Json] = (), replicas: int = 0) -> Json:
    """A StatefulSet; without its controller nobody makes its pods."""
    labels = {"set": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _metadata(name, "default", None, None, owners),
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": _template(labels),
        },
    }


def bound_claim(name: str, *, labels: Labels | None = None) -> tuple[Json, Json]:
    """A PersistentVolume that any node can use, and the claim that is bound to it, once each knows of the other."""
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"volume-of-{name}"},
        "spec": {
            **common,
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": "default", "name": name},
            "csi": {"driver": "disks.example.com", "volumeHandle": name},
        },
    }
    annotations = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(name, "default", labels, annotations, ()),
        "spec": {**common, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"volume-of-{name}"},
    }
    return volume, claim


def pod_disruption_budget(name: str, labels: Labels, *, min_available: int, namespace: str = "default") -> Json:
    """A disruption budget over pods with these labels; its status, which no controller sets, allows no disruption."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(name, namespace, None, None, ()),
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": dict(labels)}},
    }


def kubevirt_definitions() -> list[Json]:
    """CustomResourceDefinitions of VirtualMachine and VirtualMachineInstance that accept anything."""
    return [
        definition("VirtualMachine", "virtualmachines", ["vm", "vms"]),
        definition("VirtualMachineInstance", "virtualmachineinstances", ["vmi", "vmis"]),
    ]


def virtual_machine(
    name: str, *, namespace: str = "default", labels: Labels | None = None, running: bool = True
) -> Json:
    """A VirtualMachine whose instance's pods carry `labels`."""
    template = {"metadata": {"labels": dict(labels or {})}, "spec": {"domain": {"devices": {}}}}
    return {
        "apiVersion": KUBEVIRT_API,
        "kind": "VirtualMachine",
        "metadata": _metadata(name, namespace, labels, None, ()),
        "spec": {"runStrategy": "Always" if running else "Halted", "template": template},
    }


def virtual_machine_instance(
    name: str, owner_uid: str = "", *, namespace: str = "default", labels: Labels | None = None
) -> Json:
    """The instance of the VirtualMachine of its name and this uid; without a uid one that a user made."""
    owners = [owner_reference_to(KUBEVIRT_API, "VirtualMachine", name, owner_uid)] if owner_uid else []
    return {
        "apiVersion": KUBEVIRT_API,
        "kind": "VirtualMachineInstance",
        "metadata": _metadata(name, namespace, labels, None, owners),
        "spec": {"domain": {"devices": {}}},
    }


def launcher_pod(instance: Json, *, suffix: str = "abcde", labels: Labels | None = None, **fields: Any) -> Json:
    """The virt-launcher pod that runs a created VirtualMachineInstance: owned by it, never by its VirtualMachine.

    A second one, under another suffix, is the target of a live migration. Labels, annotation and owner follow
    KubeVirt's `pkg/virt-controller/services/template.go`; `fields` are those of `pod`.
    """
    metadata = instance["metadata"]
    own = {
        KUBEVIRT: "virt-launcher",
        f"{KUBEVIRT}/created-by": metadata["uid"],
        "vm.kubevirt.io/name": metadata["name"],
    }
    return pod(
        f"virt-launcher-{metadata['name']}-{suffix}",
        namespace=metadata["namespace"],
        labels={**metadata.get("labels", {}), **own, **(labels or {})},
        annotations={f"{KUBEVIRT}/domain": metadata["name"]},
        owners=[owner_reference(instance)],
        **fields,
    )


def _metadata(
    name: str, namespace: str, labels: Labels | None, annotations: Labels | None, owners: Sequence[Json]
) -> Json:
    optional = {"labels": dict(labels or {}), "annotations": dict(annotations or {}), "ownerReferences": list(owners)}
    return {"name": name, "namespace": namespace, **{field: value for field, value in optional.items() if value}}


def _container(requests: Labels | None) -> Json:
    return {"name": "main", "image": PAUSE_IMAGE, "resources": {"requests": dict(requests or {})}}


def _template(labels: Labels) -> Json:
    return {"metadata": {"labels": dict(labels)}, "spec": {"containers": [_container(None)]}}


def definition(kind: str, plural: str, short_names: Sequence[str] = (), group: str = KUBEVIRT) -> Json:
    """A CustomResourceDefinition that accepts anything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "shortNames": list(short_names)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }
