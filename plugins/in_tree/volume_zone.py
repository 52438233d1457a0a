"""Rejects nodes outside the zones and regions in the labels of the pod's PersistentVolumes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, final

from msgspec import Struct

from app.framework.claims import (
    NO_CLAIMS,
    claim_not_found,
    claims_signature,
    class_not_found,
    volume_not_found,
)
from app.framework.cycle_state import CycleState, StateKey, StateNotFound
from app.framework.handle import Handle
from app.framework.node_info import NodeInfo
from app.framework.parts import Part
from app.framework.points import ClusterFilterPlugin, PreFilterPlugin
from app.framework.spec import Needs, PluginArgs, PluginSpec, Reads
from app.framework.status import SKIP, SUCCESS, TOO_LONG, Status, unresolvable
from app.kube.core_v1 import Pod
from app.kube.csi_migration import BETA_REGION, BETA_ZONE, BETWEEN_ZONES, REGION, ZONE
from app.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from app.kube.persistent_volumes import PersistentVolumeClaim
from app.kube.quoting import quoted
from app.kube.storage_v1 import WAIT_FOR_FIRST_CONSUMER
from app.kube.volumes import VOLUMES

NAME: Final = "VolumeZone"

REASON_OUTSIDE: Final = "node(s) had no available volume zone"
REASON_NO_CLAIM_NAME: Final = "PersistentVolumeClaim had no name"
REASON_NO_CLASS: Final = "PersistentVolumeClaim had no pv name and storageClass name"
REASON_UNBOUND: Final = "PersistentVolume had no name"
REASON_LONG_VOLUMES: Final = TOO_LONG.format(VOLUMES)

_OUTSIDE: Final = unresolvable(REASON_OUTSIDE).by(NAME)

_KEYS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_NEW_KEYS: Final[Mapping[str, str]] = {BETA_ZONE: ZONE, BETA_REGION: REGION}
"""Current key by deprecated key. A node without the deprecated label is matched by its current label."""


class VolumeZoneArgs(PluginArgs):
    """The plugin takes no arguments."""


class _Topology(Struct, frozen=True):
    """Requirement that the node label ``key`` has one of ``values``."""

    key: str
    values: frozenset[str]

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Return true if a node with these labels meets the requirement."""
        value = labels.get(self.key)
        if value is None:
            value = labels.get(_NEW_KEYS.get(self.key, self.key))
        return value in self.values


class _Topologies(Struct, frozen=True):
    """Requirements that a node must meet, as computed by PreFilter for Filter."""

    all: tuple[_Topology, ...]

    def clone(self) -> _Topologies:
        return self


class _Rejected(Exception):  # not an error: the pod is rejected
    """All nodes are rejected with ``status``, because of the pod's volumes or claims."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.status = unresolvable(reason)


_STATE: Final[StateKey[_Topologies]] = StateKey("PreFilterVolumeZone")


@final
class VolumeZone(PreFilterPlugin, ClusterFilterPlugin):
    """Compares the zone and region labels of a node with those of the pod's PersistentVolumes.

    Source of the rules: ``framework/plugins/volumezone`` of Kubernetes 1.36; 1.35 has the same rules. A node without
    any zone or region label passes.

    Verdicts do not depend on other pods. The plugin still declares ``Reads.CLUSTER`` to disable the cache of verdicts
    by node. That cache would not pay off, because pods rarely share claims.
    """

    def __init__(self, args: VolumeZoneArgs, handle: Handle) -> None:
        self._objects = handle.objects
        self._nodes = handle.nodes

    def pre_filter(self, state: CycleState, pod: Pod) -> tuple[Status, frozenset[str] | None]:
        try:
            topologies = self._topologies(pod)
        except _Rejected as rejected:
            return rejected.status, None
        if not topologies:
            return SKIP, None
        state.write(_STATE, _Topologies(topologies))
        return SUCCESS, None

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        try:
            topologies = state.read(_STATE).all
        except StateNotFound:
            try:
                topologies = self._topologies(pod)
            except _Rejected as rejected:
                return rejected.status
        labels = node.node.labels
        if any(key in labels for key in _KEYS) and not all(it.admits(labels) for it in topologies):
            return _OUTSIDE
        return SUCCESS

    def depends_on(self, pod: Pod, other: Pod) -> bool:
        return False

    def signature(self, pod: Pod) -> Hashable | None:
        claims = claims_signature(self._objects, pod)
        return NO_CLAIMS if claims is NO_CLAIMS else (claims, self._nodes.generation)

    def _topologies(self, pod: Pod) -> tuple[_Topology, ...]:
        """Return one requirement for each label key, with the values that all claims allow. Raises ``_Rejected``.

        Requirements are merged, so that the time to filter a node does not grow with the number of claims.
        """
        if VOLUMES in pod.spec.oversized:
            raise _Rejected(REASON_LONG_VOLUMES)
        names = dict.fromkeys(topology.claim for topology in pod.spec.volumes if topology.claim is not None)
        allowed: dict[str, frozenset[str]] = {}
        for name in names:
            for topology in self._of_claim(pod.namespace, name):
                allowed[topology.key] = allowed.get(topology.key, topology.values) & topology.values
        return tuple(_Topology(key, values) for key, values in allowed.items())

    def _of_claim(self, namespace: str, name: str) -> Iterator[_Topology]:
        """Yield the requirements in the labels of a claim's volume; none without a volume. Raises ``_Rejected``."""
        if not name:
            raise _Rejected(REASON_NO_CLAIM_NAME)
        claim = self._objects.get(PERSISTENT_VOLUME_CLAIMS, namespace, name)
        if claim is None:
            raise _Rejected(claim_not_found(name))
        if not claim.volume_name:
            self._require_later_binding(claim)
            return
        volume = self._objects.get(PERSISTENT_VOLUMES, "", claim.volume_name)
        if volume is None:
            raise _Rejected(volume_not_found(claim.volume_name))
        for key in _KEYS:
            values = [it.strip() for it in volume.labels.get(key, "").split(BETWEEN_ZONES)]
            if all(values):
                yield _Topology(key, frozenset(values))

    def _require_later_binding(self, claim: PersistentVolumeClaim) -> None:
        """Raise ``_Rejected`` unless the claim's StorageClass has binding mode WaitForFirstConsumer.

        With this mode, the volume is created or selected only after the pod's node is chosen, in the node's zone.
        """
        if not claim.class_name:
            raise _Rejected(REASON_NO_CLASS)
        storage_class = self._objects.get(STORAGE_CLASSES, "", claim.class_name)
        if storage_class is None:
            raise _Rejected(class_not_found(claim.class_name))
        if storage_class.binding_mode is None:
            raise _Rejected(f"VolumeBindingMode not set for StorageClass {quoted(claim.class_name)}")
        if storage_class.binding_mode != WAIT_FOR_FIRST_CONSUMER:
            raise _Rejected(REASON_UNBOUND)


def _needs(_args: VolumeZoneArgs) -> Needs:
    return Needs(kinds=(PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES))


SPEC: Final = PluginSpec(
    NAME, VolumeZoneArgs, VolumeZone, reads=Reads.CLUSTER, parts=(Part.NAMESPACE, Part.VOLUMES), needs=_needs
)
