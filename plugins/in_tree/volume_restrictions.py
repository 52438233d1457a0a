"""Rejects nodes where another pod uses a disk of the incoming pod, if one of the two uses it exclusively. If a
ReadWriteOncePod claim of the pod is in use, all nodes are rejected.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, final

from msgspec import Struct
from msgspec.structs import replace

from app.framework.claims import NO_CLAIMS, claim_not_found
from app.framework.counts import Unprepared
from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.parts import Part
from app.framework.points import ClusterFilterPlugin, PreFilterPlugin
from app.framework.spec import Needs, PluginArgs, PluginSpec, Reads
from app.framework.status import SKIP, SUCCESS, TOO_LONG, Status, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS
from app.kube.meta_v1 import ObjectKey
from app.kube.persistent_volumes import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from app.kube.volumes import VOLUMES, Disks, PodVolume

NAME: Final = "VolumeRestrictions"

REASON_DISK: Final = "node(s) had no available disk"
REASON_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
REASON_LONG_VOLUMES: Final = TOO_LONG.format(VOLUMES)

MAX_STEPS_PER_EVALUATION: Final = 20_000
"""Number of steps (about 10 ms) after which Filter raises ``Unprepared``, so that other requests can run.

Comparing the volumes of a pod takes one step, plus one for each disk and each location of a disk.
"""

_STEPS_BETWEEN_YIELDS: Final = 2_000
"""Number of steps between two yields of ``compare_all``, about 1 ms."""

_MAX_CACHED_STEPS: Final = 1 << 16
"""Maximum total size of the cached ``_PodDisks``, each measured by its ``len``. The oldest are dropped first."""

_MIN_CACHED_PODS: Final = 8
"""Number of most recently evaluated pods whose disks stay cached regardless of their size."""

_DISK: Final = unschedulable(REASON_DISK).by(NAME)
_IN_USE: Final = unschedulable(REASON_IN_USE).by(NAME)
_UNREAD: Final = unresolvable(REASON_LONG_VOLUMES).by(NAME)


class VolumeRestrictionsArgs(PluginArgs):
    """The plugin takes no arguments."""


class _ExclusiveClaims(Struct):
    """The pod's ReadWriteOncePod claims and their uses, as computed by PreFilter for Filter.

    ``claims``: names of these claims. ``uses``: number of these claims that pods on nodes use, plus the uses that a dry
    run adds, minus those that it removes. Filter rejects all nodes if ``uses`` is above 0.
    """

    claims: frozenset[str]
    uses: int

    def clone(self) -> _ExclusiveClaims:
        return replace(self)


class _StepLimitReached(Exception):
    """The evaluation has taken more than ``MAX_STEPS_PER_EVALUATION`` steps."""


class _MissingClaim(Exception):  # not an error: the pod is rejected
    """A claim that the pod names does not exist. ``status`` rejects all nodes."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.status = unresolvable(claim_not_found(name))


class _PodDisks:
    """Disks of a pod, with cached results of comparing them with the volumes of other pods.

    Pods of one workload share one ``volumes`` object, which never changes. So results are cached by the identity of the
    other pod's ``volumes``, and stay valid in later evaluations.
    """

    __slots__ = ("_disks", "_known", "_places", "spent", "volumes")

    def __init__(self, volumes: Sequence[PodVolume]) -> None:
        self.volumes = volumes
        self.spent = 0
        self._disks = Disks(volumes)
        self._places = _places(volumes)
        self._known: dict[int, tuple[Sequence[PodVolume], bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._disks)

    def __len__(self) -> int:
        """Return the size of the cached data: number of disks, of their locations and of cached results."""
        return self._places + len(self._known)

    def clone(self) -> _PodDisks:
        return self

    def conflicts_on(self, node: NodeInfo) -> bool:
        """Return true if a pod on the node uses one of these disks, and one of the two pods uses it exclusively.

        Raises ``_StepLimitReached``.
        """
        return any(self._conflict(it.volumes) for it in node.mounts.values())

    def _conflict(self, volumes: Sequence[PodVolume]) -> bool:
        known = self._known.get(id(volumes))
        if known is None:
            if self.spent > MAX_STEPS_PER_EVALUATION:
                raise _StepLimitReached
            self.spent += 1 + _places(volumes)
            known = self._known[id(volumes)] = volumes, self._disks.conflict(volumes)
        return known[1]

    def compare_all(self, nodes: Iterable[NodeInfo]) -> Iterator[None]:
        """Compare the disks with the volumes of all pods on the nodes; yield every ``_STEPS_BETWEEN_YIELDS`` steps."""
        self.spent = 0
        for node in nodes:
            for mounts in tuple(node.mounts.values()):
                self._conflict(mounts.volumes)
                if self.spent > _STEPS_BETWEEN_YIELDS:
                    self.spent = 0
                    yield


_STATE: Final[StateKey[_ExclusiveClaims]] = StateKey("PreFilterVolumeRestrictions")
_DISKS: Final[StateKey[_PodDisks]] = StateKey("VolumeRestrictions disks")


@final
class VolumeRestrictions(PreFilterPlugin, ClusterFilterPlugin):
    """Compares the pod's disks and ReadWriteOncePod claims with those of other pods.

    Source of the rules: ``framework/plugins/volumerestrictions`` of Kubernetes 1.36; 1.35 has the same rules.
    """

    def __init__(self, args: VolumeRestrictionsArgs, handle: Handle) -> None:
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._cached: dict[ObjectKey, _PodDisks] = {}

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        if VOLUMES in pod.spec.oversized:
            return _UNREAD, None
        volumes = pod.spec.volumes
        if not volumes:
            return SKIP, None
        try:
            claims = frozenset(it.name for it in self._claims(pod) if READ_WRITE_ONCE_POD in it.access_modes)
        except _MissingClaim as missing:
            return missing.status, None
        uses = sum(self._is_used(pod.namespace, it) for it in claims)
        if not uses and not any(it.disks for it in volumes):
            return SKIP, None
        state.write(_STATE, _ExclusiveClaims(claims, uses))
        return SUCCESS, None

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status:
        return self._shift(state, added, 1)

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeInfo) -> Status:
        return self._shift(state, removed, -1)

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        disks = self._disks_of(state, pod)
        try:
            if disks and disks.conflicts_on(node):
                return _DISK
        except _StepLimitReached:
            raise Unprepared(disks.compare_all(tuple(self._nodes.list()))) from None
        return _IN_USE if _read(state).uses > 0 else SUCCESS

    def _disks_of(self, state: CycleState, pod: Pod) -> _PodDisks:
        """Return the pod's disks from the cycle state or the cache. If neither has them, create them."""
        try:
            return state.read(_DISKS)
        except StateNotFound:
            pass
        disks = self._cached.pop(pod.key, None)
        if disks is None or disks.volumes != pod.spec.volumes:
            disks = _PodDisks(pod.spec.volumes)
        disks.spent = 0
        if disks:
            self._cached[pod.key] = disks
            while len(self._cached) > _MIN_CACHED_PODS and sum(map(len, self._cached.values())) > _MAX_CACHED_STEPS:
                del self._cached[next(iter(self._cached))]
        state.write(_DISKS, disks)
        return disks

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        ours, theirs = pod.spec.volumes, other.spec.volumes
        if not ours or not theirs:
            return False
        shared = {it.claim for it in ours} & {it.claim for it in theirs} - {None}
        return (bool(shared) and pod.namespace == other.namespace) or Disks(ours).conflict(theirs)

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        """Evaluate with all pods in flight, because a node that passes with them also passes without them."""
        return self.filter(state, pod, node)

    def signature(self, pod: Pod) -> Hashable | None:
        volumes = pod.spec.volumes
        if not volumes and VOLUMES not in pod.spec.oversized:
            return NO_CLAIMS
        claims = tuple(self._claim_key(pod.namespace, it.claim) for it in volumes if it.claim is not None)
        disks = tuple(disk for it in volumes for disk in it.disks)
        return (pod.spec.oversized, claims, disks, self._nodes.mounts_generation if disks else 0)

    def _claim_key(self, namespace: str, name: str) -> Hashable:
        """Return ``name`` if there is no such claim; otherwise true if the claim is ReadWriteOncePod and in use."""
        claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)
        if claim is None:
            return name
        return READ_WRITE_ONCE_POD in claim.access_modes and self._is_used(namespace, name)

    def _claims(self, pod: Pod) -> Iterable[PersistentVolumeClaim]:
        """Yield the claims that the pod names, not those of ephemeral volumes. Raises ``_MissingClaim``."""
        for volume in pod.spec.volumes:
            if volume.claim is not None:
                claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, pod.namespace, volume.claim)
                if claim is None:
                    raise _MissingClaim(volume.claim)
                yield claim

    def _is_used(self, namespace: str, claim: str) -> bool:
        return self._nodes.uses_of_claim(namespace, claim) > 0

    def _shift(self, state: CycleState, other: Pod, delta: int) -> Status:
        """Update ``uses`` for a pod that a dry run adds (``delta`` 1) or removes (-1).

        As in kube-scheduler, claims are compared by name only; the namespace of the other pod is ignored.
        """
        conflicts = _read(state)
        conflicts.uses += delta * sum(it.claim in conflicts.claims for it in other.spec.volumes)
        return SUCCESS


def _read(state: CycleState) -> _ExclusiveClaims:
    try:
        return state.read(_STATE)
    except StateNotFound:
        raise StateNotFound(f'cannot read "{_STATE.name}" from cycleState') from None


def _places(volumes: Iterable[PodVolume]) -> int:
    return sum(1 + len(disk.places) for it in volumes for disk in it.disks)


def _needs(_args: VolumeRestrictionsArgs) -> Needs:
    return Needs(kinds=(PERSISTENT_VOLUME_CLAIMS,))


SPEC: Final = PluginSpec(
    NAME,
    VolumeRestrictionsArgs,
    VolumeRestrictions,
    needs=_needs,
    reads=Reads.CLUSTER,
    parts=(Part.NAMESPACE, Part.VOLUMES),
)
