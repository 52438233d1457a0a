"""Pods and nodes, reduced to the fields that a decision reads.

Each kind has two forms. The wire form (``…Object``) has the structure of the JSON. The slim form is frozen, and shares
parts that are equal among the pods of a workload. 150,000 realistic pods take about 100 MB in slim form, and 3 GB as
dicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import astuple, replace

from app.kube.claims import PodClaims
from app.kube.deletion_cost import DeletionCost
from app.kube.disruption import Disruption, Lifecycle
from app.kube.extras import NOTHING_OF_POD, Extra, HostPort, NotDecoded, PodImages, PodParts
from app.kube.labels import LabelSet
from app.kube.meta_v1 import ObjectKey, OwnerReference
from app.kube.node_affinity import PreferredNodeAffinity, RequiredNodeAffinity
from app.kube.node_parts import NOTHING_OF_NODE, NodeParts
from app.kube.node_state import NodeState
from app.kube.pod_affinity import PodAffinity
from app.kube.requests import PodResources, ResourceList
from app.kube.selectors import Selector
from app.kube.taints import Taint, Toleration
from app.kube.volumes import PodVolume

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"
HONOR: Final = "Honor"
DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"

SPREAD: Final = "spec.topologySpreadConstraints"
NODE_SELECTOR: Final = "spec.nodeSelector"
TOLERATIONS: Final = "spec.tolerations"
LABELS: Final = "metadata.labels"
T = TypeVar("T")


class TopologySpreadConstraint(Struct, frozen=True, gc=False):
    """Entry of ``spec.topologySpreadConstraints``.

    ``selector`` is ``None`` if it is absent, null or invalid. An absent or null selector matches no pod. ``invalid`` is
    the parse error of an invalid selector, else empty; plugins return this error in their verdict.
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

    @property
    def is_hard(self) -> bool:
        """True if nodes that violate the constraint are rejected (DoNotSchedule)."""
        return self.when_unsatisfiable == DO_NOT_SCHEDULE

    @property
    def honours_affinity(self) -> bool:
        """True if the constraint counts only nodes that match the pod's node selector and required node affinity."""
        return self.node_affinity_policy in (None, HONOR)

    @property
    def honours_taints(self) -> bool:
        """True if the constraint counts only nodes whose taints the pod tolerates."""
        return self.node_taints_policy == HONOR


class PodSpec(Struct, frozen=True, eq=False, weakref=True):
    """Fields of ``spec`` that scheduling reads, except the node name. Pods with equal fields share one object.

    ``gated``: true if the pod has scheduling gates. ``affinity``: node selector and required node affinity.
    ``oversized``: names of the pod's fields, labels included, that exceed a limit and are therefore read as empty.
    ``parts``: the optional parts. Properties such as ``resources`` return a part, or raise ``NotDecoded`` if no plugin
    declares it.
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
        """Resource requests of the pod, and the resources that it uses on its node."""
        return _declared(self.parts.resources, Extra.RESOURCES)

    @property
    def ports(self) -> tuple[HostPort, ...]:
        """Host ports that the pod occupies on its node."""
        return _declared(self.parts.ports, Extra.PORTS)

    @property
    def images(self) -> PodImages:
        """Images of the pod's containers and image volumes."""
        return _declared(self.parts.images, Extra.IMAGES)

    @property
    def preferred_affinity(self) -> PreferredNodeAffinity:
        """Preferred node affinity of the pod."""
        return _declared(self.parts.preferred_affinity, Extra.PREFERRED_AFFINITY)

    @property
    def scheduling_gates(self) -> tuple[str, ...]:
        """Names of the pod's scheduling gates."""
        return _declared(self.parts.scheduling_gates, Extra.SCHEDULING_GATES)

    @property
    def features(self) -> frozenset[str]:
        """Features that a node must declare to run the pod."""
        return _declared(self.parts.features, Extra.FEATURES)

    @property
    def pod_affinity(self) -> PodAffinity:
        """Pod affinity and anti-affinity terms."""
        return _declared(self.parts.pod_affinity, Extra.POD_AFFINITY)

    @property
    def volumes(self) -> tuple[PodVolume, ...]:
        """Volumes of the pod that have a claim or name a disk."""
        return _declared(self.parts.volumes, Extra.VOLUMES)

    @property
    def claims(self) -> PodClaims:
        """Device requests of the pod."""
        return _declared(self.parts.claims, Extra.CLAIMS)

    @property
    def pending_volumes(self) -> tuple[PodVolume, ...]:
        """Volumes of the pod that have a claim, including generic ephemeral volumes. Empty once the pod is bound."""
        return _declared(self.parts.pending_volumes, Extra.PENDING_VOLUMES)


class Waiting(Struct, frozen=True, gc=False):
    """Scheduling fields of a pod's status, which are empty for most pods.

    ``unschedulable_since``: time (RFC 3339) since which the condition PodScheduled is False: the time of the first
    attempt that found no node. ``message``: message of that condition, at most 1,024 characters. Both are empty once
    the pod is bound, and while the condition's reason is SchedulingGated.
    """

    nominated_node_name: str = ""
    unschedulable_since: str = ""
    message: str = ""


NOT_WAITING: Final = Waiting()


class Pod(Struct, frozen=True, gc=False):
    """A pod of the snapshot or of a request. Unset strings are empty, except the namespace, which is then ``default``.

    ``annotations``: only those of Homeport's domain. ``node_name``: for an assumed pod, its intended node.
    ``terminating``: true if the pod has a deletionTimestamp. ``finished``: true in the phases Succeeded and Failed.
    ``created`` is a UTC time of fixed length, so its text sorts by time. ``lifecycle`` has optional parts; ``None`` if
    no plugin declares any. The properties ``disruption`` and ``deletion_cost`` return these parts, or raise
    ``NotDecoded``.
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
    lifecycle: Lifecycle | None = None

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
        """Return a copy of this pod that is nominated to ``node_name``, or not nominated if the name is empty."""
        return replace(self, waiting=replace(self.waiting, nominated_node_name=node_name))

    @property
    def disruption(self) -> Disruption:
        """Fields of the pod that preemption and evictions read. Raises ``NotDecoded`` if no plugin declares them."""
        return _declared(self.lifecycle if isinstance(self.lifecycle, Disruption) else None, Extra.DISRUPTION)

    @property
    def deletion_cost(self) -> DeletionCost:
        """Deletion cost: of equally ready pods, a ReplicaSet removes those with the lowest cost first.

        Raises ``NotDecoded`` if no plugin declares this part.
        """
        return _declared(None if self.lifecycle is None else self.lifecycle.cost, Extra.DELETION_COST)

    def with_deletion_cost(self, cost: DeletionCost) -> Pod:
        """Return a copy of this pod with a deletion cost; the pod itself if no plugin declares this part."""
        if self.lifecycle is None or self.lifecycle.cost is None:
            return self
        return replace(self, lifecycle=replace(self.lifecycle, cost=cost))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Node(Struct, frozen=True, gc=False):
    """A node. Reading an optional part that no plugin declares raises ``NotDecoded``."""

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
        """Resources that all pods of the node together can use."""
        return _declared(self.parts.allocatable, Extra.RESOURCES)

    @property
    def images(self) -> Mapping[str, int]:
        """Size in bytes of each image on the node, by each of its names."""
        return _declared(self.parts.images, Extra.IMAGES)

    @property
    def features(self) -> frozenset[str]:
        """Features that the node declares and that a pod can require."""
        return _declared(self.parts.features, Extra.FEATURES)

    @property
    def state(self) -> NodeState:
        """Readiness, pressure, system UUID and deletion state of the node."""
        return _declared(self.parts.state, Extra.NODE_STATE)

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations that plugins declare in ``Needs.node_annotations``.

        Reading a key that no plugin declares raises ``UndeclaredAnnotation``.
        """
        return self.parts.annotations


def is_same(node: Node, other: Node) -> bool:
    """Return whether two versions of a node differ at most in resourceVersion and in fields that are not decoded."""
    return node == other or replace(node, resource_version="") == replace(other, resource_version="")


def is_same_spec(spec: PodSpec, other: PodSpec) -> bool:
    """Return whether two specs have equal fields. (The operator ``==`` compares specs by identity.)"""
    return spec is other or _values(spec) == _values(other)


def _values(value: Any) -> Any:
    """Return the field values of a struct that ``==`` compares by identity; return any other value unchanged."""
    if isinstance(value, PodSpec | PodParts | PodResources):
        return tuple(_values(it) for it in astuple(value))
    return value


def _declared(part: T | None, extra: Extra) -> T:
    if part is None:
        raise NotDecoded(extra)
    return part
