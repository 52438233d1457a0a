"""Contract between Homeport and a plugin: import everything that a plugin needs from here.

The contract consists of the names in ``__all__`` here and in ``homeport.testing``, which ``docs/plugins/reference.md``
describes. The packages ``app`` and ``plugins`` are internal and can change at any time. Importing this module raises
``ImportError`` unless Python would import Homeport's own packages ``app`` and ``plugins``.
"""

from __future__ import annotations

from typing import Final

from homeport import require_own_packages

require_own_packages()

from app.framework.activation import Activate
from app.framework.counts import ALL_NODES, Counts, DomainCounts, Inclusion, PodTerms, Unprepared, all_prepared
from app.framework.cycle_state import CycleState, StateData, StateKey, StateNotFound
from app.framework.events import EventRecorder, EventType, Reference
from app.framework.explanation import DomainLimit, Explanation, Figure, HomeFacts, HomeKeeper, Table
from app.framework.filter_result import FilterResult
from app.framework.following import Following
from app.framework.handle import (
    Clock,
    DryRun,
    Handle,
    NodeVerdict,
    ProfileContext,
    Sleep,
    Timing,
    WaitingPod,
    WaitingPods,
    Why,
)
from app.framework.listers import ImageState, NodeLister
from app.framework.node_info import Candidates, NodeInfo
from app.framework.normalize import default_normalize
from app.framework.objects import Binder, NotServed, ObjectGone, Objects, Unreadable, WriteConflict, Writer
from app.framework.parts import Part
from app.framework.points import (
    MAX_NODE_SCORE,
    MIN_NODE_SCORE,
    BackgroundPlugin,
    BindPlugin,
    ClusterFilterPlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterAnswer,
    PostFilterPlugin,
    PostFilterResult,
    PostFilterSteps,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
    Victims,
)
from app.framework.resources import HostPorts, Mounts
from app.framework.score_classes import ScoreClasses, SparseClasses
from app.framework.spec import Needs, PluginArgs, PluginSpec, Reads, Writes
from app.framework.status import (
    SKIP,
    SUCCESS,
    TOO_LONG,
    Code,
    Status,
    error,
    success,
    unresolvable,
    unschedulable,
)
from app.kube.apps_v1 import Workload
from app.kube.claims import PodClaims
from app.kube.core_v1 import Node, Pod, PodSpec, TopologySpreadConstraint
from app.kube.disruption import Disruption
from app.kube.durations import Seconds
from app.kube.extras import HostPort, NotDecoded, PodImages
from app.kube.kinds import (
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VIRTUAL_MACHINE_INSTANCES,
    AnnotatedObject,
    Kind,
    KubeObject,
    owner_kind,
    partial_kind,
)
from app.kube.kubevirt_v1 import VirtualMachineInstance
from app.kube.labels import LabelSet
from app.kube.meta_v1 import ObjectKey, OwnerReference, PartialObject
from app.kube.node_affinity import PreferredNodeAffinity, RequiredNodeAffinity
from app.kube.node_state import NodeState
from app.kube.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from app.kube.pod_affinity import Newcomer, Peers, PodAffinity, PodAffinityTerm, peers_of
from app.kube.policy_v1 import PodDisruptionBudget
from app.kube.requests import PodResources, ResourceList
from app.kube.selectors import (
    EVERYTHING,
    InvalidSelector,
    Requirement,
    Selector,
    decode_selector,
    requirement,
    selector,
)
from app.kube.services import Namespace, Service
from app.kube.storage_v1 import StorageClass
from app.kube.taints import Taint, Tolerance, Toleration
from app.kube.volumes import PodVolume

CONTRACT_VERSION: Final = "1.0"
"""Version of this contract (``major.minor``). A plugin written for version 1.n runs with each version 1.m if m >= n."""

__all__ = [
    "ALL_NODES",
    "CONTRACT_VERSION",
    "EVERYTHING",
    "MAX_NODE_SCORE",
    "MIN_NODE_SCORE",
    "NAMESPACES",
    "NODES",
    "PERSISTENT_VOLUMES",
    "PERSISTENT_VOLUME_CLAIMS",
    "PODS",
    "POD_DISRUPTION_BUDGETS",
    "REPLICATION_CONTROLLERS",
    "REPLICA_SETS",
    "SERVICES",
    "SKIP",
    "STATEFUL_SETS",
    "STORAGE_CLASSES",
    "SUCCESS",
    "TOO_LONG",
    "VIRTUAL_MACHINE_INSTANCES",
    "Activate",
    "AnnotatedObject",
    "BackgroundPlugin",
    "BindPlugin",
    "Binder",
    "Candidates",
    "Clock",
    "ClusterFilterPlugin",
    "Code",
    "Counts",
    "CycleState",
    "Disruption",
    "DomainCounts",
    "DomainLimit",
    "DryRun",
    "EventRecorder",
    "EventType",
    "Explanation",
    "Figure",
    "FilterPlugin",
    "FilterResult",
    "Following",
    "Handle",
    "HomeFacts",
    "HomeKeeper",
    "HostPort",
    "HostPorts",
    "ImageState",
    "Inclusion",
    "InvalidSelector",
    "Kind",
    "KubeObject",
    "LabelSet",
    "Mounts",
    "Namespace",
    "Needs",
    "Newcomer",
    "Node",
    "NodeInfo",
    "NodeLister",
    "NodeState",
    "NodeVerdict",
    "NotDecoded",
    "NotServed",
    "ObjectGone",
    "ObjectKey",
    "Objects",
    "OwnerReference",
    "Part",
    "PartialObject",
    "Peers",
    "PermitPlugin",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Plugin",
    "PluginArgs",
    "PluginSpec",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodClaims",
    "PodDisruptionBudget",
    "PodImages",
    "PodResources",
    "PodSpec",
    "PodTerms",
    "PodVolume",
    "PostBindPlugin",
    "PostFilterAnswer",
    "PostFilterPlugin",
    "PostFilterResult",
    "PostFilterSteps",
    "PreBindPlugin",
    "PreEnqueuePlugin",
    "PreFilterPlugin",
    "PreScorePlugin",
    "PreferredNodeAffinity",
    "ProfileContext",
    "QueueSortPlugin",
    "Reads",
    "Reference",
    "RequiredNodeAffinity",
    "Requirement",
    "ReservePlugin",
    "ResourceList",
    "ScoreClasses",
    "ScorePlugin",
    "Seconds",
    "Selector",
    "Service",
    "Sleep",
    "SparseClasses",
    "StateData",
    "StateKey",
    "StateNotFound",
    "Status",
    "StorageClass",
    "Table",
    "Taint",
    "Timing",
    "Tolerance",
    "Toleration",
    "TopologySpreadConstraint",
    "Unprepared",
    "Unreadable",
    "Victims",
    "VirtualMachineInstance",
    "WaitingPod",
    "WaitingPods",
    "Why",
    "Workload",
    "WriteConflict",
    "Writer",
    "Writes",
    "all_prepared",
    "decode_selector",
    "default_normalize",
    "error",
    "owner_kind",
    "partial_kind",
    "peers_of",
    "requirement",
    "selector",
    "success",
    "unresolvable",
    "unschedulable",
]
