"""Keeps a pod from nodes where another one has the same disk, and a claim of a single pod to that one."""

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

STEPS_AT_ONCE: Final = 20_000
"""Disks that one evaluation looks at before others have their turn: some 10 ms."""

_STEPS_OF_A_PIECE: Final = 2_000

_MOST_REMEMBERED: Final = 1 << 16
_FEWEST: Final = 8
"""Places of disks of pods, and volumes that were looked at for them, that are remembered; the last pods in any case."""

_DISK: Final = unschedulable(REASON_DISK).by(NAME)
_IN_USE: Final = unschedulable(REASON_IN_USE).by(NAME)
_UNREAD: Final = unresolvable(REASON_LONG_VOLUMES).by(NAME)


class VolumeRestrictionsArgs(PluginArgs):
    """Takes no arguments."""


class _Conflicts(Struct):
    """What PreFilter leaves: claims that a single pod may use, and how often others use them."""

    claims: frozenset[str]
    uses: int

    def clone(self) -> _Conflicts:
        return replace(self)


class _TakesLong(Exception):  # no error: it is to be gone on with after others had their turn
    """This evaluation has looked at many volumes already."""


class _NoClaim(Exception):  # no error: no node will do
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.status = unresolvable(claim_not_found(name))


class _Ours:
    """A pod's own disks, and whether pods with other volumes have one of them. Pods of a workload share their volumes.

    It is remembered from one evaluation to the next: the volumes of a pod never change.
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
        """Number of places of its disks, and of volumes that were looked at."""
        return self._places + len(self._known)

    def clone(self) -> _Ours:
        return self

    def conflict(self, node: NodeInfo) -> bool:
        """Whether a pod on the node has one of the disks. Raises ``_TakesLong``."""
        return any(self._conflict(it.volumes) for it in node.mounts.values())

    def _conflict(self, volumes: Sequence[PodVolume]) -> bool:
        known = self._known.get(id(volumes))
        if known is None:
            if self.spent > STEPS_AT_ONCE:
                raise _TakesLong
            self.spent += 1 + _places(volumes)
            known = self._known[id(volumes)] = volumes, self._disks.conflict(volumes)
        return known[1]

    def look_at(self, nodes: Iterable[NodeInfo]) -> Iterator[None]:
        """Look at the pods of all nodes."""
        self.spent = 0
        for node in nodes:
            for mounts in tuple(node.mounts.values()):
                self._conflict(mounts.volumes)
                if self.spent > _STEPS_OF_A_PIECE:
                    self.spent = 0
                    yield


_STATE: Final[StateKey[_Conflicts]] = StateKey("PreFilterVolumeRestrictions")
_OURS: Final[StateKey[_Ours]] = StateKey("VolumeRestrictions disks")


@final
class VolumeRestrictions(PreFilterPlugin, ClusterFilterPlugin):
    """Source of the rules: ``framework/plugins/volumerestrictions`` of Kubernetes 1.36, the same in 1.35."""

    def __init__(self, args: VolumeRestrictionsArgs, handle: Handle) -> None:
        self._objects = handle.objects
        self._nodes = handle.nodes
        self._remembered: dict[ObjectKey, _Ours] = {}

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        if VOLUMES in pod.spec.oversized:
            return _UNREAD, None
        volumes = pod.spec.volumes
        if not volumes:
            return SKIP, None
        try:
            claims = frozenset(it.name for it in self._claims(pod) if READ_WRITE_ONCE_POD in it.access_modes)
        except _NoClaim as missing:
            return missing.status, None
        uses = sum(self._is_used(pod.namespace, it) for it in claims)
        if not uses and not any(it.disks for it in volumes):
            return SKIP, None
        state.write(_STATE, _Conflicts(claims, uses))
        return SUCCESS, None

    def add_pod(self, state: CycleState, pod: Pod, added: Pod, node: NodeInfo) -> Status:
        return self._moved(state, added, 1)

    def remove_pod(self, state: CycleState, pod: Pod, removed: Pod, node: NodeInfo) -> Status:
        return self._moved(state, removed, -1)

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        disks = self._disks_of(state, pod)
        try:
            if disks and disks.conflict(node):
                return _DISK
        except _TakesLong:
            raise Unprepared(disks.look_at(tuple(self._nodes.list()))) from None
        return _IN_USE if _read(state).uses > 0 else SUCCESS

    def _disks_of(self, state: CycleState, pod: Pod) -> _Ours:
        """Put in order once for all nodes of a search."""
        try:
            return state.read(_OURS)
        except StateNotFound:
            pass
        disks = self._remembered.pop(pod.key, None)
        if disks is None or disks.volumes != pod.spec.volumes:
            disks = _Ours(pod.spec.volumes)
        disks.spent = 0
        if disks:
            self._remembered[pod.key] = disks
            while len(self._remembered) > _FEWEST and sum(map(len, self._remembered.values())) > _MOST_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        state.write(_OURS, disks)
        return disks

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        ours, theirs = pod.spec.volumes, other.spec.volumes
        if not ours or not theirs:
            return False
        shared = {it.claim for it in ours} & {it.claim for it in theirs} - {None}
        return (bool(shared) and pod.namespace == other.namespace) or Disks(ours).conflict(theirs)

    def filter_certain(self, state: CycleState, pod: Pod, node: NodeInfo, in_flight: Sequence[Pod]) -> Status:
        """More pods never help: what holds with all of them holds with some."""
        return self.filter(state, pod, node)

    def signature(self, pod: Pod) -> Hashable | None:
        volumes = pod.spec.volumes
        if not volumes and VOLUMES not in pod.spec.oversized:
            return NO_CLAIMS
        claims = tuple(self._known(pod.namespace, it.claim) for it in volumes if it.claim is not None)
        disks = tuple(disk for it in volumes for disk in it.disks)
        return (pod.spec.oversized, claims, disks, self._nodes.mounts_generation if disks else 0)

    def _known(self, namespace: str, name: str) -> Hashable:
        """What of a claim decides: whether there is one, a single pod may use it, another does."""
        claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)
        if claim is None:
            return name
        return READ_WRITE_ONCE_POD in claim.access_modes and self._is_used(namespace, name)

    def _claims(self, pod: Pod) -> Iterable[PersistentVolumeClaim]:
        """Those that the pod names. Raises ``_NoClaim``."""
        for volume in pod.spec.volumes:
            if volume.claim is not None:
                claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, pod.namespace, volume.claim)
                if claim is None:
                    raise _NoClaim(volume.claim)
                yield claim

    def _is_used(self, namespace: str, claim: str) -> bool:
        return self._nodes.uses_of_claim(namespace, claim) > 0

    def _moved(self, state: CycleState, other: Pod, times: int) -> Status:
        """As in kube-scheduler, claims count by their name alone here, whatever the namespace of the other pod."""
        conflicts = _read(state)
        conflicts.uses += times * sum(it.claim in conflicts.claims for it in other.spec.volumes)
        return SUCCESS


def _read(state: CycleState) -> _Conflicts:
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
