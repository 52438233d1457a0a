"""Schemas of the fields that Homeport decodes, by kind, and a function that reduces objects to these fields.

A saved cluster has only these fields: no env, command, user data, managedFields or ``last-applied-configuration``. If a
decoder reads a new field, add the field here. A contract test compares the schemas with the decoders.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, TypeAlias

from app.kube.deletion_cost import DELETION_COST
from app.kube.homes_v1alpha1 import API_VERSION, KIND, decode_home
from app.kube.kinds import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VIRTUAL_MACHINE_INSTANCES,
    VOLUME_ATTACHMENTS,
    Kind,
)
from app.kube.meta_v1 import ANNOTATION_DOMAIN
from app.kube.persistent_volumes import SELECTED_NODE
from app.kube.resource_v1 import EXTENDED_RESOURCE_CLAIM

Schema: TypeAlias = Any
"""``SCALAR``, ``ANNOTATIONS``, a list with the schema of its elements, or a mapping of field names to schemas.

In such a mapping, the key ``EACH`` stands for every other key.
"""

SCALAR: Final = "scalar"
EACH: Final = "*"
ANNOTATIONS: Final = "annotations"
"""Schema of a map of annotations, which is reduced to Homeport's own, ``READ_ANNOTATIONS`` and ``node_annotations``."""

_ABSENT: Final = object()


def _of(scalars: str = "", **nested: Schema) -> dict[str, Schema]:
    """Return the schema of an object. ``scalars``: names of its scalar fields. ``nested``: schemas of other fields."""
    return dict.fromkeys(scalars.split(), SCALAR) | nested


_MAP: Final = {EACH: SCALAR}
_TEXTS: Final = [SCALAR]
_METADATA: Final = _of(
    "name namespace uid resourceVersion creationTimestamp deletionTimestamp",
    labels=_MAP,
    annotations=ANNOTATIONS,
    ownerReferences=[_of("kind name apiVersion uid controller")],
)
PARTIAL: Final = _of("apiVersion kind", metadata=_METADATA)
"""Schema of a kind for which only metadata is read."""

_REQUIREMENT: Final = _of("key operator", values=_TEXTS)
_LABEL_SELECTOR: Final = _of(matchLabels=_MAP, matchExpressions=[_REQUIREMENT])
_NODE_TERM: Final = _of(matchExpressions=[_REQUIREMENT], matchFields=[_REQUIREMENT])
_NODE_SELECTOR: Final = _of(nodeSelectorTerms=[_NODE_TERM])
_POD_TERM: Final = _of(
    "topologyKey", labelSelector=_LABEL_SELECTOR, namespaces=_TEXTS, namespaceSelector=_LABEL_SELECTOR
)
_POD_AFFINITY: Final = _of(
    requiredDuringSchedulingIgnoredDuringExecution=[_POD_TERM],
    preferredDuringSchedulingIgnoredDuringExecution=[_of("weight", podAffinityTerm=_POD_TERM)],
)
_AFFINITY: Final = _of(
    nodeAffinity=_of(
        requiredDuringSchedulingIgnoredDuringExecution=_NODE_SELECTOR,
        preferredDuringSchedulingIgnoredDuringExecution=[_of("weight", preference=_NODE_TERM)],
    ),
    podAffinity=_POD_AFFINITY,
    podAntiAffinity=_POD_AFFINITY,
)
_REQUESTS: Final = _of(requests=_MAP)
_CONTAINER: Final = _of(
    "name image restartPolicy",
    restartPolicyRules=[_of("action")],
    ports=[_of("hostPort hostIP protocol")],
    resources=_REQUESTS,
)
_CONTAINER_STATUS: Final = _of("name", resources=_REQUESTS, allocatedResources=_MAP)
_VOLUME: Final = _of(
    "name",
    persistentVolumeClaim=_of("claimName"),
    ephemeral=_of(),
    gcePersistentDisk=_of("pdName readOnly"),
    awsElasticBlockStore=_of("volumeID"),
    iscsi=_of("iqn readOnly"),
    rbd=_of("pool image readOnly", monitors=_TEXTS),
    azureDisk=_of("diskURI kind"),
    cinder=_of("volumeID"),
    portworxVolume=_of("volumeID"),
    image=_of("reference"),
)
_POD: Final = PARTIAL | _of(
    spec=_of(
        "nodeName schedulerName priority hostNetwork hostUsers preemptionPolicy",
        schedulingGates=[_of("name")],
        nodeSelector=_MAP,
        affinity=_AFFINITY,
        tolerations=[_of("key operator value effect tolerationSeconds")],
        topologySpreadConstraints=[
            _of(
                "maxSkew topologyKey whenUnsatisfiable minDomains nodeAffinityPolicy nodeTaintsPolicy",
                labelSelector=_LABEL_SELECTOR,
                matchLabelKeys=_TEXTS,
            )
        ],
        containers=[_CONTAINER],
        initContainers=[_CONTAINER],
        volumes=[_VOLUME],
        resources=_REQUESTS,
        overhead=_MAP,
        resourceClaims=[_of("name resourceClaimName resourceClaimTemplateName")],
    ),
    status=_of(
        "phase nominatedNodeName startTime",
        conditions=[_of("type status reason lastTransitionTime message")],
        containerStatuses=[_CONTAINER_STATUS],
        initContainerStatuses=[_CONTAINER_STATUS],
        resources=_REQUESTS,
        allocatedResources=_MAP,
        resourceClaimStatuses=[_of("name resourceClaimName")],
    ),
)
_NODE: Final = PARTIAL | _of(
    spec=_of("unschedulable", taints=[_of("key value effect")]),
    status=_of(
        allocatable=_MAP,
        images=[_of("sizeBytes", names=_TEXTS)],
        declaredFeatures=_TEXTS,
        conditions=[_of("type status")],
        nodeInfo=_of("systemUUID"),
    ),
)
_CLAIM: Final = PARTIAL | _of(
    spec=_of(
        "storageClassName volumeAttributesClassName volumeMode volumeName",
        accessModes=_TEXTS,
        resources=_REQUESTS,
        selector=_LABEL_SELECTOR,
    ),
    status=_of("phase"),
)
_PERSISTENT_VOLUME: Final = PARTIAL | _of(
    spec=_of(
        "storageClassName volumeAttributesClassName volumeMode",
        accessModes=_TEXTS,
        capacity=_MAP,
        claimRef=_of("namespace name uid"),
        nodeAffinity=_of(required=_NODE_SELECTOR),
        csi=_of("driver volumeHandle"),
        gcePersistentDisk=_of("pdName"),
        awsElasticBlockStore=_of("volumeID"),
        azureDisk=_of("diskURI kind"),
        cinder=_of("volumeID"),
        portworxVolume=_of("volumeID"),
    ),
    status=_of("phase"),
)
_SELECTORS: Final = [_of(cel=_of("expression"))]
_EXACT_REQUEST: Final = _of(
    "name deviceClassName allocationMode count adminAccess",
    selectors=_SELECTORS,
    tolerations=[_of("key operator value effect")],
    capacity=_REQUESTS,
)
_RESOURCE_CLAIM: Final = PARTIAL | _of(
    spec=_of(
        devices=_of(
            requests=[_of("name", exactly=_EXACT_REQUEST, firstAvailable=[_EXACT_REQUEST])],
            constraints=[_of("matchAttribute distinctAttribute", requests=_TEXTS)],
        )
    ),
    status=_of(
        allocation=_of(
            "allocationTimestamp",
            devices=_of(
                results=[
                    _of(
                        "request driver pool device adminAccess shareID",
                        consumedCapacity=_MAP,
                        bindingConditions=_TEXTS,
                        bindingFailureConditions=_TEXTS,
                    )
                ]
            ),
            nodeSelector=_NODE_SELECTOR,
        ),
        reservedFor=[_of("uid")],
        devices=[_of("driver pool device", conditions=[_of("type status")])],
    ),
)
_DEVICE: Final = _of(
    "name nodeName allNodes allowMultipleAllocations",
    attributes={EACH: _of("int bool string version")},
    capacity={
        EACH: _of("value", requestPolicy=_of("default", validValues=_TEXTS, validRange=_of("min max step"))),
    },
    consumesCounters=[_of("counterSet name", counters={EACH: _of("value")})],
    nodeSelector=_NODE_SELECTOR,
    taints=[_of("key value effect")],
    bindingConditions=_TEXTS,
)
_RESOURCE_SLICE: Final = PARTIAL | _of(
    spec=_of(
        "driver nodeName allNodes perDeviceNodeSelection",
        pool=_of("name generation resourceSliceCount"),
        nodeSelector=_NODE_SELECTOR,
        devices=[_DEVICE],
        sharedCounters=[_of("counterSet name", counters={EACH: _of("value")})],
    )
)
_WORKLOAD: Final = PARTIAL | _of(spec=_of(selector=_LABEL_SELECTOR))
_SERVICE: Final = PARTIAL | _of(spec=_of(selector=_MAP))

SCHEMAS: Final[Mapping[Kind[Any], Schema]] = {
    PODS: _POD,
    NODES: _NODE,
    SERVICES: _SERVICE,
    REPLICATION_CONTROLLERS: _SERVICE,
    REPLICA_SETS: _WORKLOAD,
    STATEFUL_SETS: _WORKLOAD,
    POD_DISRUPTION_BUDGETS: PARTIAL
    | _of(
        metadata=_METADATA | _of("generation"),
        spec=_of("unhealthyPodEvictionPolicy", selector=_LABEL_SELECTOR),
        status=_of("disruptionsAllowed currentHealthy desiredHealthy observedGeneration", disruptedPods=_MAP),
    ),
    PRIORITY_CLASSES: PARTIAL | _of("value globalDefault preemptionPolicy"),
    VIRTUAL_MACHINE_INSTANCES: PARTIAL | _of(status=_of("nodeName", migrationState=_of("sourceNode targetNode"))),
    PERSISTENT_VOLUME_CLAIMS: _CLAIM,
    PERSISTENT_VOLUMES: _PERSISTENT_VOLUME,
    STORAGE_CLASSES: PARTIAL
    | _of(
        "provisioner volumeBindingMode",
        allowedTopologies=[_of(matchLabelExpressions=[_of("key", values=_TEXTS)])],
    ),
    CSI_NODES: PARTIAL | _of(spec=_of(drivers=[_of("name", allocatable=_of("count"))])),
    CSI_DRIVERS: PARTIAL | _of(spec=_of("storageCapacity")),
    VOLUME_ATTACHMENTS: PARTIAL | _of(spec=_of("attacher nodeName", source=_of("persistentVolumeName"))),
    CSI_STORAGE_CAPACITIES: PARTIAL | _of("storageClassName capacity maximumVolumeSize", nodeTopology=_LABEL_SELECTOR),
    RESOURCE_CLAIMS: _RESOURCE_CLAIM,
    RESOURCE_SLICES: _RESOURCE_SLICE,
    DEVICE_CLASSES: PARTIAL | _of(spec=_of("extendedResourceName", selectors=_SELECTORS)),
    Kind(API_VERSION, KIND, decode_home): PARTIAL
    | _of(spec=_of("node machine since", owner=_of("apiVersion kind name uid slot"))),
}
"""Schemas by kind. Kinds that are not listed use ``PARTIAL``: only their metadata is copied."""

READ_ANNOTATIONS: Final = frozenset(
    (
        DELETION_COST,
        EXTENDED_RESOURCE_CLAIM,
        SELECTED_NODE,
        "pv.kubernetes.io/bind-completed",
        "volume.beta.kubernetes.io/storage-class",
        "storage.alpha.kubernetes.io/migrated-plugins",
    )
)
"""Annotations outside Homeport's domain that ``projected`` keeps, in addition to its ``node_annotations``."""


def projected(kind: Kind[Any], document: Mapping[str, Any], node_annotations: Collection[str] = ()) -> dict[str, Any]:
    """Return a copy of an object, reduced to its schema, and with ``apiVersion`` and ``kind``.

    ``node_annotations``: keys of annotations that nodes keep in addition to ``READ_ANNOTATIONS`` and Homeport's own.
    """
    annotations = READ_ANNOTATIONS.union(node_annotations if kind == NODES else ())
    named = {**document, "apiVersion": kind.api_version, "kind": kind.kind}
    result: dict[str, Any] = _projected(SCHEMAS.get(kind, PARTIAL), named, annotations)
    return result


def _projected(schema: Schema, value: Any, annotations: Collection[str]) -> Any:
    """Return the value reduced to its schema, or ``_ABSENT`` if the value does not fit the schema.

    ``annotations``: keys of the annotations that are kept in addition to Homeport's own.
    """
    if value is None:
        return None
    if schema is SCALAR:
        return _ABSENT if isinstance(value, dict | list) else value
    if isinstance(schema, list):
        if not isinstance(value, list):
            return _ABSENT
        elements = (_projected(schema[0], element, annotations) for element in value)
        return [element for element in elements if element is not _ABSENT]
    if not isinstance(value, dict):
        return _ABSENT
    if schema is ANNOTATIONS:
        value = {key: it for key, it in value.items() if key.startswith(ANNOTATION_DOMAIN) or key in annotations}
        schema = _MAP
    each = schema.get(EACH)
    parts = ((key, schema.get(key, each), part) for key, part in value.items())
    fields = {key: _projected(of, part, annotations) for key, of, part in parts if of is not None}
    return {key: part for key, part in fields.items() if part is not _ABSENT}
