"""Pods, nodes and services, reduced to the fields a decision reads.

Each kind has a wire form (``…Object``, what JSON decodes to) and a slim form (frozen, shared where replicas are
equal). 150,000 realistic pods are some 100 MB as slim structs and 3 GB as dicts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, replace

from app.kube.claims import ClaimStatusObject, PodClaims
from app.kube.conditions import unschedulable_since
from app.kube.decoding import Decoder, Int32
from app.kube.disruption import Disruption, Time, disruption_of
from app.kube.extras import (
    NOTHING_OF_NODE,
    NOTHING_OF_POD,
    OF_NODES_ALONE,
    ContainerObject,
    ContainerStatusObject,
    Extra,
    HostPort,
    NodeParts,
    NodeStatusObject,
    NotDecoded,
    PodImages,
    PodParts,
    RequirementsObject,
    VolumeObject,
    node_parts,
    pending_parts,
    pod_parts,
)
from app.kube.labels import NO_LABELS, LabelSet
from app.kube.meta_v1 import (
    MetadataObject,
    ObjectKey,
    Oversized,
    OwnerReference,
    annotations_of_pod,
    controller_of,
    labels_of,
    labels_or_none,
    parse_map,
    required,
    shared,
)
from app.kube.node_affinity import ANY_NODE, NodeSelectorTerm, PreferredNodeAffinity, RequiredNodeAffinity
from app.kube.node_selectors import required_terms_of
from app.kube.node_state import NodeState
from app.kube.pod_affinity import PodAffinity
from app.kube.requests import PodResources, ResourceList
from app.kube.selectors import InvalidSelector, Selector, decode_selector, of_labels
from app.kube.taints import Taint, Toleration
from app.kube.volumes import PodVolume

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"
HONOR: Final = "Honor"
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"
MOST_CONSTRAINTS: Final = 16
"""Of one pod: with more of them, none is read."""

SPREAD: Final = "spec.topologySpreadConstraints"
NODE_SELECTOR: Final = "spec.nodeSelector"
TOLERATIONS: Final = "spec.tolerations"
LABELS: Final = "metadata.labels"

_FINISHED: Final = ("Succeeded", "Failed")

T = TypeVar("T")


class TopologySpreadConstraint(Struct, frozen=True, gc=False):
    """One entry of ``spec.topologySpreadConstraints``.

    ``selector`` is ``None`` for a null selector (matches nothing). ``invalid`` holds the parse error of a selector
    that is none, for the plugin to answer with.
    """

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    selector: Selector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()
    invalid: str = ""


class PodSpec(Struct, frozen=True, eq=False, weakref=True):
    """What scheduling reads of ``spec``, less the node name. Interned: pods of one workload share one object.

    ``oversized`` names the parts of the pod that are longer than what is read, labels included: these are empty here.
    ``parts`` holds what is decoded on demand: to read ``resources``, ``ports``, … where nobody declared them raises
    ``NotDecoded``.
    """

    scheduler_name: str
    priority: int
    gated: bool
    affinity: RequiredNodeAffinity
    tolerations: tuple[Toleration, ...]
    spread: tuple[TopologySpreadConstraint, ...]
    oversized: tuple[str, ...] = ()
    parts: PodParts = NOTHING_OF_POD

    @property
    def resources(self) -> PodResources:
        """What the pod asks for, and what it takes on a node."""
        return _declared(self.parts.resources, Extra.RESOURCES)

    @property
    def ports(self) -> tuple[HostPort, ...]:
        """The ports that it occupies on its node."""
        return _declared(self.parts.ports, Extra.PORTS)

    @property
    def images(self) -> PodImages:
        return _declared(self.parts.images, Extra.IMAGES)

    @property
    def preferred_affinity(self) -> PreferredNodeAffinity:
        """The nodes that it would rather run on."""
        return _declared(self.parts.preferred_affinity, Extra.PREFERRED_AFFINITY)

    @property
    def scheduling_gates(self) -> tuple[str, ...]:
        """The names of its gates."""
        return _declared(self.parts.scheduling_gates, Extra.SCHEDULING_GATES)

    @property
    def features(self) -> frozenset[str]:
        """The features that its node must declare."""
        return _declared(self.parts.features, Extra.FEATURES)

    @property
    def pod_affinity(self) -> PodAffinity:
        """Its terms about other pods."""
        return _declared(self.parts.pod_affinity, Extra.POD_AFFINITY)

    @property
    def volumes(self) -> tuple[PodVolume, ...]:
        """The volumes that matter to where it may run."""
        return _declared(self.parts.volumes, Extra.VOLUMES)

    @property
    def claims(self) -> PodClaims:
        """What it says of devices."""
        return _declared(self.parts.claims, Extra.CLAIMS)

    @property
    def pending_volumes(self) -> tuple[PodVolume, ...]:
        """Those of ``volumes`` that have a claim, as long as the pod has no node; none from then on."""
        return _declared(self.parts.pending_volumes, Extra.PENDING_VOLUMES)


class Waiting(Struct, frozen=True, gc=False):
    """What the status of a pod says of its way to a node: of most pods nothing.

    ``unschedulable_since``: of a pod without a node, since when its condition PodScheduled is False, which is when no
    node was found for it first.
    """

    nominated_node_name: str = ""
    unschedulable_since: str = ""


NOT_WAITING: Final = Waiting()


class Pod(Struct, frozen=True, gc=False):
    """A pod of the picture or of a request. Empty strings stand for what is unset.

    ``created`` is in UTC and of one length, whole seconds: earlier ones are smaller. ``lifecycle`` is decoded on
    demand: to read it, as ``disruption``, where nobody declared that raises ``NotDecoded``.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: LabelSet
    annotations: Mapping[str, str]
    owner: OwnerReference | None
    spec: PodSpec
    node_name: str
    waiting: Waiting
    terminating: bool
    finished: bool
    created: str = ""
    lifecycle: Disruption | None = None

    @property
    def key(self) -> ObjectKey:
        return (self.namespace, self.name)

    @property
    def nominated_node_name(self) -> str:
        return self.waiting.nominated_node_name

    @property
    def unschedulable_since(self) -> str:
        return self.waiting.unschedulable_since

    def nominated(self, node_name: str) -> Pod:
        """The same pod, nominated there; nowhere if the name is empty."""
        return replace(self, waiting=Waiting(node_name, self.unschedulable_since))

    @property
    def disruption(self) -> Disruption:
        """What preemption reads of it."""
        return _declared(self.lifecycle, Extra.DISRUPTION)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Node(Struct, frozen=True, gc=False):
    """A node of the cluster. To read what is decoded on demand where nobody declared it raises ``NotDecoded``."""

    name: str
    uid: str
    resource_version: str
    labels: LabelSet
    taints: tuple[Taint, ...]
    unschedulable: bool
    parts: NodeParts = NOTHING_OF_NODE

    @property
    def key(self) -> ObjectKey:
        return ("", self.name)

    @property
    def allocatable(self) -> ResourceList:
        """What it has to give, to all of its pods together."""
        return _declared(self.parts.allocatable, Extra.RESOURCES)

    @property
    def images(self) -> Mapping[str, int]:
        """Sizes in bytes of the images that it has, by name."""
        return _declared(self.parts.images, Extra.IMAGES)

    @property
    def features(self) -> frozenset[str]:
        """The features that it declares, of those that a pod can need."""
        return _declared(self.parts.features, Extra.FEATURES)

    @property
    def state(self) -> NodeState:
        """Whether it is well, which machine it is, and whether it is being deleted."""
        return _declared(self.parts.state, Extra.NODE_STATE)

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations that ``Needs.node_annotations`` names and that are there. Any other key raises."""
        return self.parts.annotations


def is_same(node: Node, other: Node) -> bool:
    """Whether two forms of a node differ in nothing but the resourceVersion: a heartbeat, or what nobody reads."""
    return node == other or replace(node, resource_version="") == replace(other, resource_version="")


def is_same_spec(spec: PodSpec, other: PodSpec) -> bool:
    """Return whether two specs are equal by value. Interned ones are one object; this holds for others as well."""
    return spec is other or _values(spec) == _values(other)


def _values(found: Any) -> Any:
    """Return the fields of a struct that compares by identity, and anything else as it is."""
    if isinstance(found, PodSpec | PodParts | PodResources):
        return tuple(_values(it) for it in astuple(found))
    return found


class Service(Struct, frozen=True, gc=False):
    """A Service or a ReplicationController: ``selector`` is ``None`` where it is null."""

    namespace: str
    name: str
    uid: str
    selector: Selector | None

    @property
    def key(self) -> ObjectKey:
        return (self.namespace, self.name)


class Namespace(Struct, frozen=True, gc=False):
    """A Namespace. ``labels`` are none where they are longer than what is read."""

    name: str
    uid: str
    resource_version: str
    labels: LabelSet

    @property
    def key(self) -> ObjectKey:
        return ("", self.name)


def _declared(part: T | None, extra: Extra) -> T:
    if part is None:
        raise NotDecoded(extra)
    return part


class OversizedNode(msgspec.ValidationError):
    """The labels or taints of a node are longer than what is read."""


class _PodSpecObject(Struct, rename="camel"):
    node_name: str | None = None
    scheduler_name: str | None = None
    priority: Int32 | None = None
    scheduling_gates: Raw = Raw()
    node_selector: Raw = Raw()
    affinity: Raw = Raw()
    tolerations: Raw = Raw()
    topology_spread_constraints: Raw = Raw()


class _PodStatusObject(Struct, rename="camel"):
    phase: str | None = None
    nominated_node_name: str | None = None
    conditions: Raw = Raw()


class PodObject(Struct):
    """A Pod on the wire."""

    metadata: MetadataObject
    spec: _PodSpecObject | None = None
    status: _PodStatusObject | None = None


class _WholePodSpecObject(_PodSpecObject):
    containers: list[ContainerObject] | None = None
    init_containers: list[ContainerObject] | None = None
    volumes: list[VolumeObject] | None = None
    resources: RequirementsObject | None = None
    overhead: Raw = Raw()
    host_network: bool | None = None
    host_users: bool | None = None
    resource_claims: Raw = Raw()
    preemption_policy: str | None = None


class _WholePodStatusObject(_PodStatusObject):
    container_statuses: list[ContainerStatusObject] | None = None
    init_container_statuses: list[ContainerStatusObject] | None = None
    resources: RequirementsObject | None = None
    allocated_resources: Raw = Raw()
    resource_claim_statuses: list[ClaimStatusObject] | None = None
    start_time: Time | None = None


class _WaitingPodSpecObject(_PodSpecObject):
    volumes: Raw = Raw()


class WaitingPodObject(PodObject):
    """A Pod on the wire with ``Part.PENDING_VOLUMES`` and nothing else on demand: containers are not looked at."""

    spec: _WaitingPodSpecObject | None = None


class WholePodObject(PodObject):
    """A Pod on the wire with what is decoded on demand."""

    spec: _WholePodSpecObject | None = None
    status: _WholePodStatusObject | None = None


class _NodeSpecObject(Struct):
    taints: Raw = Raw()
    unschedulable: bool | None = None


class NodeObject(Struct):
    """A Node on the wire."""

    metadata: MetadataObject
    spec: _NodeSpecObject | None = None


class WholeNodeObject(NodeObject):
    """A Node on the wire with what is decoded on demand."""

    status: NodeStatusObject | None = None


class _ServiceSpecObject(Struct):
    selector: Raw = Raw()


class _ServiceObject(Struct):
    metadata: MetadataObject
    spec: _ServiceSpecObject | None = None


class _TolerationObject(Struct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None

    def slim(self) -> Toleration:
        return Toleration(self.key or "", self.operator or "", self.value or "", self.effect or "")


class _TaintObject(Struct):
    key: str | None = None
    value: str | None = None
    effect: str | None = None

    def slim(self) -> Taint:
        return Taint(self.key or "", self.effect or "", self.value or "")


class _SpreadObject(Struct, rename="camel"):
    max_skew: Int32 | None = None
    topology_key: str | None = None
    when_unsatisfiable: str | None = None
    label_selector: Raw = Raw()
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None

    def slim(self) -> TopologySpreadConstraint:
        selector, invalid = self._selector()
        return TopologySpreadConstraint(
            max_skew=self.max_skew or 0,
            topology_key=self.topology_key or "",
            when_unsatisfiable=self.when_unsatisfiable or "",
            selector=selector,
            min_domains=self.min_domains,
            node_affinity_policy=self.node_affinity_policy,
            node_taints_policy=self.node_taints_policy,
            match_label_keys=tuple(self.match_label_keys or ()),
            invalid=invalid,
        )

    def _selector(self) -> tuple[Selector | None, str]:
        try:
            return decode_selector(bytes(self.label_selector) or b"null"), ""
        except InvalidSelector as error:
            return None, str(error)


_NODE_SELECTOR: Final[Decoder[dict[str, str | None] | None]] = Decoder(dict[str, str | None] | None)
_TOLERATIONS: Final[Decoder[list[_TolerationObject] | None]] = Decoder(list[_TolerationObject] | None)
_TAINTS: Final[Decoder[list[_TaintObject] | None]] = Decoder(list[_TaintObject] | None)
_SPREAD: Final[Decoder[list[_SpreadObject] | None]] = Decoder(list[_SpreadObject] | None)
_GATES: Final[Decoder[list[Raw] | None]] = Decoder(list[Raw] | None)


def _parse_node_selector(data: bytes) -> tuple[tuple[str, str], ...]:
    found = _NODE_SELECTOR.decode(data) or {}
    return tuple(sorted((key, value or "") for key, value in found.items()))


def _parse_tolerations(data: bytes) -> tuple[Toleration, ...]:
    return tuple(it.slim() for it in _TOLERATIONS.decode(data) or ())


def _parse_taints(data: bytes) -> tuple[Taint, ...]:
    return tuple(it.slim() for it in _TAINTS.decode(data) or ())


def _parse_spread(data: bytes) -> tuple[TopologySpreadConstraint, ...]:
    found = _SPREAD.decode(data) or ()
    if len(found) > MOST_CONSTRAINTS:
        raise Oversized(SPREAD)
    return tuple(it.slim() for it in found)


def _parse_gated(data: bytes) -> bool:
    return bool(_GATES.decode(data))


_node_selector_of: Final = shared(NODE_SELECTOR, _parse_node_selector)
_tolerations_of: Final = shared(TOLERATIONS, _parse_tolerations)
_spread_of: Final = shared(SPREAD, _parse_spread)
_gated_of: Final = shared("spec.schedulingGates", _parse_gated, largest=None)
_taints_of: Final = shared("spec.taints", _parse_taints)

_SPECS: WeakValueDictionary[tuple[object, ...], PodSpec] = WeakValueDictionary()
_NO_SPEC: Final = _PodSpecObject()
_NO_STATUS: Final = _PodStatusObject()


_PENDING_VOLUMES_ALONE: Final = frozenset((Extra.PENDING_VOLUMES,))
_NO_WHOLE_SPEC: Final = _WholePodSpecObject()
_NO_WHOLE_STATUS: Final = _WholePodStatusObject()


def _pod_spec(found: _PodSpecObject, parts: PodParts, oversized: tuple[str, ...]) -> PodSpec:
    """Raises ``Oversized``."""
    return _interned(
        found,
        parts,
        _node_selector_of(found.node_selector),
        required_terms_of(found.affinity),
        _tolerations_of(found.tolerations),
        _spread_of(found.topology_spread_constraints),
        oversized,
    )


def _interned(
    found: _PodSpecObject,
    more: PodParts,
    node_selector: tuple[tuple[str, str], ...],
    terms: tuple[NodeSelectorTerm, ...] | None,
    tolerations: tuple[Toleration, ...],
    spread: tuple[TopologySpreadConstraint, ...],
    oversized: tuple[str, ...],
) -> PodSpec:
    key = (
        sys.intern(found.scheduler_name or DEFAULT_SCHEDULER_NAME),
        found.priority or 0,
        _gated_of(found.scheduling_gates),
        RequiredNodeAffinity(node_selector, terms) if node_selector or terms is not None else ANY_NODE,
        tolerations,
        spread,
        oversized,
        more,
    )
    spec = _SPECS.get(key)
    if spec is None:
        spec = _SPECS[key] = PodSpec(*key)
    return spec


def _read_in_part(
    labels: Raw, found: _PodSpecObject, parts: PodParts, also: tuple[str, ...]
) -> tuple[LabelSet, PodSpec]:
    """What can be read of a pod of which some parts are oversized; ``also`` are so too."""
    oversized: list[str] = []

    def read(part: Callable[[Raw], T], raw: Raw, instead: T) -> T:
        try:
            return part(raw)
        except Oversized as it:
            oversized.append(it.field)
            return instead

    nothing: tuple[Any, ...] = ()
    label_set = read(labels_of, labels, NO_LABELS)
    node_selector = read(_node_selector_of, found.node_selector, nothing)
    terms = read(required_terms_of, found.affinity, None)
    tolerations = read(_tolerations_of, found.tolerations, nothing)
    spread = read(_spread_of, found.topology_spread_constraints, nothing)
    return label_set, _interned(found, parts, node_selector, terms, tolerations, spread, (*oversized, *also))


def slim_pod(found: PodObject) -> Pod:
    """Slim form of a decoded Pod. Raises ``msgspec.ValidationError`` naming the field that is wrong."""
    return _slim_pod(found, NOTHING_OF_POD, (), None)


def _slim_pod(found: PodObject, parts: PodParts, oversized: tuple[str, ...], lifecycle: Disruption | None) -> Pod:
    """``oversized`` are those of ``parts``."""
    meta, spec, status = found.metadata, found.spec or _NO_SPEC, found.status or _NO_STATUS
    try:
        labels, slim = labels_of(meta.labels), _pod_spec(spec, parts, oversized)
    except Oversized:
        labels, slim = _read_in_part(meta.labels, spec, parts, oversized)
    return Pod(
        namespace=sys.intern(meta.namespace or "default"),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=labels,
        annotations=annotations_of_pod(meta.annotations),
        owner=controller_of(meta.owner_references),
        spec=slim,
        node_name=sys.intern(spec.node_name or ""),
        waiting=_waiting(spec, status),
        terminating=bool(meta.deletion_timestamp),
        finished=status.phase in _FINISHED,
        created=sys.intern(meta.creation_timestamp or ""),
        lifecycle=lifecycle,
    )


def _waiting(spec: _PodSpecObject, status: _PodStatusObject) -> Waiting:
    nominated = status.nominated_node_name
    if not nominated and not status.conditions:
        return NOT_WAITING
    since = "" if spec.node_name else unschedulable_since(status.conditions)
    return Waiting(sys.intern(nominated or ""), since) if nominated or since else NOT_WAITING


def slim_node(found: NodeObject) -> Node:
    """Slim form of a decoded Node.

    Raises ``msgspec.ValidationError`` naming the field that is wrong, and ``OversizedNode``: unlike a pod, a node that
    is read in part would be judged wrongly for all pods.
    """
    return _slim_node(found, NOTHING_OF_NODE)


def _slim_node(found: NodeObject, parts: NodeParts) -> Node:
    meta, spec = found.metadata, found.spec or _NodeSpecObject()
    try:
        labels, taints = labels_of(meta.labels), _taints_of(spec.taints)
    except Oversized as error:
        raise OversizedNode(str(error)) from None
    return Node(
        name=sys.intern(required(meta.name, "metadata.name")),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=labels,
        taints=taints,
        unschedulable=bool(spec.unschedulable),
        parts=parts,
    )


_POD_DECODER: Final = Decoder[PodObject](PodObject)
_NODE_DECODER: Final = Decoder[NodeObject](NodeObject)
_SERVICE_DECODER: Final = Decoder[_ServiceObject](_ServiceObject)


def _decode_plain_pod(raw: bytes | Raw) -> Pod:
    return slim_pod(_POD_DECODER.decode(raw))


def _decode_plain_node(raw: bytes | Raw) -> Node:
    return slim_node(_NODE_DECODER.decode(raw))


class CoreV1(Struct, frozen=True, eq=False):
    """How the pods and nodes of one picture are decoded: with the parts on demand that its plugins declare.

    ``pod_object`` is what JSON decodes to, for who decodes a pod within something else, and ``slim_pod`` what becomes
    of that. All raise ``msgspec.DecodeError``; ``decode_node`` also ``OversizedNode``. ``node_annotations`` are those
    that it keeps of a node.
    """

    extras: frozenset[Extra]
    pod_object: type[PodObject]
    slim_pod: Callable[[Any], Pod]
    decode_pod: Callable[[bytes | Raw], Pod]
    decode_node: Callable[[bytes | Raw], Node]
    node_annotations: frozenset[str] = frozenset()


PLAIN: Final = CoreV1(frozenset(), PodObject, slim_pod, _decode_plain_pod, _decode_plain_node)
"""Nothing on demand."""


POD_OBJECTS: Final[tuple[type[PodObject], ...]] = (PodObject, WaitingPodObject, WholePodObject)
"""All forms of ``CoreV1.pod_object``."""


def core_v1(extras: Collection[Extra], node_annotations: Collection[str] | None = ()) -> CoreV1:
    """Return decoders for these parts on demand, and for these annotations of nodes, all of them if ``None``."""
    if not extras and node_annotations is not None and not node_annotations:
        return PLAIN
    wanted, kept = frozenset(extras), frozenset(node_annotations or ())
    decode_node = _node_decoder(wanted, None if node_annotations is None else kept)
    if wanted <= OF_NODES_ALONE:
        return CoreV1(wanted, PodObject, slim_pod, _decode_plain_pod, decode_node, kept)
    pod_object, slim_whole = _whole_pods(wanted)
    pods = Decoder[PodObject](pod_object)

    def decode_whole(raw: bytes | Raw) -> Pod:
        return slim_whole(pods.decode(raw))

    return CoreV1(wanted, pod_object, slim_whole, decode_whole, decode_node, kept)


def _whole_pods(wanted: frozenset[Extra]) -> tuple[type[PodObject], Callable[[Any], Pod]]:
    """What JSON of a pod decodes to, and what becomes of that."""
    if wanted - OF_NODES_ALONE == _PENDING_VOLUMES_ALONE:
        return WaitingPodObject, _slim_waiting

    def slim(found: WholePodObject) -> Pod:
        spec, status = found.spec or _NO_WHOLE_SPEC, found.status or _NO_WHOLE_STATUS
        lifecycle = disruption_of(spec, status) if Extra.DISRUPTION in wanted else None
        return _slim_pod(found, *pod_parts(wanted, spec, status), lifecycle)

    return WholePodObject, slim


def _slim_waiting(found: WaitingPodObject) -> Pod:
    """Of most pods nothing is looked at beyond the plain ones."""
    spec = found.spec or _WaitingPodSpecObject()
    return _slim_pod(found, *pending_parts(spec.node_name, spec.volumes), None)


def _node_decoder(wanted: frozenset[Extra], annotations: frozenset[str] | None) -> Callable[[bytes | Raw], Node]:
    nodes = Decoder[WholeNodeObject](WholeNodeObject)

    def decode(raw: bytes | Raw) -> Node:
        found = nodes.decode(raw)
        try:
            parts = node_parts(wanted, annotations, found.metadata, found.status or NodeStatusObject())
        except Oversized as error:
            raise OversizedNode(str(error)) from None
        return _slim_node(found, parts)

    return decode


_WHOLE: Final = core_v1([*Extra], None)


def decode_pod(raw: bytes | Raw) -> Pod:
    """Decode one Pod with all parts, for tests. Raises ``msgspec.DecodeError``."""
    return _WHOLE.decode_pod(raw)


def decode_node(raw: bytes | Raw) -> Node:
    """Decode one Node with all parts and annotations, for tests. Raises ``msgspec.DecodeError``."""
    return _WHOLE.decode_node(raw)


def _parse_service_selector(data: bytes) -> Selector | None:
    labels = parse_map(data)
    return None if labels is None else of_labels(labels)


_service_selector_of: Final = shared("spec.selector", _parse_service_selector)


def _service_selector(raw: Raw) -> Selector | None:
    """An oversized one selects nothing: no default constraint is derived from it."""
    try:
        return _service_selector_of(raw)
    except Oversized:
        return None


def decode_service(raw: bytes | Raw) -> Service:
    """Decode one Service or ReplicationController. Raises ``msgspec.DecodeError``."""
    found = _SERVICE_DECODER.decode(raw)
    meta = found.metadata
    return Service(
        namespace=sys.intern(meta.namespace or "default"),
        name=required(meta.name, "metadata.name"),
        uid=meta.uid or "",
        selector=None if found.spec is None else _service_selector(found.spec.selector),
    )


class _NamespaceObject(Struct):
    metadata: MetadataObject


_NAMESPACE_DECODER: Final = Decoder[_NamespaceObject](_NamespaceObject)


def decode_namespace(raw: bytes | Raw) -> Namespace:
    """Decode one Namespace. Raises ``msgspec.DecodeError``."""
    meta = _NAMESPACE_DECODER.decode(raw).metadata
    return Namespace(
        name=sys.intern(required(meta.name, "metadata.name")),
        uid=meta.uid or "",
        resource_version=meta.resource_version or "",
        labels=labels_or_none(meta.labels),
    )
