"""Keeps a pod from nodes where another one has the same disk, and a claim of a single pod to that one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, final

from msgspec import Struct
from msgspec.structs import replace

from app.framework.claims import NO_CLAIMS, claim_not_found
from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.interface import (
    ClusterFilterPlugin,
    Handle,
    PluginArgs,
    PluginSpec,
    PreFilterExtensions,
    PreFilterPlugin,
    Reads,
)
from app.framework.node_info import NodeInfo
from app.framework.parts import Part
from app.framework.status import SKIP, SUCCESS, TOO_LONG, Status, unresolvable, unschedulable
from app.kube.core_v1 import Pod
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, Kind
from app.kube.persistent_volumes import READ_WRITE_ONCE_POD, PersistentVolumeClaim
from app.kube.volumes import VOLUMES, Disks, PodVolume

NAME: Final = "VolumeRestrictions"

REASON_DISK: Final = "node(s) had no available disk"
REASON_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
REASON_LONG_VOLUMES: Final = TOO_LONG.format(VOLUMES)

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


class _NoClaim(Exception):  # no error: no node will do
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.status = unresolvable(claim_not_found(name))


class _Ours:
    """The pod's own disks, and which pods were found to have one of them: those of a workload have the same volumes."""

    __slots__ = ("_disks", "_known")

    def __init__(self, pod: Pod) -> None:
        self._disks = Disks(pod.spec.volumes)
        self._known: dict[int, tuple[Sequence[PodVolume], bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._disks)

    def clone(self) -> _Ours:
        return self

    def conflict(self, volumes: Sequence[PodVolume]) -> bool:
        known = self._known.get(id(volumes))
        if known is None:
            known = self._known[id(volumes)] = volumes, self._disks.conflict(volumes)
        return known[1]


_STATE: Final[StateKey[_Conflicts]] = StateKey("PreFilterVolumeRestrictions")
_OURS: Final[StateKey[_Ours]] = StateKey("VolumeRestrictions disks")


@final
class VolumeRestrictions(PreFilterPlugin, PreFilterExtensions, ClusterFilterPlugin):
    """Source of the rules: ``framework/plugins/volumerestrictions`` of Kubernetes 1.36, the same in 1.35."""

    def __init__(self, args: VolumeRestrictionsArgs, handle: Handle) -> None:
        self._objects = handle.objects
        self._nodes = handle.nodes

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
        disks = _disks_of(state, pod)
        if disks and any(disks.conflict(it.volumes) for it in node.mounts.values()):
            return _DISK
        return _IN_USE if _read(state).uses > 0 else SUCCESS

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
        found = _read(state)
        found.uses += times * sum(it.claim in found.claims for it in other.spec.volumes)
        return SUCCESS


def _read(state: CycleState) -> _Conflicts:
    try:
        return state.read(_STATE)
    except StateNotFound:
        raise StateNotFound(f'cannot read "{_STATE.name}" from cycleState') from None


def _disks_of(state: CycleState, pod: Pod) -> _Ours:
    """Put in order once for all nodes of a search."""
    try:
        return state.read(_OURS)
    except StateNotFound:
        found = _Ours(pod)
        state.write(_OURS, found)
        return found


def _kinds(_args: VolumeRestrictionsArgs) -> tuple[Kind[Any], ...]:
    return (PERSISTENT_VOLUME_CLAIMS,)


SPEC: Final = PluginSpec(
    NAME,
    VolumeRestrictionsArgs,
    VolumeRestrictions,
    kinds=_kinds,
    reads=Reads.CLUSTER,
    parts=(Part.NAMESPACE, Part.VOLUMES),
)
