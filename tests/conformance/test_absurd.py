"""No object, however absurd, ends a run of evaluate: it is judged, or an error names the object and the field."""

import copy
import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from app.analysis.evaluate import Evaluator
from app.config.profile import Profile
from app.runtime.guard import Guard
from app.runtime.registry import KUBE_SCHEDULER_DEFAULTS, Registry
from app.runtime.resolving import resolve
from app.telemetry.metrics import Metrics
from plugins import SHIPPED

Json = dict[str, Any]

ABSURD: Final[tuple[Any, ...]] = (
    None,
    "",
    "-5",
    "1e400",
    "1e-400",
    "9" * 400,
    "\x00",
    "x" * 70_000,
    -1,
    0,
    2**63,
    -(2**63) - 1,
    1.5,
    True,
    [],
    {},
    [None],
    [[]],
    {"": None},
    {"a": "1e400"},
    {"cpu": "-3", "memory": "1Zi"},
)
FIELD: Final = re.compile(r"\$|`[a-z]\w+`|[a-z]+\.[a-zA-Z]+|^[a-z]\w+: ")
"""A path or a name as msgspec has it, or one of ours."""

SELECTOR: Final[Json] = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
TERM: Final[Json] = {
    "topologyKey": "zone",
    "labelSelector": SELECTOR,
    "namespaces": ["default"],
    "namespaceSelector": {},
}
NODE_TERMS: Final[Json] = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}]
}
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
CONTAINER: Final[Json] = {
    "name": "main",
    "image": "web",
    "ports": [{"hostPort": 80, "hostIP": "10.0.0.1", "protocol": "TCP"}],
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "claims": [{"name": "device"}]},
}
POD: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "default",
        "uid": "p",
        "labels": {"a": "b"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "p", "uid": "p", "controller": True}
        ],
    },
    "spec": {
        "nodeName": "n0",
        "schedulerName": "default-scheduler",
        "priority": 3,
        "preemptionPolicy": "PreemptLowerPriority",
        "containers": [CONTAINER],
        "initContainers": [{**CONTAINER, "name": "first", "restartPolicy": "Always"}],
        "overhead": {"cpu": "1m"},
        "resources": {"requests": {"cpu": "2"}},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}
        ],
        "affinity": {
            "nodeAffinity": {
                REQUIRED: NODE_TERMS,
                PREFERRED: [{"weight": 3, "preference": NODE_TERMS["nodeSelectorTerms"][0]}],
            },
            "podAffinity": {REQUIRED: [TERM], PREFERRED: [{"weight": 3, "podAffinityTerm": TERM}]},
            "podAntiAffinity": {REQUIRED: [TERM], PREFERRED: [{"weight": 3, "podAffinityTerm": TERM}]},
        },
        "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "claim"}},
            {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "c", "gcePersistentDisk": {"pdName": "disk", "readOnly": False}},
            {"name": "d", "iscsi": {"iqn": "i", "targetPortal": "t", "lun": 1}},
            {"name": "e", "rbd": {"monitors": ["m"], "pool": "p", "image": "i"}},
            {"name": "f", "awsElasticBlockStore": {"volumeID": "v"}},
        ],
        "resourceClaims": [{"name": "device", "resourceClaimName": "device"}],
    },
    "status": {
        "phase": "Running",
        "startTime": "2026-01-01T00:00:00Z",
        "nominatedNodeName": "",
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
        "resourceClaimStatuses": [{"name": "device", "resourceClaimName": "device"}],
    },
}
NODE: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n0",
        "labels": {"zone": "a", "a": "2"},
        "annotations": {"harvesterhci.io/maintain-status": "running"},
    },
    "spec": {"unschedulable": False, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
    "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
        "images": [{"names": ["web:latest"], "sizeBytes": 100 << 20}],
        "declaredFeatures": ["A"],
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}],
        "nodeInfo": {"systemUUID": "4C4C4544-0042-3510-8052-B4C04F4D4E31"},
    },
}


def _object(kind: str, group: str = "v1", *, spaced: bool = True, **parts: Any) -> Json:
    meta = {"name": kind.lower(), "uid": kind, **({"namespace": "default"} if spaced else {})}
    return {"apiVersion": group, "kind": kind, "metadata": meta, **parts}


STORAGE, RESOURCE = "storage.k8s.io/v1", "resource.k8s.io/v1"
DEVICE: Final[Json] = {"requests": [{"name": "r", "exactly": {"deviceClassName": "deviceclass", "count": 1}}]}
OTHERS: Final[tuple[Json, ...]] = (
    _object("Namespace", spaced=False),
    _object("Service", spec={"selector": {"a": "b"}}),
    _object("ReplicationController", spec={"selector": {"a": "b"}}),
    _object("ReplicaSet", "apps/v1", spec={"selector": SELECTOR}),
    _object("StatefulSet", "apps/v1", spec={"selector": SELECTOR}),
    _object("PodDisruptionBudget", "policy/v1", spec={"selector": SELECTOR}, status={"disruptionsAllowed": 1}),
    {
        **_object("PersistentVolumeClaim", spec={"volumeName": "", "storageClassName": "storageclass"}),
        "metadata": {"name": "claim", "namespace": "default", "uid": "claim", "annotations": {}},
        "status": {"phase": "Pending", "capacity": {"storage": "1Gi"}},
    },
    _object(
        "PersistentVolume",
        spaced=False,
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "storageclass",
            "claimRef": {"name": "claim", "namespace": "default"},
            "nodeAffinity": {"required": NODE_TERMS},
            "csi": {"driver": "d", "volumeHandle": "h"},
        },
        status={"phase": "Available"},
    ),
    _object("StorageClass", STORAGE, spaced=False, provisioner="d", volumeBindingMode="WaitForFirstConsumer"),
    _object(
        "CSINode", STORAGE, spaced=False, spec={"drivers": [{"name": "d", "nodeID": "n0", "allocatable": {"count": 1}}]}
    ),
    _object("CSIDriver", STORAGE, spaced=False, spec={"storageCapacity": True}),
    _object("CSIStorageCapacity", STORAGE, storageClassName="storageclass", capacity="1Gi", nodeTopology=SELECTOR),
    _object("VolumeAttachment", STORAGE, spaced=False, spec={"nodeName": "n0", "attacher": "d", "source": {}}),
    {
        **_object("ResourceClaim", RESOURCE, spec={"devices": DEVICE}, status={}),
        "metadata": {"name": "device", "namespace": "default"},
    },
    _object(
        "ResourceSlice",
        RESOURCE,
        spaced=False,
        spec={
            "driver": "d",
            "nodeName": "n0",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "x", "attributes": {"a": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}],
        },
    ),
    _object(
        "DeviceClass", RESOURCE, spaced=False, spec={"selectors": [{"cel": {"expression": "device.driver == 'd'"}}]}
    ),
)
CASES: Final = 1500


def spoil(random: Random, found: Any) -> None:
    """Put something absurd, or nothing, in the place of one part of an object."""
    places = [(holder, key) for holder, key in _places(found) if key not in ("apiVersion", "kind")]
    holder, key = random.choice(places)
    if random.random() < 0.15:
        del holder[key]
    else:
        holder[key] = copy.deepcopy(random.choice(ABSURD))


def _places(found: Any) -> Iterator[tuple[Any, Any]]:
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, part in items:
        yield found, key
        yield from _places(part)


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    return Evaluator(Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS), Guard(Metrics()))


def case(objects: list[Json], pod: Json) -> Json:
    return {"name": "absurd", "objects": objects, "pod": pod}


def pending() -> Json:
    found = copy.deepcopy(POD)
    found["metadata"].update(name="new", uid="new")
    del found["spec"]["nodeName"]
    return found


def test_every_kind_that_the_default_profile_reads_is_tried() -> None:
    (profile,) = resolve((Profile(),), Registry(SHIPPED, KUBE_SCHEDULER_DEFAULTS))

    assert {(it.api_version, it.kind) for it in profile.kinds()} <= {(it["apiVersion"], it["kind"]) for it in OTHERS}


def test_an_absurd_object_is_judged_or_named(evaluator: Evaluator) -> None:
    random, judged, refused = Random(5), 0, 0
    for _ in range(CASES):
        objects = copy.deepcopy([NODE, {**NODE, "metadata": {"name": "n1"}}, POD, *OTHERS])
        pod = pending()
        for _ in range(random.randint(1, 3)):
            spoil(random, random.choice((*objects, pod)))
        said = json.loads(evaluator.evaluate(json.dumps(case(objects, pod)).encode()))
        if "error" in said:
            refused += 1
            assert said["error"].startswith(("objects[", "pod: ")), said
            assert FIELD.search(said["error"].partition(": ")[2]), said
        else:
            judged += 1
            assert {"name", "preFilter", "filter", "score", "total"} == set(said)

    assert judged > CASES / 10
    assert refused > CASES / 10


def test_a_hundred_thousand_containers(evaluator: Evaluator) -> None:
    pod = pending()
    pod["spec"]["containers"] = [{"name": "c", "resources": {"requests": {"cpu": "1m"}}}] * 100_000
    said = json.loads(evaluator.evaluate(json.dumps(case([NODE], pod)).encode()))

    assert "error" in said or "n0" in said["filter"] or said["preFilter"]["code"] != "Success"
    assert "NodeResourcesFit" == said["preFilter"]["plugin"]
    assert "names more than 64 resources" in said["preFilter"]["reasons"][0]


def test_owners_in_a_circle(evaluator: Evaluator) -> None:
    ring = [
        {
            **_object("ReplicaSet", "apps/v1", spec={"selector": SELECTOR}),
            "metadata": {
                "name": f"rs{number}",
                "uid": f"rs{number}",
                "namespace": "default",
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "ReplicaSet",
                        "name": f"rs{1 - number}",
                        "uid": f"rs{1 - number}",
                        "controller": True,
                    }
                ],
            },
        }
        for number in (0, 1)
    ]
    pod = pending()
    pod["metadata"]["ownerReferences"] = ring[0]["metadata"]["ownerReferences"]
    for part in ("volumes", "resourceClaims", "topologySpreadConstraints", "affinity"):
        del pod["spec"][part]  # nobody ends the cycle before the owners are looked at
    said = json.loads(evaluator.evaluate(json.dumps(case([NODE, *ring], pod)).encode()))

    assert {"n0"} == set(said["filter"]) or said["preFilter"]["code"] != "Success"
    assert "Success" == said["preFilter"]["code"]
