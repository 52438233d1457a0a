"""Types for the JSON of pods, and their conversion to ``Pod``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple, replace

from app.kube.claims import ClaimStatusObject
from app.kube.conditions import unschedulable
from app.kube.core_v1 import (
    DEFAULT_SCHEDULER_NAME,
    NODE_SELECTOR,
    NOT_WAITING,
    SPREAD,
    TOLERATIONS,
    Pod,
    PodSpec,
    T,
    TopologySpreadConstraint,
    Waiting,
)
from app.kube.decoding import Decoder, Int32, Int64
from app.kube.deletion_cost import deletion_cost_of
from app.kube.disruption import Lifecycle, Time, disruption_of
from app.kube.extras import (
    NODE_ONLY,
    NOTHING_OF_POD,
    ContainerObject,
    ContainerStatusObject,
    Extra,
    PodParts,
    RequirementsObject,
    VolumeObject,
    interned_parts,
    pod_parts,
)
from app.kube.labels import NO_LABELS, LabelSet
from app.kube.meta_v1 import MetadataObject, Oversized, annotations_of_pod, controller_of, labels_of, required, shared
from app.kube.node_affinity import ANY_NODE, NodeSelectorTerm, RequiredNodeAffinity
from app.kube.node_selectors import required_terms_of
from app.kube.selectors import selector_or_error
from app.kube.taints import Toleration
from app.kube.volumes import VOLUMES, VolumeSources, with_claims

MOST_CONSTRAINTS: Final = 16
"""Maximum number of topology spread constraints of one pod. If a pod has more, none is read."""

_FINISHED: Final = ("Succeeded", "Failed")
_CLAIM: Final = b'"persistentVolumeClaim"'
_EPHEMERAL: Final = b'"ephemeral"'


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
    """Pod in JSON, without the fields that only optional parts need."""

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
    """Pod in JSON with volumes, used if ``PENDING_VOLUMES`` is the only part of the spec that plugins declare."""

    spec: _WaitingPodSpecObject | None = None


class WholePodObject(PodObject):
    """Pod in JSON, with the fields of all optional parts."""

    spec: _WholePodSpecObject | None = None
    status: _WholePodStatusObject | None = None


class _TolerationObject(Struct, rename="camel"):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: Int64 | None = None

    def slim(self) -> Toleration:
        ends = self.toleration_seconds is not None
        return Toleration(self.key or "", self.operator or "", self.value or "", self.effect or "", ends)


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
        selector, invalid = selector_or_error(bytes(self.label_selector) or b"null")
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


_NODE_SELECTOR: Final[Decoder[dict[str, str | None] | None]] = Decoder(dict[str, str | None] | None)
_TOLERATIONS: Final[Decoder[list[_TolerationObject] | None]] = Decoder(list[_TolerationObject] | None)
_SPREAD: Final[Decoder[list[_SpreadObject] | None]] = Decoder(list[_SpreadObject] | None)
_VOLUMES: Final[Decoder[list[VolumeSources] | None]] = Decoder(list[VolumeSources] | None)
_GATES: Final[Decoder[list[Raw] | None]] = Decoder(list[Raw] | None)


def _parse_node_selector(data: bytes) -> tuple[tuple[str, str], ...]:
    labels = _NODE_SELECTOR.decode(data) or {}
    return tuple(sorted((key, value or "") for key, value in labels.items()))


def _parse_tolerations(data: bytes) -> tuple[Toleration, ...]:
    return tuple(it.slim() for it in _TOLERATIONS.decode(data) or ())


def _parse_spread(data: bytes) -> tuple[TopologySpreadConstraint, ...]:
    constraints = _SPREAD.decode(data) or ()
    if len(constraints) > MOST_CONSTRAINTS:
        raise Oversized(SPREAD)
    return tuple(it.slim() for it in constraints)


def _parse_gated(data: bytes) -> bool:
    return bool(_GATES.decode(data))


_node_selector_of: Final = shared(NODE_SELECTOR, _parse_node_selector)
_tolerations_of: Final = shared(TOLERATIONS, _parse_tolerations)
_spread_of: Final = shared(SPREAD, _parse_spread)
_gated_of: Final = shared("spec.schedulingGates", _parse_gated, largest=None)
_SPECS: WeakValueDictionary[tuple[object, ...], PodSpec] = WeakValueDictionary()
_NO_SPEC: Final = _PodSpecObject()
_NO_STATUS: Final = _PodStatusObject()
_PENDING_VOLUMES_ALONE: Final = frozenset((Extra.PENDING_VOLUMES,))
_NONE_PENDING: Final = PodParts(pending_volumes=())
_NO_WHOLE_SPEC: Final = _WholePodSpecObject()
_NO_WHOLE_STATUS: Final = _WholePodStatusObject()


def _interned(
    wire: _PodSpecObject,
    parts: PodParts,
    node_selector: tuple[tuple[str, str], ...],
    terms: tuple[NodeSelectorTerm, ...] | None,
    tolerations: tuple[Toleration, ...],
    spread: tuple[TopologySpreadConstraint, ...],
    oversized: tuple[str, ...],
) -> PodSpec:
    """Return the ``PodSpec`` with these field values. Equal specs share one object."""
    key = (
        sys.intern(wire.scheduler_name or DEFAULT_SCHEDULER_NAME),
        wire.priority or 0,
        _gated_of(wire.scheduling_gates),
        RequiredNodeAffinity(node_selector, terms) if node_selector or terms is not None else ANY_NODE,
        tolerations,
        spread,
        oversized,
        parts,
    )
    spec = _SPECS.get(key)
    if spec is None:
        spec = _SPECS[key] = PodSpec(*key)
    return spec


def _without_oversized(
    labels: Raw, wire: _PodSpecObject, parts: PodParts, oversized_parts: tuple[str, ...]
) -> tuple[LabelSet, PodSpec]:
    """Return labels and spec of a pod, with empty values for oversized fields, which ``PodSpec.oversized`` names.

    ``oversized_parts``: names of oversized fields that ``parts`` would need.
    """
    oversized: list[str] = []

    def read(parse: Callable[[Raw], T], raw: Raw, empty: T) -> T:
        try:
            return parse(raw)
        except Oversized as error:
            oversized.append(error.field)
            return empty

    nothing: tuple[Any, ...] = ()
    label_set = read(labels_of, labels, NO_LABELS)
    node_selector = read(_node_selector_of, wire.node_selector, nothing)
    terms = read(required_terms_of, wire.affinity, None)
    tolerations = read(_tolerations_of, wire.tolerations, nothing)
    spread = read(_spread_of, wire.topology_spread_constraints, nothing)
    return label_set, _interned(wire, parts, node_selector, terms, tolerations, spread, (*oversized, *oversized_parts))


def slim_pod(
    pod: PodObject,
    parts: PodParts = NOTHING_OF_POD,
    oversized: tuple[str, ...] = (),
    lifecycle: Lifecycle | None = None,
) -> Pod:
    """Convert the wire form of a pod to ``Pod``, with the optional ``parts`` and ``lifecycle``.

    ``oversized``: names of oversized fields that ``parts`` would need; these parts are empty. Raises
    ``msgspec.ValidationError``, which names the invalid field.
    """
    meta, spec, status = pod.metadata, pod.spec or _NO_SPEC, pod.status or _NO_STATUS
    try:
        labels = labels_of(meta.labels)
        slim = _interned(
            spec,
            parts,
            _node_selector_of(spec.node_selector),
            required_terms_of(spec.affinity),
            _tolerations_of(spec.tolerations),
            _spread_of(spec.topology_spread_constraints),
            oversized,
        )
    except Oversized:
        labels, slim = _without_oversized(meta.labels, spec, parts, oversized)
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
    since, message = ("", "") if spec.node_name else unschedulable(status.conditions)
    return Waiting(sys.intern(nominated or ""), since, message) if nominated or since or message else NOT_WAITING


def whole_pods(wanted: frozenset[Extra]) -> tuple[type[PodObject], Callable[[Any], Pod]]:
    """Return the type for the JSON of pods with the ``wanted`` parts, and the function that converts it to ``Pod``."""
    if Extra.DELETION_COST in wanted:
        return _with_cost(*whole_pods(wanted - {Extra.DELETION_COST}))
    parts = wanted - NODE_ONLY
    if not parts:
        return PodObject, slim_pod
    if parts == _PENDING_VOLUMES_ALONE:
        return WaitingPodObject, _slim_waiting

    def slim(pod: WholePodObject) -> Pod:
        spec, status = pod.spec or _NO_WHOLE_SPEC, pod.status or _NO_WHOLE_STATUS
        lifecycle = disruption_of(spec, status) if Extra.DISRUPTION in wanted else None
        return slim_pod(pod, *pod_parts(wanted, spec, status), lifecycle)

    return WholePodObject, slim


def _with_cost(kind: type[PodObject], slim: Callable[[Any], Pod]) -> tuple[type[PodObject], Callable[[Any], Pod]]:
    """Return ``kind``, and a function like ``slim`` that also reads the deletion cost."""

    def with_cost(pod: PodObject) -> Pod:
        slimmed, cost = slim(pod), deletion_cost_of(pod.metadata.annotations)
        lifecycle = slimmed.lifecycle
        return replace(slimmed, lifecycle=Lifecycle(cost) if lifecycle is None else replace(lifecycle, cost=cost))

    return kind, with_cost


def _slim_waiting(pod: WaitingPodObject) -> Pod:
    """Convert a pod for which ``PENDING_VOLUMES`` is the only optional part of the spec that plugins declare."""
    spec = pod.spec or _WaitingPodSpecObject()
    return slim_pod(pod, *_pending_parts(spec.node_name, spec.volumes))


def _pending_parts(node_name: str | None, volumes: Raw) -> tuple[PodParts, tuple[str, ...]]:
    """Like ``pod_parts``, but only for ``PENDING_VOLUMES``. The volumes of a pod with a node are not decoded."""
    data = b"" if node_name else bytes(volumes)
    if _CLAIM not in data and _EPHEMERAL not in data:
        return _NONE_PENDING, ()
    try:
        pending = with_claims(_VOLUMES.decode(data) or ())
    except Oversized as error:
        return _NONE_PENDING, (error.field,)
    except msgspec.DecodeError as error:
        raise msgspec.ValidationError(f"{VOLUMES}: {error}") from None
    return interned_parts(*astuple(PodParts(pending_volumes=pending))), ()
